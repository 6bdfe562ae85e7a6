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
static char said
    [4096]; /* "name=value " for each value, "| " at the end of an answer; with a claim "set" or "taken" */
static size_t said_bytes;

size_t link_queued_bytes(const struct link *link)
{
    return link->queued_bytes;
}

int link_send(struct link *link, enum frame_type type, const ProtobufCMessage *message)
{
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

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, open_kept, close_kept)
    const struct CMUnitTest tests[] = {T(a_value_is_kept_replaced_and_forgotten),
                                       T(names_differ_by_their_ends),
                                       T(a_claim_is_one_questions),
                                       T(a_life_ends),
                                       T(memory_is_bounded_and_the_least_used_goes),
                                       T(one_answer_is_bounded)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
