/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/responses/ID/input_items.
 *
 *     short items ──> rendered on the loop ──────────────────> sent
 *     long ones   ──> rendered on a job thread ──on the loop──> sent from where they are, or dropped: the client has gone
 *
 * The page holds a reference to the kept text, so the response may be deleted meanwhile. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/event/work.h"
#include "base/str.h"
#include "serve/endpoint/admit_priv.h"
#include "serve/endpoint/responses_priv.h"

#define DEFAULT_ITEMS  20
#define MAX_ITEMS      100
#define MAX_LOOP_BYTES ((size_t)128 << 10) /* of all items: the loop looks through them */

struct items_page {
    struct list node; /* front.pages */
    struct front *front;
    struct http_exchange *exchange; /* NULL: the client went away */
    struct kept_text *text;
    struct bytes items; /* in text */
    char id[IDS_BYTES], after[256];
    struct api_item_page page;
    struct fair_queue_job job;
    atomic_bool is_working; /* a job thread works on it */
    int rc;
    struct buf body;
};

static int items_parse_page(struct http_exchange *exchange, char after[256], struct api_item_page *page,
                            struct api_error *error)
{
    struct bytes query = http_exchange_query(exchange);
    uint64_t limit = DEFAULT_ITEMS;
    char text[16];

    *page = (struct api_item_page){0};
    if (http_query_get(query, "limit", text, sizeof(text)) &&
        (str_to_u64(bytes_str(text), &limit) < 0 || limit < 1 || limit > MAX_ITEMS))
        return api_fail(error, 400, "limit: Input should be between 1 and %d", MAX_ITEMS);
    page->limit = (uint32_t)limit;
    if (http_query_get(query, "order", text, sizeof(text))) {
        page->is_ascending = strcmp(text, "asc") == 0;
        if (!page->is_ascending && strcmp(text, "desc") != 0)
            return api_fail(error, 400, "order: Input should be 'asc' or 'desc'");
    }
    if (http_query_get(query, "after", after, 256))
        page->after = bytes_str(after);
    return 0;
}

static void items_free(void *arg)
{
    struct items_page *page = arg;

    list_remove(&page->node);
    kept_text_unref(page->text);
    remains_give_back(&(struct remains){.body = page->body}, page->front->opts.jobs, page->front->opts.loop);
    free(page);
}

static void items_work(void *arg)
{
    struct items_page *page = arg;

    page->rc = api_put_input_items(&page->body, page->id, page->items, &page->page);
    atomic_store(&page->is_working, false);
}

/* The key may have gone while the page was rendered. */
static int items_check(const struct items_page *page, struct auth_key *who, struct api_error *error)
{
    if (page->rc == E_NOT_FOUND)
        return api_fail(error, 400, "after: the response has no such item");
    if (page->rc < 0)
        return api_fail(error, 503, "out of memory");
    return admit_key(page->front, page->exchange, who, error);
}

static void items_done(void *arg)
{
    struct items_page *page = arg;
    struct auth_key who;
    struct api_error error;

    ev_work_name("items");
    if (page->exchange != NULL && items_check(page, &who, &error) == 0) {
        struct http_exchange *exchange = page->exchange;

        page->exchange = NULL;
        responses_reply_held(exchange, &who, &(struct http_held){buf_view(&page->body), items_free, page});
        return;
    }
    if (page->exchange != NULL)
        reply_error(page->exchange, &error, NULL, NULL);
    items_free(page);
}

static void items_begin(struct items_page *page, const struct auth_key *who)
{
    struct front *front = page->front;
    struct api_error error;

    atomic_store(&page->is_working, true);
    if (page->items.len_bytes <= MAX_LOOP_BYTES || front->fair_queue == NULL) {
        items_work(page);
        items_done(page);
        return;
    }
    page->job = (struct fair_queue_job){.size_bytes = page->items.len_bytes,
                                        .owner = limits_tenant(who->account),
                                        .work = items_work,
                                        .done = items_done,
                                        .arg = page};
    if (fair_queue_submit(front->fair_queue, &page->job) == 0)
        return;
    api_fail(&error, 529, "Overloaded");
    reply_error(page->exchange, &error, NULL, NULL);
    items_free(page);
}

void responses_show_items(struct front *front, struct http_exchange *exchange, const struct kept_items *items)
{
    struct items_page *page = calloc(1, sizeof(*page));
    struct api_error error;
    int rc = E_NOMEM;

    if (page == NULL)
        api_fail(&error, 503, "out of memory");
    else
        rc = items_parse_page(exchange, page->after, &page->page, &error);
    if (rc < 0) {
        reply_error(exchange, &error, NULL, NULL);
        kept_text_unref(items->text);
        free(page);
        return;
    }
    page->front = front;
    page->exchange = exchange;
    page->text = items->text;
    page->items = items->items;
    memcpy(page->id, items->id.data, items->id.len_bytes); /* fits, because ids of kept responses are short */
    list_push_back(&front->pages, &page->node);
    items_begin(page, items->who);
}

void responses_abort(struct front *front, const struct http_exchange *exchange)
{
    list_for_each (node, &front->pages) {
        struct items_page *page = container_of(node, struct items_page, node);

        if (page->exchange == exchange)
            page->exchange = NULL;
    }
}

void responses_close(struct front *front)
{
    list_for_each_safe (node, spare, &front->pages) {
        struct items_page *page = container_of(node, struct items_page, node);

        if (fair_queue_withdraw(&page->job))
            atomic_store(&page->is_working, false);
        while (atomic_load(&page->is_working))
            clock_sleep_ns(NS_PER_MS);
        items_free(page);
    }
}
