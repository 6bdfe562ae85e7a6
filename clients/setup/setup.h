/* SPDX-License-Identifier: Apache-2.0 */
/* baton-setup in three steps: look at the host, decide what each daemon gets, write it down.
 *
 *     setup_look()          setup_decide()              setup_render()         setup_write()
 *     host: CPUs, memory -> plan: files of settings ->  text of a file     ->  files, never overwritten
 *                           with a reason each
 *
 * Deciding and rendering are pure, so that tests can run them with any host's hardware. */
#ifndef CLIENTS_SETUP_SETUP_H
#define CLIENTS_SETUP_SETUP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/fault.h"

#define SETUP_NAME "baton-setup"

enum {
    SETUP_MAX_NODES = 16, /* NUMA nodes */
    SETUP_MAX_RAILS = 16,
    SETUP_MAX_LINES = 24, /* settings of one file */
    SETUP_MAX_FILES = SETUP_MAX_NODES + 1,
    SETUP_MAX_ROUTERS = 8,
    SETUP_CPUS_BYTES = 512
};

struct setup_node {              /* the usable CPUs of one NUMA node */
    unsigned id;                 /* the kernel's number */
    char cpus[SETUP_CPUS_BYTES]; /* "0-15,32-47" */
    unsigned n_cpus;
    uint64_t memory_bytes; /* 0: unknown */
};

struct setup_host {
    char name[64];
    char cpu_model[96];
    char kernels[64]; /* instruction sets that the kernels use, for people */
    unsigned n_cpus;  /* usable, at most the control group's quota */
    bool has_quota;   /* n_cpus is less than the affinity mask has */
    struct setup_node nodes[SETUP_MAX_NODES];
    unsigned n_nodes; /* 0: unknown */
    uint64_t memory_bytes, available_bytes;
    char rails[SETUP_MAX_RAILS][64]; /* RDMA ports that are up: "mlx5_0:1 (Ethernet, 100 Gb/sec)" */
    unsigned n_rails;
};

/* Reads /proc and /sys below root ("" for this host; tests give a folder). Fields that the system hides stay 0. */
void setup_look(const char *root, struct setup_host *out);
/* Writes a CPU list without its last CPUs: "0-3,8" kept to 4 is "0-3". Returns the number of CPUs kept, or E_FORMAT. */
int setup_cpus_keep(const char *cpus, unsigned n_kept, char out[SETUP_CPUS_BYTES]);

enum setup_role { SETUP_ALL, SETUP_ROUTER, SETUP_PREFILL, SETUP_DECODE };

struct setup_model { /* zeroed: none */
    char path[512];
    uint64_t file_bytes;
    uint64_t kv_token_bytes; /* f16, of all layers; 0: unknown */
    uint64_t context;        /* 0: unknown */
};

struct setup_wish { /* all text borrowed */
    enum setup_role role;
    const char *folder;  /* where the files go */
    const char *name;    /* of the first instance; NULL: "0" */
    const char *address; /* of this host for other hosts; NULL: loopback only */
    const char *http;    /* the router's http.listen; NULL: loopback */
    const char *api_keys;
    const char *routers[SETUP_MAX_ROUTERS]; /* host:port */
    unsigned n_routers;
    struct setup_model model;
    unsigned n_threads;                        /* of all workers together; 0: all CPUs */
    uint64_t kv_memory_bytes;                  /* of each worker; 0: decide */
    unsigned n_prefill;                        /* of the workers of one host; 0: decide */
    const char *key_path;                      /* set as link.cluster_key; NULL: the units give it */
    bool (*is_free)(void *arg, unsigned port); /* whether no process has the port */
    void *is_free_arg;
};

struct setup_line {
    const char *section, *key;
    char value[600];
    char why[320];
};

struct setup_file {
    char name[96];      /* "prefill-0.conf" */
    char conf[96];      /* the file that the daemon reads: the same, or "router.conf" for a drop-in of it */
    char unit[96];      /* "baton-prefill@0" */
    const char *daemon; /* "baton-prefill" */
    char title[160];
    struct setup_line lines[SETUP_MAX_LINES];
    unsigned n_lines;
};

struct setup_plan {
    struct setup_file files[SETUP_MAX_FILES];
    unsigned n_files;
    char split[400]; /* the reason for the number of workers of each role; "" for a router alone */
    unsigned next_port;
};

/* Pure except for is_free. E_INVAL: the wishes contradict each other; E_FULL: no memory is left for KV beside the
 * weights. The fault says what to change. */
int setup_decide(const struct setup_host *host, const struct setup_wish *wish, struct fault *fault,
                 struct setup_plan *out);
/* Appends the text of one file: each setting below its reason. */
int setup_render(const struct setup_file *file, struct buf *out);
/* Appends text as lines of at most width columns that begin with prefix. */
void setup_wrap(const char *text, const char *prefix, size_t width, struct buf *out);

#endif
