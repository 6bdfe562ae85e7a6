/* SPDX-License-Identifier: Apache-2.0 */
/* Automata over characters: parsing a pattern, making the automaton deterministic, and writing it into a
 * graph as the bytes of a JSON string. */
#ifndef TEXT_GRAMMAR_GRAMMAR_AUTO_PRIV_H
#define TEXT_GRAMMAR_GRAMMAR_AUTO_PRIV_H

#include "text/grammar/grammar_priv.h"

#define AUTO_MAX_NODES  8000u
#define AUTO_MAX_STATES 4000u
#define AUTO_LAST_CODE  0x10ffffu

struct code_range {
    uint32_t lo, hi;
};

enum nfa_kind {
    NFA_SET,   /* a character of its set, then next */
    NFA_GO,    /* next */
    NFA_SPLIT, /* next or other */
    NFA_BEGIN, /* next, but only before the first character */
    NFA_END,   /* next, but only after the last character */
    NFA_MATCH
};

struct nfa_node {
    enum nfa_kind kind;
    uint32_t next, other;
    uint32_t set, n_set; /* ranges[set ..]: disjoint, ascending */
};

struct nfa {
    struct nfa_node *nodes;
    uint32_t n_nodes, cap_nodes;
    struct code_range *ranges;
    uint32_t n_ranges, cap_ranges;
    uint32_t start;
    uint32_t anything; /* from this node on all texts match; UINT32_MAX: no such node */
};

struct dfa_edge {
    uint32_t lo, hi, to;
};

struct dfa { /* state 0 is the start */
    struct dfa_edge *edges;
    uint32_t n_edges, cap_edges;
    struct dfa_state {
        uint32_t edges, n_edges;
        bool is_final;
    } * states;
    uint32_t n_states, cap_states;
};

/* ---- grammar_auto.c ---- */
void nfa_fini(struct nfa *nfa);
uint32_t nfa_node(struct nfa *nfa, struct nfa_node node); /* UINT32_MAX: too many, or no memory */
int nfa_range(struct nfa *nfa, uint32_t lo, uint32_t hi); /* appends to the pool of ranges */
/* Makes nfa deterministic.  *budget: the steps it may take; the steps it took are subtracted.  E_LIMIT,
 * E_NOMEM. */
int dfa_build(const struct nfa *nfa, uint64_t *budget, struct dfa *dfa);
void dfa_fini(struct dfa *dfa);

/* ---- grammar_text.c ---- */
/* Writes the automaton's texts of `chars` characters, as a JSON string after the opening quote, then next.
 * E_LIMIT, E_NOMEM. */
int dfa_write(struct graph *graph, const struct dfa *dfa, struct bounds chars, uint32_t next,
              uint32_t *pc_out);

/* The same without JSON's escapes, then next: for texts between tags. */
int dfa_write_raw(struct graph *graph, const struct dfa *dfa, struct bounds chars, uint32_t next,
                  uint32_t *pc_out);

/* ---- grammar_tagged.c ---- */
struct tagged {               /* further conditions on a text between tags */
    struct bytes until;       /* not in the text.  ASCII; its first letter occurs only once in it */
    bool is_inner;            /* no line end at either side */
    const struct dfa *banned; /* rejects these texts; NULL: none */
    uint32_t n_counts;        /* number of lengths that the writer will count */
    uint64_t *budget;         /* as for dfa_build() */
};
/* The texts of an automaton that meet these conditions.  If that takes too many states, it also forbids a
 * beginning of until, of at least two letters.  E_LIMIT, E_NOMEM. */
int dfa_tag(const struct dfa *text, const struct tagged *tagged, struct dfa *out);

/* ---- grammar_regex.c ---- */
/* Parses ECMA-262's syntax as JSON Schema uses it, into an automaton of the texts in which the pattern is
 * found.  E_FORMAT, E_UNSUPPORTED, E_LIMIT, with the reason (static). */
int regex_parse(struct bytes pattern, struct nfa *nfa, const char **reason_out);

/* ---- grammar_format.c ---- */
const char *format_pattern(const char *name); /* NULL: an unknown format */

/* ---- grammar_digits.c ---- */
struct number_bounds {
    double min, max; /* of decimals; has_min and has_max say which bounds exist */
    bool has_min, has_max, is_min_open, is_max_open; /* open: the bound itself is excluded */
    bool is_integer;
    int64_t least, most; /* of integers, inclusive */
    uint32_t multiple;   /* multipleOf, for integers only; 0: any */
};

/* Writes a JSON number within bounds, then next.  E_UNSUPPORTED with the reason (static), E_NOMEM. */
int digits_write(struct graph *graph, const struct number_bounds *bounds, uint32_t next,
                 const char **reason_out, uint32_t *pc_out);

#endif
