/* SPDX-License-Identifier: Apache-2.0 */
/* State and helpers that all parts of the request parser share: the place in the document, the request
 * under construction, and the error functions. */
#ifndef SERVE_API_PARSE_PRIV_H
#define SERVE_API_PARSE_PRIV_H

#include "text/json/json.h"
#include "serve/api/parse.h"

struct
    parse_origin { /* a block's place in the list, which begins with parse.n_earlier kept messages or items */
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
    size_t n_earlier;    /* messages of the kept history, before the client's messages */
    unsigned n_marks;
    enum work_pin least_pin; /* the shortest ttl of the breakpoints so far; n_marks 0: not set */
    size_t system_bytes;     /* of the system text before the current block; 0 outside the system text */
    bool keeps_last;     /* a last assistant message is a turn of its own, not the beginning of the answer */
    struct buf warnings; /* of /v1/responses: a JSON list without its brackets */
    struct buf left_out; /* the same: types of tools */
    bool thinks;         /* thinking.type is enabled, so its constraints apply */
    int64_t thinking_budget;
};

/* The path of the current place.  Give the return value of push to pop. */
size_t parse_push(struct parse *parse, const char *name);
size_t parse_push_index(struct parse *parse, size_t index);
void parse_pop(struct parse *parse, size_t was);
/* 400 "PATH: text" (or "PATH.field: text" when field is given). */
__attribute__((format(printf, 3, 4))) int parse_fail(struct parse *parse, const char *field,
                                                     const char *format, ...);
int parse_no_memory(struct parse *parse);

/* The member, or NULL when absent or null. */
json_t *parse_member(const json_t *object, const char *name);
/* Copies text into the arena. */
int parse_copy(struct parse *parse, struct bytes text, struct bytes *out);
/* Reads a string member.  An absent optional member leaves *out alone. */
int parse_string(struct parse *parse, const json_t *object, const char *name, bool is_required,
                 struct bytes *out);
/* Reads the required member "model". */
int parse_model(struct parse *parse, const json_t *root);
/* Read an optional integer, number or boolean member; found_out may be NULL. */
int parse_integer(struct parse *parse, const json_t *object, const char *name, int64_t *out, bool *found_out);
int parse_number(struct parse *parse, const json_t *object, const char *name, double *out);
int parse_bool(struct parse *parse, const json_t *object, const char *name, bool *out);
/* Appends the member called name: a string, or a list of items, each by put.  texts: not NULL.  Without memory out
 * is bad. */
typedef int parse_put_fn(struct parse *parse, const json_t *item, struct buf *out);
int parse_put_texts(struct parse *parse, const json_t *texts, const char *name, parse_put_fn *put,
                    struct buf *out);
/* Writes a value in its canonical serialisation, in the arena. */
int parse_serialise(struct parse *parse, const json_t *value, struct bytes *out);

int parse_cache_salt(struct parse *parse, const json_t *root);
/* The fields that Messages, chat, completions and Responses have alike.  A new one for all of them is read here. */
int parse_common_fields(struct parse *parse, const json_t *root);
/* Reads an object's cache_control, if any, and sets the cache breakpoint to the current place. */
int parse_cache_control(struct parse *parse, const json_t *object);

/* parse_thread.c: which conversation the request continues, if any; the history before its messages; the
 * history to keep */
int parse_thread(struct parse *parse, const json_t *root);
int parse_thread_join(struct parse *parse, json_t *root, struct bytes history);
int parse_thread_history(struct parse *parse, json_t *root);
int parse_system(struct parse *parse, const json_t *root);   /* parse_content.c */
int parse_messages(struct parse *parse, const json_t *root); /* parse_content.c */
/* Reads the list "messages" of either API, and takes room for as many messages.  parse_content.c */
int parse_message_list(struct parse *parse, const json_t *root, const json_t **list_out);
int parse_check_pairs(struct parse *parse);                     /* parse_pairs.c */
int parse_tools(struct parse *parse, const json_t *root);       /* parse_tools.c */
int parse_tool_choice(struct parse *parse, const json_t *root); /* parse_tools.c */
/* Parses the member "tools" of either API; parse_one parses each tool.  parse_tools.c */
typedef int (*parse_tool_fn)(struct parse *parse, const json_t *item, struct gen_tool *tool);
int parse_tool_list(struct parse *parse, const json_t *root, parse_tool_fn parse_one);
/* Fills in a tool that its type describes; the client may give its name.  False: unknown type.
 * parse_typed.c */
bool parse_typed_tool(struct bytes type, struct gen_tool *tool);
bool parse_is_tool_name(struct bytes name);                                /* parse_tools.c */
int parse_check_unique(struct parse *parse);                               /* tool names; parse_tools.c */
bool parse_has_tool(const struct gen_request *request, struct bytes name); /* parse_tools.c */
/* The bodies of OpenAI's routes. */
int parse_chat(struct parse *parse, const json_t *root);          /* parse_chat.c */
int parse_chat_prompt(struct parse *parse, const json_t *root);   /* tools and messages; parse_chat.c */
int parse_completions(struct parse *parse, const json_t *root);   /* parse_prompts.c */
int parse_embeddings(struct parse *parse, const json_t *root);    /* parse_prompts.c */
int parse_tokenize(struct parse *parse, const json_t *root);      /* parse_prompts.c */
int parse_detokenize(struct parse *parse, const json_t *root);    /* parse_prompts.c */
int parse_openai_fields(struct parse *parse, const json_t *root); /* parse_openai.c */
/* Parts of these routes that /v1/responses shares. */
int parse_openai_sampling(struct parse *parse,
                          const json_t *root); /* also biases and stops; parse_openai.c */
int parse_json_schema(struct parse *parse, const json_t *described); /* {"name", "schema"}; parse_openai.c */
/* The format of an answer, at the current place, which it leaves; parse_schema parses a json_schema.  parse_openai.c */
typedef int parse_value_fn(struct parse *parse, const json_t *value);
int parse_answer_format(struct parse *parse, const json_t *format, parse_value_fn *parse_schema);
/* tool_choice and parallel_tool_calls; choose parses a choice that is an object.  parse_chat.c */
int parse_openai_choice(struct parse *parse, const json_t *root, parse_value_fn *choose);
int parse_function(struct parse *parse, const json_t *function, struct gen_tool *tool); /* parse_chat.c */
int parse_arguments(struct parse *parse, struct bytes text, struct bytes *out);         /* parse_chat.c */
void parse_enter_turn(struct parse *parse, enum gen_role role);                         /* parse_chat.c */
/* Adds the block of a tool's result, in the user's turn; its id is a member of object.  parse_chat.c */
int parse_begin_result(struct parse *parse, const json_t *object, const char *id_name,
                       struct parse_origin origin, struct gen_block **out);
/* Adds a block with this text, unless it is empty.  parse_chat.c */
int parse_add_text(struct parse *parse, enum gen_block_kind kind, struct parse_origin origin,
                   struct bytes text);
/* The body of /v1/responses (parse_responses.c).  The first function puts kept items before and into the input.  It
 * returns 1 if it needs kept responses first; then nothing else was parsed.  The second parses the whole body. */
int parse_responses_join(struct parse *parse, json_t *root, struct bytes history);
int parse_responses(struct parse *parse, json_t *root);
int parse_response_items(struct parse *parse, json_t *list);        /* parse_response_items.c */
int parse_response_keep(struct parse *parse, json_t *list);         /* parse_response_items.c */
int parse_response_tools(struct parse *parse, const json_t *root);  /* parse_response_tools.c */
int parse_response_choice(struct parse *parse, const json_t *root); /* parse_response_tools.c */
int parse_response_echo(struct parse *parse, const json_t *root);   /* parse_response_echo.c */
/* Adds a warning about the current place to the answer.  code: static. */
int parse_response_warn(struct parse *parse, const char *code,
                        const char *message); /* parse_response_echo.c */
/* Parses one content block of a message with this role.  parse_blocks.c */
int parse_block(struct parse *parse, const json_t *block, enum gen_role role, struct parse_origin origin);
/* Appends a block to the current message.  NULL: no memory.  parse_content.c */
struct gen_block *parse_add_block(struct parse *parse, enum gen_block_kind kind, struct parse_origin origin);

#endif
