/* SPDX-License-Identifier: Apache-2.0 */
/* The private parts of a tokenizer, shared by the files of this folder.
 *
 *     spelling   a token as the file spells it: "Ġthe", "▁the", "<0x0A>", "<|im_end|>"
 *     piece      the bytes it stands for:       " the", " the", "\n",     "<|im_end|>"
 *     special    a token that is matched in the text as a whole, before any other rule:
 *                control, unknown or user-defined
 *     marker     a special that structures a conversation: every control token, and user-defined ones
 *                that look like a tag ("<tool_call>", "</think>")
 *
 * Client text never becomes a marker. */
#ifndef TEXT_TOKEN_TOKENIZER_PRIV_H
#define TEXT_TOKEN_TOKENIZER_PRIV_H

#include <stdatomic.h>

#include "text/token/tokenizer.h"

#define TOKEN_MAX_TOKENS      (1u << 22)
#define TOKEN_MAX_SPELL_BYTES 1024
#define TOKEN_MAX_POOL_BYTES  (1u << 30) /* all spellings together */
#define TOKEN_MAX_TEXT_BYTES  (1u << 30) /* of one call */

#define SPM_BLANK 0x2581 /* "▁", the blank in SentencePiece spellings */

enum token_family { TOKEN_FAMILY_SPM, TOKEN_FAMILY_BPE };

enum token_type { /* numbered as in the file; 0 is read as normal */
                  TOKEN_NORMAL = 1,
                  TOKEN_UNKNOWN = 2,
                  TOKEN_CONTROL = 3,
                  TOKEN_USER = 4,
                  TOKEN_UNUSED = 5,
                  TOKEN_BYTE = 6
};

enum pretok { /* rules that cut text into words, each named after the model that introduced it */
              PRETOK_GPT2,
              PRETOK_LLAMA3,
              PRETOK_QWEN2,
              PRETOK_SEED,
              PRETOK_MINICPM5,
              PRETOK_QWEN35,
              PRETOK_GPT4O,
              PRETOK_TEKKEN,
              PRETOK_TINY_AYA,
              PRETOK_YOUTU,
              PRETOK_KIMI,
              PRETOK_STARCODER,
              PRETOK_FALCON,
              PRETOK_DEEPSEEK3,
              PRETOK_DEEPSEEK_LLM,
              PRETOK_DEEPSEEK_CODER,
              PRETOK_EXAONE_MOE,
              PRETOK_AFMOE,
              PRETOK_SUPERBPE,
              PRETOK_N_RULES
};

struct text_pool { /* texts one after the other in one buffer */
    struct buf text;
    uint32_t *at; /* [n + 1] */
};

struct spell_index { /* spelling -> id, open addressing; of equal spellings the first one is indexed */
    struct spell_slot {
        uint32_t tag; /* upper half of the hash */
        uint32_t id;  /* TOKEN_NONE: free slot */
    } * slots;
    uint32_t mask;
    uint64_t seed;
};

struct pair {      /* two neighbours that merge into one token */
    uint32_t rank; /* the lowest rank merges first; PAIR_NONE: they do not merge */
    uint32_t merged;
};
#define PAIR_NONE UINT32_MAX

struct pair_table { /* (left, right) -> pair, open addressing */
    struct pair_slot {
        uint64_t key; /* left << 32 | right; UINT64_MAX: free slot */
        struct pair pair;
    } * slots;
    unsigned bits; /* 2^bits slots */
    size_t n;
    uint32_t n_ranks; /* every rank is below */
    uint64_t multiplier;
};

struct char_table { /* SentencePiece: code point -> symbol */
    struct char_slot {
        uint32_t code; /* UINT32_MAX: free slot */
        uint32_t symbol;
    } * slots;
    uint32_t n;
    uint32_t mask;
    uint32_t ascii[128]; /* the same for ASCII; TOKEN_NONE: no symbol */
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
    bool ignores_merges; /* a whole word that is a token becomes that token without merging */
    bool adds_bos, adds_eos;
    uint64_t pooling; /* enum gguf_pooling; 0: the file names none */
    bool adds_space_prefix;
    bool has_merges; /* SentencePiece: the file lists the merges */
    uint32_t n_tokens;
    uint8_t *types; /* [n_tokens] enum token_type */
    struct text_pool spellings;
    struct text_pool pieces;
    struct spell_index index;
    /* [byte]: the token of one byte, else the unknown token; TOKEN_NONE: the byte is left out */
    token_id byte_ids[256];
    token_id bos, eos, unknown;
    struct pair_table pairs;

    /* SentencePiece only. Symbols are token ids; symbols from n_tokens on are characters that occur inside
     * tokens but are no token themselves. */
    struct char_table chars;
    uint32_t *extra_codes; /* [n_extra] code point of symbol n_tokens + i */
    uint32_t n_extra;
    /* bitmap over hashed (symbol, symbol): set if the two may stand side by side inside some token */
    uint64_t *neighbours;

    struct special *specials; /* sorted by spelling */
    uint32_t n_specials;
    bool begins_special[256];   /* [first byte] */
    uint32_t special_from[257]; /* specials that begin with byte b: [special_from[b], special_from[b + 1]) */

    token_id *stop_ids;
    size_t n_stop_ids;
    struct buf chat_template, tool_template;
    uint64_t context_length;
};

/* vocab.c: tokens, types, specials, index. The fault names the part that is wrong. */
int vocab_read(struct tokenizer *tokenizer, const struct gguf *gguf, struct fault *fault);
void vocab_fini(struct tokenizer *tokenizer);
struct bytes pool_get(const struct text_pool *pool, uint32_t i);

/* roles.c: bos, eos, unknown and the stop ids. */
int roles_read(struct tokenizer *tokenizer, const struct gguf *gguf, struct fault *fault);

/* alphabet.c: GPT-2's spelling of bytes as printable characters. */
uint32_t alphabet_code(uint8_t byte);
int alphabet_byte(uint32_t code); /* -1: not in the alphabet */

/* merges.c (byte-level, or has_merges) and pieces.c (SentencePiece) fill the pair table. */
int merges_read(struct tokenizer *tokenizer, const struct gguf *gguf, struct fault *fault);
int pieces_read(struct tokenizer *tokenizer, const struct gguf *gguf, struct fault *fault);
void pieces_fini(struct tokenizer *tokenizer);
/* The symbol of a code point, or of SPM_RAW + byte for a byte that is no character. TOKEN_NONE: none. */
#define SPM_RAW 0x110000u
uint32_t pieces_symbol(const struct tokenizer *tokenizer, uint32_t code);
/* True if left and right may become parts of one token. */
bool pieces_may_join(const struct tokenizer *tokenizer, uint32_t left, uint32_t right);
uint32_t spm_code_at(struct bytes text, size_t at, size_t *len_out);

/* pairs.c */
int pairs_init(struct pair_table *table);
void pairs_fini(struct pair_table *table);
/* When (left, right) is in the table already, keeps the pair with the lower rank. E_NOMEM. */
int pairs_add(struct pair_table *table, uint32_t left, uint32_t right, struct pair pair);
struct pair pairs_get(const struct pair_table *table, uint32_t left, uint32_t right);
/* Prefetches into the CPU cache the slot that pairs_get() will read. */
void pairs_prefetch(const struct pair_table *table, uint32_t left, uint32_t right);

/* merge.c: the n symbols of one word, merged in place until no pair merges. */
struct merge_symbol {
    uint32_t symbol;
    uint32_t next, prev; /* index; UINT32_MAX: none */
    struct pair pair;    /* with the next */
};

struct merge_work { /* scratch, reused for each word; a zeroed struct is empty */
    struct merge_symbol *symbols;
    uint64_t *heap;
    size_t n;
    size_t cap;
};

void merge_work_fini(struct merge_work *work);
void merge_work_clear(struct merge_work *work);
int merge_work_push(struct merge_work *work, uint32_t symbol);
/* The remaining symbols are found from symbols[0] along next. */
void merge_work_run(struct merge_work *work, const struct pair_table *pairs);

/* pretok.c: cuts text into words that follow each other without gaps. */
#define PRETOK_MAX_PASSES 6

struct pretok_level {
    size_t at, end;      /* the rest of a piece of the level above */
    size_t hit, hit_end; /* the next match in this rest */
};

struct pretok_cursor {
    const uint8_t *text; /* borrowed */
    size_t len_bytes;
    const struct pretok_pass *passes;
    unsigned n_passes;
    struct pretok_level levels[PRETOK_MAX_PASSES];
};

void pretok_begin(struct pretok_cursor *cursor, enum pretok rule, struct bytes text);
/* Returns where the next word ends; the word after it begins there. Do not call it at the end of the text. */
size_t pretok_next(struct pretok_cursor *cursor);
/* Enumerates the names that files use for the rules; NULL past the last. */
const char *pretok_rule_name(uint32_t index, enum pretok *rule_out);

/* encode.c: encodes text with spans (in order, disjoint) that come from a client. Only text outside the spans
 * may hold markers. */
struct text_span {
    size_t from, to;
};
/* Counts the ids up to a place in the text. */
struct token_watch {
    size_t at;
    size_t n; /* ids in out that end at the place or before; unchanged if encoding does not reach it */
};
/* Part [from, to) of a text.  Spans and watches are in order; their offsets count from the text's beginning.
 */
struct token_stretch {
    size_t from, to;
    const struct text_span *spans;
    size_t n_spans;
    struct token_watch *watches;
    size_t n_watches;
};
/* If specials begin at both ends of a stretch, its ids equal those that the whole text would have there. */
int token_encode_stretch(const struct tokenizer *tokenizer, struct bytes text,
                         const struct token_stretch *stretch, size_t max_ids, struct token_ids *out);
/* True if a special begins at this offset, in text that the template wrote itself. */
bool token_begins_at(const struct tokenizer *tokenizer, struct bytes text, size_t at);

#endif
