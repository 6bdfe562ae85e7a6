/* SPDX-License-Identifier: Apache-2.0 */
/* Text -> token ids.
 *
 *     text        Hello<|im_end|>you
 *     specials         [--------]            longest match at the leftmost place
 *     segments    [---]          [-]
 *     words       Hello           you        byte-level: pretok.c;  SentencePiece: where nothing can merge
 *     symbols     H e l l o       y o u      bytes or characters
 *     merged      Hello           you        merge.c
 *
 * The author of the text decides which specials may match. A client span never holds a marker, not even a
 * part of one: a marker that begins in the template's text and would end in the client's does not match.
 *
 * Segments do run across the border between the two, as they did when the model was trained. So merges see
 * "user\n" and the client's first word together.
 *
 * Each character of the text is read a bounded number of times, and merging is O(n log n) in the longest
 * word. So the time for a text is bounded, for any content. */
#include "text/token/tokenizer_priv.h"

#include "base/err.h"
#include "base/str.h"
#include "text/token/word_cache_priv.h"

#include <string.h>

#define MIN_CACHED_BYTES 4096 /* a text of this length repeats words */
#define ESTIMATED_TOKEN_BYTES                                                                                \
    4 /* per token, for the first allocation: few vocabularies have shorter tokens */

struct run { /* state of one call */
    const struct tokenizer *tokenizer;
    struct token_ids *out;
    size_t max_n; /* limit of out->n */
    struct merge_work work;
    size_t from;              /* the offset of this text within the text that spans and watches refer to */
    struct word_cache *cache; /* NULL: the text is short */
    const struct text_span *spans; /* spans not yet passed */
    size_t n_spans;
    struct token_watch *watches; /* watches not yet passed */
    size_t n_watches;
    size_t piece_end;   /* SentencePiece: the end of the piece in work, as an offset like from */
    bool takes_control; /* search for control tokens */
};

static int tokenizer_encode_emit(struct run *run, token_id id)
{
    struct token_ids *out = run->out;

    if (out->n >= run->max_n)
        return E_LIMIT;
    if (out->n == out->cap)
        return token_ids_push(out, id);
    out->ids[out->n++] = id;
    return 0;
}

/* Appends the first n of ids, which has WORD_CACHE_IDS entries. If out has room for all entries, all are
 * copied: a copy of fixed size needs no branch on n. */
static int emit_known(struct run *run, const token_id *ids, unsigned n)
{
    struct token_ids *out = run->out;

    if (n > run->max_n - out->n)
        return E_LIMIT;
    if (out->cap - out->n < WORD_CACHE_IDS)
        return token_ids_append(out, ids, n);
    memcpy(out->ids + out->n, ids, WORD_CACHE_IDS * sizeof(*ids));
    out->n += n;
    return 0;
}

/* Call it before encoding text that ends at end. Watched places before end get the current number of ids. */
static void tokenizer_encode_pass(struct run *run, size_t end)
{
    for (; run->n_watches > 0 && run->watches->at < run->from + end; run->n_watches--)
        run->watches++->n = run->out->n;
}

/* ---- byte-level ---- */

/* The token for the whole word, or TOKEN_NONE. */
static token_id find_word(const struct tokenizer *tokenizer, struct bytes word)
{
    uint8_t spelling[TOKEN_MAX_SPELL_BYTES + 4];
    size_t len_bytes = 0;

    for (size_t i = 0; i < word.len_bytes; i++) {
        if (len_bytes >= TOKEN_MAX_SPELL_BYTES)
            return TOKEN_NONE;
        len_bytes += utf8_put(alphabet_code(word.data[i]), spelling + len_bytes);
    }
    token_id id = tokenizer_find(tokenizer, bytes_of(spelling, len_bytes));
    return id != TOKEN_NONE && tokenizer->types[id] == TOKEN_NORMAL ? id : TOKEN_NONE;
}

static int merge_word(struct run *run, struct bytes word)
{
    const struct tokenizer *tokenizer = run->tokenizer;
    int rc = 0;

    if (tokenizer->ignores_merges) {
        token_id id = find_word(tokenizer, word);
        if (id != TOKEN_NONE)
            return tokenizer_encode_emit(run, id);
    }

    merge_work_clear(&run->work);
    for (size_t i = 0; i < word.len_bytes && rc == 0; i++)
        if (tokenizer->byte_ids[word.data[i]] != TOKEN_NONE) /* without a token the byte is left out */
            rc = merge_work_push(&run->work, tokenizer->byte_ids[word.data[i]]);
    if (rc != 0 || run->work.n == 0)
        return rc;
    merge_work_run(&run->work, &tokenizer->pairs);
    for (uint32_t at = 0; at != UINT32_MAX && rc == 0; at = run->work.symbols[at].next)
        rc = tokenizer_encode_emit(run, run->work.symbols[at].symbol);
    return rc;
}

/* Encodes text[at, end). */
static int encode_word(struct run *run, struct bytes text, size_t at, size_t end)
{
    const struct word_span word = {text, at, end - at};
    const token_id *ids = NULL;
    size_t before = run->out->n;
    unsigned n;
    int rc;

    if (end - at == 1) {
        token_id id = run->tokenizer->byte_ids[text.data[at]];

        return id == TOKEN_NONE ? 0 : tokenizer_encode_emit(run, id);
    }
    n = word_cache_get(run->cache, &word, &ids);
    if (n > 0)
        return emit_known(run, ids, n);
    rc = merge_word(run, bytes_of(text.data + at, end - at));
    if (rc == 0)
        word_cache_put(run->cache, &word, run->out->ids + before, run->out->n - before);
    return rc;
}

static int encode_words(struct run *run, struct bytes text, size_t from)
{
    struct pretok_cursor words;
    int rc = 0;

    pretok_begin(&words, run->tokenizer->pretok, text);
    for (size_t at = 0, end; at < text.len_bytes && rc == 0; at = end) {
        end = pretok_next(&words);
        tokenizer_encode_pass(run, from + end);
        rc = encode_word(run, text, at, end);
    }
    return rc;
}

/* ---- SentencePiece ---- */

/* Emits a character that is no token as its bytes; without byte tokens, as one unknown token. */
static int emit_code(struct run *run, uint32_t code)
{
    const token_id *byte_ids = run->tokenizer->byte_ids;
    uint8_t raw[4] = {0};
    size_t len_bytes = 1;
    int rc = 0;

    if (code >= SPM_RAW)
        raw[0] = (uint8_t)(code - SPM_RAW);
    else
        len_bytes = utf8_put(code, raw);
    if (byte_ids[raw[0]] == run->tokenizer->unknown)
        return tokenizer_encode_emit(run, run->tokenizer->unknown);
    for (size_t i = 0; i < len_bytes && rc == 0; i++)
        rc = tokenizer_encode_emit(run, byte_ids[raw[i]]);
    return rc;
}

static int flush_piece(struct run *run)
{
    const struct tokenizer *tokenizer = run->tokenizer;
    int rc = 0;

    if (run->work.n == 0)
        return 0;
    tokenizer_encode_pass(run, run->piece_end);
    merge_work_run(&run->work, &tokenizer->pairs);
    for (uint32_t at = 0; at != UINT32_MAX && rc == 0; at = run->work.symbols[at].next) {
        uint32_t symbol = run->work.symbols[at].symbol;

        rc = symbol < tokenizer->n_tokens
                 ? tokenizer_encode_emit(run, symbol)
                 : emit_code(run, tokenizer->extra_codes[symbol - tokenizer->n_tokens]);
    }
    merge_work_clear(&run->work);
    return rc;
}

static int add_code(struct run *run, uint32_t code)
{
    uint32_t symbol = pieces_symbol(run->tokenizer, code);
    size_t n = run->work.n;

    if (n > 0 &&
        (symbol == TOKEN_NONE || !pieces_may_join(run->tokenizer, run->work.symbols[n - 1].symbol, symbol))) {
        int rc = flush_piece(run);
        if (rc != 0)
            return rc;
    }
    if (symbol != TOKEN_NONE)
        return merge_work_push(&run->work, symbol);
    tokenizer_encode_pass(run, run->piece_end + 1);
    return emit_code(run, code);
}

static int encode_pieces(struct run *run, struct bytes text, size_t from)
{
    size_t len_bytes;
    int rc = 0;

    merge_work_clear(&run->work);
    run->piece_end = from;
    if (run->tokenizer->adds_space_prefix)
        rc = add_code(run, SPM_BLANK);
    for (size_t at = 0; at < text.len_bytes && rc == 0; at += len_bytes) {
        uint32_t code = spm_code_at(text, at, &len_bytes);
        run->piece_end = from + at;
        rc = add_code(run, code == ' ' ? SPM_BLANK : code);
    }
    run->piece_end = from + text.len_bytes;
    return rc == 0 ? flush_piece(run) : rc;
}

/* ---- specials ---- */

/* from never decreases between calls, so passed spans can be dropped. */
static bool tokenizer_encode_is_allowed(struct run *run, const struct special *special, size_t from,
                                        size_t to)
{
    if (!special->is_user && !run->takes_control)
        return false;
    if (!special->is_marker)
        return true;
    from += run->from;
    to += run->from;
    while (run->n_spans > 0 && run->spans->to <= from) {
        run->spans++;
        run->n_spans--;
    }
    return run->n_spans == 0 || run->spans->from >= to;
}

/* The specials [low, high) share their first depth bytes. Returns the first one whose next byte is at least
 * byte. */
static uint32_t first_at_least(const struct tokenizer *tokenizer, uint32_t low, uint32_t high, size_t depth,
                               unsigned byte)
{
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        struct bytes spelling = pool_get(&tokenizer->spellings, tokenizer->specials[middle].id);

        if (spelling.len_bytes <= depth || spelling.data[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Returns the longest special at text[at], or NULL. */
static const struct special *tokenizer_encode_match(struct run *run, struct bytes text, size_t at)
{
    const struct tokenizer *tokenizer = run->tokenizer;
    const struct special *best = NULL;
    uint32_t low = tokenizer->special_from[text.data[at]];
    uint32_t high = tokenizer->special_from[text.data[at] + 1];

    for (size_t depth = 1; low < high; depth++) {
        const struct special *shortest = &tokenizer->specials[low];

        if (pool_get(&tokenizer->spellings, shortest->id).len_bytes == depth &&
            tokenizer_encode_is_allowed(run, shortest, at, at + depth))
            best = shortest;
        if (at + depth >= text.len_bytes)
            break;
        unsigned next = text.data[at + depth];
        low = first_at_least(tokenizer, low, high, depth, next);
        high = first_at_least(tokenizer, low, high, depth, next + 1);
    }
    return best;
}

/* Encodes text[from, to), which holds no special. */
static int encode_segment(struct run *run, struct bytes text, size_t from, size_t to)
{
    struct bytes segment = bytes_of(text.data + from, to - from);

    if (segment.len_bytes == 0)
        return 0;
    return run->tokenizer->family == TOKEN_FAMILY_BPE ? encode_words(run, segment, from)
                                                      : encode_pieces(run, segment, from);
}

static int encode_text(struct run *run, struct bytes text)
{
    size_t from = 0, at = 0;
    int rc = 0;

    const bool *begins_special = run->tokenizer->begins_special;

    while (rc == 0) {
        const struct special *special;

        while (at < text.len_bytes && !begins_special[text.data[at]])
            at++;
        if (at == text.len_bytes)
            break;
        special = tokenizer_encode_match(run, text, at);
        if (special == NULL) {
            at++;
            continue;
        }
        rc = encode_segment(run, text, from, at);
        at += pool_get(&run->tokenizer->spellings, special->id).len_bytes;
        tokenizer_encode_pass(run, at);
        if (rc == 0)
            rc = tokenizer_encode_emit(run, special->id);
        from = at;
    }
    return rc == 0 ? encode_segment(run, text, from, text.len_bytes) : rc;
}

static int tokenizer_encode_run_text(struct run *run, struct bytes text, size_t max_ids, bool adds_bos)
{
    size_t before = run->out->n;
    int rc = text.len_bytes > TOKEN_MAX_TEXT_BYTES ? E_LIMIT : 0;

    if (text.len_bytes == 0)
        text = bytes_str(""); /* code below compares and moves pointers into text */
    run->max_n = max_ids > SIZE_MAX - before ? SIZE_MAX : before + max_ids;
    if (text.len_bytes >= MIN_CACHED_BYTES && run->tokenizer->family == TOKEN_FAMILY_BPE)
        run->cache = word_cache_new();
    if (text.len_bytes >= MIN_CACHED_BYTES) {
        size_t estimate = text.len_bytes / ESTIMATED_TOKEN_BYTES;

        rc = rc != 0 ? rc : token_ids_reserve(run->out, estimate < max_ids ? estimate : max_ids);
    }
    if (rc == 0 && adds_bos)
        rc = tokenizer_encode_emit(run, run->tokenizer->bos);
    if (rc == 0)
        rc = encode_text(run, text);
    if (rc != 0)
        run->out->n = before;
    tokenizer_encode_pass(run, text.len_bytes + 1);
    merge_work_fini(&run->work);
    word_cache_free(run->cache);
    return rc;
}

int tokenizer_encode(const struct tokenizer *tokenizer, struct bytes text, unsigned flags, size_t max_ids,
                     struct token_ids *out)
{
    struct run run = {
        .tokenizer = tokenizer,
        .out = out,
        .takes_control = (flags & TOKEN_PARSE_SPECIAL) != 0,
    };

    size_t before = out->n;
    int rc = tokenizer_encode_run_text(&run, text, max_ids,
                                       (flags & TOKEN_ADD_BOS) != 0 && tokenizer_adds_bos(tokenizer));

    if (rc == 0 && (flags & TOKEN_ADD_EOS) != 0 && tokenizer->adds_eos && tokenizer->eos != TOKEN_NONE) {
        rc = out->n - before < max_ids ? token_ids_append(out, &tokenizer->eos, 1) : E_LIMIT;
        if (rc != 0)
            out->n = before;
    }
    return rc;
}

int token_encode_stretch(const struct tokenizer *tokenizer, struct bytes text,
                         const struct token_stretch *stretch, size_t max_ids, struct token_ids *out)
{
    struct run run = {
        .tokenizer = tokenizer,
        .out = out,
        .from = stretch->from,
        .spans = stretch->spans,
        .n_spans = stretch->n_spans,
        .watches = stretch->watches,
        .n_watches = stretch->n_watches,
        .takes_control = true,
    };

    return tokenizer_encode_run_text(&run, bytes_of(text.data + stretch->from, stretch->to - stretch->from),
                                     max_ids, false);
}

bool token_begins_at(const struct tokenizer *tokenizer, struct bytes text, size_t at)
{
    struct run run = {.tokenizer = tokenizer, .takes_control = true};

    return at < text.len_bytes && tokenizer_encode_match(&run, text, at) != NULL;
}
