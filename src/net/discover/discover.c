/* SPDX-License-Identifier: Apache-2.0 */
/* Merges the lists of all sources and hands the merged list to the loop.
 *
 * The source's thread merges under the lock, and an eventfd announces the new list. The loop only takes it, which
 * costs a copy of pointers. */
#include "net/discover/discover.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "net/discover/discover_priv.h"

struct discover {
    struct discover_names names;
    void (*on_list)(void *arg, const struct endpoints *list);
    void *arg;
    struct ev_fd *watch;
    int event_fd;
    pthread_mutex_t lock;
    struct endpoints fixed;     /* the plain addresses among the items */
    struct endpoints *merged;   /* the latest list; the loop has it or will take it */
    struct endpoints *incoming; /* for the loop; NULL: it has the latest */
    size_t n_sources;
    struct source sources[];
};

const struct discover_names *discover_names(const struct source *source)
{
    return &source->discover->names;
}

/* ---- on a source's thread ---- */

static void source_log(struct source *source, enum source_state state, const struct endpoints *list,
                       const struct fault *why)
{
    if (state == source->state)
        return;
    source->state = state;
    if (state == SOURCE_UP)
        log_info("discovery_up", LOG_STR("source", source->shown), LOG_U64("addresses", list->n),
                 LOG_U64("refused", list->n_refused));
    else if (state == SOURCE_EMPTY)
        log_warn("discovery_empty", LOG_STR("source", source->shown),
                 LOG_STR("effect", "it names no address; the addresses known before are kept"));
    else
        log_warn("discovery_lost", LOG_STR("source", source->shown), LOG_STR("reason", why->text),
                 LOG_STR("effect", "the addresses known before are kept"));
}

/* Merges the lists of all sources.  NULL: no memory.  Call it under the lock. */
static struct endpoints *discover_merge(const struct discover *discover)
{
    struct endpoints *all = malloc(sizeof(*all));

    if (all == NULL)
        return NULL;
    *all = discover->fixed;
    for (size_t i = 0; i < discover->n_sources; i++)
        if (discover->sources[i].latest != NULL)
            endpoints_merge(all, discover->sources[i].latest);
    return all;
}

static void discover_offer(struct discover *discover)
{
    struct endpoints *all = discover_merge(discover);
    bool is_same = all != NULL && discover->merged != NULL && endpoints_equal(all, discover->merged);
    struct endpoints *copy = all != NULL && !is_same ? malloc(sizeof(*copy)) : NULL;

    if (copy == NULL) {
        free(all);
        return;
    }
    *copy = *all;
    free(discover->merged);
    free(discover->incoming);
    discover->merged = all;
    discover->incoming = copy;
    (void)eventfd_write(discover->event_fd, 1);
}

static int endpoint_compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

void source_report(struct source *source, struct endpoints *list, const struct fault *why)
{
    struct discover *discover = source->discover;

    if (atomic_load(&source->thread.is_stopping)) {
        free(list);
        return;
    }
    if (list == NULL || list->n == 0) {
        source_log(source, list == NULL ? SOURCE_LOST : SOURCE_EMPTY, list, why);
        free(list);
        return;
    }
    qsort(list->address, list->n, sizeof(list->address[0]), endpoint_compare); /* because the order of DNS
                                                                                * answers rotates */
    source_log(source, SOURCE_UP, list, NULL);
    pthread_mutex_lock(&discover->lock);
    free(source->latest);
    source->latest = list;
    discover_offer(discover);
    pthread_mutex_unlock(&discover->lock);
}

/* ---- on the loop ---- */

static void discover_take(void *arg, int fd, unsigned ready)
{
    struct discover *discover = arg;
    struct endpoints *list;
    eventfd_t n;

    (void)ready;
    (void)eventfd_read(fd, &n);
    pthread_mutex_lock(&discover->lock);
    list = discover->incoming;
    discover->incoming = NULL;
    pthread_mutex_unlock(&discover->lock);
    if (list != NULL)
        discover->on_list(discover->arg, list);
    free(list);
}

static size_t discover_count(const struct discover_opts *opts)
{
    size_t n = 0;

    for (size_t i = 0; i < opts->n_items; i++)
        n += discover_is_url(opts->items[i]);
    return n;
}

static int discover_read_items(struct discover *discover, const struct discover_opts *opts,
                               struct fault *fault)
{
    for (size_t i = 0; i < opts->n_items; i++) {
        struct source *source = &discover->sources[discover->n_sources];

        if (!discover_is_url(opts->items[i])) {
            endpoints_add(&discover->fixed, bytes_str(opts->items[i]));
            continue;
        }
        source->discover = discover;
        source->thread.stop_fd = -1;
        discover_url_show(opts->items[i], source->shown, sizeof(source->shown));
        if (discover_url_parse(opts->items[i], fault, &source->url) < 0)
            return E_FORMAT;
        discover->n_sources++;
    }
    return 0;
}

static int discover_start(struct discover *discover, const struct discover_opts *opts)
{
    static void *(*const runs[])(void *) = {[DISCOVER_FILE] = file_source_run,
                                            [DISCOVER_DNS] = dns_source_run,
                                            [DISCOVER_DNS_SRV] = dns_source_run,
                                            [DISCOVER_ETCD] = etcd_source_run};
    int rc = 0;

    discover->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (discover->event_fd < 0)
        return E_NOMEM;
    rc = ev_fd_new(opts->loop, discover->event_fd, discover_take, discover, &discover->watch);
    if (rc == 0)
        rc = discover_names_open(&discover->names, &opts->tls);
    for (size_t i = 0; i < discover->n_sources && rc == 0; i++)
        rc = discover_thread_start(&discover->sources[i].thread, runs[discover->sources[i].url.kind],
                                   &discover->sources[i]);
    return rc;
}

int discover_open(const struct discover_opts *opts, struct fault *fault, struct discover **out)
{
    size_t n_sources = discover_count(opts);
    struct discover *discover;
    int rc;

    *out = NULL;
    if (n_sources == 0)
        return 0;
    discover = calloc(1, sizeof(*discover) + n_sources * sizeof(struct source));
    if (discover == NULL || curl_global_init(CURL_GLOBAL_DEFAULT) != 0) {
        free(discover);
        return fault_set(fault, E_NOMEM, "out of memory");
    }
    pthread_mutex_init(&discover->lock, NULL);
    discover->event_fd = -1;
    discover->on_list = opts->on_list;
    discover->arg = opts->arg;
    discover->names.role = opts->role;
    if (opts->fingerprint != NULL)
        str_copy(discover->names.fingerprint, sizeof(discover->names.fingerprint), opts->fingerprint);
    rc = discover_read_items(discover, opts, fault);
    if (rc == 0 && (rc = discover_start(discover, opts)) < 0)
        fault_set(fault, rc, "cannot start a thread for link discovery: %s", err_text(rc));
    if (rc < 0)
        discover_close(discover);
    else
        *out = discover;
    return rc;
}

void discover_close(struct discover *discover)
{
    if (discover == NULL)
        return;
    for (size_t i = 0; i < discover->n_sources; i++) {
        discover_thread_stop(&discover->sources[i].thread);
        free(discover->sources[i].latest);
    }
    ev_fd_free(discover->watch);
    if (discover->event_fd >= 0)
        close(discover->event_fd);
    pthread_mutex_destroy(&discover->lock);
    free(discover->merged);
    free(discover->incoming);
    discover_names_fini(&discover->names);
    free(discover);
    curl_global_cleanup();
}
