/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a tokenizer, shared by the files of this folder.
 *
 *     spelling   a token as the file spells it: "Ġthe", "▁the", "<0x0A>", "<|im_end|>"
 *     piece      the bytes it stands for:       " the", " the", "\n",     "<|im_end|>"
 *     special    a token matched in the text as a whole, before anything else: control, unknown or
 *                user-defined
 *     marker     a special that structures a conversation: every control token, and user-defined ones
 *                that look like a tag ("<tool_call>", "</think>").  Client text never becomes one. */
#ifndef TEXT_TOKEN_TOKENIZER_PRIV_H
#define TEXT_TOKEN_TOKENIZER_PRIV_H

#include <stdatomic.h>

#include "text/token/tokenizer.h"

#define TOKEN_MAX_TOKENS      (1u << 22)
#define TOKEN_MAX_SPELL_BYTES 1024
#define TOKEN_MAX_POOL_BYTES  (1u << 30) /* of all spellings */
#define TOKEN_MAX_TEXT_BYTES  (1u << 30) /* of one call */

#define SPM_BLANK 0x2581 /* "▁", which stands for a blank in SentencePiece spellings */

enum token_family { TOKEN_FAMILY_SPM, TOKEN_FAMILY_BPE };

enum token_type { /* numbered as in the file; 0 is taken as normal */
                  TOKEN_NORMAL = 1,
                  TOKEN_UNKNOWN = 2,
                  TOKEN_CONTROL = 3,
                  TOKEN_USER = 4,
                  TOKEN_UNUSED = 5,
                  TOKEN_BYTE = 6
};

enum pretok { /* rules of cutting words, named for the model that brought each */
              PRETOK_GPT2,
              PRETOK_LLAMA3,
              PRETOK_QWEN2,
              PRETOK_QWEN35,
              PRETOK_GPT4O,
              PRETOK_TEKKEN,
              PRETOK_STARCODER,
              PRETOK_FALCON,
              PRETOK_DEEPSEEK3,
              PRETOK_DEEPSEEK_LLM,
              PRETOK_DEEPSEEK_CODER,
              PRETOK_N_RULES
};

struct text_pool { /* texts one after the other */
    struct buf text;
    uint32_t *at; /* [n + 1] */
};

struct spell_index { /* spelling -> id, open addressing; of equal spellings the first counts */
    struct spell_slot {
        uint32_t tag; /* upper half of the hash */
        uint32_t id;  /* TOKEN_NONE: free */
    } * slots;
    uint32_t mask;
    uint64_t seed;
};

struct pair {      /* two neighbours become one token */
    uint32_t rank; /* the lowest is done first; PAIR_NONE: they do not */
    uint32_t merged;
};
#define PAIR_NONE UINT32_MAX

struct pair_table { /* (left, right) -> pair, open addressing */
    struct pair_slot {
        uint64_t key; /* left << 32 | right; UINT64_MAX: free */
        struct pair pair;
    } * slots;
    unsigned bits; /* 2^bits slots */
    size_t n;
    uint32_t n_ranks; /* all are below */
    uint64_t multiplier;
};

struct char_table { /* SentencePiece: code point -> symbol */
    struct char_slot {
        uint32_t code; /* UINT32_MAX: free */
        uint32_t symbol;
    } * slots;
    uint32_t n;
    uint32_t mask;
    uint32_t ascii[128]; /* the same for these; TOKEN_NONE: no such symbol */
};

struct special {
    token_id id;
    bool is_marker;
    bool is_user; /* matched in any text */
};

struct tokenizer {
    atomic_uint refs;
    enum token_family family;
    enum pretok pretok;
    bool ignores_merges; /* a whole word that is a token is that token */
    bool adds_bos;
    bool adds_space_prefix;
    uint32_t n_tokens;
    uint8_t *types; /* [n_tokens] enum token_type */
    struct text_pool spellings;
    struct text_pool pieces;
    struct spell_index index;
    token_id byte_ids[256]; /* token of one byte; else the unknown token; TOKEN_NONE: it is left out */
    token_id bos, eos, unknown;
    struct pair_table pairs;

    /* SentencePiece only.  Symbols are token ids, and above them the characters that occur inside tokens but
     * are no token themselves. */
    struct char_table chars;
    uint32_t *extra_codes; /* [n_extra] code of symbol n_tokens + i */
    uint32_t n_extra;
    uint64_t *neighbours; /* bitmap over hashed (symbol, symbol): may stand side by side inside some token */

    struct special *specials; /* sorted by spelling */
    uint32_t n_specials;
    bool begins_special[256];   /* by first byte */
    uint32_t special_from[257]; /* those that begin with byte b: [special_from[b], special_from[b + 1]) */

    token_id *stop_ids;
    size_t n_stop_ids;
    struct buf chat_template;
    uint64_t context_length;
};

/* vocab.c: tokens, types, specials, index.  The fault names what is wrong. */
int vocab_read(struct tokenizer *tokenizer, const struct gguf *gguf, struct fault *fault);
void vocab_fini(struct tokenizer *tokenizer);
struct bytes pool_get(const struct text_pool *pool, uint32_t i);

/* alphabet.c: GPT-2's spelling of bytes as printable characters. */
uint32_t alphabet_code(uint8_t byte);
int alphabet_byte(uint32_t code); /* -1: not of the alphabet */

/* merges.c (byte-level) and pieces.c (SentencePiece) fill the pair table. */
int merges_read(struct tokenizer *tokenizer, const struct gguf *gguf, struct fault *fault);
int pieces_read(struct tokenizer *tokenizer, const struct gguf *gguf, struct fault *fault);
void pieces_fini(struct tokenizer *tokenizer);
/* The symbol of a code: a code point, or SPM_RAW + byte for a byte that is no character; TOKEN_NONE: none. */
#define SPM_RAW 0x110000u
uint32_t pieces_symbol(const struct tokenizer *tokenizer, uint32_t code);
/* Could left and right become parts of one token? */
bool pieces_may_join(const struct tokenizer *tokenizer, uint32_t left, uint32_t right);
uint32_t spm_code_at(struct bytes text, size_t at, size_t *len_out);

/* pairs.c */
int pairs_init(struct pair_table *table);
void pairs_fini(struct pair_table *table);
/* Keeps the pair of the lower rank when (left, right) is in already.  E_NOMEM. */
int pairs_add(struct pair_table *table, uint32_t left, uint32_t right, struct pair pair);
struct pair pairs_get(const struct pair_table *table, uint32_t left, uint32_t right);
/* Has what pairs_get() will look at fetched into the cache. */
void pairs_prefetch(const struct pair_table *table, uint32_t left, uint32_t right);

/* merge.c: n symbols of one word, merged in place until nothing merges. */
struct merge_symbol {
    uint32_t symbol;
    uint32_t next, prev; /* index; UINT32_MAX: none */
    struct pair pair;    /* with the next */
};

struct merge_work { /* scratch, reused from word to word; a zeroed one is empty */
    struct merge_symbol *symbols;
    uint64_t *heap;
    size_t n;
    size_t cap;
};

void merge_work_fini(struct merge_work *work);
void merge_work_clear(struct merge_work *work);
int merge_work_push(struct merge_work *work, uint32_t symbol);
/* What is left is found by going from symbols[0] along next. */
void merge_work_run(struct merge_work *work, const struct pair_table *pairs);

/* pretok.c: words one after the other, without gaps. */
#define PRETOK_MAX_PASSES 6

struct pretok_level {
    size_t at, end;      /* what is left of a piece of the level above */
    size_t hit, hit_end; /* the next match in it */
};

struct pretok_cursor {
    const uint8_t *text; /* borrowed */
    size_t len_bytes;
    const struct pretok_pass *passes;
    unsigned n_passes;
    struct pretok_level levels[PRETOK_MAX_PASSES];
};

void pretok_begin(struct pretok_cursor *cursor, enum pretok rule, struct bytes text);
/* Where the next word ends, which is where the one after it begins; not to be called at the text's end. */
size_t pretok_next(struct pretok_cursor *cursor);
const char *pretok_rule_name(uint32_t index,
                             enum pretok *rule_out); /* names that files use; NULL past the last */

/* encode.c: text of which the spans (in order, apart) come from a client; only the rest may hold markers. */
struct text_span {
    size_t from, to;
};
struct token_watch { /* how many ids there are up to a place in the text */
    size_t at;
    size_t n; /* of out; those that end there or before.  Left alone when the place is not reached */
};
struct token_stretch { /* of a text: [from, to); spans and watches, in order, count from the text's beginning
                        */
    size_t from, to;
    const struct text_span *spans;
    size_t n_spans;
    struct token_watch *watches;
    size_t n_watches;
};
/* A stretch that begins and ends where specials do is encoded as it would be within the whole. */
int token_encode_stretch(const struct tokenizer *tokenizer, struct bytes text,
                         const struct token_stretch *stretch, size_t max_ids, struct token_ids *out);
/* Does a special begin there, in text that is the template's own? */
bool token_begins_at(const struct tokenizer *tokenizer, struct bytes text, size_t at);

#endif
