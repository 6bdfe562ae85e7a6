/* SPDX-License-Identifier: Apache-2.0 */
/*    no watcher --watch--> ASKED --sent--> RESTING --1 s--> ASKED ...      the last watcher leaves: no watcher */
#include "serve/endpoint/admin_events_priv.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/list.h"
#include "net/http/response.h"
#include "net/http/server.h"
#include "net/http/sse.h"

#define PERIOD_NS     NS_PER_S
#define MOST_WATCHERS 32

struct admin_watcher {
    struct list node;
    struct http_exchange *exchange;
    bool is_paused;
};

struct admin_events {
    struct list watchers;
    unsigned n;
    struct ev_timer *period;
    bool is_asked;
    ev_call ask;
    void *arg;
};

static void events_on_period(void *arg)
{
    struct admin_events *events = arg;

    if (events->n == 0 || events->is_asked)
        return;
    events->is_asked = true;
    events->ask(events->arg);
}

int admin_events_new(struct ev_loop *loop, ev_call ask, void *arg, struct admin_events **out)
{
    struct admin_events *events = calloc(1, sizeof(*events));

    if (events == NULL || ev_timer_new(loop, events_on_period, events, &events->period) < 0) {
        free(events);
        return E_NOMEM;
    }
    list_init(&events->watchers);
    events->ask = ask;
    events->arg = arg;
    *out = events;
    return 0;
}

void admin_events_free(struct admin_events *events)
{
    if (events == NULL)
        return;
    while (!list_is_empty(&events->watchers))
        free(container_of(list_pop_front(&events->watchers), struct admin_watcher, node));
    ev_timer_free(events->period);
    free(events);
}

int admin_events_watch(struct admin_events *events, struct http_exchange *exchange)
{
    struct admin_watcher *watcher = events->n < MOST_WATCHERS ? calloc(1, sizeof(*watcher)) : NULL;
    struct http_fields fields = {0};

    if (watcher == NULL)
        return events->n < MOST_WATCHERS ? E_NOMEM : E_LIMIT;
    watcher->exchange = exchange;
    list_push_back(&events->watchers, &watcher->node);
    events->n++;
    (void)http_fields_add_str(&fields, "content-type", "text/event-stream");
    (void)http_fields_add_str(&fields, "cache-control", "no-store");
    (void)http_reply_begin(exchange, 200, &fields); /* a failure ends in admin_events_drop() */
    http_fields_fini(&fields);
    ev_timer_start(events->period, 0);
    return 0;
}

static struct admin_watcher *watcher_of(struct admin_events *events, const struct http_exchange *exchange)
{
    list_for_each (node, &events->watchers) {
        struct admin_watcher *watcher = container_of(node, struct admin_watcher, node);

        if (watcher->exchange == exchange)
            return watcher;
    }
    return NULL;
}

bool admin_events_drop(struct admin_events *events, const struct http_exchange *exchange)
{
    struct admin_watcher *watcher = watcher_of(events, exchange);

    if (watcher == NULL)
        return false;
    list_remove(&watcher->node);
    free(watcher);
    events->n--;
    return true;
}

void admin_events_end(struct admin_events *events)
{
    /* an end may begin the connection's next request: skip watchers that join now */
    for (unsigned n = events->n; n > 0 && !list_is_empty(&events->watchers); n--) {
        struct admin_watcher *watcher =
            container_of(list_pop_front(&events->watchers), struct admin_watcher, node);
        struct http_exchange *exchange = watcher->exchange;

        free(watcher);
        events->n--;
        http_reply_end(exchange);
    }
}

void admin_events_pause(struct admin_events *events, const struct http_exchange *exchange, bool is_paused)
{
    struct admin_watcher *watcher = watcher_of(events, exchange);

    if (watcher != NULL)
        watcher->is_paused = is_paused;
}

void admin_events_send(struct admin_events *events, const char *name, struct bytes json)
{
    struct buf text = {0};

    while (json.len_bytes > 0 && json.data[json.len_bytes - 1] == '\n')
        json.len_bytes--;
    if (sse_put_event(&text, name, json) == 0)
        list_for_each (node, &events->watchers) {
            struct admin_watcher *watcher = container_of(node, struct admin_watcher, node);

            if (!watcher->is_paused) /* a failure is reported by an abort */
                watcher->is_paused = http_reply_write(watcher->exchange, buf_view(&text)) == 1;
        }
    buf_fini(&text);
}

void admin_events_sent(struct admin_events *events)
{
    events->is_asked = false;
    if (events->n > 0)
        ev_timer_start(events->period, PERIOD_NS);
}
