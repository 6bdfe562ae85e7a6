/* SPDX-License-Identifier: Apache-2.0 */
/* The common copies of a conversation whose stream may be resumed: which are put and forgotten, and when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/clock.h"
#include "serve/endpoint/front_priv.h"

#define OWNER "team"

struct values { /* writes down each call */
    char calls[4096];
    struct state_question question; /* the last one */
    size_t n_forgotten;
};

struct rig {
    struct front front;
    struct request request;
    struct values values;
    unsigned n_went_on;
};

static void values_note(struct values *values, const char *what, const char *name, uint64_t life_s)
{
    size_t at = strlen(values->calls);

    snprintf(values->calls + at, sizeof(values->calls) - at, "%s %s %u\n", what, name, (unsigned)life_s);
}

static bool values_is_up(const void *self)
{
    (void)self;
    return true;
}

static int values_name(const void *self, const char *kind, struct bytes owner, struct bytes id,
                       struct state_name *out)
{
    (void)self;
    assert_true(bytes_equal(owner, bytes_str(OWNER)));
    snprintf(out->text, sizeof(out->text), "%s/%.*s", kind, (int)id.len_bytes, (const char *)id.data);
    return 0;
}

static int values_put_copy(void *self, const struct state_name *name, uint64_t life_s, struct bytes value)
{
    (void)value;
    values_note(self, "put", name->text, life_s);
    return 0;
}

static int values_remove(void *self, const struct state_name *name)
{
    values_note(self, "remove", name->text, 0);
    return 0;
}

static int values_forget(void *self, const struct state_name *name)
{
    struct values *values = self;

    if (values->n_forgotten++ == 0)
        values_note(self, "forget", name->text, 0);
    return 0;
}

static int values_ask(void *self, const struct state_question *question, void **out)
{
    struct values *values = self;

    values->question = *question;
    *out = values;
    return 0;
}

static void values_cancel(void *ask)
{
    (void)ask;
}

static const struct state_values_ops ops = {.is_up = values_is_up,
                                            .name = values_name,
                                            .put_copy = values_put_copy,
                                            .remove = values_remove,
                                            .forget = values_forget,
                                            .ask = values_ask,
                                            .cancel = values_cancel,
                                            .max_bytes = 1000};

static struct buf text_of(const char *text)
{
    struct buf buf = {0};

    buf_append_str(&buf, text);
    return buf;
}

static struct rig *rig_new(bool is_again)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    struct request *request = &rig->request;

    rig->front.opts.values = (struct state_values){&ops, &rig->values};
    assert_int_equal(conversations_new(1 << 20, CONVERSATION_LIFE_NS, &rig->front.conversations), 0);
    request->front = &rig->front;
    request->call = API_MESSAGES;
    memcpy(request->owner, OWNER, sizeof(OWNER));
    request->gen.thread = GEN_THREAD_CONTINUE;
    request->gen.thread_id = bytes_str("msg_a");
    request->resume.is_kept = true;
    request->resume.is_again = is_again;
    return rig;
}

static void rig_free(struct rig *rig)
{
    conversations_free(rig->front.conversations);
    free(rig);
}

static void go_on(struct request *request)
{
    container_of(request, struct rig, request)->n_went_on++;
}

/* The request asks for the conversation, and gets this answer. */
static void fetch(struct rig *rig, const char *text, enum state_claim claim)
{
    struct buf value = {0};

    assert_true(shared_fetch_conversation(&rig->request, go_on));
    assert_non_null(rig->values.question.claim);
    assert_int_equal(rig->values.question.n, text != NULL);
    if (text != NULL)
        value = text_of(text);
    rig->values.question.done(&rig->request, &value, claim);
    assert_int_equal(rig->n_went_on, 1);
    buf_fini(&value);
}

static void leave(struct rig *rig, enum request_state how)
{
    rig->request.state = how;
    request_leave_thread(&rig->request);
}

static enum conversations_take look(struct rig *rig)
{
    return conversations_look(rig->front.conversations, bytes_str("msg_a"), OWNER, clock_now_ns());
}

static void assert_calls(struct rig *rig, const char *want)
{
    assert_string_equal(rig->values.calls, want);
}

static void a_stream_keeps_the_text_that_it_continues(void **state)
{
    struct rig *rig = rig_new(false);
    struct buf text = text_of("text");

    (void)state;
    rig->request.history = kept_text_new(&text);
    fetch(rig, "text", STATE_CLAIM_UNKNOWN);
    (void)resume_accept(&rig->request, 0);
    assert_calls(rig, "");
    rig->request.shared.claim = STATE_CLAIM_SET;
    (void)resume_accept(&rig->request, 0);
    assert_calls(rig, "put claim/msg_a 3900\nput thread/msg_a 3600\n");
    leave(rig, REQUEST_DONE);
    assert_int_equal(rig->front.later.n, 1);
    rig_free(rig);
}

static void the_resumed_request_ends_the_text_of_a_stream_that_moved(void **state)
{
    struct rig *rig = rig_new(false), *again = rig_new(true);

    (void)state;
    fetch(rig, "text", STATE_CLAIM_SET);
    rig->request.resume.has_moved = true;
    leave(rig, REQUEST_FAILED);
    assert_calls(rig, "");
    assert_int_equal(rig->front.later.n, 0);
    fetch(again, "text", STATE_CLAIM_TAKEN);
    leave(again, REQUEST_DONE);
    assert_calls(again, "put claim/msg_a 3900\n");
    assert_int_equal(again->front.later.n, 1);
    rig_free(rig);
    rig_free(again);
}

static void names_are_forgotten_a_few_at_a_time(void **state)
{
    struct rig *rig = rig_new(false);
    struct shared_later *later = &rig->front.later;

    (void)state;
    later->n = SHARED_MAX_LATER;
    for (uint32_t i = 0; i < later->n; i++)
        later->names[i].due_ns = i < 20 ? 1 : UINT64_MAX;
    shared_end(&rig->request, CONVERSATIONS_RELEASED);
    assert_int_equal(rig->values.n_forgotten, 8);
    shared_end(&rig->request, CONVERSATIONS_RELEASED);
    shared_end(&rig->request, CONVERSATIONS_RELEASED);
    assert_int_equal(rig->values.n_forgotten, 20);
    later->n = SHARED_MAX_LATER; /* full, and none is due */
    for (uint32_t i = 0; i < later->n; i++)
        later->names[i].due_ns = UINT64_MAX;
    shared_end(&rig->request, CONVERSATIONS_RELEASED);
    assert_int_equal(rig->values.n_forgotten, 21);
    rig_free(rig);
}

static void a_resumed_stream_ends_a_conversation_that_its_first_request_released(void **state)
{
    static const struct {
        enum request_state how;
        const char *calls;
        enum conversations_take then;
    } cases[] = {{REQUEST_DONE, "put claim/msg_a 3900\n", CONVERSATIONS_CONTINUED},
                 {REQUEST_CANCELLED, "remove claim/msg_a 0\n", CONVERSATIONS_TAKEN}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig *rig = rig_new(true);
        struct buf text = text_of("text");
        struct api_error error;

        conversations_put(rig->front.conversations, "msg_a", OWNER, &text, clock_now_ns());
        fetch(rig, NULL, STATE_CLAIM_SET);
        assert_int_equal(request_take_thread(&rig->request, &error), 0);
        assert_int_equal(look(rig), CONVERSATIONS_BUSY);
        leave(rig, cases[i].how);
        assert_calls(rig, cases[i].calls);
        assert_int_equal(look(rig), cases[i].then);
        rig_free(rig);
    }
}

static void a_resumed_stream_reads_what_others_continue(void **state)
{
    struct rig *rig = rig_new(true);
    struct conversation *held;
    struct buf text = text_of("text");
    struct api_error error;

    (void)state;
    conversations_put(rig->front.conversations, "msg_a", OWNER, &text, clock_now_ns());
    assert_int_equal(
        conversations_take(rig->front.conversations, bytes_str("msg_a"), OWNER, clock_now_ns(), &held),
        CONVERSATIONS_TAKEN);
    fetch(rig, NULL, STATE_CLAIM_TAKEN);
    assert_int_equal(request_take_thread(&rig->request, &error), 0);
    assert_int_equal(kept_text_view(rig->request.history).len_bytes, 4);
    leave(rig, REQUEST_CANCELLED);
    assert_calls(rig, "");
    assert_int_equal(look(rig), CONVERSATIONS_BUSY);
    conversations_give_back(rig->front.conversations, held, CONVERSATIONS_RELEASED, clock_now_ns());
    rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_keeps_the_text_that_it_continues),
        cmocka_unit_test(the_resumed_request_ends_the_text_of_a_stream_that_moved),
        cmocka_unit_test(names_are_forgotten_a_few_at_a_time),
        cmocka_unit_test(a_resumed_stream_ends_a_conversation_that_its_first_request_released),
        cmocka_unit_test(a_resumed_stream_reads_what_others_continue),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
