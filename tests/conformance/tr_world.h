/* SPDX-License-Identifier: Apache-2.0 */
/* A small world for transport tests: workers with an arena and a node, their events, and bytes that encode
 * their origin.  TRANSPORT chooses the kind under test (see main of test_transport.c). */
#ifndef TESTS_TR_WORLD_H
#define TESTS_TR_WORLD_H

#include <pthread.h>
#include <sys/types.h>

#include "net/link/tls.h"
#include "transfer/transport/transport.h"

#define WORLD_MAX_EVENTS 32768 /* three of each of 4,096 tickets, and some */
#define WORLD_POISON     0xa5

struct kind_case {
    const char *name;
    enum tr_kind kind;
    bool is_encrypted;
};

extern const struct kind_case kind_cases[];
extern const unsigned n_kind_cases; /* those of sockets, over which a test can speak itself */
extern const struct kind_case rdma_cases[];
extern const struct verbs *const world_verbs; /* a fake device; NULL: built without libibverbs */
/* Number of rdma_cases: 0 without libibverbs.  BATON_TEST_RDMA=ADDRESS in the environment chooses the
 * system's own devices, at that address; is_alone then says that no other kind is to be tested. */
unsigned world_rdma_cases(bool *is_alone);
extern const struct kind_case *kind_now; /* the one being tested */
/* Runs a group of tests for each of these kinds, then frees the shared objects of the tests; main's last act.  Returns
 * how many failed. */
int world_run(const struct kind_case *kinds, unsigned n_kinds, int (*run_all)(void));

struct worker {
    struct tr_node *node;
    struct mem_region arena;
    char folder[40]; /* of its socket */
    struct tr_geometry geometry;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct tr_event events[WORLD_MAX_EVENTS];
    unsigned n_events;
};

struct worker_opts {
    struct tr_geometry geometry;
    uint64_t layout;        /* 0: one that all share */
    uint64_t io_timeout_ns; /* 0: 2 s */
    uint8_t key;            /* first byte of the key; 0: the usual */
    const char *tcp_listen; /* NULL: any port */
    unsigned tcp_connections;
    void (*adjust)(struct tr_opts *opts); /* NULL, or the last word before the node is made */
};

extern const uint64_t world_layout;
extern const uint8_t world_key[32];
struct tls_context *world_tls(void);

struct worker *worker_new(const struct worker_opts *opts);
void worker_stop(struct worker *worker); /* the node is gone, arena and events stay */
void worker_free(struct worker *worker);
void worker_clean_after(pid_t pid); /* removes the files of a killed process with workers */
const char *worker_address(const struct worker *worker); /* for kind_now */

/* Returns the first event of this kind and id.  False: none came within the time. */
bool worker_wait(struct worker *worker, enum tr_event_kind kind, uint64_t id, unsigned limit_ms,
                 struct tr_event *out);
/* Drops the events so far. */
void worker_forget(struct worker *worker);
unsigned worker_count(struct worker *worker, enum tr_event_kind kind, uint64_t id);
/* Waits until n_pieces of the ticket have been reported. */
bool worker_wait_pieces(struct worker *worker, uint64_t ticket, uint32_t n_pieces, unsigned limit_ms);

uint8_t *worker_piece(const struct worker *worker, uint32_t layer, uint32_t block);
void piece_fill(uint8_t *piece, size_t len_bytes, uint64_t seed);
bool piece_is(const uint8_t *piece, size_t len_bytes, uint64_t seed);
bool piece_is_poison(const uint8_t *piece, size_t len_bytes);
void worker_poison(struct worker *worker);

#endif
