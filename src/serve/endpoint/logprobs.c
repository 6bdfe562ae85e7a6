/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the tokens that made each piece of delivered text.
 *
 *     entries:   [ ready ... | pending ... ]
 *     held:                    the text of the pending tokens, from the detokeniser
 *
 * Prompt tokens are ready at once, because all of their text counts.
 *
 * Delivered text is searched for in the held text.  Held text before it was not delivered, so it is
 * dropped with its tokens.  A token is ready when its last byte is delivered.  When no more text comes,
 * its first byte is enough. */
#include "serve/endpoint/logprobs_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

struct entry {
    token_id id;
    float logprob;
    uint32_t n_top;
    bool is_unknown;    /* it has no logprob */
    bool is_begun;      /* part of its text was delivered */
    size_t start, end;  /* the bytes of its text in held (pending) */
    size_t text_offset; /* where its text begins in the answer, in characters (ready) */
};

struct logprobs {
    const struct tokenizer *tokenizer;
    struct detok detok;
    struct detok given; /* detokeniser of the prompt's tokens */
    uint32_t n_top;     /* size of each entry in tops */
    struct entry *entries;
    struct sample_top *tops; /* [cap][n_top] */
    size_t n, n_ready, cap;
    struct buf held;
    size_t n_chars;    /* characters delivered */
    bool is_elsewhere; /* the tokens before went into a call or thinking */
};

int logprobs_new(const struct tokenizer *tokenizer, uint32_t n_top, bool is_continuation,
                 struct logprobs **out)
{
    struct logprobs *logprobs = calloc(1, sizeof(*logprobs));

    if (logprobs == NULL)
        return E_NOMEM;
    logprobs->tokenizer = tokenizer;
    logprobs->n_top = n_top < SAMPLE_MAX_TOP ? n_top : SAMPLE_MAX_TOP;
    detok_init(&logprobs->detok, tokenizer, is_continuation);
    detok_init(&logprobs->given, tokenizer, is_continuation);
    *out = logprobs;
    return 0;
}

void logprobs_begin_text(struct logprobs *logprobs)
{
    detok_init(&logprobs->given, logprobs->tokenizer, false);
}

void logprobs_free(struct logprobs *logprobs)
{
    if (logprobs == NULL)
        return;
    free(logprobs->entries);
    free(logprobs->tops);
    buf_fini(&logprobs->held);
    free(logprobs);
}

static int logprobs_grow(struct logprobs *logprobs, size_t cap)
{
    struct entry *entries = realloc(logprobs->entries, cap * sizeof(*entries));
    struct sample_top *tops;

    if (entries == NULL)
        return E_NOMEM;
    logprobs->entries = entries;
    tops = realloc(logprobs->tops, (cap * logprobs->n_top + 1) * sizeof(*tops));
    if (tops == NULL)
        return E_NOMEM;
    logprobs->tops = tops;
    logprobs->cap = cap;
    return 0;
}

int logprobs_reserve(struct logprobs *logprobs, size_t n)
{
    return n > logprobs->cap ? logprobs_grow(logprobs, n) : 0;
}

/* Makes room for one more. */
static int logprobs_room(struct logprobs *logprobs)
{
    if (logprobs->n < logprobs->cap)
        return 0;
    return logprobs_grow(logprobs, logprobs->cap == 0 ? 16 : logprobs->cap * 2);
}

static struct sample_top *tops_of(struct logprobs *logprobs, size_t i)
{
    return logprobs->tops + i * logprobs->n_top;
}

int logprobs_push(struct logprobs *logprobs, const struct sample_result *draw)
{
    uint32_t n_top = draw->n_top < logprobs->n_top ? draw->n_top : logprobs->n_top;
    size_t start = logprobs->held.len_bytes;

    if (logprobs_room(logprobs) < 0)
        return E_NOMEM;
    if (detok_push(&logprobs->detok, draw->id, &logprobs->held) < 0)
        return E_NOMEM;
    if (n_top > 0)
        memcpy(tops_of(logprobs, logprobs->n), draw->top, n_top * sizeof(draw->top[0]));
    logprobs->entries[logprobs->n++] = (struct entry){.id = draw->id,
                                                      .logprob = draw->logprob,
                                                      .n_top = n_top,
                                                      .start = start,
                                                      .end = logprobs->held.len_bytes};
    return 0;
}

/* ---- prompt tokens ---- */

static size_t count_chars(const uint8_t *text, size_t len_bytes)
{
    size_t n = 0;

    for (size_t i = 0; i < len_bytes; i++)
        n += (text[i] & 0xc0) != 0x80;
    return n;
}

int logprobs_push_prompt(struct logprobs *logprobs, const struct sample_result *score, bool is_unknown)
{
    uint32_t n_top = score->n_top < logprobs->n_top ? score->n_top : logprobs->n_top;
    struct buf text = {0};

    if (logprobs_room(logprobs) < 0)
        return E_NOMEM;
    if (detok_push(&logprobs->given, score->id, &text) < 0) {
        buf_fini(&text);
        return E_NOMEM;
    }
    if (n_top > 0)
        memcpy(tops_of(logprobs, logprobs->n), score->top, n_top * sizeof(score->top[0]));
    logprobs->entries[logprobs->n++] = (struct entry){.id = score->id,
                                                      .logprob = score->logprob,
                                                      .n_top = n_top,
                                                      .is_unknown = is_unknown,
                                                      .text_offset = logprobs->n_chars};
    logprobs->n_ready = logprobs->n;
    logprobs->n_chars += count_chars(text.data, text.len_bytes);
    buf_fini(&text);
    return 0;
}

void logprobs_end_prompt(struct logprobs *logprobs, struct bytes text)
{
    logprobs->n_chars = count_chars(text.data, text.len_bytes);
}

/* ---- from pending to ready ---- */

/* Moves entry i to the end of the kept entries. */
static void logprobs_keep(struct logprobs *logprobs, size_t i, size_t *n_kept)
{
    if (*n_kept != i) {
        logprobs->entries[*n_kept] = logprobs->entries[i];
        if (logprobs->n_top > 0)
            memcpy(tops_of(logprobs, *n_kept), tops_of(logprobs, i),
                   logprobs->n_top * sizeof(struct sample_top));
    }
    (*n_kept)++;
}

void logprobs_text(struct logprobs *logprobs, struct bytes text)
{
    size_t from = bytes_find(buf_view(&logprobs->held), text, 0);
    size_t n_kept = logprobs->n_ready;
    size_t to;

    logprobs->is_elsewhere = false;
    if (from == SIZE_MAX)
        return;
    to = from + text.len_bytes;
    for (size_t i = logprobs->n_ready; i < logprobs->n; i++) {
        struct entry *entry = &logprobs->entries[i];

        if (entry->end <= from && entry->start < from)
            continue; /* its text is not part of the answer */
        if (entry->start < to && !entry->is_begun) {
            size_t at = entry->start > from ? entry->start : from;

            entry->text_offset = logprobs->n_chars + count_chars(text.data, at - from);
            entry->is_begun = true;
        }
        logprobs->n_ready += entry->start < to && entry->end <= to;
        entry->start -= entry->start < to ? entry->start : to;
        entry->end -= entry->end < to ? entry->end : to;
        logprobs_keep(logprobs, i, &n_kept);
    }
    logprobs->n = n_kept;
    logprobs->n_chars += count_chars(text.data, text.len_bytes);
    buf_consume(&logprobs->held, to);
}

/* True for a token of a character at the end of the text that has not become whole. */
static bool is_of_half(const struct logprobs *logprobs, const struct entry *entry)
{
    return entry->start == logprobs->held.len_bytes && detok_is_half(&logprobs->detok) &&
           !tokenizer_is_control(logprobs->tokenizer, entry->id);
}

static void logprobs_drop(struct logprobs *logprobs, bool keeps_half)
{
    size_t n_kept = logprobs->n_ready;

    for (size_t i = logprobs->n_ready; i < logprobs->n; i++) {
        struct entry *entry = &logprobs->entries[i];

        if (!entry->is_begun && (!keeps_half || !is_of_half(logprobs, entry)))
            continue;
        if (!entry->is_begun)
            entry->text_offset = logprobs->n_chars;
        logprobs_keep(logprobs, i, &n_kept);
    }
    logprobs->n = logprobs->n_ready = n_kept;
    buf_clear(&logprobs->held);
}

void logprobs_skip(struct logprobs *logprobs)
{
    logprobs->is_elsewhere = true;
    logprobs_drop(logprobs, false);
}

void logprobs_end_text(struct logprobs *logprobs)
{
    logprobs_drop(logprobs, !logprobs->is_elsewhere);
}

bool logprobs_is_ready(const struct logprobs *logprobs)
{
    return logprobs->n_ready > 0;
}

/* ---- writing ---- */

static void forget_ready(struct logprobs *logprobs)
{
    size_t n_ready = logprobs->n_ready;
    size_t n_kept = 0;

    logprobs->n_ready = 0;
    for (size_t i = n_ready; i < logprobs->n; i++)
        logprobs_keep(logprobs, i, &n_kept);
    logprobs->n = n_kept;
}

static void logprobs_put_value(struct buf *out, float logprob)
{
    if (isfinite(logprob))
        buf_printf(out, "%.9g", logprob == 0 ? 0.0 : (double)logprob); /* avoids "-0" */
    else
        buf_append_str(out, "-9999.0"); /* JSON has no infinity; clients know this number */
}

static void put_token(struct logprobs *logprobs, token_id id, float logprob, struct buf *out)
{
    struct bytes piece = tokenizer_piece(logprobs->tokenizer, id);

    buf_append_str(out, "\"token\":");
    json_put_str(out, piece);
    buf_append_str(out, ",\"logprob\":");
    logprobs_put_value(out, logprob);
    buf_append_str(out, ",\"bytes\":[");
    for (size_t i = 0; i < piece.len_bytes; i++)
        buf_printf(out, "%s%u", i == 0 ? "" : ",", piece.data[i]);
    buf_append_byte(out, ']');
}

int logprobs_put_items(struct logprobs *logprobs, struct buf *out)
{
    for (size_t i = 0; i < logprobs->n_ready; i++) {
        const struct entry *entry = &logprobs->entries[i];
        const struct sample_top *tops = tops_of(logprobs, i);

        buf_append_str(out, i == 0 ? "{" : ",{");
        put_token(logprobs, entry->id, entry->logprob, out);
        buf_append_str(out, ",\"top_logprobs\":[");
        for (uint32_t k = 0; k < entry->n_top; k++) {
            buf_append_str(out, k == 0 ? "{" : ",{");
            put_token(logprobs, tops[k].id, tops[k].logprob, out);
            buf_append_byte(out, '}');
        }
        buf_append_str(out, "]}");
    }
    forget_ready(logprobs);
    return out->is_bad ? E_NOMEM : 0;
}

int logprobs_put_chat(struct logprobs *logprobs, struct buf *out)
{
    buf_append_str(out, "{\"content\":[");
    logprobs_put_items(logprobs, out);
    return buf_append_str(out, "],\"refusal\":null}");
}

/* Writes a token as a string that distinguishes it from other tokens, even if it is half a character. */
static void logprobs_put_name(struct logprobs *logprobs, token_id id, struct buf *out)
{
    struct bytes piece = tokenizer_piece(logprobs->tokenizer, id);
    struct buf name = {0};

    if (utf8_valid_prefix(piece) == piece.len_bytes) {
        json_put_str(out, piece);
        return;
    }
    buf_append_str(&name, "bytes:");
    for (size_t i = 0; i < piece.len_bytes; i++)
        buf_printf(&name, "\\x%02x", piece.data[i]);
    json_put_str(out, buf_view(&name));
    buf_fini(&name);
}

static bool logprobs_is_among(const struct sample_top *tops, uint32_t n, token_id id)
{
    for (uint32_t i = 0; i < n; i++)
        if (tops[i].id == id)
            return true;
    return false;
}

/* Writes the likeliest tokens, and the sampled one if it is not among them. */
static void put_map(struct logprobs *logprobs, size_t i, struct buf *out)
{
    const struct entry *entry = &logprobs->entries[i];
    const struct sample_top *tops = tops_of(logprobs, i);

    buf_append_byte(out, '{');
    for (uint32_t k = 0; k < entry->n_top; k++) {
        if (k > 0)
            buf_append_byte(out, ',');
        logprobs_put_name(logprobs, tops[k].id, out);
        buf_append_byte(out, ':');
        logprobs_put_value(out, tops[k].logprob);
    }
    if (!logprobs_is_among(tops, entry->n_top, entry->id)) {
        if (entry->n_top > 0)
            buf_append_byte(out, ',');
        logprobs_put_name(logprobs, entry->id, out);
        buf_append_byte(out, ':');
        logprobs_put_value(out, entry->logprob);
    }
    buf_append_byte(out, '}');
}

int logprobs_put_text(struct logprobs *logprobs, struct buf *out)
{
    size_t n = logprobs->n_ready;

    buf_append_str(out, "{\"tokens\":[");
    for (size_t i = 0; i < n; i++) {
        buf_append_str(out, i == 0 ? "" : ",");
        logprobs_put_name(logprobs, logprobs->entries[i].id, out);
    }
    buf_append_str(out, "],\"token_logprobs\":[");
    for (size_t i = 0; i < n; i++) {
        buf_append_str(out, i == 0 ? "" : ",");
        if (logprobs->entries[i].is_unknown)
            buf_append_str(out, "null");
        else
            logprobs_put_value(out, logprobs->entries[i].logprob);
    }
    buf_append_str(out, logprobs->n_top == 0 ? "],\"top_logprobs\":null" : "],\"top_logprobs\":[");
    for (size_t i = 0; i < n && logprobs->n_top > 0; i++) {
        buf_append_str(out, i == 0 ? "" : ",");
        if (logprobs->entries[i].is_unknown)
            buf_append_str(out, "null");
        else
            put_map(logprobs, i, out);
    }
    buf_append_str(out, logprobs->n_top == 0 ? ",\"text_offset\":[" : "],\"text_offset\":[");
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "%s%zu", i == 0 ? "" : ",", logprobs->entries[i].text_offset);
    buf_append_str(out, "]}");
    forget_ready(logprobs);
    return out->is_bad ? E_NOMEM : 0;
}
