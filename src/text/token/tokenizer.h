/* SPDX-License-Identifier: Apache-2.0 */
/* Text <-> token ids, from a model file's own metadata. A tokenizer is immutable once it is open; any thread
 * may use it.
 *
 * More than 15 functions: three small objects, and one getter for each special token. */
#ifndef TEXT_TOKEN_TOKENIZER_H
#define TEXT_TOKEN_TOKENIZER_H

#include "base/bytes.h"
#include "base/fault.h"
#include "gguf/gguf.h"

typedef uint32_t token_id;
#define TOKEN_NONE UINT32_MAX

struct token_ids { /* growable array; a zeroed struct is empty */
    token_id *ids;
    size_t n;
    size_t cap;
};

void token_ids_fini(struct token_ids *ids);
int token_ids_reserve(struct token_ids *ids, size_t more); /* reserves room for this many more ids; E_NOMEM */
int token_ids_push(struct token_ids *ids, token_id id);
int token_ids_append(struct token_ids *ids, const token_id *more, size_t n);

struct tokenizer; /* opaque */

/* For an unknown tokeniser or pre-tokeniser: E_UNSUPPORTED, and the fault names it and lists the known ones.
 * The caller may close the gguf afterwards. */
int tokenizer_new(const struct gguf *gguf, struct fault *fault, struct tokenizer **out);
/* From a vocabulary image (gguf_vocabulary_image) received from a peer. The image is not trusted: every field
 * is checked. */
int tokenizer_new_from_image(struct bytes image, struct fault *fault, struct tokenizer **out);
struct tokenizer *tokenizer_ref(struct tokenizer *tokenizer); /* counted atomically */
void tokenizer_unref(struct tokenizer *tokenizer);

enum token_encode_flags {
    TOKEN_PARSE_SPECIAL = 1, /* spelled-out control tokens become their ids; never set for client text */
    TOKEN_ADD_BOS = 2,       /* begin with BOS if the model wants it */
    TOKEN_ADD_EOS = 4        /* end with EOS if the model wants it */
};

/* Appends the ids of text. Accepts any bytes (invalid UTF-8 goes through byte fallback). Returns E_NOMEM, or
 * E_LIMIT when it would append more than max_ids. */
int tokenizer_encode(const struct tokenizer *tokenizer, struct bytes text, unsigned flags, size_t max_ids,
                     struct token_ids *out);

uint32_t tokenizer_vocab_size(const struct tokenizer *tokenizer);
/* Raw bytes of one token: byte tokens and byte-level alphabets are decoded. A control token gives its
 * spelling. */
struct bytes tokenizer_piece(const struct tokenizer *tokenizer, token_id id);
bool tokenizer_is_control(const struct tokenizer *tokenizer, token_id id);
/* True if the token's piece belongs to the text of an answer. False for control, unknown and unused
 * tokens. */
bool tokenizer_is_text(const struct tokenizer *tokenizer, token_id id);
token_id tokenizer_find(const struct tokenizer *tokenizer, struct bytes spelling); /* TOKEN_NONE: not found */
token_id tokenizer_bos(const struct tokenizer *tokenizer);
token_id tokenizer_eos(const struct tokenizer *tokenizer);
bool tokenizer_adds_bos(const struct tokenizer *tokenizer);
/* True for an embedding model: its row of the last token is the text's embedding (ARCH.pooling_type 3). It answers
 * /v1/embeddings and writes no text. */
bool tokenizer_is_embedding_model(const struct tokenizer *tokenizer);
/* Ids that end an answer: EOS, end of turn, and other ids with that role. Borrowed from the tokenizer. */
const token_id *tokenizer_stop_ids(const struct tokenizer *tokenizer, size_t *n_out);
struct bytes tokenizer_chat_template(const struct tokenizer *tokenizer); /* empty: none */
struct bytes
tokenizer_tool_template(const struct tokenizer *tokenizer); /* for requests with tools; empty: none */
uint64_t tokenizer_context_length(const struct tokenizer *tokenizer); /* 0: unknown */

/* ---- streaming detokeniser: emits whole characters only ---- */

struct detok {
    const struct tokenizer *tokenizer; /* borrowed */
    uint8_t held[8];                   /* bytes of an unfinished character */
    uint8_t n_held;
    bool is_begun; /* the first blank of a SentencePiece answer has been handled */
    bool keeps_first_blank;
};

/* is_continuation: the text continues an earlier one, so detok_push() keeps the first blank. */
void detok_init(struct detok *detok, const struct tokenizer *tokenizer, bool is_continuation);
/* Appends to text the whole characters that id completes (possibly none). Control tokens append nothing.
 * Bytes that can never become a character are replaced by U+FFFD. */
int detok_push(struct detok *detok, token_id id, struct buf *text);
/* The caller spells the next id: an unfinished character becomes U+FFFD. */
void detok_break(struct detok *detok, struct buf *text);
bool detok_is_half(const struct detok *detok); /* true if the last ids are an unfinished character */
/* End of the answer: drops an unfinished character. */
void detok_finish(struct detok *detok);

#endif
