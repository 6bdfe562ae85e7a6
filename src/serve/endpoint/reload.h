/* SPDX-License-Identifier: Apache-2.0 */
/* A reload: configuration, API keys and certificate, read on a job thread and put in place by the loop.
 *
 * All of it or nothing is taken, but for the configuration itself, whose checks have passed by then.  Loop
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
    /* Reads and checks the configuration on a job thread.  NULL: refused, and the log says why.  It stays valid
     * until the call after the next one. */
    const void *(*read)(void *arg);
    struct reload_files (*files)(const void *conf);     /* any thread */
    void (*take)(void *arg, const void *conf);          /* the loop uses this configuration from now on */
    void (*done)(void *arg, const struct fault *fault); /* fault NULL: applied */
    /* Appends what a reload would change, as JSON, on a job thread; and takes the answer on the loop. */
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
/* After the pool of job threads.  NULL is fine. */
void reload_free(struct reload *reload);
/* Begins a reload; calls->done comes later.  During one, another one follows it, and done comes once for both. */
void reload_begin(struct reload *reload);
/* Reads the configuration and changes nothing; calls->diffed comes later.  E_OVERLOADED: a reload is under way. */
int reload_diff(struct reload *reload, struct fault *fault);

#endif
