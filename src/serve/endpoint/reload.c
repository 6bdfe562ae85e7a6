/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a reload.
 *
 *     begin ──> read on a job thread ──> put in place, done() ──> the old keys are former keys
 *                      └──refused: done()                             └──idle: freed on a job thread
 *
 * With 100,000 keys each of the two jobs takes a second; the loop only swaps a few pointers.  Former keys are
 * freed after the last request that began under them.  A reload requested during another one starts after
 * it. */
#include "serve/endpoint/reload.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/list.h"
#include "serve/access/access_keys.h"

#define SWEEP_NS NS_PER_S

struct former_keys {
    struct list node;
    struct access_keys *keys; /* NULL: freed */
    bool is_freeing;          /* a job thread frees keys */
};

struct reload {
    struct reload_opts opts;
    bool is_reading; /* a job thread owns all fields down to fault */
    bool is_wanted_again;
    const void *conf;
    const struct access_keys *in_place; /* the keys in use; only a reload replaces them */
    struct access_keys *keys;           /* NULL: none */
    struct http_tls_fresh *tls;         /* NULL: none */
    void *more;                         /* of read_more; NULL: none */
    struct fault fault;
    struct buf changes;  /* of reload_diff() */
    struct list formers; /* former_keys */
    struct ev_timer *sweep;
};

static void reload_read(void *arg)
{
    struct reload *reload = arg;
    struct reload_files files;
    int rc = 0;

    reload->conf = reload->opts.calls->read(reload->opts.arg);
    if (reload->conf == NULL) {
        fault_set(&reload->fault, E_FORMAT,
                  "the new configuration is refused, the old one stays; the log says why");
        return;
    }
    files = reload->opts.calls->files(reload->conf);
    if (files.api_keys[0] != '\0')
        rc = access_keys_load(files.api_keys, reload->in_place, &reload->fault, &reload->keys);
    else if (reload->in_place != NULL) /* the keys may be a listener's only protection */
        rc = fault_set(&reload->fault, E_AUTH, "http.api_keys cannot be taken away by a reload; restart");
    if (rc == 0)
        rc = https_read(&files.https, reload->opts.tls != NULL, &reload->fault, &reload->tls);
    if (rc == 0 && reload->opts.calls->read_more != NULL)
        rc = reload->opts.calls->read_more(reload->opts.arg, reload->conf, &reload->fault, &reload->more);
    if (rc < 0 && reload->fault.code == 0)
        fault_set(&reload->fault, rc, "%s", err_text(rc));
}

static void reload_drop_more(struct reload *reload)
{
    if (reload->more != NULL)
        reload->opts.calls->drop_more(reload->more);
    reload->more = NULL;
}

static void reload_end(struct reload *reload)
{
    access_keys_free(reload->keys); /* drops the keys that were read, because the whole reload is refused */
    http_tls_fresh_free(reload->tls);
    reload_drop_more(reload);
    reload->keys = NULL;
    reload->tls = NULL;
    reload->conf = NULL;
    reload->fault = (struct fault){0};
    reload->is_reading = false;
    if (reload->is_wanted_again)
        reload_begin(reload);
}

static void reload_report(struct reload *reload)
{
    if (!reload->is_wanted_again) /* otherwise the reload that follows calls done() */
        reload->opts.calls->done(reload->opts.arg, reload->fault.code != 0 ? &reload->fault : NULL);
}

/* ---- former keys ---- */

static void former_free(void *arg)
{
    struct former_keys *former = arg;

    access_keys_free(former->keys);
    former->keys = NULL;
}

static void former_on_freed(void *arg)
{
    struct former_keys *former = arg;

    list_remove(&former->node);
    free(former);
}

static void reload_on_sweep(void *arg)
{
    struct reload *reload = arg;
    bool has_more = false;

    list_for_each (node, &reload->formers) {
        struct former_keys *former = container_of(node, struct former_keys, node);

        if (!former->is_freeing && access_keys_are_idle(former->keys))
            former->is_freeing = ev_jobs_submit(reload->opts.jobs, reload->opts.loop, former_free,
                                                former_on_freed, former) == 0;
        has_more |= !former->is_freeing;
    }
    if (has_more)
        ev_timer_start(reload->sweep, SWEEP_NS);
}

/* ---- the loop's part ---- */

static void reload_apply(struct reload *reload, struct former_keys *former)
{
    if (reload->keys != NULL)
        former->keys = front_swap_keys(reload->opts.front, reload->keys);
    reload->keys = NULL;
    if (former->keys != NULL)
        list_push_back(&reload->formers, &former->node);
    else
        free(former);
    if (reload->tls != NULL)
        http_tls_take(reload->opts.tls, reload->tls);
    reload->tls = NULL;
    if (reload->more != NULL)
        reload->opts.calls->take_more(reload->opts.arg, reload->more);
    reload->more = NULL;
    reload_on_sweep(reload);
}

static void reload_on_read(void *arg)
{
    struct reload *reload = arg;
    struct former_keys *former = calloc(1, sizeof(*former));

    if (reload->conf != NULL)
        reload->opts.calls->take(reload->opts.arg, reload->conf);
    if (former == NULL)
        fault_set(&reload->fault, E_NOMEM, "out of memory");
    if (reload->fault.code == 0)
        reload_apply(reload, former);
    else
        free(former);
    reload_report(reload);
    reload_end(reload);
}

void reload_begin(struct reload *reload)
{
    reload->is_wanted_again = reload->is_reading;
    if (reload->is_wanted_again)
        return;
    reload->is_reading = true;
    reload->in_place = front_keys(reload->opts.front);
    if (ev_jobs_submit(reload->opts.jobs, reload->opts.loop, reload_read, reload_on_read, reload) < 0) {
        fault_set(&reload->fault, E_OVERLOADED, "too many large requests wait; try again");
        reload_report(reload);
        reload_end(reload);
    }
}

/* ---- the differences that a reload would make ---- */

static void reload_read_diff(void *arg)
{
    struct reload *reload = arg;
    int rc = reload->opts.calls->diff(reload->opts.arg, &reload->changes, &reload->fault);

    if (rc < 0 && reload->fault.code == 0)
        fault_set(&reload->fault, rc, "%s", err_text(rc));
}

static void reload_on_diff(void *arg)
{
    struct reload *reload = arg;

    reload->opts.calls->diffed(reload->opts.arg, reload->fault.code != 0 ? &reload->fault : NULL,
                               buf_view(&reload->changes));
    buf_fini(&reload->changes);
    reload_end(reload);
}

int reload_diff(struct reload *reload, struct fault *fault)
{
    if (reload->is_reading)
        return fault_set(fault, E_OVERLOADED, "a reload is under way; try again");
    if (ev_jobs_submit(reload->opts.jobs, reload->opts.loop, reload_read_diff, reload_on_diff, reload) < 0)
        return fault_set(fault, E_OVERLOADED, "too many large requests wait; try again");
    reload->is_reading = true;
    return 0;
}

int reload_new(const struct reload_opts *opts, struct reload **out)
{
    struct reload *reload = calloc(1, sizeof(*reload));

    if (reload == NULL || ev_timer_new(opts->loop, reload_on_sweep, reload, &reload->sweep) < 0) {
        free(reload);
        return E_NOMEM;
    }
    reload->opts = *opts;
    list_init(&reload->formers);
    *out = reload;
    return 0;
}

void reload_free(struct reload *reload)
{
    if (reload == NULL)
        return;
    ev_timer_free(reload->sweep);
    while (!list_is_empty(&reload->formers)) {
        struct former_keys *former = container_of(list_pop_front(&reload->formers), struct former_keys, node);

        access_keys_free(former->keys);
        free(former);
    }
    access_keys_free(reload->keys);
    http_tls_fresh_free(reload->tls);
    reload_drop_more(reload);
    buf_fini(&reload->changes);
    free(reload);
}
