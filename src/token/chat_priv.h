/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the chat formats: the text being rendered, and what was read out of the model's template. */
#ifndef TOKEN_CHAT_PRIV_H
#define TOKEN_CHAT_PRIV_H

#include "token/chat.h"
#include "token/tokenizer_priv.h"

/* ---- chat_text.c: text that remembers which bytes a client wrote ---- */

struct chat_text {
    struct buf text;
    struct text_span *spans; /* the client's, in order, apart and not empty */
    size_t n_spans;
    size_t cap;
    int rc; /* the first failure; after it nothing is appended */
};

void chat_text_fini(struct chat_text *out);
void chat_put(struct chat_text *out, const char *text);         /* the format's own */
void chat_put_own(struct chat_text *out, struct bytes text);    /* the same, as bytes */
void chat_put_client(struct chat_text *out, struct bytes text); /* the client's */
void chat_put_client_json(struct chat_text *out,
                          struct bytes json); /* as Python's json.dumps would write it */
void chat_put_client_string(struct chat_text *out, struct bytes text); /* as a JSON string */
void chat_fail(struct chat_text *out, int rc);

/* ---- json_text.c: JSON as text, without a tree ---- */

/* Appends json as Python's json.dumps(..., ensure_ascii=False) would write it again: ", " and ": " between,
 * strings with the fewest escapes; numbers stay as spelled.  E_FORMAT, E_LIMIT (nested too deep), E_NOMEM. */
int json_respace(struct bytes json, struct buf *out);
int json_put_plain_str(struct buf *out, struct bytes text);
/* The following want text that json_respace() wrote. */
bool json_is_object(struct bytes json);
bool json_is_array(struct bytes json);
bool json_is_string(struct bytes json);
/* Walks an object or array; *at starts at 0.  key_out is quoted, empty in an array.  False at the end. */
bool json_next(struct bytes json, size_t *at, struct bytes *key_out, struct bytes *value_out);
/* The last member called name (which needs no escapes), or false; false also when json is no object. */
bool json_member(struct bytes json, const char *name, struct bytes *value_out);
int json_unquote(struct bytes quoted, struct buf *out); /* appends what a string says */

/* ---- template.c: what the model's template says ---- */

enum chat_dialect {
    CHAT_CHATML,  /* turns only */
    CHAT_QWEN2_5, /* tools after the system text, which has a default */
    CHAT_QWEN3,   /* tools after the system text if there is one; thoughts of earlier turns are dropped */
    CHAT_HERMES3  /* a system turn for the tools, always */
};

struct chat_format {
    struct tokenizer *tokenizer; /* counted */
    enum chat_dialect dialect;
    bool has_default_system;   /* without a system message there is a system turn all the same */
    struct buf default_system; /* its text; also what stands before the tools */
    struct buf generation;     /* what opens the assistant's turn */
    bool drops_thoughts;       /* QWEN3: <think> parts of turns before the last question go */
};

/* Fills dialect and the fields after it; E_UNSUPPORTED says what would be supported. */
int template_read(struct bytes text, struct fault *fault, struct chat_format *format);

/* ---- the formats ---- */

void chatml_render(const struct chat_format *format, const struct chat_prompt *prompt, struct chat_text *out);
void hermes_render(const struct chat_format *format, const struct chat_prompt *prompt, struct chat_text *out);
const char *chat_role_name(enum chat_role role);
/* Is message number i (in range) there and of this role? */
bool chat_is_role(const struct chat_prompt *prompt, size_t i, enum chat_role role);
/* Does message number i stay open at its end? */
bool chat_stays_open(const struct chat_prompt *prompt, size_t i);

#endif
