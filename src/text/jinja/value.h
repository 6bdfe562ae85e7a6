/* SPDX-License-Identifier: Apache-2.0 */
/* The values of a chat template: Python's, as far as templates use them.
 *
 * All values live in the arena of one rendering. A value is never changed once other code can see it: lists
 * and dicts grow only while they are built. The exception is a list that the template itself wrote as
 * "[...]".
 *
 * Functions that can fail note the failure in the rendering (jinja_fail) and return an undefined value. A
 * caller may make many calls and check once, at the end.
 *
 * Each byte of a text has a mark: who wrote it and which part of the conversation it belongs to. The marks
 * are marks[i], or one mark for the whole text. An operation that moves bytes moves their marks, so client
 * text is still known as client text after every filter.
 *
 * More than 15 functions: one constructor and one accessor for each kind of value. */
#ifndef TEXT_JINJA_VALUE_H
#define TEXT_JINJA_VALUE_H

#include "base/bytes.h"

struct jinja; /* one rendering */

enum value_kind {
    VALUE_ABSENT, /* an argument that was not given; templates never see it */
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_BIG, /* a JSON integer beyond 64 bits: kept as spelled, no arithmetic */
    VALUE_FLOAT,
    VALUE_TEXT,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_MACRO,
    VALUE_FUNCTION, /* a global function */
    VALUE_METHOD,   /* a bound method that is not called yet */
    VALUE_LOOP
};

enum mark { /* bits; above them the number of the conversation part, 0: no part */
            MARK_OWN = 0,
            MARK_CLIENT = 1, /* never becomes a control token */
            MARK_LAST = 2,   /* part of the message that the answer continues */
            MARK_PART_SHIFT = 2
};

struct text {
    const uint8_t *data;
    const uint32_t *marks; /* [len_bytes]; NULL: every byte has mark */
    size_t len_bytes;
    uint32_t mark;
    /* the text comes from "safe" or "escape"; text joined to it is escaped, as in the reference
     * implementation */
    bool is_markup;
};

struct value {
    enum value_kind kind;
    union {
        bool is_true;
        int64_t integer;
        double real;
        const char *hint; /* UNDEFINED: the name of the missing thing, or NULL */
        const struct text *text;
        struct value_list *list; /* LIST, TUPLE */
        struct value_dict *dict; /* DICT, NAMESPACE */
        const struct macro *macro;
        const struct callable *callable; /* FUNCTION */
        const struct method *method;
        struct loop *loop;
    };
};

struct value_list {
    struct value *items;
    size_t n, cap;
    bool is_open;  /* the template wrote the list ("[...]") and may change it in place */
    bool is_group; /* a tuple of groupby: its items are .grouper and .list too */
};

struct value_dict { /* in insertion order */
    struct value_entry {
        struct value key, value;
        uint64_t hash;
    } * entries;
    size_t n, cap;
    uint32_t *slots; /* [mask + 1] index + 1 into entries, 0: free; NULL while the dict is small */
    uint32_t mask;
};

/* ---- constructors ---- */

struct value value_undefined(const char *hint);
struct value value_none(void);
struct value value_bool(bool is_true);
struct value value_int(int64_t integer);
struct value value_float(double real);
struct value value_text(struct jinja *jinja, struct text text);
struct value value_str(struct jinja *jinja, const char *text); /* borrowed; a literal of this program */
struct value value_bytes(struct jinja *jinja, struct bytes text, uint32_t mark); /* borrowed */
struct value value_copy(struct jinja *jinja, struct bytes text, uint32_t mark);
struct value value_joined(struct jinja *jinja, const struct text *pieces, size_t n); /* copied */
struct value value_list(struct jinja *jinja, size_t cap);
struct value value_tuple(struct jinja *jinja, size_t cap);
struct value value_dict(struct jinja *jinja);
void list_push(struct jinja *jinja, struct value list, struct value item);
void dict_set(struct jinja *jinja, struct value dict, struct value key, struct value value);
void dict_set_str(struct jinja *jinja, struct value dict, const char *key, struct value value);
/* JSON text -> value. Fails with E_FORMAT or E_LIMIT; the message names the text as `what`. */
struct value value_of_json(struct jinja *jinja, struct bytes json, uint32_t mark, const char *what);

/* ---- queries ---- */

bool value_is_true(struct value value);
bool value_is_sequence(struct value value); /* a list or a tuple */
const char *value_type(struct value value); /* as Python names it */
/* NULL: no such key. Valid until the dict changes. */
struct value *dict_get(struct jinja *jinja, struct value dict, struct value key);
struct value *dict_get_str(struct jinja *jinja, struct value dict, const char *key);
bool value_equal(struct jinja *jinja, struct value a, struct value b);
/* Returns -1, 0 or 1; fails when the two values have no order. */
int value_compare(struct jinja *jinja, struct value a, struct value b);
/* The elements as a list: of a list or tuple, the characters of a text, the keys of a dict; none for
 * undefined. Fails for any other value. */
struct value value_elements(struct jinja *jinja, struct value value);
size_t value_len(struct jinja *jinja, struct value value); /* fails for a value without a length */

#endif
