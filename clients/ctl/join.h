/* SPDX-License-Identifier: Apache-2.0 */
/* The two ends of a join: `batonctl token` waits for one host, `batonctl join` is that host. */
#ifndef CLIENTS_CTL_JOIN_H
#define CLIENTS_CTL_JOIN_H

#include <openssl/ssl.h>

#include "clients/ctl/join_text.h"
#include "clients/ctl/wire.h"

#define JOIN_PORT      8089
#define JOIN_PAD       (32u << 10)
#define JOIN_STEP_NS   (10 * UINT64_C(1000000000)) /* for one message */
#define JOIN_REACH_NS  (3 * UINT64_C(1000000000))  /* for one dialled address */
#define JOIN_MAX_PROBE 16                          /* addresses that one host may ask to be dialled */

/* ---- join_wait.c: a port that accepts one host with the token ---- */

struct join_waits {
    unsigned n_refused; /* connections without the token */
    char peer[64];      /* address of the accepted host */
};

/* Listens on a numeric "host:port". Returns a descriptor, or E_FORMAT, E_IO. */
int join_listen(const char *address, struct fault *fault);
/* Waits for the first connection that proves the token's key, and closes all others. Connections without it cost at most
 * 32 descriptors, five seconds each, and 64 handshakes a second. E_TIMEOUT. */
int join_wait(int listen_fd, SSL_CTX *ctx, uint64_t until_ns, struct join_waits *waits, struct wire *out);

/* ---- join_talk.c ---- */

int join_send(struct wire *wire, const struct join_message *message, struct fault *fault);
/* Receives a message of this kind with its pad. */
int join_receive(struct wire *wire, enum join_kind kind, struct fault *fault, struct join_message *out);
/* This host's name as messages may carry it. */
void join_host_name(char out[64]);

/* ---- reach.c: whether an address can be reached ---- */

struct reach {
    bool is_reached;
    unsigned mtu;   /* of the path; 0: unknown */
    char text[160]; /* "ok", or the reason in plain words */
};

/* Connects.  With a context it also does a handshake with the key, which only daemons of the cluster complete. */
void reach_dial(const char *address, SSL_CTX *ctx, struct reach *out);

/* ---- join_conf.c: addresses and models in this host's configuration files ---- */

struct join_conf {
    struct join_message probe;      /* its places: addresses where daemons of this host listen for others */
    int listen_fd[JOIN_MAX_PLACES]; /* held open for the probe; -1: a daemon listens there already */
    char models[JOIN_MAX_MODELS][512]; /* model.path */
    unsigned n_models;
};

/* Reads link.listen, kv.tcp_listen and model.path of *.conf in the folder; loopback and port 0 are left out. */
void join_conf_read(const char *folder, struct join_conf *out);
/* Listens on the places, so that the other side can dial them before any daemon runs. */
void join_conf_listen(struct join_conf *conf);
void join_conf_close(struct join_conf *conf);
/* Reads the settings of one file's text. Pure. */
void join_conf_parse(struct bytes text, struct join_conf *out);

/* ---- check_view.c: a check's answers as text ---- */

struct check_view;

/* Reads the head of a check (GET /admin/check). E_FORMAT, E_NOMEM. */
int check_view_new(struct bytes head, struct check_view **out);
void check_view_free(struct check_view *view); /* accepts NULL */
unsigned check_view_rows(const struct check_view *view);
bool check_view_is_running(const struct check_view *view);
/* Reads the findings of one worker (GET /admin/check/ROW). E_FORMAT. */
int check_view_add(struct check_view *view, struct bytes row);
/* Adds a finding for different models with the same name, from a router's status. */
void check_view_models(struct check_view *view, const struct join_message *members);
/* Appends the table and the findings, and returns the number of findings. */
unsigned check_view_render(const struct check_view *view, struct buf *out);

/* ---- members.c: the cluster as a router's status shows it ---- */

/* Fills in places (the router as "router", workers by name, their KV ports as NAME with "kv." before it) and models. E_FORMAT. */
int members_parse(struct bytes status, struct join_message *out);

#endif
