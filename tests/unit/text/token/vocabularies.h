/* SPDX-License-Identifier: Apache-2.0 */
/* Vocabularies for tests: real ones if the shared data is available, and small ones made here. */
#ifndef TESTS_UNIT_TOKEN_VOCABULARIES_H
#define TESTS_UNIT_TOKEN_VOCABULARIES_H

#include "gguf/write.h"
#include "text/token/chat.h"
#include "text/token/tokenizer.h"

/* Returns the path of name below the data folder ($BATON_DATA, else shared/data beside the source tree).
 * NULL: there is no such file. */
char *data_path(const char *name);
/* Reads the whole file; a failure fails the test. */
void data_read(const char *name, struct buf *out);
bool data_is_here(void);

/* The tokenizer of a GGUF file in the data folder. */
struct tokenizer *tokenizer_of_file(const char *name);
/* The same with another chat template (NULL: the file's own). */
struct tokenizer *tokenizer_with_template(const char *name, const char *chat_template);

struct token_spec {
    const char *spelling;
    int32_t type;
    float score;
};

/* A byte-level vocabulary: the 256 bytes, then a token for each merge ("l o" makes "lo"), then the extra
 * tokens. pre: the rule's name; lists end in NULL.  The image is appended to out. */
void byte_level_image(const char *pre, const char *const *merges, const struct token_spec *extra,
                      const char *chat_template, struct buf *out);
/* The same without merges and without tokens for some bytes; "<unk>" has its role. */
void byte_level_image_lacking(struct bytes lacking, const char *pre, const struct token_spec *extra,
                              struct buf *out);
/* A SentencePiece vocabulary: <unk> <s> </s>, the 256 byte tokens, then the extra tokens. */
void sentencepiece_image(const struct token_spec *extra, bool has_bytes, struct buf *out);
/* Gemma 4's kind: the same tokens without scores, and these merges. */
void sentencepiece_merges_image(const struct token_spec *extra, const char *const *merges, struct buf *out);
struct tokenizer *tokenizer_of_image(struct buf *image); /* frees the image */

/* "12 7 9" */
void ids_as_text(const struct token_ids *ids, struct buf *out);
/* The text as pieces between bars: "Hello| wor|ld". */
char *encode_as_pieces(const struct tokenizer *tokenizer, struct bytes text, unsigned flags);

/* A byte-level vocabulary with this template and the tokens of chat formats (<s>, <|im_start|>, ... and a
 * user-defined token that is not a tag).  Returns its format, or the refusal, with its text in the
 * message. */
struct tokenizer *chat_tokenizer(const char *chat_template);
struct chat_format *chat_format_for(const char *chat_template);
void expect_chat_refusal(const char *chat_template, const char *words);
void expect_chat_text(const struct chat_format *format, const struct chat_prompt *prompt,
                      const char *expected);

#endif
