/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints of answers that the client's last message begins. */
#include "constraint_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"

#define HARMONY      FAMILY("<|start|><|channel|><|message|><|constrain|><|end|><|call|>")
#define NEXT         "<|end|><|start|>assistant"
#define CALL(values) "<|channel|>commentary to=functions.set <|constrain|>json<|message|>" values

/* Harmony: the final message is open.  It goes on with text or the document; a call is the next message. */
static void a_begun_final_message_goes_on(void **state)
{
    static const struct {
        const char *fields, *text;
        bool is_taken;
    } cases[] = {
        {FORMAT, "{\"ok\":true}", true},
        {FORMAT, "{\"ok\":1}", false},
        {FORMAT, "Hello.", false},
        {FORMAT, "<|channel|>final<|message|>{\"ok\":true}", false},
        {TOOLS("false") FORMAT, "{\"ok\":true}", true},
        {TOOLS("false") FORMAT, NEXT CALL("{\"a\": 1}"), true},
        {TOOLS("true") FORMAT, NEXT CALL("{\"a\": 1}"), false},
        {TOOLS("true") FORMAT, NEXT CALL(ARGS), true},
        {TOOLS("true") FORMAT, "Hello." NEXT CALL(ARGS), false},
        {TOOLS("true"), "Hello.", true},
        {TOOLS("true"), "Hello." NEXT CALL(ARGS), true},
        {TOOLS("true"), "Hello." NEXT CALL("{\"a\": 1}"), false},
        {TOOLS("true"), CALL(ARGS), false},
        {TOOLS("false") ANY, NEXT CALL(ARGS), true},
        {TOOLS("false") ANY, NEXT CALL("{\"a\": 1}"), false},
        {TOOLS("false") ANY, "Hello.", false},
        {TOOLS("true") CHOICE("\"type\":\"none\""), "Hello.", true},
        {TOOLS("true") CHOICE("\"type\":\"none\""), "Hello." NEXT CALL(ARGS), false},
    };
    struct gen_model model;

    (void)state;
    assert_int_equal(sim_model_open_with(HARMONY, 4096, &model), 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct ask begun;

        ask_begun(&model, cases[i].fields, "Well", &begun);
        if (begun.grammar == NULL || takes(&begun, cases[i].text) != cases[i].is_taken)
            fail_msg("case %zu: %s: %s", i, cases[i].text, (const char *)begun.constraint.data);
        ask_fini(&begun);
    }
    sim_model_close(&model);
}

/* The splitter reads what the constraint allows. */
static void forced_calls_follow_a_begun_final_message(void **state)
{
    struct gen_model model;
    struct ask begun;
    struct rng rng;

    (void)state;
    rng_init(&rng, 9);
    assert_int_equal(sim_model_open_with(HARMONY, 4096, &model), 0);
    ask_begun(&model, TOOLS("false") ANY, "Well", &begun);
    for (unsigned round = 0; round < 10; round++) {
        struct sink sink;

        assert_int_equal(draw(&model, &begun, &rng, 300, &sink), GEN_STOP_TOOL_USE);
        assert_true(sink.n_calls == 1 && sink.n_bad == 0 && sink.text.len_bytes == 0);
        sink_fini(&sink);
    }
    ask_fini(&begun);
    sim_model_close(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_begun_final_message_goes_on),
        cmocka_unit_test(forced_calls_follow_a_begun_final_message),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
