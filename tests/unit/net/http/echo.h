/* SPDX-License-Identifier: Apache-2.0 */
/* A server for tests of the server: a few paths with different answers, and counters of events. */
#ifndef TESTS_HTTP_ECHO_H
#define TESTS_HTTP_ECHO_H

#include <stdatomic.h>

#include "net/http/server.h"
#include "raw.h"

/* Paths: /echo answers with the body; /late the same, 20 ms later; /two begins at
 * once and ends 1 ms later; /hang never; /stream ten pieces; /flood as
 * fast as the client reads; /burst streams BURST_BYTES in one piece; /no refuses from the head. */
#define BURST_BYTES ((size_t)4 << 20)
struct rig {
    struct raw_loop raw;
    struct http_server *server;
    uint16_t port;
    atomic_int n_requests;
    atomic_int n_aborts;
    atomic_int abort_why;
    atomic_int n_pauses;
    atomic_int n_resumes;
    atomic_int burst_rc;
    atomic_int n_drained;
    atomic_ullong flooded_bytes;
    struct ev_timer *late;
    struct http_exchange *waiting; /* one at a time is enough here */
    struct http_exchange *flooding;
};

void rig_begin(struct rig *rig, const struct http_limits *limits);
typedef void (*rig_change)(struct http_server_opts *opts, void *arg);
/* change (may be NULL) may edit the options before their use; opts->loop is set. */
void rig_begin_with(struct rig *rig, const struct http_limits *limits, rig_change change, void *arg);
void rig_end(struct rig *rig);
/* Waits up to two seconds for a counter. */
bool reaches(atomic_int *counter, int value);
bool conns_become(struct rig *rig, uint32_t want);

#endif
