/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens of a sequence, counted, and its place in a grammar.
 *
 *     slots    | 0 | 3 | 0 | 0 | 1 | 2 | ...      open addressing by id: 1 + index of a mark, 0: empty
 *     marks    | id, in prompt, drawn, bias, saved | ...       dense array, read for each sampled token
 *
 * A mark is never removed. If its tokens are taken back, its counts are 0. Its effect depends only on its
 * counts, and the order of marks does not matter because each changes its own logit. All memory is
 * allocated when the state is made, for the most tokens possible. Pages that are never reached are never
 * touched.
 *
 * Hot path: no allocation (the grammar may fill its cache), no log. */
#include "compute/sample/state.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

struct mark { /* a token with counts or a bias, or a stop id */
    token_id id;
    uint32_t n_drawn;
    bool is_in_prompt, is_stop;
    float bias;
    float saved; /* its original logit while changed */
};

struct sample_state {
    float frequency, presence, repetition; /* 0, 0, 1: off */
    bool counts_prompt, counts_drawn;
    uint32_t min_tokens, n_pushed; /* stop ids are barred while fewer tokens were pushed */
    uint32_t vocab_size;
    struct mark *marks;
    uint32_t n_marks;
    uint32_t *slots; /* [mask + 1] */
    uint32_t mask;
    struct grammar_run *run; /* NULL: any answer is allowed */
    uint64_t *wide;          /* a mask of the logits' vocabulary if the grammar's is smaller; else NULL */
    uint32_t n_mask_words;   /* words of the grammar's mask */
};

static struct mark *sample_state_mark_of(const struct sample_state *state, token_id id, uint32_t **slot_out)
{
    uint32_t at = id * UINT32_C(2654435769) & state->mask;

    while (state->slots[at] != 0 && state->marks[state->slots[at] - 1].id != id)
        at = (at + 1) & state->mask;
    if (slot_out != NULL)
        *slot_out = &state->slots[at];
    return state->slots[at] != 0 ? &state->marks[state->slots[at] - 1] : NULL;
}

static struct mark *make_mark(struct sample_state *state, token_id id)
{
    uint32_t *slot;
    struct mark *mark = sample_state_mark_of(state, id, &slot);

    if (mark == NULL) {
        mark = &state->marks[state->n_marks];
        mark->id = id;
        *slot = ++state->n_marks;
    }
    return mark;
}

/* ---- create ---- */

static int make_marks(struct sample_state *state, const struct sample_opts *opts, uint32_t cap_tokens)
{
    uint64_t cap = (uint64_t)opts->n_bias + (opts->min_tokens > 0 ? opts->n_stop_ids : 0);
    uint64_t n_slots = 4;

    if (state->counts_drawn)
        cap += cap_tokens;
    if (cap > state->vocab_size)
        cap = state->vocab_size;
    while (n_slots < 2 * cap)
        n_slots *= 2;
    state->mask = (uint32_t)(n_slots - 1);
    state->marks = calloc(cap + 1, sizeof(*state->marks));
    state->slots = calloc(n_slots, sizeof(*state->slots));
    if (state->marks == NULL || state->slots == NULL)
        return E_NOMEM;
    for (uint32_t i = 0; i < opts->n_bias; i++) {
        if (opts->bias[i].id < state->vocab_size)
            make_mark(state, opts->bias[i].id)->bias = opts->bias[i].bias;
    }
    for (uint32_t i = 0; opts->min_tokens > 0 && i < opts->n_stop_ids; i++) {
        if (opts->stop_ids[i] < state->vocab_size)
            make_mark(state, opts->stop_ids[i])->is_stop = true;
    }
    return 0;
}

/* A model may have rows for which its tokeniser has no tokens. */
static int make_run(struct sample_state *state, struct grammar *grammar)
{
    uint32_t n_words = (state->vocab_size + 63) / 64;

    state->n_mask_words = (grammar_vocab_size(grammar) + 63) / 64;
    if (state->n_mask_words < n_words) {
        state->wide = calloc(n_words, sizeof(*state->wide));
        if (state->wide == NULL)
            return E_NOMEM;
    }
    return grammar_run_new(grammar, &state->run);
}

int sample_state_new(const struct sample_opts *opts, struct grammar *grammar, uint32_t vocab_size,
                     uint32_t cap_tokens, struct sample_state **out)
{
    bool is_repetitive = opts->repetition_penalty > 0 && opts->repetition_penalty != 1;
    bool counts_drawn = is_repetitive || opts->frequency_penalty != 0 || opts->presence_penalty != 0;
    bool has_marks = counts_drawn || opts->n_bias > 0 || (opts->min_tokens > 0 && opts->n_stop_ids > 0);
    struct sample_state *state;
    int rc = 0;

    *out = NULL;
    if (!has_marks && grammar == NULL)
        return 0;
    state = calloc(1, sizeof(*state));
    if (state == NULL)
        return E_NOMEM;
    state->frequency = opts->frequency_penalty;
    state->presence = opts->presence_penalty;
    state->repetition = is_repetitive ? opts->repetition_penalty : 1;
    state->counts_prompt = is_repetitive;
    state->counts_drawn = counts_drawn;
    state->min_tokens = opts->n_stop_ids > 0 ? opts->min_tokens : 0;
    state->vocab_size = vocab_size;
    if (has_marks)
        rc = make_marks(state, opts, cap_tokens);
    if (rc == 0 && grammar != NULL)
        rc = make_run(state, grammar);
    if (rc < 0) {
        sample_state_free(state);
        return rc;
    }
    *out = state;
    return 0;
}

void sample_state_free(struct sample_state *state)
{
    if (state == NULL)
        return;
    grammar_run_free(state->run);
    free(state->wide);
    free(state->slots);
    free(state->marks);
    free(state);
}

/* ---- tokens ---- */

void sample_state_prompt(struct sample_state *state, const token_id *ids, uint32_t n)
{
    if (state == NULL || !state->counts_prompt)
        return;
    for (uint32_t i = 0; i < n; i++)
        make_mark(state, ids[i])->is_in_prompt = true;
}

int sample_state_push(struct sample_state *state, token_id id)
{
    int rc = 0;

    if (state == NULL)
        return 0;
    if (state->run != NULL)
        rc = grammar_accept(state->run, id);
    if (rc == 0 && state->counts_drawn)
        make_mark(state, id)->n_drawn++;
    state->n_pushed += rc == 0;
    return rc;
}

void sample_state_pop(struct sample_state *state, const token_id *ids, uint32_t n)
{
    if (state == NULL || n == 0)
        return;
    if (state->run != NULL)
        grammar_rewind(state->run, n);
    state->n_pushed -= n;
    for (uint32_t i = 0; state->counts_drawn && i < n; i++)
        sample_state_mark_of(state, ids[i], NULL)->n_drawn--;
}

void sample_state_commit(struct sample_state *state)
{
    if (state != NULL && state->run != NULL)
        grammar_commit(state->run);
}

/* ---- the grammar ---- */

const uint64_t *sample_state_mask(struct sample_state *state, uint32_t tokens_left)
{
    const uint64_t *mask;

    if (state == NULL || state->run == NULL)
        return NULL;
    mask = grammar_mask(state->run, tokens_left);
    if (mask == NULL || state->wide == NULL)
        return mask;
    memcpy(state->wide, mask, state->n_mask_words * sizeof(*mask));
    return state->wide;
}

bool sample_state_is_complete(const struct sample_state *state)
{
    return state == NULL || state->run == NULL || grammar_is_complete(state->run);
}

uint32_t sample_state_forced(struct sample_state *state, token_id *ids_out, uint32_t max)
{
    return state != NULL && state->run != NULL ? grammar_forced(state->run, ids_out, max) : 0;
}

bool sample_state_has_grammar(const struct sample_state *state)
{
    return state != NULL && state->run != NULL;
}

/* ---- logits ---- */

bool sample_state_bars_stops(const struct sample_state *state)
{
    return state != NULL && state->n_pushed < state->min_tokens;
}

static float sample_state_bend_mark(const struct sample_state *state, const struct mark *mark, float logit)
{
    if (mark->is_stop && sample_state_bars_stops(state))
        return -FLT_MAX;
    if (mark->is_in_prompt || mark->n_drawn > 0)
        logit = logit > 0 ? logit / state->repetition : logit * state->repetition;
    if (mark->n_drawn > 0) {
        logit -= state->frequency * (float)mark->n_drawn;
        logit -= state->presence;
    }
    return logit + mark->bias;
}

void sample_state_bend(struct sample_state *state, float *logits)
{
    for (uint32_t i = 0; state != NULL && i < state->n_marks; i++) {
        struct mark *mark = &state->marks[i];

        mark->saved = logits[mark->id];
        logits[mark->id] = sample_state_bend_mark(state, mark, mark->saved);
    }
}

void sample_state_unbend(struct sample_state *state, float *logits)
{
    for (uint32_t i = 0; state != NULL && i < state->n_marks; i++)
        logits[state->marks[i].id] = state->marks[i].saved;
}

bool sample_state_is_bent(const struct sample_state *state)
{
    return state != NULL && state->slots != NULL;
}

token_id sample_state_most(const struct sample_state *state, float highest, token_id best)
{
    for (uint32_t i = 0; state != NULL && i < state->n_marks; i++) {
        const struct mark *mark = &state->marks[i];

        if (mark->bias != 0 && sample_state_bend_mark(state, mark, 0) > highest) {
            highest = sample_state_bend_mark(state, mark, 0);
            best = mark->id;
        }
    }
    return best;
}

float sample_state_bent(const struct sample_state *state, token_id id, float logit)
{
    const struct mark *mark =
        state != NULL && state->slots != NULL ? sample_state_mark_of(state, id, NULL) : NULL;

    return mark != NULL ? sample_state_bend_mark(state, mark, logit) : logit;
}
