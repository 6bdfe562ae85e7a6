/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of a long conversation before its dispatch: parsing, recognising our own answers, building the
 * prompt.
 *
 *     bench_prompt MODEL.gguf [KIB [MESSAGES [REPEATS [TEXT]]]]
 *
 * An agent's conversation of KIB (220) in MESSAGES (50), half of them tool calls with results, and four cache
 * breakpoints.  The prompt is built without the answer cache, and with all answers in it.  The text is a few
 * random words, or the file TEXT, repeated.  Medians, in ms of processor time, on one thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "text/json/json.h"
#include "serve/api/parse.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "base/str.h"
#include "serve/answer/transcript.h"
#include "tests/bench/bench_help.h"

#define REPEATS_MAX 101

static const char mark[] = ",\"cache_control\":{\"type\":\"ephemeral\"}";

struct bench {
    struct gen_model model;
    struct answer_cache *cache;
    struct rng rng;
    struct buf said; /* TEXT; empty: drawn */
    size_t at;       /* in it */
    size_t message_bytes;
    unsigned n_messages, repeats;
};

static void die(const char *what)
{
    fprintf(stderr, "bench_prompt: %s\n", what);
    exit(1);
}

static void open_model(struct bench *bench, const char *path)
{
    struct fault fault = {0};
    struct gguf *gguf;

    if (gguf_open(path, &fault, &gguf) < 0 || tokenizer_new(gguf, &fault, &bench->model.tokenizer) < 0 ||
        chat_format_new(bench->model.tokenizer, &fault, &bench->model.chat) < 0)
        die(fault.text);
    gguf_close(gguf);
    bench->model.block_tokens = 32;
}

static void read_text(struct bench *bench, const char *path)
{
    FILE *file = fopen(path, "r");
    char piece[4096];
    size_t n;

    if (file == NULL)
        die(path);
    while ((n = fread(piece, 1, sizeof(piece), file)) > 0)
        buf_append(&bench->said, piece, n);
    fclose(file);
}

static size_t char_begin(const struct bench *bench, size_t at)
{
    while (at < bench->said.len_bytes && (bench->said.data[at] & 0xc0) == 0x80)
        at++;
    return at;
}

/* Appends about the next n bytes of the file. */
static void put_said(struct bench *bench, struct buf *out, size_t n)
{
    struct buf quoted = {0};
    size_t end;

    if (bench->at + n > bench->said.len_bytes)
        bench->at = 0;
    end = char_begin(bench, bench->at + n < bench->said.len_bytes ? bench->at + n : bench->said.len_bytes);
    json_put_str(&quoted, bytes_of(bench->said.data + bench->at, end - bench->at));
    buf_append(out, quoted.data + 1, quoted.len_bytes - 2);
    buf_fini(&quoted);
    bench->at = end;
}

/* Appends prose, code and escapes, about n bytes. */
static void put_text(struct bench *bench, struct buf *out, size_t n)
{
    static const char *const words[] = {
        "the ",       "file ",   "returns ",   "a ",      "value;\\n    ",         "if (x != \\\"y\\\") ",
        "prefill ",   "decode ", "KV cache, ", "0x1f4c ", "r\xc3\xa9sum\xc3\xa9 ", "error: ",
        "line 17\\n", "and ",    "then ",      "router "};
    size_t end = out->len_bytes + n;

    if (bench->said.len_bytes > 0) {
        put_said(bench, out, n);
        return;
    }
    while (out->len_bytes < end)
        buf_append_str(out, words[rng_below(&bench->rng, sizeof(words) / sizeof(words[0]))]);
}

static void put_message(struct bench *bench, struct buf *out, unsigned i, bool is_marked)
{
    if (i % 2 == 0) {
        buf_append_str(out, "{\"role\":\"user\",\"content\":[");
        if (i > 0) {
            buf_printf(out, "{\"type\":\"tool_result\",\"tool_use_id\":\"t%u\",\"content\":\"", i - 1);
            put_text(bench, out, bench->message_bytes * 3 / 2);
            buf_append_str(out, "\"},");
        }
        buf_append_str(out, "{\"type\":\"text\",\"text\":\"go on\"");
        buf_append_str(out, is_marked ? mark : "");
        buf_append_str(out, "}]}");
        return;
    }
    buf_append_str(out, "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"");
    put_text(bench, out, bench->message_bytes / 4);
    buf_printf(out, "\"},{\"type\":\"tool_use\",\"id\":\"t%u\",\"name\":\"edit\",\"input\":{\"text\":\"", i);
    put_text(bench, out, bench->message_bytes / 4);
    buf_append_str(out, "\",\"path\":\"src/main.c\"}}]}");
}

static void put_request(struct bench *bench, struct buf *out, unsigned n)
{
    rng_init(&bench->rng, 1);
    bench->at = 0;
    buf_clear(out);
    buf_printf(
        out,
        "{\"model\":\"m\",\"max_tokens\":100,\"system\":[{\"type\":\"text\",\"text\":\"You help.\"%s}],"
        "\"tools\":[{\"name\":\"edit\",\"description\":\"Edits\",\"input_schema\":{\"type\":\"object\"}%s}],"
        "\"messages\":[",
        mark, mark);
    for (unsigned i = 0; i < n; i++) {
        buf_append_str(out, i > 0 ? "," : "");
        put_message(bench, out, i, i + 1 == n || i + 3 == n);
    }
    buf_append_str(out, "]}");
}

struct times {
    double parse, keys, find, prompt;
};

/* Time that this thread had a core, so that other load on the machine counts less. */
static uint64_t stamp_ns(void)
{
    struct timespec now;

    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) < 0)
        die("no processor clock");
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static double since(uint64_t *then)
{
    uint64_t now = stamp_ns();
    double ms = (double)(now - *then) / NS_PER_MS;

    *then = now;
    return ms;
}

/* One request's steps to its prompt; finish() frees the results. */
struct made {
    struct gen_request request;
    struct replay replay;
    struct prompt prompt;
};

static struct times make(struct bench *bench, const struct buf *body, struct made *out)
{
    struct api_error error = {0};
    struct times times;
    uint64_t then = stamp_ns();

    memset(out, 0, sizeof(*out));
    if (api_parse_request(buf_view(body), API_MESSAGES, &out->request, &error) < 0)
        die(error.message);
    times.parse = since(&then);
    if (replay_read(&out->request, &out->replay) < 0)
        die("out of memory");
    times.keys = since(&then);
    if (bench->cache != NULL)
        replay_find(&out->replay, bench->cache, "", "f", true);
    times.find = since(&then);
    if (prompt_make(&bench->model, &out->request, &out->replay, &out->prompt, &error) < 0)
        die(error.message);
    times.prompt = since(&then);
    return times;
}

static void finish(struct made *made)
{
    replay_fini(&made->replay);
    prompt_fini(&made->prompt);
    gen_request_fini(&made->request);
}

static double median(const struct times *all, unsigned n, size_t offset)
{
    double values[REPEATS_MAX];

    for (unsigned i = 0; i < n; i++)
        memcpy(&values[i], (const char *)&all[i] + offset, sizeof(double));
    return bench_median(values, n);
}

static void measure(struct bench *bench, const struct buf *body, const char *what)
{
    struct times all[REPEATS_MAX];
    struct made made;
    size_t n_tokens = 0, n_replayed = 0;

    for (unsigned i = 0; i < bench->repeats; i++) {
        all[i] = make(bench, body, &made);
        n_tokens = made.prompt.ids.n;
        n_replayed = made.prompt.n_replayed;
        finish(&made);
    }
    printf("%-10s %8zu tokens %3zu replayed  parse %6.2f  keys %6.2f  find %6.2f  prompt %6.2f ms\n", what,
           n_tokens, n_replayed, median(all, bench->repeats, offsetof(struct times, parse)),
           median(all, bench->repeats, offsetof(struct times, keys)),
           median(all, bench->repeats, offsetof(struct times, find)),
           median(all, bench->repeats, offsetof(struct times, prompt)));
}

static int open_nothing(void *arg)
{
    return 0;
}
static int take_text(void *arg, struct bytes text)
{
    return 0;
}
static int open_call(void *arg, const char *id, struct bytes name)
{
    return 0;
}
static int close_block(void *arg, enum calls_end how)
{
    return 0;
}
static const struct answer_sink null_sink = {open_nothing, take_text, open_nothing, take_text,
                                             take_text,    open_call, take_text,    close_block};

/* Caches the assistant's message number i of the conversation, as if it had been sampled here. */
static void remember(struct bench *bench, const struct gen_message *message, unsigned i)
{
    struct transcript *transcript;
    struct transcript_end end = {.model = &bench->model, .stop = GEN_STOP_TOOL_USE};
    struct cached_answer *answer;
    struct answer_key key;
    struct buf body = {0};
    struct made made;
    struct token_ids ids = {0};

    put_request(bench, &body, i);
    make(bench, &body, &made);
    end.prompt = &made.prompt;
    if (transcript_new(&null_sink, NULL, &transcript) < 0 ||
        tokenizer_encode(bench->model.tokenizer, message->blocks[0].text, 0, SIZE_MAX, &ids) < 0 ||
        tokenizer_encode(bench->model.tokenizer, message->blocks[1].input, 0, SIZE_MAX, &ids) < 0)
        die("out of memory");
    transcript_tokens(transcript, ids.ids, ids.n);
    transcript_sink.open_text(transcript);
    transcript_sink.text(transcript, message->blocks[0].text);
    transcript_sink.close(transcript, CALLS_WHOLE);
    transcript_sink.open_call(transcript, (const char *)message->blocks[1].id.data, message->blocks[1].name);
    transcript_sink.arguments(transcript, message->blocks[1].input);
    transcript_sink.close(transcript, CALLS_WHOLE);
    if (transcript_finish(transcript, &end, &answer) < 0 || replay_key_of(&made.replay, message, &key) < 0)
        die("an answer cannot be remembered");
    replay_key_for(&key, "", "f", &key);
    answer_cache_put(bench->cache, &key, answer);
    transcript_free(transcript);
    token_ids_fini(&ids);
    finish(&made);
    buf_fini(&body);
}

int main(int argc, char **argv)
{
    size_t kib = argc > 2 ? strtoul(argv[2], NULL, 10) : 220;
    struct bench bench = {.n_messages = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 50,
                          .repeats = argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) : 31};
    struct buf body = {0};
    struct made made;

    if (argc < 2 || bench.n_messages < 4 || bench.repeats == 0 || bench.repeats > REPEATS_MAX)
        die("bench_prompt MODEL.gguf [KIB [MESSAGES [REPEATS [TEXT]]]]");
    if (argc > 5)
        read_text(&bench, argv[5]);
    open_model(&bench, argv[1]);
    bench.n_messages |= 1; /* the last is the user's */
    bench.message_bytes = kib * 1024 / bench.n_messages;
    put_request(&bench, &body, bench.n_messages);
    printf("%zu KiB, %u messages, 4 breakpoints\n", body.len_bytes / 1024, bench.n_messages);
    measure(&bench, &body, "rendered");
    if (answer_cache_new((size_t)64 << 20, &bench.cache) < 0)
        die("out of memory");
    make(&bench, &body, &made);
    for (unsigned i = 1; i < bench.n_messages; i += 2)
        remember(&bench, &made.request.messages[i], i);
    finish(&made);
    measure(&bench, &body, "replayed");
    printf("%zu answers in %zu KiB\n", answer_cache_count(bench.cache),
           answer_cache_bytes(bench.cache) / 1024);
    answer_cache_free(bench.cache);
    buf_fini(&body);
    buf_fini(&bench.said);
    chat_format_free(bench.model.chat);
    tokenizer_unref(bench.model.tokenizer);
    return 0;
}
