/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the request parser share: where in the document they are, what they build, and how they
 * fail. */
#ifndef SERVE_API_PARSE_PRIV_H
#define SERVE_API_PARSE_PRIV_H

#include "text/json/json.h"
#include "serve/api/parse.h"

struct parse_origin { /* where a block stood in the client's own list */
    uint32_t message;
    uint32_t block;
};

struct parse {
    struct gen_request *out;
    struct api_error *error;
    enum api_call call;
    char path[256]; /* "messages.3.content.0" */
    size_t path_len;
    struct gen_block *blocks; /* heap, all messages' blocks in order; message.blocks are set at the end */
    struct parse_origin *origins;
    size_t n_blocks;
    size_t cap_blocks;
    size_t *first_block; /* heap, [messages], indices into blocks */
    size_t n_earlier;    /* messages of a thread's history, before the client's */
    unsigned n_marks;
    bool has_5m_mark;
    size_t system_bytes; /* of the system text before the block at hand; 0 outside of it */
    bool keeps_last;     /* a last assistant message is a turn, not the beginning of the answer */
    bool thinks;         /* thinking.type is enabled: its constraints hold */
    int64_t thinking_budget;
};

/* Path: push returns what pop wants back. */
size_t parse_push(struct parse *parse, const char *name);
size_t parse_push_index(struct parse *parse, size_t index);
void parse_pop(struct parse *parse, size_t was);
/* 400 "PATH: text" (or "PATH.field: text" when field is given). */
__attribute__((format(printf, 3, 4))) int parse_fail(struct parse *parse, const char *field,
                                                     const char *format, ...);
int parse_no_memory(struct parse *parse);

/* The member, or NULL when absent or null. */
json_t *parse_member(const json_t *object, const char *name);
/* Copies into the arena. */
int parse_copy(struct parse *parse, struct bytes text, struct bytes *out);
/* A member that must be a string: required or not (then *out is left alone when absent). */
int parse_string(struct parse *parse, const json_t *object, const char *name, bool is_required,
                 struct bytes *out);
/* Integer, number or boolean members, optional; *found_out (may be NULL). */
int parse_integer(struct parse *parse, const json_t *object, const char *name, int64_t *out, bool *found_out);
int parse_number(struct parse *parse, const json_t *object, const char *name, double *out);
int parse_bool(struct parse *parse, const json_t *object, const char *name, bool *out);
/* A value as text in the fixed serialisation, in the arena. */
int parse_serialise(struct parse *parse, const json_t *value, struct bytes *out);

int parse_cache_salt(struct parse *parse, const json_t *root);
/* cache_control of an object, if any; the mark is set to where parsing has come. */
int parse_cache_control(struct parse *parse, const json_t *object);

/* parse_thread.c: which thread, if any; what is before a continued one's messages; what is kept of it */
int parse_thread(struct parse *parse, const json_t *root);
int parse_thread_join(struct parse *parse, json_t *root, struct bytes history);
int parse_thread_history(struct parse *parse, json_t *root);
int parse_system(struct parse *parse, const json_t *root);      /* parse_content.c */
int parse_messages(struct parse *parse, const json_t *root);    /* parse_content.c */
int parse_check_pairs(struct parse *parse);                     /* parse_pairs.c */
int parse_tools(struct parse *parse, const json_t *root);       /* parse_tools.c */
int parse_tool_choice(struct parse *parse, const json_t *root); /* parse_tools.c */
/* The member "tools" of either API, each tool by what is given.  parse_tools.c */
typedef int (*parse_tool_fn)(struct parse *parse, const json_t *item, struct gen_tool *tool);
int parse_tool_list(struct parse *parse, const json_t *root, parse_tool_fn parse_one);
/* A tool that its type describes; its name may be given.  False: no such type.  parse_typed.c */
bool parse_typed_tool(struct bytes type, struct gen_tool *tool);
bool parse_is_tool_name(struct bytes name);                                /* parse_tools.c */
int parse_check_unique(struct parse *parse);                               /* tool names; parse_tools.c */
bool parse_has_tool(const struct gen_request *request, struct bytes name); /* parse_tools.c */
/* The bodies of OpenAI's routes. */
int parse_chat(struct parse *parse, const json_t *root);          /* parse_chat.c */
int parse_chat_prompt(struct parse *parse, const json_t *root);   /* tools and messages; parse_chat.c */
int parse_completions(struct parse *parse, const json_t *root);   /* parse_prompts.c */
int parse_tokenize(struct parse *parse, const json_t *root);      /* parse_prompts.c */
int parse_detokenize(struct parse *parse, const json_t *root);    /* parse_prompts.c */
int parse_openai_fields(struct parse *parse, const json_t *root); /* parse_openai.c */
/* One content block of a message with this role. parse_blocks.c */
int parse_block(struct parse *parse, const json_t *block, enum gen_role role, struct parse_origin origin);
/* Appends a block to the message being built; NULL: no memory. parse_content.c */
struct gen_block *parse_add_block(struct parse *parse, enum gen_block_kind kind, struct parse_origin origin);

#endif
