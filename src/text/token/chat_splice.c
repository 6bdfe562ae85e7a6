/* SPDX-License-Identifier: Apache-2.0 */
/* Rendered text -> tokens. Finds places in the text and puts in recorded answers.
 *
 *     text    <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\n...
 *     parts   ............uuuu.uu..............................aaaaaaaaa.aaaaa........................uuuu
 *                                             |           |          |     |
 *                                          boundary    opening     last   close
 *
 * A template does not tell where a message begins and ends. But the mark of each byte names the message that
 * the byte belongs to, or none. The text between two messages is the template's own: it closes one (a token
 * that ends answers, then blanks) and opens the next. The *boundary* lies between the two.
 *
 * A recorded answer (struct chat_drawn) replaces [boundary, close) of its message. It holds the tokens that
 * opened the turn and the tokens that were sampled. The recorded opening may differ from what the template
 * writes for a finished turn.
 *
 * A recorded answer is used only if the tokens before it equal the prompt that it answered. Then the new
 * prompt begins with the old prompt and the old answer, even where encoding the text again would give other
 * tokens.
 *
 * The text is cut only where markers begin. So each part gets the same tokens as within the whole text. */
#include "text/token/chat_priv.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct extent { /* of a message in the text; first is SIZE_MAX: the template does not show it */
    size_t first, end;
    bool shows_thinking;
};

struct splice { /* state of one call */
    const struct chat_format *format;
    struct text text;
    struct extent *extents; /* [n_messages] */
    size_t n_messages;
    size_t *next_first; /* [n_messages + 1]: where the first shown message from this index on begins */
    struct text_span *spans;
    size_t n_spans, passed_spans;
    struct token_watch watches[CHAT_MAX_PLACES]; /* one for each place, ordered by at */
    size_t n_watches, passed_watches;
    size_t at; /* the text before this offset is encoded */
    size_t max_n;
    XXH3_state_t *sum; /* of out's first n_summed */
    size_t n_summed;
    struct token_ids *out;
};

uint64_t chat_sum(const token_id *ids, size_t n)
{
    return XXH3_64bits(ids, n * sizeof(*ids));
}

/* The sum of the first n ids of out. n never decreases between calls; sum_again() starts over. */
static uint64_t sum_to(struct splice *splice, size_t n)
{
    const token_id *ids = splice->out->ids;

    if (n > splice->n_summed)
        XXH3_64bits_update(splice->sum, ids + splice->n_summed, (n - splice->n_summed) * sizeof(*ids));
    splice->n_summed = n;
    return XXH3_64bits_digest(splice->sum);
}

static void sum_again(struct splice *splice)
{
    XXH3_64bits_reset(splice->sum);
    splice->n_summed = 0;
}

static uint32_t mark_at(const struct splice *splice, size_t at)
{
    return splice->text.marks == NULL ? splice->text.mark : splice->text.marks[at];
}

/* Returns where the run of bytes with the same mark ends. */
static size_t chat_splice_run_end(const struct splice *splice, size_t at)
{
    uint32_t mark = mark_at(splice, at);

    if (splice->text.marks == NULL)
        return splice->text.len_bytes;
    for (uint64_t some[4], same = (uint64_t)mark << 32 | mark; splice->text.len_bytes - at >= 8; at += 8) {
        memcpy(some, &splice->text.marks[at], sizeof(some));
        if (((some[0] ^ same) | (some[1] ^ same) | (some[2] ^ same) | (some[3] ^ same)) != 0)
            break;
    }
    while (at < splice->text.len_bytes && splice->text.marks[at] == mark)
        at++;
    return at;
}

/* ---- extents of messages and client spans ---- */

/* Adds a span of client text for the encoder; adjacent spans become one. */
static int add_span(struct splice *splice, size_t *cap, size_t from, size_t to)
{
    if (splice->n_spans > 0 && splice->spans[splice->n_spans - 1].to == from) {
        splice->spans[splice->n_spans - 1].to = to;
        return 0;
    }
    if (splice->n_spans == *cap) {
        size_t more = *cap == 0 ? 64 : *cap * 2;
        struct text_span *spans = realloc(splice->spans, more * sizeof(*spans));

        if (spans == NULL)
            return E_NOMEM;
        splice->spans = spans;
        *cap = more;
    }
    splice->spans[splice->n_spans++] = (struct text_span){.from = from, .to = to};
    return 0;
}

static void add_part(struct splice *splice, uint32_t part, size_t from, size_t to)
{
    struct extent *extent = &splice->extents[(part - 1) / PART_COUNT];

    if (extent->first == SIZE_MAX)
        extent->first = from;
    extent->end = to;
    extent->shows_thinking |= (part - 1) % PART_COUNT == PART_THINKING;
}

static int read_marks(struct splice *splice, struct chat_extras *extras, size_t *piece_ends)
{
    size_t cap = 0;
    int rc = 0;

    for (size_t at = 0, end; at < splice->text.len_bytes && rc == 0; at = end) {
        uint32_t mark = mark_at(splice, at), part = mark >> MARK_PART_SHIFT;
        size_t piece = 0;

        end = chat_splice_run_end(splice, at);
        if ((mark & MARK_CLIENT) != 0)
            rc = add_span(splice, &cap, at, end);
        if (part == 0)
            continue;
        add_part(splice, part, at, end);
        for (size_t i = 0; i < extras->n_places; i++) {
            const struct chat_place *place = &extras->places[i];

            if (i > 0 && extras->places[i - 1].n_messages != place->n_messages)
                piece = 0;
            if (place->text_bytes > 0 && part == PART_OF(place->n_messages, PART_TEXT + piece++))
                piece_ends[i] = end;
        }
    }
    return rc;
}

static int chat_splice_read_text(struct splice *splice, struct chat_extras *extras, size_t *piece_ends)
{
    splice->extents = calloc(splice->n_messages + 1, sizeof(*splice->extents));
    splice->next_first = calloc(splice->n_messages + 1, sizeof(*splice->next_first));
    if (splice->extents == NULL || splice->next_first == NULL)
        return E_NOMEM;
    for (size_t i = 0; i < splice->n_messages; i++)
        splice->extents[i].first = SIZE_MAX;
    int rc = read_marks(splice, extras, piece_ends);
    splice->next_first[splice->n_messages] = splice->text.len_bytes;
    for (size_t i = splice->n_messages; i-- > 0;) {
        size_t first = splice->extents[i].first;

        splice->next_first[i] = first < splice->next_first[i + 1] ? first : splice->next_first[i + 1];
    }
    return rc;
}

static bool chat_splice_is_blank(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Finds the first token that ends answers in [from, to), which is the template's own text; to: none. */
static size_t find_close(const struct splice *splice, size_t from, size_t to, size_t *len_out)
{
    const struct tokenizer *tokenizer = splice->format->tokenizer;
    struct bytes text = bytes_of(splice->text.data, to);
    size_t n, best = to;
    const token_id *ids = tokenizer_stop_ids(tokenizer, &n);

    for (size_t i = 0; i < n; i++) {
        struct bytes spelling = tokenizer_piece(tokenizer, ids[i]);
        size_t at = spelling.len_bytes == 0 ? SIZE_MAX : bytes_find(text, spelling, from);

        if (at < best && token_begins_at(tokenizer, text, at)) {
            best = at;
            *len_out = spelling.len_bytes;
        }
    }
    return best;
}

/* Returns the offset between the first n_messages messages and the next one: behind the token that closes the
 * last, or else at the first marker after it. is_joint_out: a marker begins there. */
static size_t find_boundary(const struct splice *splice, size_t n_messages, bool *is_joint_out)
{
    const struct tokenizer *tokenizer = splice->format->tokenizer;
    struct bytes text = bytes_of(splice->text.data, splice->text.len_bytes);
    size_t to = splice->next_first[n_messages], from = to, len_bytes = 0, boundary;

    while (from > 0 && mark_at(splice, from - 1) == 0)
        from--;
    size_t close = find_close(splice, from, to, &len_bytes);
    if (close < to) {
        boundary = close + len_bytes;
        while (boundary < to && chat_splice_is_blank(text.data[boundary]))
            boundary++;
    } else {
        boundary = from;
        while (boundary < to && !token_begins_at(tokenizer, text, boundary))
            boundary++;
        if (boundary == to)
            boundary = from;
    }
    *is_joint_out = boundary == text.len_bytes || token_begins_at(tokenizer, text, boundary);
    return boundary;
}

/* ---- places ---- */

static void find_places(struct splice *splice, struct chat_extras *extras, const size_t *piece_ends)
{
    for (size_t i = 0; i < extras->n_places; i++) {
        struct chat_place *place = &extras->places[i];
        size_t at = piece_ends[i];

        place->is_joint = false;
        if (place->text_bytes == 0)
            at = find_boundary(splice, place->n_messages, &place->is_joint);
        /* Templates may reorder messages. Places must not go backwards, so this one moves to the place
         * before. */
        if (i > 0 && at < splice->watches[i - 1].at)
            at = splice->watches[i - 1].at;
        splice->watches[i] = (struct token_watch){.at = at};
    }
    splice->n_watches = extras->n_places;
}

/* ---- assembly ---- */

static int encode_to(struct splice *splice, size_t to)
{
    while (splice->passed_spans < splice->n_spans && splice->spans[splice->passed_spans].to <= splice->at)
        splice->passed_spans++;
    struct token_stretch stretch = {.from = splice->at,
                                    .to = to,
                                    .spans = splice->spans + splice->passed_spans,
                                    .n_spans = splice->n_spans - splice->passed_spans,
                                    .watches = splice->watches + splice->passed_watches,
                                    .n_watches = splice->n_watches - splice->passed_watches};
    size_t room = splice->max_n > splice->out->n ? splice->max_n - splice->out->n : 0;
    int rc =
        token_encode_stretch(splice->format->tokenizer, bytes_of(splice->text.data, splice->text.len_bytes),
                             &stretch, room, splice->out);

    splice->at = to;
    while (splice->passed_watches < splice->n_watches && splice->watches[splice->passed_watches].at <= to)
        splice->passed_watches++;
    return rc;
}

/* True if the opening of the turn in the text has the same tokens as the recorded one, as far as both go. The
 * end of the opening may cut its last token, so that token counts only when it is the only one. */
static bool opens_alike(const struct splice *splice, const struct chat_drawn *drawn, size_t from, size_t to)
{
    const struct token_stretch stretch = {.from = from, .to = to};
    struct token_ids ids = {0};
    size_t n = 0;
    bool is_alike =
        token_encode_stretch(splice->format->tokenizer, bytes_of(splice->text.data, splice->text.len_bytes),
                             &stretch, to - from + 1, &ids) == 0;

    if (ids.n > 1)
        ids.n--;
    while (is_alike && n < ids.n && n < drawn->n_opening) {
        is_alike = ids.ids[n] == drawn->ids[n];
        n++;
    }
    token_ids_fini(&ids);
    return is_alike;
}

/* Returns the offset of the token that closes the message. SIZE_MAX: there is none, or the message is in
 * several parts. */
static size_t close_of(const struct splice *splice, size_t message)
{
    const struct extent *extent = &splice->extents[message];
    size_t to = splice->next_first[message + 1], len_bytes;

    if (extent->first == SIZE_MAX || extent->first != splice->next_first[message] || extent->end > to)
        return SIZE_MAX;
    for (size_t i = extent->end; i < to; i++)
        if (mark_at(splice, i) != 0)
            return SIZE_MAX;
    size_t close = find_close(splice, extent->end, to, &len_bytes);
    return close == to ? SIZE_MAX : close;
}

static int put_drawn(struct splice *splice, struct chat_drawn *drawn, size_t close)
{
    int rc = splice->out->n + drawn->n_ids > splice->max_n ? E_LIMIT : 0;

    for (; splice->passed_watches < splice->n_watches; splice->passed_watches++) {
        if (splice->watches[splice->passed_watches].at >= close)
            break;
        splice->watches[splice->passed_watches].n = splice->out->n;
    }
    if (rc == 0)
        rc = token_ids_append(splice->out, drawn->ids, drawn->n_ids);
    if (rc == 0 && drawn->rest.len_bytes > 0)
        rc = tokenizer_encode(splice->format->tokenizer, drawn->rest, 0, splice->max_n - splice->out->n,
                              splice->out);
    splice->at = close;
    drawn->is_used = true;
    return rc;
}

/* True if encoding the text after the sampled tokens by itself would put a blank before it. No message has
 * this blank. */
static bool would_add_blank(const struct splice *splice, const struct chat_drawn *drawn)
{
    const struct tokenizer *tokenizer = splice->format->tokenizer;

    return drawn->rest.len_bytes > 0 && tokenizer->family != TOKEN_FAMILY_BPE && tokenizer->adds_space_prefix;
}

static int try_drawn(struct splice *splice, struct chat_drawn *drawn)
{
    size_t close = close_of(splice, drawn->message);
    bool is_joint;

    if (close == SIZE_MAX)
        return 0;
    size_t boundary = find_boundary(splice, drawn->message, &is_joint);
    if (!is_joint || boundary < splice->at)
        return 0;
    int rc = encode_to(splice, boundary);
    if (rc != 0)
        return rc;
    if ((drawn->needs_thinking && !drawn->shows_thinking) || splice->out->n != drawn->base_tokens ||
        sum_to(splice, splice->out->n) != drawn->base_sum || would_add_blank(splice, drawn) ||
        !opens_alike(splice, drawn, boundary, splice->extents[drawn->message].first))
        return 0;
    return put_drawn(splice, drawn, close);
}

static void splice_report_places(struct splice *splice, struct chat_extras *extras)
{
    size_t n = 0;

    sum_again(splice);
    for (size_t i = 0; i < extras->n_places; i++) {
        n = splice->watches[i].n > n ? splice->watches[i].n : n;
        extras->places[i].n_tokens = (uint32_t)n;
        extras->places[i].sum = sum_to(splice, n);
    }
}

int chat_splice(const struct chat_format *format, const struct chat_prompt *prompt, struct text text,
                struct chat_extras *extras, struct token_ids *out)
{
    struct splice splice = {.format = format,
                            .text = text,
                            .n_messages = prompt->n_messages,
                            .max_n = extras->max_ids,
                            .sum = XXH3_createState(),
                            .out = out};
    size_t piece_ends[CHAT_MAX_PLACES] = {0};
    int rc = splice.sum == NULL ? E_NOMEM : chat_splice_read_text(&splice, extras, piece_ends);

    if (rc == 0)
        sum_again(&splice);
    if (rc == 0)
        find_places(&splice, extras, piece_ends);
    for (size_t i = 0; i < extras->n_drawn && rc == 0; i++) {
        extras->drawn[i].is_used = false;
        extras->drawn[i].shows_thinking = splice.extents[extras->drawn[i].message].shows_thinking;
        rc = try_drawn(&splice, &extras->drawn[i]);
    }
    if (rc == 0)
        rc = encode_to(&splice, text.len_bytes);
    if (rc == 0)
        splice_report_places(&splice, extras);
    XXH3_freeState(splice.sum);
    free(splice.extents);
    free(splice.next_first);
    free(splice.spans);
    return rc;
}
