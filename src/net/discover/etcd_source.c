/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses from etcd. The source reads all keys under the prefix, then watches from the next revision on. Any
 * event, a compaction or an error makes it read all keys again, so it cannot miss a change. It also reads them
 * every minute, because a watch over a dead connection looks like a quiet one. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "net/discover/discover_priv.h"

#define ETCD_CALL_NS  (10 * NS_PER_S)
#define ETCD_WATCH_NS (60 * NS_PER_S)
#define ETCD_SHORT_NS (1 * NS_PER_S)    /* a watch that ends sooner without an event does not work */
#define ETCD_QUIET_NS (100 * NS_PER_MS) /* events that come together are read together */

static void etcd_source_prefix(const struct source *source, char *out, size_t cap)
{
    snprintf(out, cap, "%s/%s/", source->url.path,
             discover_names(source)->role == DISCOVER_ROUTERS ? "routers" : "workers");
}

static int etcd_source_read(struct source *source, struct etcd *etcd, const char *prefix,
                            uint64_t *revision_out)
{
    struct endpoints *list = calloc(1, sizeof(*list));
    struct fault fault = {0};
    struct buf body = {0};
    struct bytes answer = {0};
    int rc;

    etcd_put_range(&body, prefix, 0);
    rc = list == NULL || body.is_bad
             ? fault_set(&fault, E_NOMEM, "out of memory")
             : etcd_call(etcd, &(struct etcd_post){"/v3/kv/range", buf_view(&body), ETCD_CALL_NS}, &answer,
                         &fault);
    if (rc == 0 && etcd_read_range(answer, discover_names(source), list, revision_out) < 0)
        rc = fault_set(&fault, E_FORMAT, "the answer is not that of etcd's v3 JSON gateway");
    if (rc < 0) {
        free(list);
        list = NULL;
    }
    source_report(source, list, &fault);
    buf_fini(&body);
    return rc;
}

static bool etcd_source_on_line(void *arg, struct bytes line)
{
    enum etcd_watch *what = arg;

    *what = etcd_read_watch(line);
    return *what != ETCD_WATCH_QUIET;
}

static int etcd_source_watch(struct etcd *etcd, const char *prefix, uint64_t from_revision)
{
    enum etcd_watch what = ETCD_WATCH_QUIET;
    uint64_t began_ns = clock_now_ns();
    struct buf body = {0};
    int rc;

    etcd_put_range(&body, prefix, from_revision);
    rc = body.is_bad ? E_NOMEM
                     : etcd_stream(etcd, &(struct etcd_post){"/v3/watch", buf_view(&body), ETCD_WATCH_NS},
                                   etcd_source_on_line, &what, NULL);
    buf_fini(&body);
    /* A compaction is no failure. A gateway that cannot watch is one: then read all keys at growing
     * intervals. */
    if (rc == 0 &&
        (what == ETCD_WATCH_LOST || (what == ETCD_WATCH_QUIET && clock_now_ns() - began_ns < ETCD_SHORT_NS)))
        rc = E_IO;
    return rc;
}

void *etcd_source_run(void *arg)
{
    struct source *source = arg;
    char prefix[DISCOVER_PATH_BYTES + 16];
    uint64_t revision = 0, pause_ns;
    unsigned n_failures = 0;
    struct etcd *etcd = NULL;

    etcd_source_prefix(source, prefix, sizeof(prefix));
    do {
        int rc = etcd != NULL ? 0 : etcd_open(&source->url, discover_names(source), &source->thread, &etcd);

        if (rc == 0)
            rc = etcd_source_read(source, etcd, prefix, &revision);
        if (rc == 0) /* a failed watch shows in the next read */
            rc = etcd_source_watch(etcd, prefix, revision + 1);
        n_failures = rc == 0 ? 0 : n_failures + 1;
        pause_ns = rc == 0 ? ETCD_QUIET_NS : discover_pause_ns(n_failures);
    } while (discover_thread_wait(&source->thread, pause_ns));
    etcd_close(etcd);
    return NULL;
}
