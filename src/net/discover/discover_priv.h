/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the sources: their threads, the etcd client, and pure parsers of answers. */
#ifndef NET_DISCOVER_DISCOVER_PRIV_H
#define NET_DISCOVER_DISCOVER_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "net/discover/discover.h"

/* ---- a thread that another thread can stop (thread.c) ---- */

struct discover_thread {
    pthread_t thread;
    int stop_fd; /* an eventfd, readable once the thread must end; -1: no thread */
    _Atomic bool is_stopping;
    pthread_mutex_t lock;
    void *multi; /* under the lock: a CURLM; a stop wakes its poll too; NULL: none */
};

int discover_thread_start(struct discover_thread *thread, void *(*run)(void *), void *arg); /* E_NOMEM */
void discover_thread_stop(struct discover_thread *thread); /* waits for its end */
void discover_thread_set_multi(struct discover_thread *thread, void *multi);
bool discover_thread_wait(struct discover_thread *thread, uint64_t ns); /* false: the thread must end */
/* The pause after the n-th failure in a row: 1 s, doubling to 30 s. */
uint64_t discover_pause_ns(unsigned n_failures);

/* ---- sources ---- */

enum source_state { SOURCE_STARTING, SOURCE_UP, SOURCE_EMPTY, SOURCE_LOST };

struct source {
    struct discover *discover;
    struct discover_url url;
    char shown[DISCOVER_PATH_BYTES + 16]; /* the url without its password, for the log */
    struct discover_thread thread;
    enum source_state state;  /* used by the source's thread only */
    struct endpoints *latest; /* under the lock of discover; NULL: it has not answered yet */
};

struct discover_names { /* copies of opts */
    enum discover_role role;
    char fingerprint[80]; /* empty: any */
    char *ca, *certificate, *key;
};

int discover_names_open(struct discover_names *names,
                        const struct discover_tls *tls); /* copies the paths; E_NOMEM */
void discover_names_fini(struct discover_names *names);
const struct discover_names *discover_names(const struct source *source);
/* Takes list (malloc'ed) as the source's answer. NULL: the source failed, and why has the fault. Source's thread. */
void source_report(struct source *source, struct endpoints *list, const struct fault *why);

void *file_source_run(void *source);
void *dns_source_run(void *source);
void *etcd_source_run(void *source);

/* dns_reply.c: the least time to live, in seconds, among the answers of a DNS message; fallback if there are none or the
 * message is malformed. Pure. */
uint32_t dns_reply_ttl(struct bytes message, uint32_t fallback);

/* ---- etcd: the JSON gateway of its v3 API ---- */

struct etcd; /* etcd.c: a client of one thread */

int etcd_open(const struct discover_url *url, const struct discover_names *names,
              struct discover_thread *thread, struct etcd **out); /* E_NOMEM; url and names are borrowed */
void etcd_close(struct etcd *etcd);
struct etcd_post {
    const char *path;    /* "/v3/kv/range" */
    struct bytes body;   /* borrowed */
    uint64_t timeout_ns; /* for all hosts together */
};
/* Posts body to path at the hosts in turn until one answers, within timeout_ns altogether. answer is
 * valid until the next call. E_IO, E_AUTH, E_LIMIT, E_CANCELLED, with text. */
int etcd_call(struct etcd *etcd, const struct etcd_post *post, struct bytes *answer, struct fault *fault);
/* As etcd_call, for a streamed answer. on_line gets each line and returns true to end the call.  Returns 0 then,
 * and also after timeout_ns. */
int etcd_stream(struct etcd *etcd, const struct etcd_post *post,
                bool (*on_line)(void *arg, struct bytes line), void *arg, struct fault *fault);

/* etcd_json.c, pure. Bodies are appended to out. */
enum etcd_watch { ETCD_WATCH_QUIET, ETCD_WATCH_CHANGED, ETCD_WATCH_LOST };

void etcd_put_range(struct buf *out, const char *prefix,
                    uint64_t from_revision); /* 0: a range; else a watch from there */
void etcd_put_put(struct buf *out, const char *key, struct bytes value, int64_t lease);
void etcd_put_login(struct buf *out, const char *user, const char *password);
void etcd_put_entry(struct buf *out, const struct discover_entry *entry);
/* Reads the answer of a range. Takes only the entries that match names. E_FORMAT. */
int etcd_read_range(struct bytes text, const struct discover_names *names, struct endpoints *list,
                    uint64_t *revision_out);
enum etcd_watch etcd_read_watch(struct bytes line);
int etcd_read_number(struct bytes text, const char *name,
                     int64_t *out); /* a field, top level or in "result" */
int etcd_read_token(struct bytes text, char *out, size_t cap);
/* Reads all entries of the answer of a range. E_FORMAT. */
int etcd_read_members(struct bytes text, struct discover_members *out);
/* The message of an answer that is an error; "refused" if it has none. */
void etcd_read_error(struct bytes text, char *out, size_t cap);

#endif
