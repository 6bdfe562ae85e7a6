/* SPDX-License-Identifier: Apache-2.0 */
/* The values a chat template computes with: Python's, as far as templates use them.
 *
 * Everything lives in the arena of one rendering and is never changed once others can see it (lists and dicts
 * grow only while they are made, but for lists that the template wrote down itself).  Functions that can fail
 * note the failure in the rendering (jinja_fail) and give an undefined value; whoever calls many of them
 * looks once, at the end.
 *
 * Each byte of a text remembers who wrote it and which part of the conversation it is of: marks[i], or mark
 * for all of it.  An operation that moves bytes moves their marks, so what a client wrote stays known as such
 * through every filter. */
#ifndef TEXT_JINJA_VALUE_H
#define TEXT_JINJA_VALUE_H

#include "base/bytes.h"

struct jinja; /* one rendering */

enum value_kind {
    VALUE_ABSENT, /* an argument that was not given; never seen by a template */
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_BIG, /* an integer of a client's JSON beyond 64 bits: kept as spelled, nothing is computed with it
                */
    VALUE_FLOAT,
    VALUE_TEXT,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_MACRO,
    VALUE_FUNCTION, /* a global */
    VALUE_METHOD,   /* of a value, not called yet */
    VALUE_LOOP
};

enum mark { /* bits, and above them the number of the part of the conversation; 0: of none */
            MARK_OWN = 0,
            MARK_CLIENT = 1, /* never becomes a control token */
            MARK_LAST = 2,   /* of the message that the answer continues */
            MARK_PART_SHIFT = 2
};

struct text {
    const uint8_t *data;
    const uint32_t *marks; /* [len_bytes]; NULL: mark is that of every byte */
    size_t len_bytes;
    uint32_t mark;
    bool is_markup; /* came out of "safe" or "escape": what is joined to it is escaped, as in the reference */
};

struct value {
    enum value_kind kind;
    union {
        bool is_true;
        int64_t integer;
        double real;
        const char *hint; /* UNDEFINED: what is not there, or NULL */
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
    bool is_open; /* the template wrote it down itself ("[...]") and may change it in place */
};

struct value_dict { /* in order of insertion */
    struct value_entry {
        struct value key, value;
        uint64_t hash;
    } * entries;
    size_t n, cap;
    uint32_t *slots; /* [mask + 1] index + 1 into entries, 0: free; NULL while there are few */
    uint32_t mask;
};

/* ---- making ---- */

struct value value_undefined(const char *hint);
struct value value_none(void);
struct value value_bool(bool is_true);
struct value value_int(int64_t integer);
struct value value_float(double real);
struct value value_text(struct jinja *jinja, struct text text);
struct value value_str(struct jinja *jinja, const char *text);                   /* borrowed, our own */
struct value value_bytes(struct jinja *jinja, struct bytes text, uint32_t mark); /* borrowed */
struct value value_copy(struct jinja *jinja, struct bytes text, uint32_t mark);
struct value value_joined(struct jinja *jinja, const struct text *pieces, size_t n); /* copied */
struct value value_list(struct jinja *jinja, size_t cap);
struct value value_tuple(struct jinja *jinja, size_t cap);
struct value value_dict(struct jinja *jinja);
void list_push(struct jinja *jinja, struct value list, struct value item);
void dict_set(struct jinja *jinja, struct value dict, struct value key, struct value value);
void dict_set_str(struct jinja *jinja, struct value dict, const char *key, struct value value);
/* JSON text -> value.  Fails with E_FORMAT or E_LIMIT, naming what. */
struct value value_of_json(struct jinja *jinja, struct bytes json, uint32_t mark, const char *what);

/* ---- asking ---- */

bool value_is_true(struct value value);
bool value_is_sequence(struct value value); /* a list or a tuple */
const char *value_type(struct value value); /* as Python names it */
/* NULL: not there.  Valid until the dict changes. */
struct value *dict_get(struct jinja *jinja, struct value dict, struct value key);
struct value *dict_get_str(struct jinja *jinja, struct value dict, const char *key);
bool value_equal(struct jinja *jinja, struct value a, struct value b);
/* -1, 0, 1; fails when the two have no order. */
int value_compare(struct jinja *jinja, struct value a, struct value b);
/* The elements as a list: of a list, a tuple, a text (its characters), a dict (its keys); undefined has none.
 * Fails for what cannot be gone through. */
struct value value_elements(struct jinja *jinja, struct value value);
size_t value_len(struct jinja *jinja, struct value value); /* fails for what has no length */

#endif
