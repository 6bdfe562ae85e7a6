/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts are made of short common words.  Such a word is one token in a large vocabulary, and about the same
 * number of tokens in any small one:
 *
 *   shared prefix | block 17 | block 4 | ... | own words
 *
 * Each part has a generator of its own, seeded by the part's identity (the prefix, a block's id, the request's
 * index).  So equal parts are equal text at every position, and a server's prefix cache finds them.  The run
 * measures tokens per word on the server before it starts.  Counts are rounded on the running sum, so errors
 * do not add up over the parts. */
#include "clients/bench/plan.h"

#include <math.h>

#include "base/clock.h"

static const char *const words[] = {
    "the",   "and",  "you",  "that",  "was",   "for",    "are",  "with", "his",   "they", "one",
    "have",  "this", "from", "had",   "not",   "but",    "some", "what", "there", "can",  "out",
    "other", "were", "all",  "your",  "when",  "use",    "word", "how",  "said",  "each", "she",
    "which", "time", "will", "way",   "about", "many",   "then", "them", "would", "like", "these",
    "her",   "long", "make", "thing", "see",   "him",    "two",  "has",  "look",  "more", "day",
    "could", "come", "did",  "sound", "most",  "number", "who",  "over", "know",
};

enum { N_WORDS = sizeof(words) / sizeof(words[0]) };

enum stream_kind { STREAM_PREFIX = 1, STREAM_BLOCK, STREAM_OWN };

static uint64_t plan_stream_of(uint64_t seed, enum stream_kind kind, uint64_t number)
{
    uint32_t out[4];

    rng_counter(seed, (uint64_t)kind, number, out);
    return (uint64_t)out[0] << 32 | out[1];
}

static int plan_put_word(const char *word, struct buf *out)
{
    if (out->len_bytes > 0)
        buf_append_byte(out, ' ');
    return buf_append_str(out, word);
}

uint64_t prompt_put_sample(unsigned n_times, struct buf *out)
{
    for (unsigned i = 0; i < n_times; i++)
        for (size_t w = 0; w < N_WORDS; w++)
            plan_put_word(words[w], out);
    return (uint64_t)n_times * N_WORDS;
}

static int put_words(uint64_t stream, uint64_t n_words, struct buf *out)
{
    struct rng rng;
    int rc = 0;

    rng_init(&rng, stream);
    for (uint64_t i = 0; i < n_words && rc == 0; i++)
        rc = plan_put_word(words[rng_below(&rng, N_WORDS)], out);
    return rc;
}

struct filling {
    const struct prompt_maker *maker;
    struct buf *out;
    double tokens;    /* target so far */
    uint64_t n_words; /* written so far */
    uint32_t left;    /* remaining tokens of the prompt */
};

/* Appends up to n_tokens more of one kind.  The request's own part has at least one word, so no prompt is
 * empty. */
static int plan_fill(struct filling *filling, uint64_t stream, uint32_t n_tokens, bool is_own)
{
    double wanted;
    uint64_t n_words = 0;

    if (n_tokens > filling->left)
        n_tokens = filling->left;
    filling->left -= n_tokens;
    filling->tokens += n_tokens;
    wanted = round((filling->tokens - filling->maker->overhead_tokens) / filling->maker->tokens_per_word);
    if (wanted > (double)filling->n_words)
        n_words = (uint64_t)wanted - filling->n_words;
    if (n_words == 0 && is_own && filling->n_words == 0)
        n_words = 1;
    filling->n_words += n_words;
    return put_words(stream, n_words, filling->out);
}

int prompt_put(const struct prompt_maker *maker, const struct planned *planned, struct buf *out)
{
    struct filling filling = {.maker = maker, .out = out, .left = planned->prompt_tokens};
    int rc = 0;

    if (maker->shared_prefix_tokens > 0)
        rc = plan_fill(&filling, plan_stream_of(maker->seed, STREAM_PREFIX, 0), maker->shared_prefix_tokens,
                       false);
    for (uint32_t i = 0; i < planned->n_blocks && rc == 0; i++)
        rc = plan_fill(&filling, plan_stream_of(maker->seed, STREAM_BLOCK, planned->block_ids[i]),
                       TRACE_BLOCK_TOKENS, false);
    if (rc == 0)
        rc = plan_fill(&filling, plan_stream_of(maker->seed, STREAM_OWN, planned->index), filling.left, true);
    return rc;
}

/* ---- the plan ---- */

void plan_init(struct plan *plan, const struct bench_opts *opts, const struct trace *trace)
{
    *plan = (struct plan){.opts = opts, .trace = trace};
    rng_init(&plan->rng, opts->seed);
}

static uint32_t plan_draw(struct rng *rng, const struct bench_range *range)
{
    return range->low + (uint32_t)rng_below(rng, (uint64_t)range->high - range->low + 1);
}

static uint32_t plan_clamp(uint32_t tokens, const struct bench_range *range)
{
    if (range->high > 0 && tokens > range->high)
        tokens = range->high;
    return tokens > 0 ? tokens : 1;
}

static void plan_from_trace(const struct plan *plan, struct planned *out)
{
    const struct trace_entry *entry = &plan->trace->entries[plan->n_given];

    out->at_ns = (uint64_t)((double)entry->at_ns / plan->opts->speed);
    out->prompt_tokens = plan_clamp(entry->prompt_tokens, &plan->opts->prompt);
    out->answer_tokens = plan_clamp(entry->answer_tokens, &plan->opts->answer);
    out->n_blocks = entry->n_blocks;
    out->block_ids = entry->n_blocks > 0 ? plan->trace->block_ids + entry->first_block : NULL;
}

bool plan_next(struct plan *plan, struct planned *out)
{
    const struct bench_opts *opts = plan->opts;
    struct planned planned = {.index = plan->n_given};

    if (opts->n_requests > 0 && plan->n_given >= opts->n_requests)
        return false;
    if (opts->load == BENCH_TRACE) {
        if (plan->n_given >= plan->trace->n_entries)
            return false;
        plan_from_trace(plan, &planned);
    } else {
        planned.prompt_tokens = plan_draw(&plan->rng, &opts->prompt);
        planned.answer_tokens = plan_draw(&plan->rng, &opts->answer);
        if (opts->load == BENCH_POISSON) {
            plan->at_s += -log1p(-rng_unit(&plan->rng)) / opts->rate_per_s;
            planned.at_ns = (uint64_t)(plan->at_s * (double)NS_PER_S);
        }
    }
    if (opts->duration_ns > 0 && planned.at_ns > opts->duration_ns)
        return false;
    plan->n_given++;
    *out = planned;
    return true;
}
