/* SPDX-License-Identifier: Apache-2.0 */
/* The private parts of the template interpreter: one rendering, text builders, and callables. */
#ifndef TEXT_JINJA_JINJA_PRIV_H
#define TEXT_JINJA_JINJA_PRIV_H

#include "base/arena.h"
#include "base/fault.h"
#include "text/jinja/value.h"

#define JINJA_MAX_DEPTH      400 /* of evaluation: nested expressions, blocks and macro calls */
#define JINJA_MAX_NESTING    100 /* of nested lists and dicts, where a function walks all levels */
#define JINJA_MAX_JSON_DEPTH 128
#define JINJA_MAX_RANGE      100000

struct scope { /* variables of one block; inner scopes see outer ones */
    struct scope *parent;
    struct variable {
        const struct name *name;
        struct value value;
    } * variables;
    uint32_t n, cap;
    bool is_kept; /* a macro defined here reads it later */
};

enum jump { JUMP_NONE, JUMP_BREAK, JUMP_CONTINUE };

struct jinja {
    const struct jinja_template *parsed;
    struct arena arena;
    struct fault *fault;
    int rc; /* the first failure; after it nothing is computed */
    uint32_t line;
    uint64_t steps_left;
    unsigned depth;
    size_t max_text_bytes;
    size_t made_bytes; /* of all texts that are being built */
    int64_t now_unix_s;
    struct scope *globals; /* the functions; the outermost scope */
    struct scope *scope;
    struct build *out;
    enum jump jump;
};

/* Records the first failure, as "line N: ...". */
__attribute__((format(printf, 3, 4))) void jinja_fail(struct jinja *jinja, int rc, const char *format, ...);
void *jinja_take(struct jinja *jinja, size_t len_bytes); /* zeroed; NULL after a failure was noted */
/* Moves the buffer's content to the rendering, which frees it; the buffer is then empty. NULL: the buffer was
 * empty, or a failure was noted. */
const void *jinja_keep(struct jinja *jinja, struct buf *buf);
/* Counts work. False: there was a failure, or the step limit is reached. */
bool jinja_charge(struct jinja *jinja, uint64_t steps);
bool jinja_enter(struct jinja *jinja); /* one level deeper; call jinja_leave() only after true */
void jinja_leave(struct jinja *jinja);

/* ---- text.c: texts and text builders ---- */

struct build {
    struct jinja *jinja;
    struct buf data;
    struct buf marks; /* used only once is_mixed */
    uint32_t mark;
    bool is_mixed;
};

struct build build_begin(struct jinja *jinja);
void build_text(struct build *build, struct text text);
void build_raw(struct build *build, const void *data, size_t len_bytes, uint32_t mark);
void build_str(struct build *build, const char *text);
void build_char(struct build *build, uint32_t code, uint32_t mark);
struct value build_end(struct build *build); /* the text; the builder is empty afterwards */
void build_drop(struct build *build);

struct text text_in(struct value value); /* empty for a value that is no text */
struct text text_str(const char *text);  /* a literal of this program */
struct text text_part(struct text text, size_t from, size_t to);
uint32_t text_mark_at(struct text text, size_t at);
/* One mark for all bytes together: the bits that any byte has, and the part of the first byte that has
 * one. */
uint32_t text_marks(struct text text);
uint32_t mark_join(uint32_t a, uint32_t b); /* the same for two marks */
struct bytes text_bytes(struct text text);
bool text_is(struct text text, const char *other);
uint32_t text_code(struct text text, size_t at, size_t *len_out); /* the character at this offset */
size_t text_length(struct text text);                             /* in characters */
size_t text_offset(struct text text, size_t index); /* of a character; the end when there are fewer */
size_t text_before(struct text text, size_t at);    /* the offset of the character before at */
struct text text_strip(struct text text, const struct text *chars, bool left, bool right);
bool char_is_space(uint32_t code);
uint64_t bytes_hash(struct bytes bytes);

/* ---- print.c, json.c ---- */

void print_str(struct build *build, struct value value);                    /* as str() */
void print_repr(struct build *build, struct value value);                   /* as repr */
void print_html(struct build *build, struct text text);                     /* with & < > " ' escaped */
struct value text_add(struct jinja *jinja, struct value a, struct value b); /* joins two texts */
struct value value_to_text(struct jinja *jinja, struct value value);
void print_float(struct build *build, double real);
struct value value_to_json(struct jinja *jinja, struct value value, const struct value *options);

enum op {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOOR,
    OP_MOD,
    OP_POW,
    OP_CONCAT,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN,
    OP_NOT,
    OP_NEGATE,
    OP_PLUS
};
struct value op_binary(struct jinja *jinja, enum op op, struct value a, struct value b);
struct value op_unary(struct jinja *jinja, enum op op, struct value a);
bool op_compare(struct jinja *jinja, enum op op, struct value a, struct value b);
bool value_is_number(struct value value);           /* true for a bool too, as in Python */
double value_real(struct value value);              /* the value of a number */
bool value_index(struct value value, int64_t *out); /* for an int or a bool */

/* ---- callables ---- */

#define CALL_BOUND 5

struct keyword {
    struct text name;
    struct value value;
};

struct call { /* evaluated arguments */
    struct value *args;
    size_t n_args;
    struct keyword *keywords;
    size_t n_keywords;
    struct value bound[CALL_BOUND]; /* one for each parameter of the callable; ABSENT: not given */
};

typedef struct value callable_fn(struct jinja *jinja, struct value self, struct call *call);

struct callable { /* a filter, test, method or global function */
    const char *name;
    const char *params; /* "a b c"; NULL: the function takes the call unbound */
    callable_fn *fn;
    unsigned n_needed;
    bool makes_markup;
};

struct method {
    struct value self;
    const struct callable *callable;
};

/* Binds the arguments to the parameters and calls the function. */
struct value callable_call(struct jinja *jinja, const struct callable *callable, struct value self,
                           struct call *call);
const struct callable *callable_find(const struct callable *table,
                                     struct bytes name); /* the table ends with a NULL name */

const struct callable *filter_find(struct bytes name);
const struct callable *test_find(struct bytes name);
const struct callable *method_find(struct jinja *jinja, struct value self, struct bytes name);
extern const struct callable text_filters[], list_filters[], pick_filters[]; /* filters_*.c */
extern const struct callable text_methods[], search_methods[];               /* methods*.c */
extern const struct callable jinja_functions[];                              /* functions.c */

/* Attribute and item of a value, with the lookup rules of . and []; undefined when there is none. */
struct value value_attribute(struct jinja *jinja, struct value value, struct text name);
struct value value_item(struct jinja *jinja, struct value value, struct value key);
/* A path such as "a.b.0", as filters take for attributes. */
struct value value_path(struct jinja *jinja, struct value value, struct value path);
struct value value_call(struct jinja *jinja, struct value callee, struct call *call);
struct value text_format(struct jinja *jinja, struct text format,
                         struct value arguments); /* the % operator */
struct value text_format_braces(struct jinja *jinja, struct text format, struct call *call);
void list_sort(struct jinja *jinja, struct value list, const struct value *keys, bool is_reverse);
struct value loop_attribute(struct jinja *jinja, struct loop *loop, struct text name);
struct value loop_call(struct jinja *jinja, struct loop *loop, struct call *call);
struct value loop_cycle(struct jinja *jinja, struct value self, struct call *call);
struct value loop_changed(struct jinja *jinja, struct value self, struct call *call);

#endif
