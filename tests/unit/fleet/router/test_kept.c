/* SPDX-License-Identifier: Apache-2.0 */
/* Values that workers keep for all routers, with scripted workers: which workers a question goes to, and how it ends. */
#include "tests/unit/check.h"
#include "tests/unit/fleet/router/rig.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "fleet/router/kept_priv.h"

#define N_WORKERS  6
#define MAX_VALUES 64

struct script { /* a worker: it keeps, and answers when answer() is called */
    struct link *link;
    struct {
        char name[STATE_NAME_BYTES];
        struct buf value; /* as sealed */
        uint64_t mark;
    } kept[MAX_VALUES];
    unsigned n_kept, n_removed, n_fetches, n_copies;
    uint64_t list_number, list_mark;                 /* of a LIST_KEPT that was not answered; 0: none */
    char copied[FRAME_KEPT_NAMES][STATE_NAME_BYTES]; /* names of a FETCH with a mark */
    size_t n_copied;
    uint64_t number; /* of the last FETCH */
    char asked[STATE_NAME_BYTES], claim[STATE_NAME_BYTES];
};

struct rig_kept {
    struct rig rig;
    struct state_values values;
    struct script workers[N_WORKERS];
    bool is_done;
    char got[64];
    enum state_claim claim;
    bool was_late; /* router_kept_is_late() at the end */
};

static struct rig_kept *now; /* of the test that runs */
static int64_t jump_s;       /* of the Unix clock */
uint64_t __real_clock_unix_ns(void);
uint64_t __wrap_clock_unix_ns(void);

uint64_t __wrap_clock_unix_ns(void)
{
    return __real_clock_unix_ns() + (uint64_t)(jump_s * (int64_t)NS_PER_S);
}

static void on_send(struct link *link, enum frame_type type, const ProtobufCMessage *message)
{
    const Baton__Keep *keep = (const Baton__Keep *)message;
    const Baton__Fetch *fetch = (const Baton__Fetch *)message;
    struct script *worker = now->workers;

    while (worker < now->workers + N_WORKERS && worker->link != link)
        worker++;
    if (worker == now->workers + N_WORKERS)
        return;
    if (type == FRAME_KEEP && keep->life_s == 0) {
        worker->n_removed++;
    } else if (type == FRAME_KEEP) {
        assert_true(worker->n_kept < MAX_VALUES);
        worker->kept[worker->n_kept].mark = keep->mark;
        str_copy(worker->kept[worker->n_kept].name, STATE_NAME_BYTES, keep->name);
        buf_append(&worker->kept[worker->n_kept++].value, keep->value.data, keep->value.len);
        worker->n_copies += keep->mark != 0;
    } else if (type == FRAME_LIST_KEPT) {
        worker->list_number = ((const Baton__ListKept *)message)->number;
        worker->list_mark = ((const Baton__ListKept *)message)->mark;
    } else if (type == FRAME_FETCH && fetch->mark != 0) {
        worker->number = fetch->number;
        worker->n_copied = fetch->n_names;
        for (size_t i = 0; i < fetch->n_names; i++)
            str_copy(worker->copied[i], STATE_NAME_BYTES, fetch->names[i]);
    } else if (type == FRAME_FETCH) {
        worker->n_fetches++;
        worker->number = fetch->number;
        str_copy(worker->asked, STATE_NAME_BYTES, fetch->n_names > 0 ? fetch->names[0] : "");
        str_copy(worker->claim, STATE_NAME_BYTES, fetch->claim);
    }
}

static void on_done(void *arg, struct buf *values, enum state_claim claim)
{
    struct rig_kept *rig = arg;

    rig->is_done = true;
    rig->claim = claim;
    rig->was_late = router_kept_is_late(&rig->rig.router);
    snprintf(rig->got, sizeof(rig->got), "%.*s", (int)values[0].len_bytes, (const char *)values[0].data);
}

static void fetched(struct script *worker, const char *name, struct bytes value, bool is_last,
                    Baton__Claim claim)
{
    Baton__Fetched message = BATON__FETCHED__INIT;

    message.number = worker->number;
    message.name = (char *)(uintptr_t)name;
    message.value = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)value.data, .len = value.len_bytes};
    message.is_last = is_last;
    message.claim = claim;
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++)
        if (now->rig.router.workers[slot].link == worker->link)
            router_kept_receive(&now->rig.router, slot, &message);
}

static void answer_last(struct script *worker, Baton__Claim claim)
{
    fetched(worker, worker->claim, (struct bytes){0}, true, claim);
}

/* Answers the last FETCH as a worker would. */
static void answer(struct script *worker)
{
    for (unsigned i = 0; i < worker->n_kept; i++)
        if (strcmp(worker->kept[i].name, worker->asked) == 0)
            fetched(worker, worker->kept[i].name, buf_view(&worker->kept[i].value), false, 0);
    answer_last(worker, BATON__CLAIM__CLAIM_UNKNOWN);
}

/* Answers a LIST_KEPT: all names fit on one page. */
static void answer_list(struct script *worker)
{
    char *names[MAX_VALUES];
    uint32_t lives_s[MAX_VALUES], lens_bytes[MAX_VALUES];
    Baton__Listed page = BATON__LISTED__INIT;

    for (unsigned i = 0; i < worker->n_kept; i++) {
        if (worker->kept[i].mark == worker->list_mark)
            continue;
        names[page.n_names] = worker->kept[i].name;
        lives_s[page.n_names] = 50;
        lens_bytes[page.n_names++] = (uint32_t)worker->kept[i].value.len_bytes;
    }
    page.number = worker->list_number;
    page.n_lives_s = page.n_lens_bytes = page.n_names;
    page.names = names;
    page.lives_s = lives_s;
    page.lens_bytes = lens_bytes;
    page.is_last = true;
    worker->list_number = 0;
    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS; slot++)
        if (now->rig.router.workers[slot].link == worker->link)
            router_kept_listed(&now->rig.router, slot, &page);
}

/* Answers a FETCH with a mark. */
static void answer_copies(struct script *worker)
{
    size_t n = worker->n_copied;

    worker->n_copied = 0;
    for (size_t i = 0; i < n; i++)
        for (unsigned k = 0; k < worker->n_kept; k++)
            if (strcmp(worker->kept[k].name, worker->copied[i]) == 0)
                fetched(worker, worker->kept[k].name, buf_view(&worker->kept[k].value), false, 0);
    fetched(worker, "", (struct bytes){0}, true, BATON__CLAIM__CLAIM_UNKNOWN);
}

static unsigned n_live_copies(const struct rig_kept *rig, const char *name)
{
    unsigned n = 0;

    for (unsigned i = 0; i < N_WORKERS; i++)
        for (unsigned k = 0; rig->workers[i].link != NULL && k < rig->workers[i].n_kept; k++)
            n += strcmp(rig->workers[i].kept[k].name, name) == 0;
    return n;
}

/* Answers what the router asks for copies, as workers would, until it asks nothing for half a second. */
static void run_copies(struct rig_kept *rig)
{
    uint64_t quiet_ns = clock_now_ns(), end_ns = quiet_ns + 20 * NS_PER_S;
    bool has_begun = false;

    while ((!has_begun || clock_now_ns() < quiet_ns + NS_PER_S / 2) && clock_now_ns() < end_ns) {
        event_base_loop(ev_loop_base(rig->rig.router.loop), EVLOOP_NONBLOCK);
        clock_sleep_ns(NS_PER_MS);
        for (unsigned i = 0; i < N_WORKERS; i++) {
            struct script *worker = &rig->workers[i];

            if (worker->link == NULL || (worker->list_number == 0 && worker->n_copied == 0))
                continue;
            has_begun = true;
            quiet_ns = clock_now_ns();
            if (worker->list_number != 0)
                answer_list(worker);
            else
                answer_copies(worker);
        }
    }
    assert_true(has_begun);
}

static void put(struct rig_kept *rig, const char *id, const char *text, struct state_name *name)
{
    struct buf value = {0};

    buf_append_str(&value, text);
    assert_int_equal(state_values_name(&rig->values, "test", bytes_str("t"), bytes_str(id), name), 0);
    assert_int_equal(state_values_put(&rig->values, name, 60, &value), 0);
}

static void *ask(struct rig_kept *rig, const struct state_name *name, const struct state_name *claim)
{
    const struct state_question question = {
        .names = name, .n = name != NULL, .claim = claim, .claim_life_s = 9, .done = on_done, .arg = rig};
    void *out = NULL;

    rig->is_done = false;
    for (unsigned i = 0; i < N_WORKERS; i++)
        rig->workers[i].n_fetches = 0;
    assert_int_equal(state_values_ask(&rig->values, &question, &out), 0);
    return out;
}

static unsigned n_asked(const struct rig_kept *rig)
{
    unsigned n = 0;

    for (unsigned i = 0; i < N_WORKERS; i++)
        n += rig->workers[i].n_fetches;
    return n;
}

static void run_until_done(struct rig_kept *rig)
{
    uint64_t end_ns = clock_now_ns() + 10 * NS_PER_S;

    while (!rig->is_done && clock_now_ns() < end_ns)
        event_base_loop(ev_loop_base(rig->rig.router.loop), EVLOOP_ONCE);
    assert_true(rig->is_done);
}

static void add_worker(struct rig_kept *rig, unsigned i)
{
    char node[8];

    snprintf(node, sizeof(node), "d%u", i);
    rig->workers[i].link = rig_worker(&rig->rig, node, PICKER_DECODE, i + 1, 100);
}

static int open_kept(void **state)
{
    static const uint8_t key[32] = {7};
    struct rig_kept *rig = calloc(1, sizeof(*rig));
    struct fault fault = {0};

    if (rig == NULL || rig_open(&rig->rig) < 0 || ev_loop_new(&rig->rig.router.loop) < 0 ||
        router_kept_open(&rig->rig.router, key, &fault) < 0)
        return -1;
    now = *state = rig;
    rig_on_send = on_send;
    rig->rig.conf.state_wait_ns = 50 * NS_PER_MS;
    rig->rig.capabilities = capabilities_own();
    rig->values = router_kept_values(&rig->rig.router);
    assert_false(state_values_are_up(&rig->values));
    for (unsigned i = 0; i < N_WORKERS; i++)
        add_worker(rig, i);
    assert_true(state_values_are_up(&rig->values));
    return 0;
}

static int close_kept(void **state)
{
    struct rig_kept *rig = *state;
    struct ev_loop *loop = rig->rig.router.loop;

    rig_on_send = NULL;
    router_kept_close(&rig->rig.router);
    rig_close(&rig->rig);
    ev_loop_free(loop);
    for (unsigned i = 0; i < N_WORKERS; i++)
        for (unsigned k = 0; k < rig->workers[i].n_kept; k++)
            buf_fini(&rig->workers[i].kept[k].value);
    free(rig);
    return 0;
}

static void answer_asked(struct rig_kept *rig)
{
    for (unsigned i = 0; i < N_WORKERS && !rig->is_done; i++)
        if (rig->workers[i].n_fetches > 0)
            answer(&rig->workers[i]);
}

/* ---- the tests ---- */

static void a_value_has_two_copies_at_workers_that_are_asked(void **state)
{
    struct rig_kept *rig = *state;
    unsigned n_all = 0;

    for (unsigned n = 0; n < 40; n++) {
        struct state_name name;
        char id[8];
        unsigned copies = 0, asked = 0, reached = 0;

        snprintf(id, sizeof(id), "%u", n);
        put(rig, id, "hello", &name);
        state_values_cancel(&rig->values, ask(rig, &name, NULL));
        for (unsigned i = 0; i < N_WORKERS; i++) {
            const struct script *worker = &rig->workers[i];
            bool has_it = worker->n_kept > 0 && strcmp(worker->kept[worker->n_kept - 1].name, name.text) == 0;

            copies += has_it;
            asked += worker->n_fetches;
            reached += has_it && worker->n_fetches == 1;
            assert_true(!has_it ||
                        memmem(worker->kept[worker->n_kept - 1].value.data,
                               worker->kept[worker->n_kept - 1].value.len_bytes, "hello", 5) == NULL);
        }
        assert_int_equal(copies, 2);
        assert_int_equal(asked, 4);
        assert_int_equal(reached, 2);
    }
    for (unsigned i = 0; i < N_WORKERS; i++) { /* spread over all */
        assert_in_range(rig->workers[i].n_kept, 4, 30);
        n_all += rig->workers[i].n_kept;
    }
    assert_int_equal(n_all, 80);
}

static void a_lost_workers_values_get_a_second_copy_again(void **state)
{
    struct rig_kept *rig = *state;
    struct state_name names[40];
    unsigned n_lost, n_copies = 0;
    char id[8];

    for (unsigned i = 0; i < 40; i++) {
        snprintf(id, sizeof(id), "%u", i);
        put(rig, id, "hello", &names[i]);
    }
    for (unsigned lost = 0; lost < 2; lost++) {
        n_lost = rig->workers[lost].n_kept;
        assert_true(n_lost > 0);
        rig_lose(&rig->rig, rig->workers[lost].link);
        rig->workers[lost].link = NULL;
        run_copies(rig);
        for (unsigned i = 0; i < 40; i++)
            assert_int_equal(n_live_copies(rig, names[i].text), 2);
        for (unsigned i = 0; i < N_WORKERS; i++) {
            n_copies += rig->workers[i].n_copies;
            rig->workers[i].n_copies = 0;
        }
        assert_int_equal(n_copies, n_lost); /* and no other values moved */
        n_copies = 0;
    }
    /* values that no longer have a worker that the first router asked are found by their new places */
    ask(rig, &names[0], NULL);
    answer_asked(rig);
    assert_string_equal(rig->got, "hello");
}

static void lists_that_do_not_match_are_ignored(void **state)
{
    struct rig_kept *rig = *state;
    Baton__Listed page = BATON__LISTED__INIT;
    struct state_name name;
    char *names[] = {name.text};
    uint32_t lives_s[] = {50};

    put(rig, "1", "hello", &name);
    page.number = 1; /* nothing was asked */
    page.n_names = 1;
    page.names = names;
    page.lives_s = lives_s;
    router_kept_listed(&rig->rig.router, 1, &page);
    rig_lose(&rig->rig, rig->workers[0].link);
    rig->workers[0].link = NULL;
    for (uint64_t end_ns = clock_now_ns() + 10 * NS_PER_S;
         rig->workers[1].list_number == 0 && clock_now_ns() < end_ns;)
        event_base_loop(ev_loop_base(rig->rig.router.loop), EVLOOP_ONCE);
    assert_true(rig->workers[1].list_number != 0);
    page.number = rig->workers[1].list_number; /* a name without a life and a length */
    router_kept_listed(&rig->rig.router, 1, &page);
    page.n_lives_s = 1;
    router_kept_listed(&rig->rig.router, 1, &page);
    assert_int_equal(rig->workers[1].n_copied, 0);
    run_copies(rig); /* the answers of that worker and of the others */
    assert_int_equal(n_live_copies(rig, name.text), 2);
}

static void a_question_ends_with_its_value(void **state)
{
    struct rig_kept *rig = *state;
    struct state_name name, other;

    put(rig, "1", "hello", &name);
    ask(rig, &name, NULL);
    answer_asked(rig);
    assert_true(rig->is_done);
    assert_string_equal(rig->got, "hello");
    /* none has it: all four say so */
    assert_int_equal(state_values_name(&rig->values, "test", bytes_str("u"), bytes_str("1"), &other), 0);
    assert_string_not_equal(other.text, name.text);
    ask(rig, &other, NULL);
    assert_int_equal(n_asked(rig), 4);
    for (unsigned i = 0; i < N_WORKERS; i++) {
        assert_false(rig->is_done && rig->workers[i].n_fetches > 1);
        if (rig->workers[i].n_fetches > 0)
            answer(&rig->workers[i]);
    }
    assert_true(rig->is_done && !rig->was_late);
    assert_string_equal(rig->got, "");
}

/* Workers that keep it get an empty value, also if the first choice drained before.  No name is forgotten for long. */
static void a_value_that_expires_leaves_nothing(void **state)
{
    struct rig_kept *rig = *state;
    struct state_name name;

    for (unsigned drained = 0; drained < N_WORKERS; drained++) {
        rig->rig.router.workers[drained].is_draining = true;
        put(rig, "1", "hello", &name);
        rig->rig.router.workers[drained].is_draining = false;
        assert_int_equal(state_values_expire(&rig->values, &name, 60), 0);
        for (const struct script *it = rig->workers; it < rig->workers + N_WORKERS; it++)
            assert_true(it->n_removed == 0 &&
                        (it->n_kept == 0 || it->kept[it->n_kept - 1].value.len_bytes == 0));
    }
}

/* The Unix clock is set back, and then far ahead: the worker's answer counts. */
static void a_jump_of_the_clock_loses_no_value(void **state)
{
    struct rig_kept *rig = *state;
    struct state_name name;

    put(rig, "1", "hello", &name);
    for (jump_s = -86400; jump_s <= 40 * 86400; jump_s += 41 * 86400) {
        ask(rig, &name, NULL);
        answer_asked(rig);
        assert_true(rig->is_done && strcmp(rig->got, "hello") == 0);
    }
    jump_s = 0;
}

static void another_value_or_garbage_is_not_taken(void **state)
{
    struct rig_kept *rig = *state;
    struct state_name name, other;
    struct bytes sealed = {0};

    put(rig, "1", "hello", &name);
    put(rig, "2", "secret", &other);
    for (unsigned i = 0; i < N_WORKERS; i++)
        for (unsigned k = 0; k < rig->workers[i].n_kept; k++)
            if (strcmp(rig->workers[i].kept[k].name, other.text) == 0)
                sealed = buf_view(&rig->workers[i].kept[k].value);
    ask(rig, &name, NULL);
    for (unsigned i = 0; i < N_WORKERS; i++) {
        if (rig->workers[i].n_fetches == 0)
            continue;
        fetched(&rig->workers[i], name.text, sealed, false, 0);
        fetched(&rig->workers[i], name.text, bytes_str("garbage"), false, 0);
        fetched(&rig->workers[i], "unknown", sealed, false, 0);
        answer_last(&rig->workers[i], BATON__CLAIM__CLAIM_UNKNOWN);
    }
    assert_true(rig->is_done);
    assert_string_equal(rig->got, "");
}

static void a_worker_that_is_silent_ends_nothing_but_its_turn(void **state)
{
    struct rig_kept *rig = *state;
    struct state_name name;
    unsigned silent = N_WORKERS;

    put(rig, "1", "hello", &name);
    ask(rig, &name, NULL);
    for (unsigned i = 0; i < N_WORKERS; i++)
        if (rig->workers[i].n_fetches > 0 && silent == N_WORKERS)
            silent = i;
        else if (rig->workers[i].n_fetches > 0)
            answer_last(&rig->workers[i], BATON__CLAIM__CLAIM_UNKNOWN);
    run_until_done(rig); /* state.wait */
    assert_true(rig->was_late);
    ask(rig, &name, NULL);
    assert_int_equal(rig->workers[silent].n_fetches, 0);
    assert_int_equal(n_asked(rig), 4);
    /* a late answer makes it one of the four again */
    answer_last(&rig->workers[silent], BATON__CLAIM__CLAIM_UNKNOWN);
    assert_false(router_kept_is_late(&rig->rig.router));
    ask(rig, &name, NULL);
    assert_int_equal(rig->workers[silent].n_fetches, 1);
}

static void a_worker_that_is_lost_is_not_waited_for(void **state)
{
    struct rig_kept *rig = *state;
    struct state_name name;

    rig->rig.conf.state_wait_ns = 3600 * NS_PER_S;
    put(rig, "1", "hello", &name);
    ask(rig, &name, NULL);
    for (unsigned i = 0; i < N_WORKERS; i++)
        if (rig->workers[i].n_fetches > 0) {
            assert_false(rig->is_done);
            rig_lose(&rig->rig, rig->workers[i].link);
            rig->workers[i].link = NULL;
        }
    assert_false(rig->is_done); /* not inside the link's event */
    run_until_done(rig);
    assert_string_equal(rig->got, "");
}

static void a_claim_goes_to_one_worker(void **state)
{
    struct rig_kept *rig = *state;
    struct state_name claim;
    struct script *first = NULL;
    void *question;

    assert_int_equal(state_values_name(&rig->values, "claim", bytes_str("t"), bytes_str("1"), &claim), 0);
    ask(rig, NULL, &claim);
    assert_int_equal(n_asked(rig), 1);
    for (unsigned i = 0; i < N_WORKERS; i++)
        if (rig->workers[i].n_fetches > 0)
            first = &rig->workers[i];
    assert_string_equal(first->claim, claim.text);
    answer_last(first, BATON__CLAIM__CLAIM_SET);
    assert_true(rig->is_done);
    assert_int_equal(rig->claim, STATE_CLAIM_SET);
    ask(rig, NULL, &claim);
    assert_int_equal(first->n_fetches, 1);
    answer_last(first, BATON__CLAIM__CLAIM_TAKEN);
    assert_int_equal(rig->claim, STATE_CLAIM_TAKEN);
    /* set for a question that has gone: it is given back */
    question = ask(rig, NULL, &claim);
    state_values_cancel(&rig->values, question);
    first->n_removed = 0;
    answer_last(first, BATON__CLAIM__CLAIM_SET);
    assert_false(rig->is_done);
    assert_int_equal(first->n_removed, 1);
}

static void workers_that_come_back_hear_what_was_forgotten(void **state)
{
    struct rig_kept *rig = *state;
    struct state_name name;
    unsigned n_removed = 0;

    put(rig, "1", "hello", &name);
    rig_lose(&rig->rig, rig->workers[0].link);
    rig->workers[0].link = NULL;
    assert_int_equal(state_values_forget(&rig->values, &name), 0);
    for (unsigned i = 1; i < N_WORKERS; i++)
        n_removed += rig->workers[i].n_removed;
    assert_int_equal(n_removed, 4);
    add_worker(rig, 0);
    rig->workers[0].n_removed = 0; /* its link had no place in the script while the router greeted it */
    router_kept_worker_up(&rig->rig.router, 0);
    assert_int_equal(rig->workers[0].n_removed, 1);
}

static void workers_that_keep_nothing_are_not_asked(void **state)
{
    struct rig_kept *rig = *state;
    struct state_name name;
    struct buf value = {0};

    for (unsigned i = 0; i < N_WORKERS; i++)
        rig_lose(&rig->rig, rig->workers[i].link);
    assert_false(state_values_are_up(&rig->values));
    rig->rig.capabilities = capabilities_own() & ~(uint64_t)CAPABILITY_KEEPS;
    add_worker(rig, 0);
    assert_false(state_values_are_up(&rig->values));
    buf_append_str(&value, "hello");
    assert_int_equal(state_values_name(&rig->values, "test", bytes_str("t"), bytes_str("1"), &name), 0);
    assert_int_equal(state_values_put(&rig->values, &name, 60, &value), E_CLOSED);
    assert_int_equal(rig->workers[0].n_kept, 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, open_kept, close_kept)
    const struct CMUnitTest tests[] = {T(a_value_has_two_copies_at_workers_that_are_asked),
                                       T(a_lost_workers_values_get_a_second_copy_again),
                                       T(lists_that_do_not_match_are_ignored),
                                       T(a_question_ends_with_its_value),
                                       T(a_value_that_expires_leaves_nothing),
                                       T(a_jump_of_the_clock_loses_no_value),
                                       T(another_value_or_garbage_is_not_taken),
                                       T(a_worker_that_is_silent_ends_nothing_but_its_turn),
                                       T(a_worker_that_is_lost_is_not_waited_for),
                                       T(a_claim_goes_to_one_worker),
                                       T(workers_that_come_back_hear_what_was_forgotten),
                                       T(workers_that_keep_nothing_are_not_asked)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
