/* SPDX-License-Identifier: Apache-2.0 */
/* Values that a worker keeps for its routers, over a scripted link. */
#include "worker/loop/kept_priv.h"
#include "tests/unit/check.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"

#define BIG ((size_t)2 << 20)

struct link {
    size_t queued_bytes;
    bool is_closed;
};

static struct worker worker;
static struct worker_conf conf;
static struct link link_of_router;
static struct worker_router router;
static char listed[4096]; /* "name:life:length " for each name; "." at the end of the last page */
static uint64_t listed_next;
static char said
    [4096]; /* "name=value " for each value, "| " at the end of an answer; with a claim "set" or "taken" */
static size_t said_bytes;

size_t link_queued_bytes(const struct link *link)
{
    return link->queued_bytes;
}

static int note_listed(const Baton__Listed *page)
{
    for (size_t i = 0; i < page->n_names; i++) {
        size_t n = strlen(listed);

        snprintf(listed + n, sizeof(listed) - n, "%s:%u:%u ", page->names[i], page->lives_s[i],
                 page->lens_bytes[i]);
    }
    listed_next = page->next;
    if (page->is_last)
        strcat(listed, ".");
    return 0;
}

int link_send(struct link *link, enum frame_type type, const ProtobufCMessage *message)
{
    if (type == FRAME_LISTED)
        return note_listed((const Baton__Listed *)message);

    const Baton__Fetched *fetched = (const Baton__Fetched *)message;
    size_t n = strlen(said), len = fetched->value.len < 20 ? fetched->value.len : 0;

    assert_int_equal(type, FRAME_FETCHED);
    assert_int_equal(fetched->number, 7);
    if (link->is_closed)
        return E_CLOSED;
    said_bytes += fetched->value.len;
    if (fetched->is_last)
        snprintf(said + n, sizeof(said) - n, "|%s ",
                 fetched->claim == BATON__CLAIM__CLAIM_SET     ? "set"
                 : fetched->claim == BATON__CLAIM__CLAIM_TAKEN ? "taken"
                                                               : "");
    else
        snprintf(said + n, sizeof(said) - n, "%s=%.*s ", fetched->name, (int)len,
                 (char *)fetched->value.data);
    return 0;
}

static void keep_bytes(const char *name, uint32_t life_s, const void *value, size_t n)
{
    Baton__Keep keep = BATON__KEEP__INIT;

    keep.name = (char *)(uintptr_t)name;
    keep.life_s = life_s;
    keep.value = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)value, .len = n};
    worker_kept_keep(&worker, &keep);
}

static void keep(const char *name, uint32_t life_s, const char *value)
{
    keep_bytes(name, life_s, value, strlen(value));
}

static void assert_fetched(const char *a, const char *b, const char *claim, const char *answer)
{
    Baton__Fetch fetch = BATON__FETCH__INIT;
    char *names[2] = {(char *)(uintptr_t)a, (char *)(uintptr_t)b};

    said[0] = '\0';
    fetch.number = 7;
    fetch.names = names;
    fetch.n_names = (a != NULL) + (b != NULL);
    fetch.claim = (char *)(uintptr_t)claim;
    fetch.claim_life_s = 100;
    worker_kept_fetch(&router, &fetch);
    assert_string_equal(said, answer);
}

static const char *list_page(uint64_t after, uint64_t mark)
{
    Baton__ListKept list = BATON__LIST_KEPT__INIT;

    listed[0] = '\0';
    list.number = 7;
    list.after = after;
    list.mark = mark;
    worker_kept_list(&router, &list);
    return listed;
}

static void keep_copy(const char *name, const char *value)
{
    Baton__Keep message = BATON__KEEP__INIT;

    message.name = (char *)(uintptr_t)name;
    message.life_s = 60;
    message.value = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)value, .len = strlen(value)};
    message.mark = 9;
    worker_kept_keep(&worker, &message);
}

static int open_kept(void **state)
{
    memset(&worker, 0, sizeof(worker));
    conf.kept_bytes = 10000;
    worker.conf = &conf;
    router = (struct worker_router){.worker = &worker, .link = &link_of_router};
    link_of_router = (struct link){0};
    said_bytes = 0;
    return ev_loop_new(&worker.loop) < 0 || metrics_new(&worker.metrics) < 0 || worker_kept_open(&worker) < 0;
}

static int close_kept(void **state)
{
    worker_kept_close(&worker);
    metrics_free(worker.metrics);
    ev_loop_free(worker.loop);
    return 0;
}

static bool metric_is(const char *line)
{
    struct buf text = {0};
    bool is_there;

    metrics_render(worker.metrics, &text);
    buf_append_byte(&text, '\0');
    is_there = strstr((const char *)text.data, line) != NULL;
    buf_fini(&text);
    return is_there;
}

static void a_value_is_kept_replaced_and_forgotten(void **state)
{
    keep("x:1", 60, "one");
    keep("x:2", 60, "two");
    assert_fetched("x:1", "x:2", "", "x:1=one x:2=two | ");
    keep("x:1", 60, "other");
    assert_fetched("x:1", "x:3", "", "x:1=other | ");
    keep("x:1", 0, "");
    keep("x:9", 0, ""); /* unknown */
    assert_fetched("x:1", "x:2", "", "x:2=two | ");
    assert_true(metric_is("baton_worker_kept 1\n"));
}

static void names_differ_by_their_ends(void **state)
{
    keep("baton:{0123456789abcdef}:thread:0123456789abcdef0123456789abcde1", 60, "one");
    keep("baton:{0123456789abcdef}:thread:0123456789abcdef0123456789abcde2", 60, "two");
    assert_fetched("baton:{0123456789abcdef}:thread:0123456789abcdef0123456789abcde1",
                   "baton:{0123456789abcdef}:response:0123456789abcdef0123456789abcde1", "",
                   "baton:{0123456789abcdef}:thread:0123456789abcdef0123456789abcde1=one | ");
}

static void a_claim_is_one_questions(void **state)
{
    assert_fetched(NULL, NULL, "c:1", "|set ");
    assert_fetched(NULL, NULL, "c:1", "|taken ");
    assert_fetched(NULL, NULL, "c:2", "|set ");
    keep("c:1", 0, ""); /* its router gives it back */
    assert_fetched(NULL, NULL, "c:1", "|set ");
}

static void a_life_ends(void **state)
{
    uint64_t end_ns = clock_now_ns() + 10 * NS_PER_S;

    keep("x:1", 1, "short");
    keep("x:2", 60, "long");
    assert_fetched("x:1", "x:2", "", "x:1=short x:2=long | ");
    while (!metric_is("baton_worker_kept 1\n") && clock_now_ns() < end_ns) /* by the tick alone */
        event_base_loop(ev_loop_base(worker.loop), EVLOOP_ONCE);
    assert_true(metric_is("baton_worker_kept 1\n"));
    assert_fetched("x:1", "x:2", "", "x:2=long | ");
}

static void memory_is_bounded_and_the_least_used_goes(void **state)
{
    char name[16];
    char value[1000] = {0};

    keep("used", 60, "yes");
    keep("unused", 60, "yes");
    for (unsigned i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "x:%u", i);
        keep_bytes(name, 60, value, sizeof(value));
        assert_fetched("used", NULL, "", "used=yes | ");
    }
    assert_fetched("used", "unused", "", "used=yes | ");
    assert_fetched("x:99", "x:0", "", "x:99= | ");
    keep_bytes("large", 60, (char[10000]){0}, 10000); /* more than all: nothing goes for it */
    assert_fetched("x:99", "large", "", "x:99= | ");
    assert_false(metric_is("baton_worker_kept_evicted_total 0\n"));
}

static void one_answer_is_bounded(void **state)
{
    static uint8_t value[BIG];
    char names[8][8];
    char *list[8];
    Baton__Fetch fetch = BATON__FETCH__INIT;

    conf.kept_bytes = 64 << 20;
    for (unsigned i = 0; i < 8; i++) {
        snprintf(names[i], sizeof(names[i]), "x:%u", i);
        list[i] = names[i];
        keep_bytes(names[i], 60, value, sizeof(value));
    }
    fetch.number = 7;
    fetch.names = list;
    fetch.n_names = 8;
    said[0] = '\0';
    worker_kept_fetch(&router, &fetch);
    assert_int_equal(said_bytes, 4 * BIG);
    link_of_router.queued_bytes = 32 << 20; /* the router does not read: it gets the end alone */
    assert_fetched("x:1", NULL, "", "| ");
    link_of_router.is_closed = true;
    assert_fetched("x:1", NULL, "", "");
}

static void names_are_listed_in_pages(void **state)
{
    unsigned n = 0, n_pages = 0;
    char name[16];

    conf.kept_bytes = 1 << 20;
    assert_string_equal(list_page(0, 0), ".");
    for (unsigned i = 0; i < 150; i++) {
        snprintf(name, sizeof(name), "x:%u", i);
        keep(name, 100, "value");
    }
    keep("x:0", 100, "newer"); /* a new value is the last one */
    for (uint64_t after = 0; n_pages == 0 || strchr(listed, '.') == NULL; after = listed_next, n_pages++) {
        list_page(after, 0);
        for (const char *at = listed; (at = strchr(at, ' ')) != NULL; at++)
            n++;
        assert_true(n <= 150);
        if (n == 64) /* one that was listed, and the page's last, go in between */
            keep("x:64", 0, "");
    }
    assert_int_equal(n, 150);
    assert_int_equal(n_pages, 3);
    assert_non_null(strstr(listed, "x:0:99:5 ."));
    assert_null(strstr(list_page(0, 0), "x:64:"));
}

static void names_that_were_fetched_for_a_change_are_left_out(void **state)
{
    Baton__Fetch fetch = BATON__FETCH__INIT;
    char *names[] = {"x:1"};

    keep("x:1", 100, "one");
    keep("x:2", 100, "two");
    fetch.number = 7;
    fetch.names = names;
    fetch.n_names = 1;
    fetch.mark = 5;
    worker_kept_fetch(&router, &fetch);
    assert_fetched("x:2", NULL, "", "x:2=two | "); /* without a mark */
    assert_string_equal(list_page(0, 5), "x:2:99:3 .");
    assert_string_equal(list_page(0, 6), "x:1:99:3 x:2:99:3 .");
    assert_string_equal(list_page(0, 0), "x:1:99:3 x:2:99:3 .");
}

static void a_copy_replaces_nothing_and_brings_nothing_back(void **state)
{
    keep_copy("x:1", "copy");
    assert_fetched("x:1", NULL, "", "x:1=copy | ");
    assert_string_equal(list_page(0, 9), "."); /* it need not go on */
    assert_string_equal(list_page(0, 8), "x:1:59:4 .");
    keep("x:1", 60, "newer");
    keep_copy("x:1", "copy");
    assert_fetched("x:1", NULL, "", "x:1=newer | ");
    keep("x:1", 0, "");
    keep("x:2", 0, ""); /* unknown here: the copy was on its way */
    keep_copy("x:1", "copy");
    keep_copy("x:2", "copy");
    assert_fetched("x:1", "x:2", "", "| ");
    assert_string_equal(list_page(0, 0), ".");
    assert_true(metric_is("baton_worker_kept 0\n"));
    keep("x:1", 60, "anew");
    assert_fetched("x:1", NULL, "", "x:1=anew | ");
    assert_true(metric_is("baton_worker_kept 1\n"));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, open_kept, close_kept)
    const struct CMUnitTest tests[] = {T(a_value_is_kept_replaced_and_forgotten),
                                       T(names_differ_by_their_ends),
                                       T(a_claim_is_one_questions),
                                       T(a_life_ends),
                                       T(memory_is_bounded_and_the_least_used_goes),
                                       T(one_answer_is_bounded),
                                       T(names_are_listed_in_pages),
                                       T(names_that_were_fetched_for_a_change_are_left_out),
                                       T(a_copy_replaces_nothing_and_brings_nothing_back)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
