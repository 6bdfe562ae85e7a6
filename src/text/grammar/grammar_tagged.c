/* SPDX-License-Identifier: Apache-2.0 */
/* An automaton's texts, less those that cannot be between tags.
 *
 *     <parameter=K>\n TEXT \n</parameter>
 *
 * The text may not contain the closing tag.  It may not have a line end at its sides where parsers take that
 * for the tags'.  And it may not be a text that parses as another type than a string.  Each condition is an
 * automaton of its own; their product accepts the texts that meet all:
 *
 *     state = (text, banned text or none, letters of the closing tag just seen, line end just seen)
 *
 * States from which no text ends are removed, so no answer enters them.  The closing tag's first letter
 * occurs only once in it, so a partial match is lost at the first wrong letter. */
#include "text/grammar/grammar_auto_priv.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

#define MAX_TUPLES (1u << 22)
#define MAX_STATES 20000u
#define ROOM       6000u /* about states times lengths: the limit for matching a whole closing tag */

enum side { SIDE_NONE, SIDE_LINE_END, SIDE_BEGIN, N_SIDES };

struct tuple {
    uint32_t text, banned, seen; /* banned: n_states means that no banned text matches any more */
    enum side side;
};

struct product {
    const struct dfa *text;
    const struct tagged *tagged;
    uint32_t n_banned, n_seen; /* number of values of a tuple's members */
    uint32_t *numbers;         /* tuple -> state + 1 */
    struct tuple *tuples;      /* tuples[state] */
    uint32_t cap_tuples;
    uint32_t steps_of_run; /* cost of a run of characters */
    struct dfa *out;
};

static int state_of(struct product *product, struct tuple tuple, uint32_t *out)
{
    uint32_t index =
        ((tuple.text * product->n_banned + tuple.banned) * product->n_seen + tuple.seen) * N_SIDES +
        (uint32_t)tuple.side;
    struct dfa *dfa = product->out;

    if (product->numbers[index] == 0) {
        if (dfa->n_states == MAX_STATES)
            return E_LIMIT;
        if (!graph_grow(&dfa->states, &dfa->cap_states, dfa->n_states + 1, sizeof(*dfa->states)) ||
            !graph_grow(&product->tuples, &product->cap_tuples, dfa->n_states + 1, sizeof(tuple)))
            return E_NOMEM;
        product->tuples[dfa->n_states] = tuple;
        product->numbers[index] = ++dfa->n_states;
    }
    *out = product->numbers[index] - 1;
    return 0;
}

/* The last code up to hi that leads to the same tuple as lo. */
static uint32_t grammar_tagged_run_end(const struct product *product, const struct tuple *from, uint32_t lo,
                                       uint32_t hi)
{
    const struct dfa *banned = product->tagged->banned;
    struct bytes until = product->tagged->until;

    for (size_t i = 0; i <= until.len_bytes; i++) {
        uint32_t code = i < until.len_bytes ? until.data[i] : '\n';

        if (code == lo)
            hi = lo;
        else if (code > lo && code <= hi)
            hi = code - 1;
    }
    if (from->banned + 1 >= product->n_banned)
        return hi;
    for (uint32_t i = 0; i < banned->states[from->banned].n_edges; i++) {
        const struct dfa_edge *edge = &banned->edges[banned->states[from->banned].edges + i];

        if (edge->lo > lo && edge->lo <= hi)
            hi = edge->lo - 1;
        else if (edge->lo <= lo && edge->hi >= lo && edge->hi < hi)
            hi = edge->hi;
    }
    return hi;
}

static uint32_t banned_after(const struct product *product, uint32_t state, uint32_t code)
{
    const struct dfa *banned = product->tagged->banned;

    if (state + 1 >= product->n_banned)
        return state;
    for (uint32_t i = 0; i < banned->states[state].n_edges; i++) {
        const struct dfa_edge *edge = &banned->edges[banned->states[state].edges + i];

        if (edge->lo <= code && code <= edge->hi)
            return edge->to;
    }
    return product->n_banned - 1;
}

/* The tuple that code leads to; false: none. */
static bool read_code(const struct product *product, const struct tuple *from, uint32_t code,
                      struct tuple *to)
{
    const uint8_t *until = product->tagged->until.data;

    if (product->tagged->is_inner && from->side == SIDE_BEGIN && code == '\n')
        return false;
    to->side = product->tagged->is_inner && code == '\n' ? SIDE_LINE_END : SIDE_NONE;
    to->seen = code == until[from->seen] ? from->seen + 1 : code == until[0];
    to->banned = banned_after(product, from->banned, code);
    return to->seen < product->n_seen;
}

/* Adds an edge to a state whose edges begin at first; merges neighbours with the same target. */
static int grammar_tagged_add_edge(struct dfa *dfa, uint32_t first, struct dfa_edge edge)
{
    struct dfa_edge *last = dfa->n_edges > first ? &dfa->edges[dfa->n_edges - 1] : NULL;

    if (last != NULL && last->to == edge.to && last->hi + 1 == edge.lo) {
        last->hi = edge.hi;
        return 0;
    }
    if (!graph_grow(&dfa->edges, &dfa->cap_edges, dfa->n_edges + 1, sizeof(edge)))
        return E_NOMEM;
    dfa->edges[dfa->n_edges++] = edge;
    return 0;
}

static int grammar_tagged_spend(struct product *product, uint64_t steps)
{
    uint64_t *budget = product->tagged->budget;

    *budget -= steps < *budget ? steps : *budget;
    return *budget > 0 ? 0 : E_LIMIT;
}

static int grammar_tagged_walk_state(struct product *product, uint32_t state)
{
    const struct tuple from = product->tuples[state];
    const struct dfa_state *at = &product->text->states[from.text];
    const struct dfa *banned = product->tagged->banned;
    bool is_banned = from.banned + 1 < product->n_banned && banned->states[from.banned].is_final;
    uint32_t first = product->out->n_edges;
    int rc = 0;

    for (uint32_t i = 0; i < at->n_edges; i++) {
        const struct dfa_edge *edge = &product->text->edges[at->edges + i];

        for (uint32_t lo = edge->lo, hi; lo <= edge->hi && rc == 0; lo = hi + 1) {
            struct tuple to = {.text = edge->to};
            uint32_t number;

            rc = grammar_tagged_spend(product, product->steps_of_run);
            hi = grammar_tagged_run_end(product, &from, lo, edge->hi);
            if (rc != 0 || !read_code(product, &from, lo, &to))
                continue;
            rc = state_of(product, to, &number);
            if (rc == 0)
                rc = grammar_tagged_add_edge(product->out, first, (struct dfa_edge){lo, hi, number});
        }
    }
    product->out->states[state] =
        (struct dfa_state){.edges = first,
                           .n_edges = product->out->n_edges - first,
                           .is_final = at->is_final && !is_banned && from.side != SIDE_LINE_END};
    return rc;
}

/* Removes edges to states from which no text ends. */
static int grammar_tagged_prune(struct product *product)
{
    struct dfa *dfa = product->out;
    int rc = 0;
    uint8_t *has_end = calloc(dfa->n_states + 1, 1);
    bool is_new = has_end != NULL;

    while (is_new && rc == 0) {
        is_new = false;
        rc = grammar_tagged_spend(product, dfa->n_states + dfa->n_edges);
        for (uint32_t i = dfa->n_states; i > 0; i--) {
            const struct dfa_state *state = &dfa->states[i - 1];
            bool has = state->is_final;

            for (uint32_t k = 0; k < state->n_edges && !has && !has_end[i - 1]; k++)
                has = has_end[dfa->edges[state->edges + k].to];
            is_new |= has && !has_end[i - 1];
            has_end[i - 1] |= has;
        }
    }
    for (uint32_t i = 0; has_end != NULL && i < dfa->n_states; i++) {
        struct dfa_state *state = &dfa->states[i];
        uint32_t n = 0;

        for (uint32_t k = 0; k < state->n_edges; k++)
            if (has_end[dfa->edges[state->edges + k].to])
                dfa->edges[state->edges + n++] = dfa->edges[state->edges + k];
        state->n_edges = n;
    }
    free(has_end);
    return has_end == NULL ? E_NOMEM : rc;
}

int dfa_tag(const struct dfa *text, const struct tagged *tagged, struct dfa *out)
{
    struct product product = {.text = text, .tagged = tagged, .out = out};
    uint64_t n_seen = ROOM / ((uint64_t)tagged->n_counts * text->n_states);
    uint32_t start;
    int rc;

    n_seen = n_seen < 2 ? 2 : n_seen;
    product.n_seen = (uint32_t)(n_seen < tagged->until.len_bytes ? n_seen : tagged->until.len_bytes);
    product.n_banned = tagged->banned != NULL ? tagged->banned->n_states + 1 : 1;
    product.steps_of_run = 8 + (uint32_t)tagged->until.len_bytes / 2;
    for (uint32_t i = 0; tagged->banned != NULL && i < tagged->banned->n_states; i++)
        if (product.steps_of_run < tagged->banned->states[i].n_edges)
            product.steps_of_run = tagged->banned->states[i].n_edges;
    if ((uint64_t)text->n_states * product.n_banned * product.n_seen * N_SIDES > MAX_TUPLES)
        return E_LIMIT;
    *out = (struct dfa){0};
    product.numbers = calloc((size_t)text->n_states * product.n_banned * product.n_seen * N_SIDES,
                             sizeof(*product.numbers));
    rc = product.numbers == NULL ? E_NOMEM : state_of(&product, (struct tuple){.side = SIDE_BEGIN}, &start);
    for (uint32_t i = 0; rc == 0 && i < out->n_states; i++)
        rc = grammar_tagged_walk_state(&product, i);
    if (rc == 0)
        rc = grammar_tagged_prune(&product);
    free(product.numbers);
    free(product.tuples);
    if (rc != 0)
        dfa_fini(out);
    return rc;
}
