/* SPDX-License-Identifier: Apache-2.0 */
/* A reload: a job thread reads configuration, API keys and certificate, then the loop puts them in place.
 *
 * The reload is applied whole or not at all.  Its configuration is checked before anything changes.  Loop
 * thread only, except read. */
#ifndef SERVE_ENDPOINT_RELOAD_H
#define SERVE_ENDPOINT_RELOAD_H

#include "base/event/jobs.h"
#include "net/http/https.h"
#include "serve/endpoint/front.h"

struct reload;

struct reload_files {     /* borrowed from the configuration */
    const char *api_keys; /* "": none */
    struct https_conf https;
};

struct reload_calls {
    /* Reads and checks the configuration on a job thread.  NULL: it is refused, and the log has the reason.
     * The result stays valid until the call after the next one. */
    const void *(*read)(void *arg);
    struct reload_files (*files)(const void *conf); /* any thread */
    /* Reads further files of this configuration on a job thread; NULL: there are none.  The loop takes what was
     * read, or drops it when the reload is refused. */
    int (*read_more)(void *arg, const void *conf, struct fault *fault, void **out);
    void (*take_more)(void *arg, void *more);
    void (*drop_more)(void *more);
    void (*take)(void *arg, const void *conf);          /* the loop uses this configuration from now on */
    void (*done)(void *arg, const struct fault *fault); /* fault NULL: applied */
    /* Appends the changes that a reload would make, as JSON, on a job thread. Takes the answer on the
     * loop. */
    int (*diff)(void *arg, struct buf *out, struct fault *fault);
    void (*diffed)(void *arg, const struct fault *fault, struct bytes json);
};

struct reload_opts {
    struct ev_loop *loop; /* this and the following are borrowed */
    struct ev_jobs *jobs;
    struct front *front;
    struct http_tls *tls; /* NULL: cleartext */
    const struct reload_calls *calls;
    void *arg;
};

int reload_new(const struct reload_opts *opts, struct reload **out); /* E_NOMEM */
/* Call it after freeing the pool of job threads.  Accepts NULL. */
void reload_free(struct reload *reload);
/* Begins a reload; it ends with calls->done.  During a reload the call queues one more, and done is called
 * once, after the last. */
void reload_begin(struct reload *reload);
/* Reads the configuration and changes nothing; calls->diffed comes later.  E_OVERLOADED: a reload is under way. */
int reload_diff(struct reload *reload, struct fault *fault);

#endif
