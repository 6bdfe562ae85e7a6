/* SPDX-License-Identifier: Apache-2.0 */
/* What the configurations of router and workers have in common, looked at as a whole: names, files,
 * addresses.
 *
 * Nothing is kept open and nothing is changed; what only the moment decides (a port that is taken, memory) is
 * left to the start.  Findings go to the config_check, all of them. */
#ifndef SERVE_SETUP_SETUP_H
#define SERVE_SETUP_SETUP_H

#include "base/config/config.h"
#include "net/link/addr.h"

struct setup_common { /* borrowed from the snapshot; the keys' names are those of the tables */
    const char *node;
    const struct config_list *http_listen, *cors_origin;
    const char *api_keys, *tls_certificate, *tls_key;
    int tls_min;
    const char *congestion_control;
    const char *admin, *link_listen;
    const char *cluster_key;
    const char *public_prefix;
};

void setup_check_common(struct config_check *check, const struct setup_common *common);

/* ---- addresses ---- */

enum { SETUP_MAX_LISTENS = 64 };

struct setup_listen {
    const char *key;
    size_t item; /* of a list; else 0 */
    const char *text;
    struct addr addr;
};

struct setup_listens { /* zeroed: none */
    struct setup_listen all[SETUP_MAX_LISTENS];
    unsigned n;
};

/* One address to listen on: refused when that cannot be, or when one before it takes the same. */
void setup_check_listen(struct config_check *check, struct setup_listens *listens, const char *key,
                        const char *text);
/* Those of setup_common; further ones of the daemon's own are added to them. */
void setup_check_listens(struct config_check *check, const struct setup_common *common,
                         struct setup_listens *listens);
/* A list of host:port to dial: each has a port, none stands there twice, max at most. */
void setup_check_dials(struct config_check *check, const char *key, const struct config_list *list,
                       size_t max);
/* One such address; NULL fault: nobody asks. */
int setup_dial_parse(const char *text, struct fault *fault, struct addr *out);

/* ---- files and sizes ---- */

/* A folder in which this process may make files: path's own (is_parent: path's folder). */
int setup_folder(const char *path, bool is_parent, struct fault *fault);
/* More bytes than the machine has memory and swap. */
void setup_check_memory(struct config_check *check, const char *key, uint64_t n_bytes);

/* files.c, for setup.c */
void setup_check_files(struct config_check *check, const struct setup_common *common);

#endif
