/* SPDX-License-Identifier: Apache-2.0 */
/* The admin endpoint, the same for router and workers: a small HTTP server of its own for batonctl.
 *
 *   GET /admin/status (JSON)   GET /metrics   POST /admin/drain   POST /admin/undrain   POST /admin/reload
 *   GET /admin/events (status and placements as server-sent events, once a second)
 *   GET /console (has_console; serve/endpoint/console_priv.h)   GET /admin/placements (router)
 *   POST /admin/check, GET /admin/check and /admin/check/ROW (router)
 *   GET /admin/request/ID (router)   POST /admin/drain-move (workers)   POST /admin/role/ROLE/WORKER
 *
 * Every request, except those of /console, carries `authorization: Bearer <token>`.  The token is derived from the
 * cluster's key, so only users who can read that key can operate the daemons.  Access to the same host is not
 * enough.  A second token, derived for the purpose "metrics", reads /metrics only; give it to Prometheus.  Loop
 * thread only. */
#ifndef SERVE_ENDPOINT_ADMIN_H
#define SERVE_ENDPOINT_ADMIN_H

#include "base/fault.h"
#include "base/event/loop.h"
#include "base/metrics/metrics.h"

#define ADMIN_TOKEN_BYTES 65 /* 64 hex digits and NUL */

enum admin_verb {
    ADMIN_DRAIN,
    ADMIN_DRAIN_MOVE,
    ADMIN_UNDRAIN,
    ADMIN_RELOAD,
    ADMIN_RELOAD_DIFF,
    ADMIN_CHECK
};

struct admin_role {            /* an order to give a worker another role; borrowed from the request's path */
    struct bytes role, worker; /* worker: a node's name */
};

struct admin_calls {
    /* Appends one part of a JSON object.  Parts 0, 1, 2 ... come in different turns of the loop.  Returns 1 if more
     * parts follow. */
    int (*status)(void *arg, uint32_t part, struct buf *out);
    /* Returns 0 or an error, and the operator sees the fault's text.  Returns 1 if admin_acted() will report the
     * end. */
    int (*act)(void *arg, enum admin_verb verb, struct fault *fault);
    /* Orders the role change.  Returns as act does. */
    int (*set_role)(void *arg, const struct admin_role *wanted, struct fault *fault);
    /* Appends one JSON object about a request, by its id. E_NOT_FOUND. The call may be NULL. */
    int (*request)(void *arg, const char *request_id, struct buf *out);
    /* Appends one JSON object with the latest placements, a bounded number.  The call may be NULL. */
    int (*placements)(void *arg, struct buf *out);
    /* Appends one JSON object about the last network check: its head (row -1), or the findings of worker `row`,
     * from 0 on.  E_NOT_FOUND. The call may be NULL. */
    int (*check)(void *arg, int32_t row, struct buf *out);
};

struct admin;

#define ADMIN_MAX_TOKENS 2

struct admin_tokens { /* from admin_token(); "": none.  There are two of each while the cluster changes its
                       * key */
    char all[ADMIN_MAX_TOKENS][ADMIN_TOKEN_BYTES];     /* permit everything */
    char metrics[ADMIN_MAX_TOKENS][ADMIN_TOKEN_BYTES]; /* read the metrics */
};

struct admin_opts {
    struct ev_loop *loop;            /* borrowed */
    struct metrics *metrics;         /* borrowed */
    const struct admin_calls *calls; /* borrowed */
    void *calls_arg;
    const char *listen;                /* loopback address */
    const struct admin_tokens *tokens; /* copied */
    bool has_console;                  /* browsers may load /console without the token */
};

int admin_new(const struct admin_opts *opts, struct fault *fault, struct admin **out);
void admin_free(struct admin *admin); /* accepts NULL */

/* Requests need one of these tokens from now on; copied.  When a token is dropped, all event streams end. */
void admin_set_tokens(struct admin *admin, const struct admin_tokens *tokens);

/* Answers all requests whose act returned 1.
 * fault NULL: the act succeeded.  Does nothing if admin is NULL. */
void admin_acted(struct admin *admin, const struct fault *fault);
/* Answers all requests for ADMIN_RELOAD_DIFF, with JSON unless there is a fault. */
void admin_diffed(struct admin *admin, const struct fault *fault, struct bytes json);

/* Reads "/admin/role/ROLE/WORKER": a role in lower-case letters and a node's name, each of 1 to 63
 * characters.  Returns false if the path has another form. */
bool admin_role_read(struct bytes path, struct admin_role *out);

/* Reads "/admin/check" (-1) and "/admin/check/ROW"; -2: another path. */
int32_t admin_check_row(struct bytes path);

uint16_t admin_port(const struct admin *admin);

/* Makes the tokens from n (1 or 2) keys derived for the purpose "admin", and as many for "metrics". */
void admin_tokens_make(const uint8_t (*all)[32], const uint8_t (*metrics)[32], int n,
                       struct admin_tokens *out);
/* Writes a token's text from a 32-byte key derived for the purpose "admin" or "metrics". */
void admin_token(const uint8_t key[32], char out[ADMIN_TOKEN_BYTES]);

#endif
