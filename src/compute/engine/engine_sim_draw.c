/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of the simulated engine.
 *
 * A counter-based generator is keyed by the item's seed and evaluated at (position, previous token).
 * Nothing else enters, so the token depends neither on the worker nor on batch neighbours. The answer ends
 * with probability 1 / (mean + 1) at each token, so its length is geometric. With echo, that percentage of
 * tokens depends on the previous token alone, at any position. Answers then repeat themselves, as edits
 * and loops do.
 *
 * A sequence's sampling state counts as in the real engine. With penalties or biases, the generator
 * proposes a few tokens with falling logits, and those that the bias raises. The token with the highest
 * adjusted logit wins. If the grammar forbids this token, the generator picks one that it allows. Stop ids
 * that min_tokens bars are picked only if the grammar allows nothing else.
 *
 * Log probabilities come from the same generator, so tests catch a layer that loses or mixes them. */
#include "compute/engine/engine_sim_priv.h"

#include "base/rng.h"

#define ECHO_WORDS 64   /* small, so that a text soon repeats */
#define ENDS_TRIED 16   /* draws in a row that end the answer: then the vocabulary is little else */
#define PROPOSED   4    /* candidates for penalties to choose from */
#define FALL       0.5f /* logit difference between two candidates */

struct dice { /* random words for one sampling */
    const struct engine_sim_opts *opts;
    uint64_t seed, position;
    token_id last;
    uint32_t words[4];
};

static bool has_stop_among_text(const struct engine_sim_opts *opts)
{
    return opts->stop_id != TOKEN_NONE && opts->stop_id >= opts->first_text_id &&
           opts->stop_id < opts->vocab_size;
}

static bool engine_sim_ends_with(const struct engine_sim_opts *opts, token_id id)
{
    for (uint32_t i = 0; i < opts->n_other_stop_ids; i++)
        if (opts->other_stop_ids[i] == id)
            return true;
    return false;
}

/* A text token from one word of the generator; never a stop id. */
static token_id engine_sim_draw_text_of(const struct engine_sim_opts *opts, uint64_t n, uint32_t word)
{
    token_id id;

    for (uint32_t tries = 0;; tries++, word += UINT32_C(0x9e3779b9)) {
        id = opts->first_text_id + (token_id)(n * word >> 32);
        id += has_stop_among_text(opts) && id >= opts->stop_id;
        if (tries == ENDS_TRIED || !engine_sim_ends_with(opts, id))
            return id;
    }
}

static uint64_t n_text(const struct engine_sim_opts *opts)
{
    return opts->vocab_size - opts->first_text_id - has_stop_among_text(opts);
}

static token_id text_token(const struct dice *dice)
{
    const struct engine_sim_opts *opts = dice->opts;
    uint64_t n = n_text(opts);
    uint32_t again[4];

    if (opts->echo > 0 && dice->words[2] % 100 < opts->echo) { /* repeats the token that followed elsewhere */
        rng_counter(dice->seed, UINT64_MAX, dice->last, again);
        return engine_sim_draw_text_of(opts, n < ECHO_WORDS ? n : ECHO_WORDS, again[1]);
    }
    return engine_sim_draw_text_of(opts, n, dice->words[1]);
}

/* Of a few candidates, the one with the highest logit after penalties and bias. */
static token_id bent_token(const struct dice *dice, const struct sample_state *state)
{
    token_id best = text_token(dice), id = best;
    float highest = sample_state_bent(state, best, 1);
    uint32_t words[4];

    rng_counter(dice->seed ^ 1, dice->position, dice->last, words);
    for (unsigned i = 1; i < PROPOSED; i++) {
        float logit;

        id = engine_sim_draw_text_of(dice->opts, n_text(dice->opts), words[i]);
        logit = sample_state_bent(state, id, 1 - FALL * (float)i);
        if (logit > highest) {
            highest = logit;
            best = id;
        }
    }
    return sample_state_most(state, highest, best);
}

static bool engine_sim_draw_is_allowed(const uint64_t *mask, token_id id)
{
    return mask == NULL || (mask[id / 64] >> id % 64 & 1) != 0;
}

static uint64_t without_bit(uint64_t word, uint32_t at, token_id id)
{
    return id / 64 == at ? word & ~(UINT64_C(1) << id % 64) : word;
}

/* A word of the mask, without stop ids if they are barred. */
static uint64_t allowed_word(const struct engine_sim_opts *opts, const uint64_t *mask, uint32_t at,
                             bool bars_stops)
{
    uint64_t word = mask[at];

    if (!bars_stops)
        return word;
    word = without_bit(word, at, opts->stop_id);
    for (uint32_t i = 0; i < opts->n_other_stop_ids; i++)
        word = without_bit(word, at, opts->other_stop_ids[i]);
    return word;
}

/* One of the tokens that the mask allows; TOKEN_NONE: it allows none. */
static token_id masked_token(const struct dice *dice, const uint64_t *mask, bool bars_stops)
{
    uint32_t n_words = (dice->opts->vocab_size + 63) / 64, n = 0, nth;

    for (uint32_t i = 0; i < n_words; i++)
        n += (uint32_t)__builtin_popcountll(allowed_word(dice->opts, mask, i, bars_stops));
    if (n == 0)
        return bars_stops ? masked_token(dice, mask, false) : TOKEN_NONE;
    nth = (uint32_t)((uint64_t)n * dice->words[1] >> 32);
    for (uint32_t i = 0;; i++) {
        uint64_t word = allowed_word(dice->opts, mask, i, bars_stops);

        if (nth >= (uint32_t)__builtin_popcountll(word)) {
            nth -= (uint32_t)__builtin_popcountll(word);
            continue;
        }
        for (; nth > 0; nth--)
            word &= word - 1;
        return i * 64 + (token_id)__builtin_ctzll(word);
    }
}

static float made_up(uint32_t word)
{
    return -(float)(word >> 12) / 65536.0f;
}

static void engine_sim_draw_put_logprobs(const struct dice *dice, uint32_t n_top, struct sample_result *out)
{
    const struct engine_sim_opts *opts = dice->opts;
    uint32_t words[4];

    out->logprob = made_up(dice->words[3]);
    for (uint32_t i = 0; i < n_top && i < SAMPLE_MAX_TOP && i < n_text(opts); i++) {
        rng_counter(dice->seed ^ 2, dice->position, i, words);
        out->top[i] = (struct sample_top){.id = engine_sim_draw_text_of(opts, n_text(opts), words[0]),
                                          .logprob = made_up(words[1]) / 256.0f - (float)i};
        out->n_top++;
    }
}

void sim_draw(const struct engine_sim_opts *opts, const struct engine_item *item, uint32_t n_fed,
              struct sample_result *out)
{
    struct dice dice = {.opts = opts,
                        .seed = item->sample.seed,
                        .position = (uint64_t)item->position + n_fed,
                        .last = item->tokens[n_fed - 1]};
    uint32_t n_drawn = n_fed - (item->n_tokens - item->n_drafts); /* sampled earlier in this step */
    const uint64_t *mask = sample_state_mask(item->state, item->tokens_left - n_drawn);
    bool bars_stops = sample_state_bars_stops(item->state);
    token_id id;

    rng_counter(dice.seed, dice.position, dice.last, dice.words);
    if (opts->stop_id != TOKEN_NONE && !bars_stops &&
        dice.words[0] < (UINT64_C(1) << 32) / ((uint64_t)opts->mean_answer_tokens + 1))
        id = opts->stop_id;
    else
        id = sample_state_is_bent(item->state) ? bent_token(&dice, item->state) : text_token(&dice);
    if (!engine_sim_draw_is_allowed(mask, id))
        id = masked_token(&dice, mask, bars_stops);
    *out = (struct sample_result){.id = id};
    if (item->sample.wants_logprob)
        engine_sim_draw_put_logprobs(&dice, item->sample.n_top, out);
}

void sim_score(const struct engine_sim_opts *opts, const struct engine_item *item, uint32_t n_fed,
               struct sample_result *out)
{
    struct dice dice = {.opts = opts,
                        .seed = item->sample.seed,
                        .position = (uint64_t)item->position + n_fed,
                        .last = item->tokens[n_fed - 1]};

    rng_counter(dice.seed, dice.position, dice.last, dice.words);
    *out = (struct sample_result){.id = item->tokens[n_fed]};
    engine_sim_draw_put_logprobs(&dice, item->sample.n_top, out);
}
