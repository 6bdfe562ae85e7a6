/* SPDX-License-Identifier: Apache-2.0 */
/* Automata over characters, made deterministic.
 *
 *     nondeterministic (grammar_regex.c)            deterministic
 *     1 --[a-z]--> 2 --> 1                          {1,2} --[a-z]--> {1,2}
 *      \--> 3 --0--> match                             \--0--> {match}
 *
 * A state is the set of reachable nodes.  To find its edges, the code cuts the characters wherever a range of
 * one of its nodes begins or ends.  Between two cuts all characters lead to the same set.  END passes only at
 * the end of the text, so a state is final if a path through END leads to a match.  All sets from which
 * everything matches are one state.
 *
 * Some patterns have a state for every subset of nodes.  So states and work are counted and end in E_LIMIT.
 */
#include "text/grammar/grammar_auto_priv.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

void nfa_fini(struct nfa *nfa)
{
    free(nfa->nodes);
    free(nfa->ranges);
    *nfa = (struct nfa){0};
}

uint32_t nfa_node(struct nfa *nfa, struct nfa_node node)
{
    if (nfa->n_nodes >= AUTO_MAX_NODES ||
        !graph_grow(&nfa->nodes, &nfa->cap_nodes, nfa->n_nodes + 1, sizeof(node)))
        return UINT32_MAX;
    nfa->nodes[nfa->n_nodes] = node;
    return nfa->n_nodes++;
}

int nfa_range(struct nfa *nfa, uint32_t lo, uint32_t hi)
{
    if (nfa->n_ranges > 16 * AUTO_MAX_NODES)
        return E_LIMIT;
    if (!graph_grow(&nfa->ranges, &nfa->cap_ranges, nfa->n_ranges + 1, sizeof(struct code_range)))
        return E_NOMEM;
    nfa->ranges[nfa->n_ranges++] = (struct code_range){lo, hi};
    return 0;
}

void dfa_fini(struct dfa *dfa)
{
    free(dfa->edges);
    free(dfa->states);
    *dfa = (struct dfa){0};
}

/* ---- subsets ---- */

#define STEPS_OF_SET   4u   /* a set's look-up, besides its words */
#define WORK_PER_STEP  2u   /* work units here are smaller than steps */
#define STEPS_OF_BUILD 400u /* any automaton, however small */

struct build {
    const struct nfa *nfa;
    struct dfa *dfa;
    uint32_t words;
    uint64_t *sets; /* [n_states][words] */
    uint32_t cap_sets;
    uint32_t *slots; /* [slot_mask + 1] state + 1, by hash; at most half are used */
    uint32_t slot_mask;
    uint64_t *set, *end_set;  /* scratch */
    uint64_t *ends, *matches; /* the END nodes and the MATCH nodes */
    uint32_t *todo, *readers;
    uint32_t *cuts;
    uint32_t n_cuts, cap_cuts;
    uint64_t *looks; /* [n_ranges] indexed by a set's first range: the last look at it, and its result */
    uint64_t look;
    uint64_t *chosen, *before; /* readers that accept the character at a cut, and at the cut before */
    uint64_t work, max_work;
};

static bool grammar_auto_has(const uint64_t *set, uint32_t node)
{
    return set[node / 64] >> (node % 64) & 1;
}

/* Adds node and all nodes that it leads to without a character. */
static void grammar_auto_reach(struct build *b, uint64_t *set, uint32_t node, bool is_begin, bool is_end)
{
    uint32_t n = 0;

    b->todo[n++] = node;
    while (n > 0) {
        uint32_t now = b->todo[--n];
        const struct nfa_node *at = &b->nfa->nodes[now];

        b->work++;
        if (grammar_auto_has(set, now))
            continue;
        set[now / 64] |= UINT64_C(1) << (now % 64);
        if (at->kind == NFA_GO || at->kind == NFA_SPLIT || (at->kind == NFA_BEGIN && is_begin) ||
            (at->kind == NFA_END && is_end))
            b->todo[n++] = at->next;
        if (at->kind == NFA_SPLIT)
            b->todo[n++] = at->other;
    }
}

static bool is_final(struct build *b, const uint64_t *set, bool is_begin)
{
    bool is_match = false;

    memset(b->end_set, 0, b->words * sizeof(*b->end_set));
    for (uint32_t i = 0; i < b->words; i++)
        for (uint64_t word = set[i] & b->ends[i]; word != 0; word &= word - 1)
            grammar_auto_reach(b, b->end_set, i * 64 + (uint32_t)__builtin_ctzll(word), is_begin, true);
    for (uint32_t i = 0; i < b->words; i++)
        is_match |= ((set[i] | b->end_set[i]) & b->matches[i]) != 0;
    b->work += b->words;
    return is_match;
}

static uint32_t hash_set(const uint64_t *set, uint32_t words)
{
    uint64_t hash = 0;

    for (uint32_t i = 0; i < words; i++)
        hash = (hash ^ set[i]) * UINT64_C(0x9e3779b97f4a7c15) + (hash >> 31);
    return (uint32_t)(hash >> 32);
}

/* Doubles the slots when half of them are used. */
static int slots_grow(struct build *b)
{
    uint32_t n_slots = 2 * (b->slot_mask + 1);

    if (2 * (b->dfa->n_states + 1) <= b->slot_mask)
        return 0;
    uint32_t *slots = calloc(n_slots, sizeof(*slots));
    if (slots == NULL)
        return E_NOMEM;
    for (uint32_t state = 0; state < b->dfa->n_states; state++) {
        uint32_t at = hash_set(b->sets + (size_t)state * b->words, b->words) & (n_slots - 1);
        while (slots[at] != 0)
            at = (at + 1) & (n_slots - 1);
        slots[at] = state + 1;
    }
    b->work += (uint64_t)b->dfa->n_states * (b->words + 1);
    free(b->slots);
    b->slots = slots;
    b->slot_mask = n_slots - 1;
    return 0;
}

/* Finds or makes the state of b->set; E_LIMIT, E_NOMEM. */
static int state_of_set(struct build *b, bool is_begin, uint32_t *out)
{
    uint32_t words = b->words;
    int rc = slots_grow(b);

    if (rc != 0)
        return rc;
    if (b->nfa->anything != UINT32_MAX && grammar_auto_has(b->set, b->nfa->anything)) {
        memset(b->set, 0, words * sizeof(*b->set));
        grammar_auto_reach(b, b->set, b->nfa->anything, false, false);
    }
    b->work += STEPS_OF_SET + words;
    uint32_t at = hash_set(b->set, words) & b->slot_mask;
    for (; b->slots[at] != 0; at = (at + 1) & b->slot_mask)
        if (memcmp(b->sets + (size_t)(b->slots[at] - 1) * words, b->set, words * sizeof(*b->set)) == 0) {
            *out = b->slots[at] - 1;
            return 0;
        }
    if (b->dfa->n_states >= AUTO_MAX_STATES)
        return E_LIMIT;
    if (!graph_grow(&b->sets, &b->cap_sets, b->dfa->n_states + 1, words * sizeof(*b->sets)) ||
        !graph_grow(&b->dfa->states, &b->dfa->cap_states, b->dfa->n_states + 1, sizeof(struct dfa_state)))
        return E_NOMEM;
    memcpy(b->sets + (size_t)b->dfa->n_states * words, b->set, words * sizeof(*b->set));
    b->dfa->states[b->dfa->n_states] = (struct dfa_state){.is_final = is_final(b, b->set, is_begin)};
    b->slots[at] = b->dfa->n_states + 1;
    *out = b->dfa->n_states++;
    return 0;
}

static int by_number(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

    return (a > b) - (a < b);
}

/* True the first time since b->look was raised. */
static bool is_new_look(struct build *b, const struct nfa_node *at)
{
    if (b->looks[at->set] >> 1 == b->look)
        return false;
    b->looks[at->set] = b->look << 1;
    return true;
}

/* Finds the cuts: the characters where this set's edges change.  Copies of a part share its ranges, which are
 * looked at once. */
static int find_cuts(struct build *b, uint32_t n_readers)
{
    uint32_t n = 0, kept = 0;

    b->look++;
    for (uint32_t reader = 0; reader < n_readers; reader++) {
        const struct nfa_node *at = &b->nfa->nodes[b->readers[reader]];

        if (!is_new_look(b, at))
            continue;
        if (!graph_grow(&b->cuts, &b->cap_cuts, n + 2 * at->n_set, sizeof(uint32_t)))
            return E_NOMEM;
        for (uint32_t i = 0; i < at->n_set; i++) {
            b->cuts[n++] = b->nfa->ranges[at->set + i].lo;
            b->cuts[n++] = b->nfa->ranges[at->set + i].hi + 1;
        }
    }
    b->work += n_readers;
    for (uint32_t log = 1; n >> log != 0; log++)
        b->work += 4 * n;
    if (n > 0)
        qsort(b->cuts, n, sizeof(*b->cuts), by_number);
    for (uint32_t i = 0; i < n; i++)
        if (kept == 0 || b->cuts[kept - 1] != b->cuts[i])
            b->cuts[kept++] = b->cuts[i];
    b->n_cuts = kept;
    return 0;
}

static bool set_holds(const struct nfa *nfa, const struct nfa_node *node, uint32_t code)
{
    for (uint32_t i = 0; i < node->n_set; i++)
        if (code >= nfa->ranges[node->set + i].lo && code <= nfa->ranges[node->set + i].hi)
            return true;
    return false;
}

static int grammar_auto_add_edge(struct build *b, uint32_t from, struct dfa_edge edge)
{
    struct dfa *dfa = b->dfa;
    struct dfa_state *state = &dfa->states[from];

    if (state->n_edges > 0) {
        struct dfa_edge *last = &dfa->edges[dfa->n_edges - 1];
        if (last->to == edge.to && last->hi + 1 == edge.lo) {
            last->hi = edge.hi;
            return 0;
        }
    }
    if (!graph_grow(&dfa->edges, &dfa->cap_edges, dfa->n_edges + 1, sizeof(edge)))
        return E_NOMEM;
    dfa->edges[dfa->n_edges++] = edge;
    state->n_edges++;
    return 0;
}

/* Lists the nodes of a state that read a character. */
static uint32_t list_readers(struct build *b, const uint64_t *set)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < b->words; i++)
        for (uint64_t word = set[i]; word != 0; word &= word - 1) {
            uint32_t node = i * 64 + (uint32_t)__builtin_ctzll(word);
            if (b->nfa->nodes[node].kind == NFA_SET)
                b->readers[n++] = node;
        }
    b->work += b->words + n;
    return n;
}

/* Chooses the readers that accept code, as bits in b->chosen; returns their number. */
static uint32_t grammar_auto_choose(struct build *b, uint32_t n_readers, uint32_t code)
{
    uint32_t n = 0;

    b->look++;
    memset(b->chosen, 0, (n_readers + 63) / 64 * sizeof(*b->chosen));
    for (uint32_t i = 0; i < n_readers; i++) {
        const struct nfa_node *at = &b->nfa->nodes[b->readers[i]];

        if (is_new_look(b, at)) {
            b->work += 1 + at->n_set / 2;
            b->looks[at->set] |= set_holds(b->nfa, at, code);
        }
        if (b->looks[at->set] & 1) {
            b->chosen[i / 64] |= UINT64_C(1) << (i % 64);
            n++;
        }
    }
    b->work += 2 + n_readers;
    return n;
}

/* The state that the chosen readers lead to together. */
static int grammar_auto_follow(struct build *b, uint32_t n_readers, uint32_t *out)
{
    memset(b->set, 0, b->words * sizeof(*b->set));
    b->work += b->words / 8;
    for (uint32_t i = 0; i < (n_readers + 63) / 64; i++)
        for (uint64_t word = b->chosen[i]; word != 0; word &= word - 1) {
            uint32_t reader = b->readers[i * 64 + (uint32_t)__builtin_ctzll(word)];
            grammar_auto_reach(b, b->set, b->nfa->nodes[reader].next, false, false);
        }
    return state_of_set(b, false, out);
}

static int grammar_auto_expand(struct build *b, uint32_t from)
{
    uint32_t n_readers = list_readers(b, b->sets + (size_t)from * b->words), to = 0, n_before = 0;
    size_t chosen_bytes = (n_readers + 63) / 64 * sizeof(*b->chosen);
    int rc = find_cuts(b, n_readers);

    b->dfa->states[from].edges = b->dfa->n_edges;
    for (uint32_t cut = 0; rc == 0 && cut + 1 < b->n_cuts; cut++) {
        uint32_t n_chosen = grammar_auto_choose(b, n_readers, b->cuts[cut]);

        if (b->work > b->max_work)
            return E_LIMIT;
        if (n_chosen == 0)
            continue;
        if (n_chosen != n_before || memcmp(b->chosen, b->before, chosen_bytes) != 0)
            rc = grammar_auto_follow(b, n_readers, &to);
        memcpy(b->before, b->chosen, chosen_bytes);
        n_before = n_chosen;
        if (rc == 0)
            rc = grammar_auto_add_edge(b, from, (struct dfa_edge){b->cuts[cut], b->cuts[cut + 1] - 1, to});
    }
    return rc;
}

static void mark_kinds(struct build *b)
{
    b->matches = b->ends + b->words + 1;
    for (uint32_t node = 0; node < b->nfa->n_nodes; node++) {
        enum nfa_kind kind = b->nfa->nodes[node].kind;

        if (kind == NFA_END || kind == NFA_MATCH)
            (kind == NFA_END ? b->ends : b->matches)[node / 64] |= UINT64_C(1) << (node % 64);
    }
}

int dfa_build(const struct nfa *nfa, uint64_t *budget, struct dfa *dfa)
{
    struct build b = {.nfa = nfa,
                      .dfa = dfa,
                      .words = (nfa->n_nodes + 63) / 64,
                      .max_work = *budget * WORK_PER_STEP,
                      .slot_mask = 63};
    uint32_t start;
    int rc = E_NOMEM;

    b.work = STEPS_OF_BUILD + 4 * (uint64_t)nfa->n_nodes + nfa->n_ranges;
    b.looks = calloc((size_t)nfa->n_ranges + 1, sizeof(*b.looks));
    b.chosen = calloc(b.words + 1, sizeof(*b.chosen));
    b.before = calloc(b.words + 1, sizeof(*b.before));

    *dfa = (struct dfa){0};
    b.slots = calloc(b.slot_mask + 1, sizeof(*b.slots));
    b.set = calloc(b.words + 1, sizeof(*b.set));
    b.end_set = calloc(b.words + 1, sizeof(*b.end_set));
    b.ends = calloc(2 * (b.words + 1), sizeof(*b.ends));
    b.todo = calloc(2 * (size_t)nfa->n_nodes + 2, sizeof(*b.todo));
    b.readers = calloc((size_t)nfa->n_nodes + 1, sizeof(*b.readers));
    if (b.slots != NULL && b.set != NULL && b.end_set != NULL && b.ends != NULL && b.todo != NULL &&
        b.readers != NULL && b.looks != NULL && b.chosen != NULL && b.before != NULL) {
        mark_kinds(&b);
        grammar_auto_reach(&b, b.set, nfa->start, true, false);
        rc = state_of_set(&b, true, &start);
    }
    for (uint32_t i = 0; rc == 0 && i < dfa->n_states; i++)
        rc = b.work > b.max_work ? E_LIMIT : grammar_auto_expand(&b, i);
    b.work /= WORK_PER_STEP;
    *budget -= b.work < *budget ? b.work : *budget;
    free(b.looks);
    free(b.chosen);
    free(b.before);
    free(b.cuts);
    free(b.sets);
    free(b.slots);
    free(b.set);
    free(b.end_set);
    free(b.ends);
    free(b.todo);
    free(b.readers);
    if (rc != 0)
        dfa_fini(dfa);
    return rc;
}
