/* SPDX-License-Identifier: Apache-2.0 */
/* Both sides of random conversations.
 *
 * The client rewrites JSON in the worst way that keeps its value.  Only tools and system text, which no
 * client changes between turns, stay as they are. */
#include "tests/unit/serve/conversation/replay_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/json/json.h"
#include "serve/api/parse.h"
#include "base/err.h"
#include "text/toolcall/spell.h"
#include "base/str.h"
#include "tests/unit/check.h"

static struct answer_scratch scratch;

/* ---- the client ---- */

static bool chance(struct rig_talk *talk, unsigned percent)
{
    return rng_below(&talk->rng, 100) < percent;
}

static void put_blanks(struct rig_talk *talk, struct buf *out)
{
    static const char *const blanks[] = {"", "", " ", "\n  ", "\t"};

    buf_append_str(out, blanks[rng_below(&talk->rng, ARRAY_LEN(blanks))]);
}

static void put_escaped(struct rig_talk *talk, struct bytes text, struct buf *out)
{
    size_t len;

    buf_append_byte(out, '"');
    for (size_t at = 0; at < text.len_bytes; at += len) {
        uint32_t code = utf8_next(text, at, &len);

        if (code < 0x20 || code == '"' || code == '\\' || (code < 0x10000 && chance(talk, 20)))
            buf_printf(out, "\\u%04x", (unsigned)code);
        else
            buf_append(out, text.data + at, len);
    }
    buf_append_byte(out, '"');
}

static void put_wild(struct rig_talk *talk, const json_t *value, struct buf *out);

static void put_members(struct rig_talk *talk, const json_t *object, struct buf *out)
{
    size_t n = json_object_size(object), i = 0;
    const char *keys[32], *key;
    json_t *value;

    assert_true(n <= ARRAY_LEN(keys));
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        keys[i++] = key;
    }
    for (i = 0; i < n; i++) {
        size_t k = i + (size_t)rng_below(&talk->rng, n - i);
        const char *swap = keys[i];

        keys[i] = keys[k];
        keys[k] = swap;
        buf_append_str(out, i > 0 ? "," : "{");
        put_blanks(talk, out);
        put_escaped(talk, bytes_str(keys[i]), out);
        buf_append_byte(out, ':');
        put_wild(talk, json_object_get(object, keys[i]), out);
    }
    buf_append_str(out, n == 0 ? "{}" : "}");
}

static void put_wild(struct rig_talk *talk, const json_t *value, struct buf *out)
{
    put_blanks(talk, out);
    if (json_is_object(value)) {
        put_members(talk, value, out);
    } else if (json_is_array(value)) {
        buf_append_byte(out, '[');
        for (size_t i = 0; i < json_array_size(value); i++) {
            buf_append_str(out, i > 0 ? "," : "");
            put_wild(talk, json_array_get(value, i), out);
        }
        buf_append_byte(out, ']');
    } else if (json_is_string(value)) {
        put_escaped(talk, api_json_str(value), out);
    } else if (json_is_integer(value) && chance(talk, 50)) {
        buf_printf(out, chance(talk, 50) ? "%lld.0" : "%llde0", (long long)json_integer_value(value));
    } else {
        api_json_put(out, value);
    }
    put_blanks(talk, out);
}

/* Changes the texts of an assistant's blocks as this client does today:
 * trimmed, joined, or moved before its calls. */
static json_t *as_today(struct rig_talk *talk, const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    json_t *copy = json_deep_copy(message), *blocks = json_array(), *calls = json_array();
    bool moves = chance(talk, 50), trims = chance(talk, 50), drops = chance(talk, 70);

    if (!json_is_array(content) || !bytes_is(api_json_str(json_object_get(message, "role")), "assistant")) {
        json_decref(blocks);
        json_decref(calls);
        return copy;
    }
    for (size_t i = 0; i < json_array_size(content); i++) {
        json_t *block = json_deep_copy(json_array_get(content, i));
        struct bytes text = api_json_str(json_object_get(block, "text"));

        if (drops && json_object_get(block, "thinking") != NULL) {
            json_decref(block);
            continue;
        }

        while (trims && text.len_bytes > 0 && strchr(" \n", text.data[text.len_bytes - 1]) != NULL)
            text.len_bytes--;
        if (text.data != NULL)
            json_object_set_new(block, "text", json_stringn((const char *)text.data, text.len_bytes));
        json_array_append_new(text.data == NULL && moves ? calls : blocks, block);
    }
    json_array_extend(blocks, calls);
    json_decref(calls);
    json_object_set_new(copy, "content", blocks);
    return copy;
}

static void write_request(struct rig_talk *talk, struct buf *out)
{
    struct buf head = {0};

    assert_int_equal(api_json_put(&head, talk->head), 0);
    buf_append(out, head.data, head.len_bytes - 1);
    buf_append_str(out, ",\"messages\":[");
    for (size_t i = 0; i < json_array_size(talk->messages); i++) {
        json_t *message = as_today(talk, json_array_get(talk->messages, i));

        buf_append_str(out, i > 0 ? "," : "");
        put_wild(talk, message, out);
        json_decref(message);
    }
    buf_append_str(out, "]}");
    buf_fini(&head);
}

static void say(struct rig_talk *talk, const char *role, json_t *content)
{
    json_array_append_new(talk->messages, json_pack("{s:s,s:o}", "role", role, "content", content));
}

static void put_words(struct rig_talk *talk, struct buf *out)
{
    static const char *const words[] = {"read", "the file", " notes.txt",   "\xc3\xa9t\xc3\xa9", "12",
                                        "\n\n", ", and",    "<|im_end|>",   "tool call",         "  twice",
                                        "it's", "{\"a\"",   "\xe2\x82\xac", "don't stop",        "\\n"};

    buf_append_str(out, "Word");
    for (uint64_t n = 1 + rng_below(&talk->rng, 8); n > 0; n--) {
        buf_append_str(out, words[rng_below(&talk->rng, ARRAY_LEN(words))]);
        buf_append_str(out, chance(talk, 70) ? " " : "");
    }
    buf_append_str(out, "end");
}

static json_t *words(struct rig_talk *talk)
{
    struct buf text = {0};
    json_t *value;

    put_words(talk, &text);
    value = json_stringn((char *)text.data, text.len_bytes);
    buf_fini(&text);
    return value;
}

void rig_talk_init(struct rig_talk *talk, struct rig_model *model, uint64_t seed,
                   const struct rig_traits *traits)
{
    json_t *schema;

    memset(talk, 0, sizeof(*talk));
    rng_init(&talk->rng, seed);
    talk->model = model;
    talk->traits = *traits;
    talk->messages = json_array();
    talk->head = json_pack("{s:s,s:i}", "model", "m", "max_tokens", 64);
    if (traits->has_system)
        json_object_set_new(talk->head, "system", json_string("You are a helper. Be short."));
    schema = json_pack("{s:s,s:{s:{s:s,s:s}}}", "type", "object", "properties", "path", "type", "string",
                       "description", "which");
    if (traits->has_tools)
        json_object_set_new(talk->head, "tools",
                            json_pack("[{s:s,s:s,s:O}]", "name", "read", "description", "Reads a file",
                                      "input_schema", schema));
    json_decref(schema);
    assert_int_equal(answer_cache_new(1 << 20, &talk->cache), 0);
    say(talk, "user", words(talk));
}

void rig_talk_fini(struct rig_talk *talk)
{
    json_decref(talk->head);
    json_decref(talk->messages);
    answer_cache_free(talk->cache);
}

void rig_ask(struct rig_talk *talk, bool has_memory, struct rig_turn *turn)
{
    struct gen_model *model = &talk->model->gen;
    struct api_error error = {0};
    struct buf body = {0};

    memset(turn, 0, sizeof(*turn));
    write_request(talk, &body);
    if (api_parse_request(buf_view(&body), API_MESSAGES, &turn->request, &error) < 0 ||
        prompt_make(model, &turn->request, NULL, &turn->plain, &error) < 0)
        fail_msg("%s: %s in %s", talk->model->name, error.message, (char *)body.data);
    assert_int_equal(replay_read(&turn->request, &turn->replay), 0);
    if (has_memory)
        replay_find(&turn->replay, talk->cache, "tenant", model->fingerprint, true);
    if (prompt_make(model, &turn->request, &turn->replay, &turn->prompt, &error) < 0)
        fail_msg("%s: %s in %s", talk->model->name, error.message, (char *)body.data);
    assert_true(turn->prompt.base_tokens > 0);
    buf_fini(&body);
}

void rig_turn_fini(struct rig_turn *turn)
{
    replay_fini(&turn->replay);
    prompt_fini(&turn->prompt);
    prompt_fini(&turn->plain);
    gen_request_fini(&turn->request);
    token_ids_fini(&turn->drawn);
}

/* ---- the model's side ---- */

/* The client's version of the answer's blocks. */
struct got {
    json_t *content;
    bool is_thinking;
    struct buf text, signature;
    char id[64], name[64];
};

static int got_open_text(void *arg)
{
    return 0;
}

static int got_open_thinking(void *arg)
{
    ((struct got *)arg)->is_thinking = true;
    return 0;
}

static int got_text(void *arg, struct bytes text)
{
    return buf_append(&((struct got *)arg)->text, text.data, text.len_bytes);
}

static int got_open_call(void *arg, const char *id, struct bytes name)
{
    struct got *got = arg;

    snprintf(got->id, sizeof(got->id), "%s", id);
    snprintf(got->name, sizeof(got->name), "%.*s", (int)name.len_bytes, (const char *)name.data);
    return 0;
}

static int got_close(void *arg, enum calls_end how)
{
    struct got *got = arg;
    json_t *input = NULL;

    if (how == CALLS_CUT) { /* the client repairs it as far as possible */
        buf_clear(&got->text);
        buf_append_str(&got->text, "{}");
    }
    if (got->is_thinking) {
        json_array_append_new(got->content,
                              json_pack("{s:s,s:s%,s:s%}", "type", "thinking", "thinking",
                                        (char *)got->text.data, got->text.len_bytes, "signature",
                                        (char *)got->signature.data, got->signature.len_bytes));
    } else if (got->id[0] == '\0') {
        /* no client sees the marks around an answer */
        assert_true(bytes_find(buf_view(&got->text), bytes_str("_RESPONSE|>"), 0) == SIZE_MAX);
        json_array_append_new(got->content, json_pack("{s:s,s:s%}", "type", "text", "text",
                                                      (char *)got->text.data, got->text.len_bytes));
    } else {
        assert_int_equal(api_json_load(buf_view(&got->text), NULL, &input), 0);
        json_array_append_new(got->content, json_pack("{s:s,s:s,s:s,s:o}", "type", "tool_use", "id", got->id,
                                                      "name", got->name, "input", input));
    }
    got->id[0] = '\0';
    got->is_thinking = false;
    buf_fini(&got->text);
    buf_fini(&got->signature);
    return 0;
}

static int got_signature(void *arg, struct bytes signature)
{
    return buf_append(&((struct got *)arg)->signature, signature.data, signature.len_bytes);
}

static const struct answer_sink got_sink = {got_open_text, got_text,      got_open_thinking, got_text,
                                            got_signature, got_open_call, got_text,          got_close};

static void put_input(struct rig_talk *talk, struct buf *out)
{
    json_t *input = json_pack("{s:o,s:i,s:[i,f],s:{s:b}}", "path", words(talk), "line",
                              (int)rng_below(&talk->rng, 1000), "range", 1, 2.5, "options", "deep", 1);

    if (chance(talk, 50))
        put_wild(talk, input, out); /* as this model writes it today */
    else
        api_json_put(out, input);
    json_decref(input);
}

static void put_spelled_calls(struct rig_talk *talk, enum calls_format calls, uint64_t n, struct buf *out)
{
    struct calls_spelling spelling = {0};

    for (uint64_t i = 0; i < n; i++) {
        struct buf input = {0};

        put_input(talk, &input);
        calls_spell(calls, bytes_str("read"), buf_view(&input), &spelling);
        buf_fini(&input);
    }
    calls_spell_end(calls, &spelling);
    buf_append(out, spelling.text.data, spelling.text.len_bytes);
    buf_fini(&spelling.text);
    buf_fini(&spelling.own);
}

/* Writes calls as this family of models does. */
static void put_calls(struct rig_talk *talk, uint64_t n, struct buf *out)
{
    enum calls_format calls = chat_format_info(talk->model->gen.chat)->calls;

    if (calls == CALLS_MINIMAX || calls == CALLS_GEMMA || calls == CALLS_KIMI_3 || calls == CALLS_MINIMAX_3) {
        put_spelled_calls(talk, calls, n, out);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        if (calls == CALLS_LLAMA) {
            buf_append_str(out, "{\"name\": \"read\", \"parameters\": ");
            put_input(talk, out);
            buf_append_str(out, "}");
        } else if (calls == CALLS_MISTRAL) {
            buf_append_str(out, i == 0 ? "[TOOL_CALLS][" : ", ");
            buf_append_str(out, "{\"name\": \"read\", \"arguments\": ");
            put_input(talk, out);
            buf_printf(out, ", \"id\": \"call0000%u\"}%s", (unsigned)i, i + 1 == n ? "]" : "");
        } else if (calls == CALLS_KIMI) {
            buf_append_str(out, i == 0 ? "<|tool_calls_section_begin|>" : "");
            buf_printf(out, "<|tool_call_begin|>functions.read:%u<|tool_call_argument_begin|>",
                       40 + (unsigned)i);
            put_input(talk, out);
            buf_append_str(out, "<|tool_call_end|>");
            buf_append_str(out, i + 1 == n ? "<|tool_calls_section_end|>" : "");
        } else if (calls == CALLS_SOLAR) {
            buf_printf(out, "%s<|tool_call:begin|>drawnid0%u<|tool_call:name|>read<|tool_call:args|>",
                       i == 0 ? "<|tool_calls|>" : "", 40 + (unsigned)i);
            put_input(talk, out);
            buf_append_str(out, "<|tool_call:end|>");
        } else if (calls == CALLS_FUNCTIONARY_ALL) {
            buf_printf(out, "%sread\n", out->len_bytes > 0 ? ">>>" : "");
            put_input(talk, out);
        } else if (calls == CALLS_COHERE) {
            buf_printf(out, "%s\n    {\"tool_call_id\": \"%u\", \"tool_name\": \"read\", \"parameters\": ",
                       i == 0 ? "<|START_ACTION|>[" : ",", (unsigned)i);
            put_input(talk, out);
            buf_append_str(out, i + 1 == n ? "}\n]<|END_ACTION|>" : "}");
        } else {
            assert_true(calls == CALLS_HERMES);
            buf_append_str(out, out->len_bytes > 0 ? "\n" : "");
            buf_append_str(out, "<tool_call>\n{\"name\": \"read\", \"arguments\": ");
            put_input(talk, out);
            buf_append_str(out, "}\n</tool_call>");
        }
    }
}

/* What stands before the text of an answer. */
static void put_answer_open(struct rig_talk *talk, bool is_text, struct buf *out)
{
    enum calls_format calls = chat_format_info(talk->model->gen.chat)->calls;

    if (calls == CALLS_MINIMAX_3)
        buf_append_str(out, "</mm:think>");
    if (calls == CALLS_COHERE && is_text)
        buf_append_str(out, "<|START_RESPONSE|>");
    if (calls == CALLS_SOLAR && is_text)
        buf_append_str(out, "<|content|>");
    if (calls == CALLS_FUNCTIONARY_ALL && is_text)
        buf_append_str(out, "all\n");
}

static void put_answer(struct rig_talk *talk, struct buf *out)
{
    enum calls_format calls = chat_format_info(talk->model->gen.chat)->calls;
    uint64_t most = calls == CALLS_LLAMA ? 1 : 3, n = 0;

    if (talk->traits.thinks && chance(talk, 80)) {
        buf_append_str(out, "<think>\nHmm. ");
        put_words(talk, out);
        buf_append_str(out, "\n</think>\n\n");
    }
    if (talk->traits.has_tools)
        n = talk->traits.always_calls ? 1 + rng_below(&talk->rng, most) : rng_below(&talk->rng, most + 1);
    put_answer_open(talk, n == 0, out);
    if (calls == CALLS_FUNCTIONARY_ALL && n > 0 && chance(talk, 50)) {
        buf_append_str(out, "all\n");
        put_words(talk, out);
    }
    if (n == 0 || (calls == CALLS_HERMES && chance(talk, 50)))
        put_words(talk, out);
    buf_append_str(out, calls == CALLS_COHERE && n == 0 ? "<|END_RESPONSE|>" : "");
    buf_append_str(out, calls == CALLS_KIMI_3 ? "<|close|>response<|sep|>" : "");
    put_calls(talk, n, out);
    buf_append_str(out, calls == CALLS_KIMI_3 ? "<|close|>message<|sep|>" : "");
}

/* Cuts the text anywhere, so that the tokens differ from the encoding of the whole text. */
static void draw(struct rig_talk *talk, struct bytes text, struct token_ids *out)
{
    for (size_t at = 0, n; at < text.len_bytes; at += n) {
        n = 1 + (size_t)rng_below(&talk->rng, 24);
        if (n > text.len_bytes - at)
            n = text.len_bytes - at;
        assert_int_equal(tokenizer_encode(talk->model->gen.tokenizer, bytes_of(text.data + at, n),
                                          TOKEN_PARSE_SPECIAL, SIZE_MAX, out),
                         0);
    }
}

static void remember(struct rig_talk *talk, struct rig_turn *turn, struct transcript *transcript,
                     const struct answer *answer, bool is_early)
{
    const struct transcript_end end = {.model = &talk->model->gen,
                                       .prompt = &turn->prompt,
                                       .answer = answer,
                                       .stop = answer_stop(answer),
                                       .is_early = is_early};
    struct cached_answer *remembered;
    struct gen_message message = {.role = GEN_ASSISTANT};
    struct answer_key key;

    if (transcript_finish(transcript, &end, &remembered) < 0)
        return;
    if (remembered->is_keyless) {
        cached_answer_unref(remembered);
        return;
    }
    message.blocks = remembered->blocks;
    message.n_blocks = remembered->n_blocks;
    assert_int_equal(replay_key_of(&turn->replay, &message, &key), 0);
    replay_key_for(&key, "tenant", talk->model->gen.fingerprint, &key);
    answer_cache_put(talk->cache, &key, remembered);
}

size_t rig_n_remembered(const struct rig_talk *talk)
{
    return answer_cache_count(talk->cache);
}

static void come_next(struct rig_talk *talk, const json_t *content)
{
    json_t *next = json_array();

    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *id = json_object_get(json_array_get(content, i), "id");

        if (id != NULL)
            json_array_append_new(next, json_pack("{s:s,s:s,s:o}", "type", "tool_result", "tool_use_id",
                                                  json_string_value(id), "content", words(talk)));
    }
    if (json_array_size(next) == 0 || (talk->traits.may_ask_again && chance(talk, 20)))
        json_array_append_new(next, json_pack("{s:s,s:o}", "type", "text", "text", words(talk)));
    say(talk, "user", next);
}

void rig_answer_text(struct rig_talk *talk, struct rig_turn *turn, const char *text, enum gen_stop stop)
{
    struct answer_opts opts = {.scratch = &scratch, .model = &talk->model->gen, .request = &turn->request};
    struct stop_set *set = NULL;
    struct got got = {.content = json_array()};
    struct transcript *transcript;
    struct answer *answer;
    int rc;

    if (turn->request.n_stop_sequences > 0)
        assert_int_equal(stop_set_new(turn->request.stop_sequences, turn->request.n_stop_sequences, &set), 0);
    opts.stops = set;
    draw(talk, bytes_str(text), &turn->drawn);
    assert_int_equal(transcript_new(&got_sink, &got, &transcript), 0);
    assert_int_equal(answer_new(&opts, &transcript_sink, transcript, &answer), 0);
    rc = answer_push(answer, turn->drawn.ids, turn->drawn.n);
    assert_true(rc >= 0);
    transcript_tokens(transcript, turn->drawn.ids, answer_tokens(answer));
    if (rc == 0)
        assert_int_equal(answer_finish(answer, stop), 0);
    remember(talk, turn, transcript, answer, rc == 1);
    come_next(talk, got.content);
    json_array_insert_new(talk->messages, json_array_size(talk->messages) - 1,
                          json_pack("{s:s,s:O}", "role", "assistant", "content", got.content));
    json_decref(got.content);
    answer_free(answer);
    stop_set_free(set);
    transcript_free(transcript);
}

void rig_answer(struct rig_talk *talk, struct rig_turn *turn)
{
    size_t before = answer_cache_count(talk->cache);
    struct buf text = {0};

    put_answer(talk, &text);
    rig_answer_text(talk, turn, (char *)text.data, GEN_STOP_END_TURN);
    assert_int_equal(answer_cache_count(talk->cache), before + 1);
    buf_fini(&text);
}

void rig_edit_last_answer(struct rig_talk *talk, const char *text)
{
    json_t *message = json_array_get(talk->messages, json_array_size(talk->messages) - 2);

    json_object_set_new(message, "content", json_string(text));
}

void rig_parse_message(const char *message, struct gen_request *out)
{
    json_t *parsed, *content, *results = json_array();
    struct api_error error = {0};
    struct buf body = {0};
    size_t i;
    json_t *block;

    assert_int_equal(api_json_load(bytes_str(message), NULL, &parsed), 0);
    content = json_object_get(parsed, "content");
    json_array_foreach(content, i, block)
    {
        if (json_object_get(block, "id") != NULL)
            json_array_append_new(results, json_pack("{s:s,s:O}", "type", "tool_result", "tool_use_id",
                                                     json_object_get(block, "id")));
    }
    json_array_append_new(results, json_pack("{s:s,s:s}", "type", "text", "text", "go on"));
    buf_append_str(&body,
                   "{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"q\"},");
    buf_append_str(&body, message);
    buf_append_str(&body, ",{\"role\":\"user\",\"content\":");
    assert_int_equal(api_json_put(&body, results), 0);
    buf_append_str(&body, "}]}");
    if (api_parse_request(buf_view(&body), API_MESSAGES, out, &error) < 0)
        fail_msg("%s", error.message);
    json_decref(results);
    json_decref(parsed);
    buf_fini(&body);
}
