/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation that returns continues the previous prompt, token for token, however the client spells it.
 *
 * Random conversations go through the real parser, templates, splitter of calls, transcript and answer cache.
 * The model's answer is text cut into tokens at random places, so encoding it again gives other tokens.  The
 * client returns it with members in another order, with other blanks, escapes and numbers, and with its text
 * trimmed and moved before the calls. */
#include "serve/answer/transcript.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/json/json.h"
#include "serve/api/parse.h"
#include "base/err.h"
#include "base/rng.h"
#include "base/str.h"
#include "tests/unit/check.h"
#include "tests/unit/serve/conversation/replay_rig.h"

#define N_SEEDS 12
#define N_TURNS 14

static const struct {
    const char *template_name; /* NULL: the bundled model's */
    const char *what;
    struct rig_traits traits;
} talks[] = {
    /* these templates only append to earlier prompts */
    {NULL, "tools", {.has_tools = true, .has_system = true, .may_ask_again = true}},
    {"qwen2.5", "tools", {.has_tools = true, .has_system = true, .may_ask_again = true}},
    {"qwen3", "tools", {.has_tools = true, .has_system = true, .may_ask_again = true}},
    /* The template drops thinking when the next question comes. */
    {"qwen3", "thinking", {.has_tools = true, .has_system = true, .always_calls = true, .thinks = true}},
    /* The template closes a result differently once a message follows. */
    {"hermes-3", "text", {.has_system = true}},
    {"llama-3.1", "tools", {.has_tools = true, .has_system = true, .may_ask_again = true}},
    /* The template moves the system text and the tools to the last question. */
    {"mistral-nemo", "text", {0}},
    {"mistral-nemo", "tools", {.has_tools = true, .always_calls = true}},
    {"cohere", "tools", {.has_tools = true, .has_system = true, .may_ask_again = true}},
    {"kimi", "tools", {.has_tools = true, .has_system = true, .may_ask_again = true}},
    {"minimax", "tools", {.has_tools = true, .has_system = true, .may_ask_again = true}},
    {"gemma", "tools", {.has_tools = true, .has_system = true}},
    {"solar", "tools", {.has_tools = true, .has_system = true, .may_ask_again = true}},
    {"functionary", "tools", {.has_tools = true, .has_system = true, .may_ask_again = true}},
    {"kimi-3", "tools", {.has_tools = true, .has_system = true, .may_ask_again = true}},
    {"minimax-3", "tools", {.has_tools = true, .has_system = true, .may_ask_again = true}},
};

struct tally {
    size_t n_turns, n_tokens, n_new,
        n_plain; /* prompt tokens; those not cached; the same without an answer cache */
};

static size_t common(const token_id *a, size_t n_a, const struct token_ids *b)
{
    size_t n = 0;

    while (n < n_a && n < b->n && a[n] == b->ids[n])
        n++;
    return n;
}

static void talk(struct rig_model *model, const struct rig_traits *traits, uint64_t seed, struct tally *tally)
{
    struct rig_talk talk;
    struct token_ids known = {0}; /* tokens of the last prompt and its answer */

    rig_talk_init(&talk, model, seed, traits);
    for (unsigned turn = 0; turn < N_TURNS; turn++) {
        struct rig_turn now;

        rig_ask(&talk, true, &now);
        size_t n_read = common(known.ids, known.n, &now.prompt.ids);
        if (n_read < known.n)
            fail_msg("%s, seed %u, turn %u: %zu of %zu tokens are as they were", model->name, (unsigned)seed,
                     turn, n_read, known.n);
        tally->n_turns++;
        tally->n_tokens += now.prompt.ids.n;
        tally->n_new += now.prompt.ids.n - n_read;
        tally->n_plain += now.prompt.ids.n - common(known.ids, known.n, &now.plain.ids);
        if (turn > 0)
            assert_true(now.prompt.n_replayed > 0);
        rig_answer(&talk, &now);
        known.n = 0;
        assert_int_equal(token_ids_append(&known, now.prompt.ids.ids, now.prompt.ids.n), 0);
        assert_int_equal(token_ids_append(&known, now.drawn.ids, now.drawn.n), 0);
        rig_turn_fini(&now);
    }
    token_ids_fini(&known);
    rig_talk_fini(&talk);
}

static void every_turn_continues_the_one_before(void **state)
{
    size_t n_done = 0;

    for (size_t i = 0; i < ARRAY_LEN(talks); i++) {
        struct rig_model model;
        struct tally tally = {0};

        if (!rig_model_open(talks[i].template_name, &model)) {
            print_message("no template %s here\n", talks[i].template_name);
            continue;
        }
        for (uint64_t seed = 1; seed <= N_SEEDS; seed++)
            talk(&model, &talks[i].traits, seed, &tally);
        print_message("%-12s %-8s %3zu turns, %6zu prompt tokens, %5zu computed (%zu without answer cache)\n",
                      model.name, talks[i].what, tally.n_turns, tally.n_tokens, tally.n_new, tally.n_plain);
        rig_model_close(&model);
        n_done++;
    }
    assert_true(n_done > 0);
}

/* ---- messages that count as the same ---- */

static const char answer_body[] =
    "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"Let me look.\\n\"},"
    "{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"f\",\"input\":{\"b\":[1,2.5],\"a\":\"\xc3\xa9\"}},"
    "{\"type\":\"text\",\"text\":\"And more\"}]}";

static bool is_same(const char *message)
{
    struct cached_answer *answer = NULL;
    struct gen_request ours, theirs;
    struct bytes sorted[8] = {{0}};
    struct buf room = {0};
    bool is_equal;

    rig_parse_message(answer_body, &ours);
    rig_parse_message(message, &theirs);
    assert_int_equal(cached_answer_new(&answer), 0);
    answer->blocks = ours.messages[1].blocks;
    answer->n_blocks = ours.messages[1].n_blocks;
    answer->sorted = sorted;
    assert_int_equal(api_json_sort(answer->blocks[1].input, &room), 0);
    sorted[1] = buf_view(&room);
    is_equal = replay_is_equal(answer, &theirs.messages[1]);
    cached_answer_unref(answer);
    buf_fini(&room);
    gen_request_fini(&ours);
    gen_request_fini(&theirs);
    return is_equal;
}

#define TEXT(text)       "{\"type\":\"text\",\"text\":\"" text "\"},"
#define CALL(id, input)  "{\"type\":\"tool_use\",\"id\":\"" id "\",\"name\":\"f\",\"input\":" input "}"
#define MESSAGE(content) "{\"role\":\"assistant\",\"content\":[" content "]}"
#define INPUT            "{\"a\":\"\\u00e9\",\"b\":[1.0,25e-1]}"

static void equality_is_by_value(void **state)
{
    assert_true(is_same(answer_body));
    assert_true(is_same(MESSAGE(TEXT("Let me look.") TEXT("And more") CALL("t1", INPUT))));
    assert_true(is_same(MESSAGE(TEXT("Let me look.\\n\\nAnd more") CALL("t1", INPUT))));
    assert_true(is_same(MESSAGE(TEXT("Let me look. And more ") CALL("t1", INPUT))));
    assert_true(is_same(MESSAGE(TEXT(" Let me") TEXT("look.And more") CALL("t1", INPUT))));
    assert_false(is_same(MESSAGE(TEXT("Let me look.") TEXT("Andmore") CALL("t1", INPUT))));
    assert_false(is_same(MESSAGE(TEXT("Let me look.") TEXT("And  more") CALL("t1", INPUT))));
    assert_false(is_same(MESSAGE(TEXT("Let me look.") CALL("t1", INPUT))));
    assert_false(is_same(MESSAGE(TEXT("Let me look.") TEXT("And more.") CALL("t1", INPUT))));
    assert_false(is_same(MESSAGE(TEXT("Let me look.") TEXT("And more") CALL("t2", INPUT))));
    assert_false(is_same(
        MESSAGE(TEXT("Let me look.") TEXT("And more") CALL("t1", "{\"a\":\"\\u00e9\",\"b\":[1,2]}"))));
    assert_false(
        is_same(MESSAGE(TEXT("Let me look.") TEXT("And more") CALL("t1", INPUT) "," CALL("t3", INPUT))));
    assert_false(is_same(MESSAGE(TEXT("Let me look.") "{\"type\":\"text\",\"text\":\"And more\"}")));
}

static void an_edited_answer_is_rendered_as_sent(void **state)
{
    struct rig_model model;
    struct rig_talk talk;
    struct rig_turn now;

    assert_true(rig_model_open(NULL, &model));
    rig_talk_init(&talk, &model, 7, &(struct rig_traits){.has_system = true});
    rig_ask(&talk, true, &now);
    rig_answer(&talk, &now);
    rig_turn_fini(&now);
    rig_ask(&talk, true, &now);
    assert_int_equal(now.prompt.n_replayed, 1);
    rig_turn_fini(&now);
    rig_edit_last_answer(&talk, "Something else");
    rig_ask(&talk, true, &now);
    assert_int_equal(now.prompt.n_replayed, 0);
    assert_int_equal(now.prompt.ids.n, now.plain.ids.n);
    assert_memory_equal(now.prompt.ids.ids, now.plain.ids.ids, now.plain.ids.n * sizeof(token_id));
    rig_turn_fini(&now);
    rig_talk_fini(&talk);
    rig_model_close(&model);
}

/* A model that gives its calls ids receives results under these ids, not under the client's. */
static void expect_models_own_id(const char *template_name, const char *shown)
{
    struct rig_model model;
    struct rig_talk talk;
    struct rig_turn now;
    struct buf text = {0};

    if (!rig_model_open(template_name, &model))
        skip();
    rig_talk_init(&talk, &model, 5, &(struct rig_traits){.has_tools = true, .always_calls = true});
    rig_ask(&talk, true, &now);
    rig_answer(&talk, &now);
    rig_turn_fini(&now);
    rig_ask(&talk, true, &now);
    for (size_t i = 0; i < now.prompt.ids.n; i++) {
        struct bytes piece = tokenizer_piece(model.gen.tokenizer, now.prompt.ids.ids[i]);

        buf_append(&text, piece.data, piece.len_bytes);
    }
    assert_true(bytes_find(buf_view(&text), bytes_str(shown), 0) != SIZE_MAX);
    buf_fini(&text);
    rig_turn_fini(&now);
    rig_talk_fini(&talk);
    rig_model_close(&model);
}

static void results_name_the_models_own_ids(void **state)
{
    expect_models_own_id("mistral-nemo", "\"call_id\": \"call00000\"");
}

static void results_name_the_ids_that_kimi_drew(void **state)
{
    expect_models_own_id("kimi", "## Return of functions.read:40\n");
}

static void results_name_the_ids_that_solar_drew(void **state)
{
    expect_models_own_id("solar", "## Result of drawnid040\n");
}

/* Text between the marks of a call is not a call, and its id is no call's. */
static void ids_in_texts_are_no_calls(void **state)
{
    static const char answer[] =
        "<|tool_calls|><|tool_call:begin|>textid0001<|tool_call:name|>read<|tool_call:args|>what"
        "<|tool_call:end|><|tool_call:begin|>drawnid077<|tool_call:name|>read<|tool_call:args|>"
        "{\"path\": \"a\"}<|tool_call:end|>";
    struct rig_model model;
    struct rig_talk talk;
    struct rig_turn now;
    struct buf text = {0};

    (void)state;
    assert_true(rig_model_open("solar", &model));
    rig_talk_init(&talk, &model, 5, &(struct rig_traits){.has_tools = true});
    rig_ask(&talk, true, &now);
    rig_answer_text(&talk, &now, answer, GEN_STOP_END_TURN);
    rig_turn_fini(&now);
    rig_ask(&talk, true, &now);
    for (size_t i = 0; i < now.prompt.ids.n; i++) {
        struct bytes piece = tokenizer_piece(model.gen.tokenizer, now.prompt.ids.ids[i]);

        buf_append(&text, piece.data, piece.len_bytes);
    }
    assert_true(bytes_find(buf_view(&text), bytes_str("## Result of drawnid077\n"), 0) != SIZE_MAX);
    buf_fini(&text);
    rig_turn_fini(&now);
    rig_talk_fini(&talk);
    rig_model_close(&model);
}

/* Returns how many of the sampled tokens the next prompt has, after an answer with this end; SIZE_MAX: the
 * answer is not cached. */
static size_t kept_of(struct rig_model *model, const char *text, enum gen_stop stop, const char *stop_string,
                      uint64_t seed)
{
    struct token_ids known = {0};
    struct rig_talk talk;
    struct rig_turn now;
    size_t kept = SIZE_MAX, n_prompt, n_drawn;

    rig_talk_init(&talk, model, seed, &(struct rig_traits){.has_tools = true});
    if (stop_string != NULL)
        json_object_set_new(talk.head, "stop_sequences", json_pack("[s]", stop_string));
    rig_ask(&talk, true, &now);
    n_prompt = now.prompt.ids.n;
    rig_answer_text(&talk, &now, text, stop);
    n_drawn = now.drawn.n;
    token_ids_append(&known, now.prompt.ids.ids, now.prompt.ids.n);
    token_ids_append(&known, now.drawn.ids, now.drawn.n);
    rig_turn_fini(&now);
    rig_ask(&talk, true, &now);
    assert_int_equal(now.prompt.n_replayed, rig_n_remembered(&talk));
    if (rig_n_remembered(&talk) > 0) {
        kept = common(known.ids, known.n, &now.prompt.ids);
        assert_true(kept >= n_prompt);
        kept = kept - n_prompt == n_drawn ? n_drawn : kept - n_prompt;
    }
    rig_turn_fini(&now);
    rig_talk_fini(&talk);
    token_ids_fini(&known);
    return kept;
}

#define A_CALL "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>"

static void answers_that_were_cut_are_kept_as_far_as_they_go(void **state)
{
    struct rig_model model;

    assert_true(rig_model_open(NULL, &model));
    for (uint64_t seed = 1; seed <= 20; seed++) {
        /* Cut by a limit: all of it, up to a whole character, but not within a call or right after one. */
        size_t whole = kept_of(&model, "It reads the notes", GEN_STOP_MAX_TOKENS, NULL, seed);
        assert_true(whole > 3 && whole != SIZE_MAX);
        assert_true(kept_of(&model, "It reads \xe2\x82", GEN_STOP_MAX_TOKENS, NULL, seed) < whole);
        assert_int_equal(
            kept_of(&model, "Hm.\n<tool_call>\n{\"name\": \"read\", \"argu", GEN_STOP_CONTEXT, NULL, seed),
            SIZE_MAX);
        assert_int_equal(kept_of(&model, "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"pa",
                                 GEN_STOP_MAX_TOKENS, NULL, seed),
                         SIZE_MAX);
        assert_int_equal(kept_of(&model, A_CALL, GEN_STOP_MAX_TOKENS, NULL, seed), SIZE_MAX);
        /* Cut by a stop string: the text wholly before it. */
        size_t before = kept_of(&model, "It reads the notes. STOP and more", GEN_STOP_END_TURN, "STOP", seed);
        assert_true(before > 3 && before != SIZE_MAX);
        assert_int_equal(kept_of(&model, "STOP at once", GEN_STOP_END_TURN, "STOP", seed), SIZE_MAX);
        /* Whole calls, and text that only looks like one. */
        assert_true(kept_of(&model, A_CALL, GEN_STOP_END_TURN, NULL, seed) > 10);
        assert_true(kept_of(&model, "<tool_call>\nno call\n</tool_call>", GEN_STOP_END_TURN, NULL, seed) > 3);
    }
    rig_model_close(&model);
}

/* ---- the answer cache ---- */

static struct answer_key key_of(uint8_t n)
{
    return (struct answer_key){.bytes = {n}};
}

static void the_answer_cache_is_bounded(void **state)
{
    struct answer_cache *cache;
    struct cached_answer *held = NULL, *answer;
    struct answer_key key;

    assert_int_equal(answer_cache_new(10000, &cache), 0);
    for (uint8_t i = 0; i < 100; i++) {
        assert_int_equal(cached_answer_new(&answer), 0);
        assert_non_null(cached_answer_take(answer, 1000));
        key = key_of(i);
        answer_cache_put(cache, &key, answer);
        assert_true(answer_cache_bytes(cache) <= 10000);
        key = key_of(0); /* used each time, so it stays */
        answer = answer_cache_get(cache, &key, true);
        assert_non_null(answer);
        cached_answer_unref(answer);
        if (i == 50) {
            key = key_of(50);
            held = answer_cache_get(cache, &key, false);
        }
    }
    key = key_of(50);
    assert_null(answer_cache_get(cache, &key, true));
    assert_true(answer_cache_count(cache) > 3 && answer_cache_count(cache) < 10);
    assert_int_equal(cached_answer_new(&answer), 0);
    assert_non_null(cached_answer_take(answer, 20000));
    key = key_of(200);
    answer_cache_put(cache, &key, answer);
    assert_null(answer_cache_get(cache, &key, true));
    answer_cache_free(cache);
    cached_answer_unref(held); /* survives its eviction */
}

/* Makes a request: n_words words of the user, then, if given, an answer and another question. */
static void read_talk(size_t n_words, const char *answer, struct gen_request *request, struct replay *out)
{
    struct api_error error = {0};
    struct buf body = {0};

    buf_append_str(&body,
                   "{\"model\":\"m\",\"max_tokens\":9,\"system\":\"Be brief.\",\"messages\":["
                   "{\"role\":\"user\",\"content\":\"Hello\"},{\"role\":\"assistant\",\"content\":\"Yes?\"},"
                   "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"");
    for (size_t i = 0; i < n_words; i++)
        buf_printf(&body, "%zu ", i);
    buf_append_str(&body, ".\"},{\"type\":\"text\",\"text\":\"Go on\"}]}");
    if (answer != NULL)
        buf_printf(&body,
                   ",{\"role\":\"assistant\",\"content\":\"%s\"},{\"role\":\"user\",\"content\":\"And?\"}",
                   answer);
    buf_append_str(&body, "]}");
    assert_int_equal(api_parse_request(buf_view(&body), API_MESSAGES, request, &error), 0);
    assert_int_equal(replay_read(request, out), 0);
    buf_fini(&body);
}

/* An answer is found under its key, whether the messages before it were digested early or late. */
static void an_answers_key_is_the_same_early_and_late(void **state)
{
    static const struct {
        size_t n_words, n_later;
    } lengths[] = {{10, 1}, {30000, 1}, {60000, 0}}; /* 60,000 numbers are more than REPLAY_LATER_BYTES */

    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        struct gen_block block = {.kind = GEN_TEXT, .text = bytes_str("It is so.")};
        struct gen_message said = {.role = GEN_ASSISTANT, .blocks = &block, .n_blocks = 1};
        struct gen_request first, second;
        struct replay before, after;
        struct answer_key key, again;

        read_talk(lengths[i].n_words, NULL, &first, &before);
        read_talk(lengths[i].n_words, "It is so.", &second, &after);
        assert_int_equal(before.n_later, lengths[i].n_later);
        assert_int_equal(after.n_later, 1);
        assert_memory_equal(&before.keys[1], &after.keys[1], sizeof(key));
        assert_int_equal(replay_key_of(&before, &said, &key), 0);
        assert_memory_equal(&key, &after.keys[3], sizeof(key));
        assert_int_equal(replay_key_of(&before, &said, &again), 0); /* it belongs to a second choice */
        assert_memory_equal(&key, &again, sizeof(key));
        block.text = bytes_str("It is not so.");
        assert_int_equal(replay_key_of(&before, &said, &again), 0);
        assert_memory_not_equal(&key, &again, sizeof(key));
        replay_fini(&before);
        replay_fini(&after);
        gen_request_fini(&first);
        gen_request_fini(&second);
    }
}

static void tenants_and_models_are_apart(void **state)
{
    struct answer_key key = key_of(1), a, b, c, d;

    replay_key_for(&key, "a", "m", &a);
    replay_key_for(&key, "b", "m", &b);
    replay_key_for(&key, "a", "n", &c);
    replay_key_for(&key, "am", "", &d);
    assert_memory_not_equal(&a, &b, sizeof(a));
    assert_memory_not_equal(&a, &c, sizeof(a));
    assert_memory_not_equal(&a, &d, sizeof(a));
    replay_key_for(&key, "a", "m", &b);
    assert_memory_equal(&a, &b, sizeof(a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_turn_continues_the_one_before),
        cmocka_unit_test(equality_is_by_value),
        cmocka_unit_test(an_edited_answer_is_rendered_as_sent),
        cmocka_unit_test(results_name_the_models_own_ids),
        cmocka_unit_test(results_name_the_ids_that_kimi_drew),
        cmocka_unit_test(results_name_the_ids_that_solar_drew),
        cmocka_unit_test(ids_in_texts_are_no_calls),
        cmocka_unit_test(answers_that_were_cut_are_kept_as_far_as_they_go),
        cmocka_unit_test(the_answer_cache_is_bounded),
        cmocka_unit_test(an_answers_key_is_the_same_early_and_late),
        cmocka_unit_test(tenants_and_models_are_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
