/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the settings that router and workers have in common: names, files, addresses.
 *
 * The check keeps nothing open and changes nothing.  Problems that show only at the start (a port in use,
 * too little memory) are left to the start.  All findings go to the config_check. */
#ifndef SERVE_SETUP_SETUP_H
#define SERVE_SETUP_SETUP_H

#include "base/config/config.h"
#include "net/link/addr.h"
#include "serve/setup/http_conf.h"
#include "serve/setup/link_access.h"

struct setup_common { /* borrowed from the snapshot; members are named as keys and sections */
    const char *node;
    const struct http_conf *http;
    const char *link_listen;
    struct link_conf link;
    const char *public_prefix;
};

void setup_check_common(struct config_check *check, const struct setup_common *common);

/* ---- addresses ---- */

enum { SETUP_MAX_LISTENS = 64 };

struct setup_listen {
    const char *key;
    size_t item; /* index in a list; else 0 */
    const char *text;
    struct addr addr;
};

struct setup_listens { /* zeroed: none */
    struct setup_listen all[SETUP_MAX_LISTENS];
    unsigned n;
};

/* Checks one address to listen on: it must be valid, and no earlier address may use the same. */
void setup_check_listen(struct config_check *check, struct setup_listens *listens, const char *key,
                        const char *text);
/* Checks the addresses of setup_common; the daemon adds its own further ones. */
void setup_check_listens(struct config_check *check, const struct setup_common *common,
                         struct setup_listens *listens);
/* Checks a list of host:port to dial and of sources (net/discover/url.h): each host has a port, none appears twice,
 * and there are at most max. */
void setup_check_dials(struct config_check *check, const char *key, const struct config_list *list,
                       size_t max);
/* Parses one such address; a NULL fault: the caller wants no message. */
int setup_dial_parse(const char *text, struct fault *fault, struct addr *out);

struct setup_discovery { /* borrowed from the snapshot; registers is link.register */
    const char *registers, *advertise, *link_listen;
    const char *ca, *certificate, *key;
};

void setup_check_discovery(struct config_check *check, const struct setup_discovery *discovery);

/* ---- files and sizes ---- */

/* Checks that this process may create files in a folder: path itself, or with is_parent path's folder. */
int setup_folder(const char *path, bool is_parent, struct fault *fault);
/* Reports a size that exceeds the memory and swap of the machine, or of the container or service. */
void setup_check_memory(struct config_check *check, const char *key, uint64_t n_bytes);

/* files.c, for setup.c */
void setup_check_files(struct config_check *check, const struct setup_common *common);

#endif
