/* SPDX-License-Identifier: Apache-2.0 */
/* Ten thousand streams through a front: the parts of bench_streams.
 *
 *     core B                          core A                        core B
 *     upstream (a process) ─tokens──> router, or nginx ─events──> client (this process)
 *          │ notes when each token of each stream left                 │ looks up when it left
 *          └──────────────────── a table shared by both ───────────────┘
 */
#ifndef TESTS_BENCH_STREAMS_H
#define TESTS_BENCH_STREAMS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define STREAMS_RING       16                   /* a stream's latest tokens of which the time is known */
#define STREAMS_DEAF       UINT64_C(1000000000) /* seeds from here on belong to clients that never read */
#define STREAMS_DEAF_BURST 64 /* tokens that such a stream gets for every one of the others */
#define STREAMS_LONG       UINT64_C(2000000000) /* and from here on to long prompts: one token at once */

struct stream_times {
    _Atomic uint64_t sent_ns[STREAMS_RING]; /* of token k at k % STREAMS_RING */
};

struct shared {
    _Atomic uint64_t late_ns;         /* the most that a turn began too late */
    _Atomic uint64_t long_arrived_ns; /* when the last long prompt came */
    _Atomic uint64_t long_left_ns;    /* and its token went */
    _Atomic uint64_t began_ns; /* when the measurement began: workers tell their blocks then; 0: not yet */
    struct stream_times streams[];
};

struct upstream_opts {
    struct shared *shared;
    uint64_t n_streams;
    double rate_per_s;
    uint32_t n_workers; /* groups whose tokens leave together */
    uint32_t n_blocks;  /* that they have together, told in the middle of the measurement */
    /* Workers of a router: */
    const char *router; /* its link.listen; NULL: be an HTTP server instead, for a proxy */
    const char *cluster_key;
    const char *model; /* a GGUF file, for its vocabulary */
    /* HTTP: */
    uint16_t port;
};

/* In a process of their own, until they are killed. */
int upstream_workers(const struct upstream_opts *opts);
int upstream_http(const struct upstream_opts *opts);

struct load_opts {
    struct shared *shared;
    uint16_t port;
    const char *model;
    uint32_t n_streams;
    uint32_t n_slow;    /* connections that send a head one byte at a time and never end it */
    uint32_t n_deaf;    /* streams that are never read */
    uint32_t n_prompts; /* long ones, after the measurement */
    bool is_remote;     /* streams come from behind a network device (remote.c) */
    uint64_t measure_ns;
    const char *source; /* the project's folder: its sources are the long prompts */
    pid_t front;        /* whose memory and CPU time are looked at */
    unsigned cpu;       /* the core of upstream and client */
};

struct load_result {
    uint32_t n_streams;
    uint64_t n_events; /* while measuring */
    uint64_t n_lost;   /* streams that ended or failed before the end */
    double us[4];      /* added latency: p50, p99, p99.9, most */
    double rss_per_stream_bytes;
    double user, kernel; /* of one core, while measuring: the front in its own code, and in the kernel */
    double other_core;   /* how busy the core was that upstream and client share */
    double waited;       /* the share of that time in which other programs kept the front from running */
    double open_s;       /* until all streams ran */
    double long_ms[3];   /* 220 KB prompts: least, median, most: last byte sent until a worker has it */
    double upstream_ms;  /* the most that the upstream was late itself */
};

/* ---- the machine ---- */

struct machine_times {       /* since their beginnings */
    double user_s, kernel_s; /* of a process */
    double waited_s;         /* its main thread was ready to run and did not, because others ran */
    double core_s;           /* a core was busy */
};

struct machine_times machine_times(pid_t pid, unsigned cpu);
double machine_rss_bytes(pid_t pid);
/* From now on that core receives all packets over loopback.  -1 and a line on stderr: not allowed. */
int machine_steer(unsigned cpu);
/* TCP's congestion control of sockets made from now on.  -1, said on stderr: not allowed, or there is none.
 */
int machine_set_congestion(const char *name);
const char *machine_congestion(void); /* the one they have */
void machine_put_back(void);          /* as all of it was before; nothing when nothing was changed */

/* ---- the client ---- */

int load_dial(uint16_t port); /* a socket to the front, -1: none */
int load_run(const struct load_opts *opts, struct load_result *out);

#endif
