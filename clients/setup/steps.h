/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of baton-setup that touch the system: ports, questions, files, units. */
#ifndef CLIENTS_SETUP_STEPS_H
#define CLIENTS_SETUP_STEPS_H

#include "clients/setup/setup.h"

/* ---- ports.c ---- */

struct setup_ports {
    const char *address;  /* of this host for other hosts; NULL: loopback only */
    uint64_t named[1024]; /* a bit for each port that these files name */
};

/* Reads the ports that the configuration files (.conf, .conf.d) of the folder name: their daemons may not run now. */
void setup_ports_init(struct setup_ports *ports, const char *folder, const char *address);
/* True if a daemon can listen on the port and no configuration file names it. */
bool setup_ports_is_free(void *arg, unsigned port);
/* Finds the address of this host from which packets to target ("host:port") leave. E_FORMAT, E_NOT_FOUND, E_IO. */
int setup_own_address(const char *target, struct fault *fault, char out[64]);

/* ---- ask.c ---- */

struct setup_answers { /* storage of the wishes that were typed */
    char role[16], model[512], router[256], address[64];
};

/* Asks on the terminal for the missing wishes. E_CLOSED: the input ended. */
int setup_ask(struct setup_wish *wish, struct setup_answers *answers);
/* Asks a question that wants y or n; an empty answer is no. */
bool setup_confirm(const char *question);

/* ---- write.c ---- */

/* Reads the model file's header. E_FORMAT and others of gguf_open(), with the fault. */
int setup_model_read(const char *path, struct fault *fault, struct setup_model *out);
/* The reason why the units' user cannot read the model file; false: it can. */
bool setup_model_is_hidden(const struct setup_model *model, char *why, size_t cap);
/* Makes sure that no file of the plan exists. If router.conf exists and sets nothing (as the package's does), the
 * plan's file becomes a drop-in of it. E_EXISTS. */
int setup_check_absent(const char *folder, struct setup_plan *plan, struct fault *fault);
/* Writes all files of the plan, or none. An existing file is E_EXISTS and stays as it is. E_IO. */
int setup_write(const char *folder, const struct setup_plan *plan, struct fault *fault);
/* Makes the key file unless it exists, and sets *made_out. For an existing file: errors of cluster_key_load(). */
int setup_key(const char *path, struct fault *fault, bool *made_out);
/* Runs each daemon's check of its file; messages go to stderr. key_path: passed by --set; NULL: none. E_INVAL: a
 * file did not pass; E_NOT_FOUND: the program is not installed. */
int setup_check(const char *folder, const struct setup_plan *plan, const char *key_path, struct fault *fault);
/* Enables and starts the units of the plan, the router first. E_PEER: systemctl failed. */
int setup_start(const struct setup_plan *plan, struct fault *fault);

#endif
