/* SPDX-License-Identifier: Apache-2.0 */
/* The number of tokens from a state to its end.
 *
 *     state --best byte--> state --best byte--> ... --> complete
 *       \______token______/ \________token_______/
 *
 * Each state has a least number of bytes to the end and a best next byte.  Following these bytes gives one
 * shortest text to the end.  Its cut into the fewest tokens is an upper bound of the tokens needed.  The
 * bound is reliable: after the first of these tokens, the rest is the shortest text from there on, with one
 * token fewer.  So a run that starts with enough tokens, and keeps enough, always finds a token that fits.
 * (A longer text of fewer tokens may exist; then the answer ends a little sooner than necessary.) */
#include "text/grammar/grammar_run_priv.h"

#include "base/err.h"

#include <stdlib.h>

/* In bytes; a longer way counts as none.  It is well below the states that a grammar keeps, or each token
 * would recompute the way. */
#define WAY_MAX 4096u

struct way {
    uint32_t *states;  /* [n + 1] */
    uint32_t *symbols; /* [n] a byte, or 256 + a control token's id */
    uint32_t *tokens;  /* [n + 1] */
    uint32_t n;
};

static bool find_way(struct grammar *grammar, uint32_t state, struct way *way)
{
    struct machine *machine = &grammar->machine;
    uint32_t most = machine->states[state].dist;

    way->states = malloc(((size_t)most + 1) * sizeof(uint32_t));
    way->symbols = malloc(((size_t)most + 1) * sizeof(uint32_t));
    way->tokens = malloc(((size_t)most + 1) * sizeof(uint32_t));
    if (way->states == NULL || way->symbols == NULL || way->tokens == NULL)
        return false;
    way->states[0] = state;
    while (machine->states[state].dist > 0) {
        if (way->n == most)
            return false;
        uint32_t symbol = machine_best(machine, state);
        state = symbol < 256 ? machine_next(machine, state, (uint8_t)symbol)
                             : machine_token(machine, state, symbol - 256);
        way->symbols[way->n++] = symbol;
        way->states[way->n] = state;
        if (state == STATE_DEAD)
            return false;
    }
    return true;
}

static uint32_t grammar_short_child_of(const struct trie *trie, uint32_t node, uint8_t byte)
{
    uint32_t end = trie->nodes[node].skip;

    for (uint32_t child = node + 1; child < end; child = trie->nodes[child].skip)
        if (trie->nodes[child].byte == byte)
            return child;
    return 0;
}

/* The fewest tokens from place at to the end; those of all later places are known. */
static uint32_t fewest_from(const struct trie *trie, const struct way *way, uint32_t at)
{
    uint32_t fewest = GRAPH_FAR, node = 0;

    if (way->symbols[at] >= 256)
        return way->tokens[at + 1] + 1;
    for (uint32_t i = at; i < way->n && way->symbols[i] < 256; i++) {
        node = grammar_short_child_of(trie, node, (uint8_t)way->symbols[i]);
        if (node == 0)
            break;
        if (trie->nodes[node].ids < trie->nodes[node + 1].ids && way->tokens[i + 1] + 1 < fewest)
            fewest = way->tokens[i + 1] + 1;
    }
    return fewest;
}

token_id mask_first_token(struct grammar *grammar, uint32_t state)
{
    const struct trie *trie = &grammar->vocab->all;
    uint32_t wanted = mask_tokens_to_end(grammar, state), node = 0;

    for (uint32_t at = state; wanted > 0 && wanted < GRAPH_FAR;) {
        uint32_t symbol = machine_best(&grammar->machine, at);

        if (symbol >= 256)
            return node == 0 ? symbol - 256 : TOKEN_NONE;
        node = grammar_short_child_of(trie, node, (uint8_t)symbol);
        at = machine_next(&grammar->machine, at, (uint8_t)symbol);
        if (node == 0 || at == STATE_DEAD)
            return TOKEN_NONE;
        if (trie->nodes[node].ids < trie->nodes[node + 1].ids &&
            mask_tokens_to_end(grammar, at) + 1 == wanted)
            return trie->ids[trie->nodes[node].ids];
        if (grammar->machine.states[at].dist == 0)
            return TOKEN_NONE;
    }
    return TOKEN_NONE;
}

uint32_t mask_tokens_to_end(struct grammar *grammar, uint32_t state)
{
    struct way way = {0};
    struct state *states = grammar->machine.states;
    uint32_t tokens = GRAPH_FAR;
    bool was_tired = grammar->machine.is_tired;

    if (states[state].tokens != 0)
        return states[state].tokens - 1;
    if (state == STATE_DEAD || states[state].dist > WAY_MAX)
        return GRAPH_FAR;
    grammar->machine.is_tired = false; /* the way out is computed in any case */
    if (find_way(grammar, state, &way)) {
        states = grammar->machine.states; /* may have moved */
        way.tokens[way.n] = 0;
        for (uint32_t at = way.n; at-- > 0;) {
            const struct state *there = &states[way.states[at]];
            way.tokens[at] =
                there->tokens != 0 ? there->tokens - 1 : fewest_from(&grammar->vocab->all, &way, at);
        }
        for (uint32_t at = 0; at <= way.n; at++)
            states[way.states[at]].tokens = way.tokens[at] + 1;
        tokens = way.tokens[0];
    }
    grammar->machine.is_tired = was_tired;
    free(way.states);
    free(way.symbols);
    free(way.tokens);
    return tokens;
}
