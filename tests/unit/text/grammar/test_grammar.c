/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints and runs: what each constraint accepts, which tokens come next, and taking tokens back. */
#include "tests/unit/text/grammar/grammar_help.h"

#include "base/err.h"
#include "text/grammar/grammar_run_priv.h"
#include "tests/unit/check.h"

#include <string.h>

static struct grammar_vocab *vocab;
static struct tokenizer *tokenizer;

static bool takes(const char *constraint, const char *text)
{
    return grammar_takes(vocab, tokenizer, constraint, text);
}

static int set_up(void **state)
{
    (void)state;
    vocab = small_vocab(&tokenizer);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    grammar_vocab_unref(vocab);
    tokenizer_unref(tokenizer);
    return 0;
}

static void constraints_take_their_texts(void **state)
{
    (void)state;
    assert_true(takes("{\"text\": \"abcd\"}", "abcd"));
    assert_false(takes("{\"text\": \"abcd\"}", "abc"));
    assert_false(takes("{\"text\": \"abcd\"}", "abcde"));
    assert_true(takes("{\"seq\": [{\"text\": \"ab\"}, {\"text\": \"\"}, {\"text\": \"c\"}]}", "abc"));
    assert_true(takes("{\"any\": [{\"text\": \"abx\"}, {\"text\": \"aby\"}]}", "aby"));
    assert_false(takes("{\"any\": [{\"text\": \"abx\"}, {\"text\": \"aby\"}]}", "abz"));

    const char *rep =
        "{\"seq\": [{\"rep\": {\"text\": \"xy\"}, \"min\": 1, \"max\": 3}, {\"text\": \"xz\"}]}";
    assert_false(takes(rep, "xz"));
    assert_true(takes(rep, "xyxz"));
    assert_true(takes(rep, "xyxyxyxz"));
    assert_false(takes(rep, "xyxyxyxyxz"));
    assert_true(takes("{\"rep\": {\"text\": \"a\"}}", ""));
    assert_true(takes("{\"rep\": {\"text\": \"a\"}}", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
}

static void free_text_ends_before_its_marks(void **state)
{
    const char *constraint = "{\"seq\": [{\"free\": {\"until\": [\"</t>\"]}}, {\"text\": \"</t>!\"}]}";

    (void)state;
    assert_true(takes(constraint, "</t>!"));
    assert_true(takes(constraint, "abc <</t </t>!"));
    assert_false(takes(constraint, "abc</t>x"));
    assert_false(takes(constraint, "abc"));
    assert_true(takes("{\"free\": {}}", "anything \"at\" all \xff"));
    assert_true(takes("{\"free\": {\"until\": [\"ab\"]}}", "a a a"));
    assert_false(takes("{\"free\": {\"until\": [\"ab\"]}}", "a ab"));
}

static void free_text_has_a_number_of_tokens(void **state)
{
    const char *constraint =
        "{\"seq\": [{\"free\": {\"until\": [\"!\"], \"max_tokens\": 3}}, {\"text\": \"!\"}]}";

    (void)state;
    assert_true(takes(constraint, "!"));
    assert_true(takes(constraint, "zqz!"));
    assert_false(takes(constraint, "zqzq!"));
    assert_false(takes("{\"seq\": [{\"free\": {\"max_tokens\": 0}}, {\"text\": \"!\"}]}", "z!"));
}

static void marks_are_control_tokens_where_there_are_such(void **state)
{
    const char *constraint =
        "{\"seq\": [{\"free\": {\"until\": [\"<tool>\"]}}, {\"mark\": \"<tool>\"}, {\"mark\": \"</x>\"}]}";
    token_id tool = tokenizer_find(tokenizer, bytes_str("<tool>")), end, forced[8];
    struct grammar *grammar = grammar_must(vocab, constraint);
    struct grammar_run *run;

    (void)state;
    assert_int_equal(grammar_run_new(grammar, &run), 0);
    assert_int_equal(grammar_accept(run, 'a'), 0); /* one byte is one token in this vocabulary */
    const uint64_t *mask = grammar_mask(run, 100);
    assert_true(mask[tool / 64] >> (tool % 64) & 1);
    end = tokenizer_find(tokenizer, bytes_str("<pad>"));
    assert_false(mask[end / 64] >> (end % 64) & 1);
    assert_int_equal(grammar_accept(run, end), E_INVAL);
    assert_int_equal(grammar_accept(run, tool), 0);
    assert_false(grammar_is_complete(run));
    assert_int_equal(grammar_forced(run, forced, 8), 4); /* </x>, in which no two bytes form a token */
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(grammar_accept(run, forced[i]), 0);
    assert_true(grammar_is_complete(run));
    assert_int_equal(grammar_forced(run, forced, 8), 0); /* the end is not forced */
    end = tokenizer_find(tokenizer, bytes_str("<|im_end|>"));
    assert_int_equal(grammar_accept(run, end), 0);
    assert_int_equal(grammar_accept(run, tool), E_INVAL);
    grammar_run_free(run);
    grammar_unref(grammar);
}

static void rewinding_takes_back(void **state)
{
    struct grammar *grammar = grammar_must(vocab, "{\"json\": {\"type\": \"array\", \"maxItems\": 1}}");
    struct token_ids ids = {0};
    struct grammar_run *run;
    uint64_t before[16];
    size_t mask_bytes = ((size_t)tokenizer_vocab_size(tokenizer) + 63) / 64 * 8;

    (void)state;
    assert_int_equal(tokenizer_encode(tokenizer, bytes_str("[\"abc\"]"), 0, 100, &ids), 0);
    assert_int_equal(grammar_run_new(grammar, &run), 0);
    assert_int_equal(grammar_accept(run, ids.ids[0]), 0);
    memcpy(before, grammar_mask(run, 100), mask_bytes);
    for (size_t i = 1; i < ids.n; i++)
        assert_int_equal(grammar_accept(run, ids.ids[i]), 0);
    assert_true(grammar_is_complete(run));
    grammar_rewind(run, (uint32_t)ids.n - 1);
    assert_false(grammar_is_complete(run));
    assert_memory_equal(before, grammar_mask(run, 100), mask_bytes);
    grammar_commit(run);
    grammar_rewind(run, 0);
    for (size_t i = 1; i < ids.n; i++)
        assert_int_equal(grammar_accept(run, ids.ids[i]), 0);
    assert_true(grammar_is_complete(run));
    grammar_run_free(run);
    grammar_unref(grammar);
    token_ids_fini(&ids);
}

/* More states than are kept, because each item of a counted array has its own. */
static void dropped_states_come_back(void **state)
{
    struct grammar *grammar = grammar_must(
        vocab, "{\"json\": {\"type\": \"array\", \"maxItems\": 100000, \"items\": {\"type\": \"boolean\"}}}");
    struct grammar_run *settled, *whole;
    const char *item = "true,";

    (void)state;
    assert_int_equal(grammar_run_new(grammar, &settled), 0);
    assert_int_equal(grammar_run_new(grammar, &whole), 0);
    assert_int_equal(grammar_accept(settled, '['), 0);
    assert_int_equal(grammar_accept(whole, '['), 0);
    uint32_t n_bytes = grammar->machine.n_states; /* few so far */
    uint32_t most = 0, n = 0;
    for (; n < 8000; n++) {
        for (const char *at = item; *at != '\0'; at++) {
            const uint64_t *mask = grammar_mask(settled, 1000000);
            assert_true(mask[*at / 64] >> (*at % 64) & 1);
            assert_int_equal(grammar_accept(settled, (token_id)*at), 0);
            if (n < 50)
                assert_int_equal(grammar_accept(whole, (token_id)*at), 0);
        }
        grammar_commit(settled);
        most = grammar->machine.n_states > most ? grammar->machine.n_states : most;
        n_bytes += 5;
    }
    assert_true(most < n_bytes); /* some were evicted */
    assert_int_equal(grammar_accept(settled, ']'), E_INVAL);
    grammar_rewind(whole, 1 + 50 * 5); /* back to the start, through states that were made again */
    assert_int_equal(grammar_accept(whole, '['), 0);
    assert_int_equal(grammar_accept(whole, ']'), 0);
    assert_true(grammar_is_complete(whole));
    grammar_run_free(settled);
    grammar_run_free(whole);
    grammar_unref(grammar);
}

static void malformed_constraints_are_refused(void **state)
{
    static const char *const wrong[] = {"",
                                        "[]",
                                        "{}",
                                        "{\"text\": 1}",
                                        "{\"seq\": {}}",
                                        "{\"any\": []}",
                                        "{\"mark\": \"\"}",
                                        "{\"free\": 1}",
                                        "{\"rep\": {\"text\": \"a\"}, \"min\": 3, \"max\": 2}",
                                        "{\"rep\": {\"text\": \"\"}}",
                                        "{\"rep\": {\"free\": {}}}",
                                        "{\"json\": {\"$ref\": \"#\"}}",
                                        "{\"json\": false}",
                                        "{\"json\": {\"not\": {}}}"};

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_true(strlen(grammar_refusal(vocab, wrong[i])) > 0);
    assert_string_equal(grammar_refusal(vocab, "{\"json\": {\"properties\": {\"a\": {\"not\": {}}}}}"),
                        "$.properties.a.not: cannot be enforced");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constraints_take_their_texts),
        cmocka_unit_test(free_text_ends_before_its_marks),
        cmocka_unit_test(free_text_has_a_number_of_tokens),
        cmocka_unit_test(marks_are_control_tokens_where_there_are_such),
        cmocka_unit_test(rewinding_takes_back),
        cmocka_unit_test(dropped_states_come_back),
        cmocka_unit_test(malformed_constraints_are_refused),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
