/* SPDX-License-Identifier: Apache-2.0 */
/* Gains and costs of speculation, with real compute and answers from a script.
 *
 *     bench_speculate MODEL.gguf [KIND [SEQUENCES [TOKENS [REPEATS]]]]
 *
 * A model of random weights (baton-model make) computes at a real model's speed, but its answers do not
 * resemble its prompt.  So the engine is wrapped: it computes and samples everything, then each sampled token
 * is replaced by the script's token for its position.  The text decides which drafts are right; the model
 * decides the time of a step.
 *
 *     edit    the answer is the prompt's text with one token in 20 changed, left out or put in
 *     tools   the prompt holds calls of one form, the answer is more of them with other arguments
 *     prose   words follow a Zipf distribution: short endings recur, their next words rarely
 *     maze    40 words at random: endings always recur, their next words hardly ever
 *     noise   every token at random: nothing recurs
 *
 * The scheduler runs with speculation off and with auto in turns, on the same engine and the same cached
 * prompts.  A line gives both speeds and the fate of the drafts.  Other load on a shared machine changes these
 * by more than speculation could cost, so a second line has robust figures: the time outside the engine, where
 * endings are looked up; the time inside, without and with drafts, by the step; and the cost of drafting from
 * these, with right drafts counted as the steps that they saved. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/team.h"
#include "compute/engine/engine_load.h"
#include "compute/sched/sched.h"
#include "tests/bench/bench_help.h"

#define PROMPT_TOKENS 512
#define SEQS_MAX      64
#define REPEATS_MAX   32
#define TEXT_MAX      4096
#define CALL_TOKENS   40
#define ZIPF_WORDS    2000

static const char *const KINDS[] = {"edit", "tools", "prose", "maze", "noise"};

struct bench {
    struct engine real, engine;
    struct kv_pool *pool;
    struct mem_region arena;
    struct sched *scheds[2]; /* off, auto */
    uint32_t vocab;
    uint32_t n_seqs, n_tokens;
    token_id texts[SEQS_MAX][TEXT_MAX]; /* prompt and answer */
    uint32_t n_done;
    struct seq_stats sum; /* of the run, as all below */
    uint64_t engine_ns;
    double step_us[TEXT_MAX]; /* of steps without drafts */
    uint32_t n_steps;
    uint64_t draft_ns; /* of those with */
    uint32_t n_draft_steps;
};

/* ---- texts ---- */

static token_id zipf(struct rng *rng)
{
    double u = (double)(rng_u64(rng) >> 11) / (double)(UINT64_C(1) << 53);

    return 300 + (token_id)pow(ZIPF_WORDS, u); /* density 1/rank */
}

static void write_edit(struct bench *b, token_id *text, struct rng *rng)
{
    uint32_t from = 0, at = PROMPT_TOKENS;

    for (uint32_t i = 0; i < PROMPT_TOKENS; i++)
        text[i] = zipf(rng);
    while (at < PROMPT_TOKENS + b->n_tokens) {
        uint64_t what = rng_below(rng, 60);

        if (what == 0) {
            from++; /* left out */
        } else if (what <= 2) {
            text[at++] = zipf(rng); /* changed, or put in */
            from += what == 1;
        } else {
            text[at++] = text[from++ % PROMPT_TOKENS];
        }
    }
}

static void write_tools(struct bench *b, token_id *text, struct rng *rng)
{
    token_id form[CALL_TOKENS];

    for (uint32_t i = 0; i < CALL_TOKENS; i++)
        form[i] = zipf(rng);
    for (uint32_t at = 0; at < PROMPT_TOKENS + b->n_tokens; at++) {
        uint32_t place = at % CALL_TOKENS;
        bool is_argument = place % 10 >= 7 && place < 30; /* three arguments of three tokens */

        text[at] = is_argument ? 300 + (token_id)rng_below(rng, b->vocab - 300) : form[place];
    }
}

static void write_text(struct bench *b, const char *kind, uint32_t index)
{
    struct rng rng;

    rng_init(&rng, index + 1);
    if (strcmp(kind, "edit") == 0) {
        write_edit(b, b->texts[index], &rng);
        return;
    }
    if (strcmp(kind, "tools") == 0) {
        write_tools(b, b->texts[index], &rng);
        return;
    }
    for (uint32_t i = 0; i < PROMPT_TOKENS + b->n_tokens; i++) {
        uint32_t n_words = strcmp(kind, "maze") == 0 ? 40 : b->vocab - 300;

        b->texts[index][i] =
            strcmp(kind, "prose") == 0 ? zipf(&rng) : 300 + (token_id)rng_below(&rng, n_words);
    }
}

/* ---- the wrapped engine ---- */

static void note_step(struct bench *b, const struct engine_batch *batch, uint64_t took_ns)
{
    uint32_t n_drafts = 0, n_tokens = 0;

    for (uint32_t i = 0; i < batch->n_items; i++) {
        n_drafts += batch->items[i].n_drafts;
        n_tokens += batch->items[i].n_tokens;
    }
    b->engine_ns += took_ns;
    if (n_drafts > 0) {
        b->draft_ns += took_ns;
        b->n_draft_steps++;
    } else if (n_tokens == batch->n_items && b->n_steps < TEXT_MAX) { /* no prompt in it */
        b->step_us[b->n_steps++] = (double)took_ns / 1e3;
    }
}

static int step(void *self, const struct engine_batch *batch, struct sample_result *results_out)
{
    struct bench *b = self;
    uint64_t began_ns = clock_now_ns();
    int rc = engine_step(&b->real, batch, results_out);

    note_step(b, batch, clock_now_ns() - began_ns);
    for (uint32_t i = 0; i < batch->n_items && rc == 0; i++) {
        const struct engine_item *item = &batch->items[i];
        uint32_t n_sure = item->n_tokens - item->n_drafts;
        bool goes_on = item->wants_token;

        for (uint32_t j = 0; j <= item->n_drafts; j++) {
            results_out[j].id = goes_on ? b->texts[item->tag][item->position + n_sure + j] : TOKEN_NONE;
            goes_on = goes_on && j < item->n_drafts && results_out[j].id == item->tokens[n_sure + j];
        }
        results_out += 1 + item->n_drafts;
    }
    return rc;
}

static const struct engine_ops ops = {.step = step};

static void on_done(void *arg, struct seq *seq, enum seq_finish finish)
{
    struct bench *b = arg;
    const struct seq_stats *stats = seq_stats(seq);

    ASSERT(finish == SEQ_FINISH_LENGTH);
    b->n_done++;
    b->sum.n_drawn += stats->n_drawn;
    b->sum.n_drafted += stats->n_drafted;
    b->sum.n_accepted += stats->n_accepted;
}

static void open_bench(struct bench *b, const char *path)
{
    struct fault fault = {0};
    struct engine_model *model;
    struct team *team;
    struct gguf *gguf;
    struct engine_load_opts load = {.kernels = "auto", .kv_type = KV_F16, .context_length = TEXT_MAX};
    struct engine_start_opts start = {
        .max_batch_tokens = 256 + SEQS_MAX, .max_items = SEQS_MAX, .max_draws = 2 * SEQS_MAX};

    if (team_new(&(struct team_opts){0}, &team) < 0 || gguf_open(path, &fault, &gguf) < 0)
        exit((fprintf(stderr, "%s: %s\n", path, fault.text), 1));
    load.gguf = gguf;
    load.team = team;
    if (engine_model_load(&load, &fault, &model) < 0)
        exit((fprintf(stderr, "%s: %s\n", path, fault.text), 1));
    start.n_blocks = b->n_seqs * ((PROMPT_TOKENS + b->n_tokens) / 32 + 4) * 2;
    ASSERT(mem_region_open(start.n_blocks * kv_layout_block_bytes(engine_model_layout(model)), false, true,
                           "kv", &b->arena) == 0);
    start.kv_arena = b->arena.base;
    ASSERT(engine_model_start(model, &start, &b->real) == 0);
    b->engine = (struct engine){.ops = &ops, .self = b, .info = b->real.info};
    b->vocab = b->real.info.vocab_size;
    ASSERT(kv_pool_new(&(struct kv_pool_opts){.n_blocks = start.n_blocks, .block_tokens = 32}, &b->pool) ==
           0);
    for (uint32_t i = 0; i < 2; i++)
        ASSERT(sched_new(&(struct sched_opts){.engine = &b->engine,
                                              .pool = b->pool,
                                              .max_seqs = SEQS_MAX,
                                              .max_queue = SEQS_MAX,
                                              .chunk_tokens = 256,
                                              .speculate = i ? SPECULATE_AUTO : SPECULATE_OFF,
                                              .max_drafts = 24,
                                              .events = {.on_done = on_done},
                                              .events_arg = b},
                         &b->scheds[i]) == 0);
}

/* The speed of a run: tokens per second of all sequences together, and microseconds. */
struct took {
    double speed;
    double outside; /* the engine, per token drawn */
    double plain;   /* a step without drafts: median */
    double drafts;  /* steps with drafts: all of them */
};

/* Cached parts of the prompts are not computed again. */
static struct took run(struct bench *b, uint32_t which)
{
    uint64_t began_ns = clock_now_ns(), took_ns;

    b->n_done = b->n_steps = b->n_draft_steps = 0;
    b->sum = (struct seq_stats){0};
    b->engine_ns = b->draft_ns = 0;
    for (uint32_t i = 0; i < b->n_seqs; i++) {
        struct seq_spec spec = {.id = i,
                                .tokens = b->texts[i],
                                .n_tokens = PROMPT_TOKENS,
                                .n_prompt = PROMPT_TOKENS,
                                .work.max_new_tokens = b->n_tokens,
                                .work.sample = {.top_p = 1}};
        struct seq *seq;

        ASSERT(sched_submit(b->scheds[which], &spec, &seq) == 0);
    }
    while (b->n_done < b->n_seqs)
        ASSERT(sched_run_step(b->scheds[which]) > 0);
    took_ns = clock_now_ns() - began_ns;
    return (struct took){.speed = (double)b->sum.n_drawn * (double)NS_PER_S / (double)took_ns,
                         .outside = (double)(took_ns - b->engine_ns) / 1e3 / b->sum.n_drawn,
                         .plain = b->n_steps > 0 ? bench_median(b->step_us, b->n_steps) : 0,
                         .drafts = (double)b->draft_ns / 1e3};
}

/* Of a run, on average; microseconds. */
struct parts {
    double plain_outside, outside; /* the engine, a token */
    double step;                   /* without drafts */
    double drafts;                 /* all steps with drafts */
    double n_draft_steps, n_right, n_drawn;
    double n_seqs; /* that share a step */
};

static void say_parts(const struct parts *p)
{
    double saved = p->n_draft_steps + p->n_right / p->n_seqs; /* steps without drafts */
    double added = (p->outside - p->plain_outside) * p->n_drawn + p->drafts - saved * p->step;
    double plain = p->n_drawn * (p->step / p->n_seqs + p->plain_outside);

    printf("       us outside the engine a token: plain %.1f, speculating %.1f; a step without drafts %.0f",
           p->plain_outside, p->outside, p->step);
    if (p->n_draft_steps > 0)
        printf(", with %.0f (%.1f of them)", p->drafts / p->n_draft_steps, p->n_draft_steps);
    printf("; by these %+.2f %% of the time\n", 100 * added / plain);
}

static void compare(struct bench *b, const char *kind, uint32_t n_repeats)
{
    double speeds[2][REPEATS_MAX], outside[2][REPEATS_MAX], plain[REPEATS_MAX], ratios[REPEATS_MAX];
    double drafts = 0;
    uint32_t n_draft_steps = 0, n_right = 0;

    for (uint32_t i = 0; i < b->n_seqs; i++)
        write_text(b, kind, i);
    run(b, 0);
    for (uint32_t i = 0; i < n_repeats; i++) {
        for (uint32_t j = 0; j < 2; j++) {
            uint32_t which = (i + j) % 2;
            struct took took = run(b, which);

            speeds[which][i] = took.speed;
            outside[which][i] = took.outside;
            if (which == 0) {
                plain[i] = took.plain;
                continue;
            }
            drafts += took.drafts;
            n_draft_steps += b->n_draft_steps;
            n_right += b->sum.n_accepted;
            if (i + 1 == n_repeats)
                printf("%-6s %3u seqs: %6u drawn, %6u drafts, %6u right", kind, b->n_seqs, b->sum.n_drawn,
                       b->sum.n_drafted, b->sum.n_accepted);
        }
        ratios[i] = speeds[1][i] / speeds[0][i];
    }
    printf(" | plain %7.1f t/s, speculating %7.1f t/s: %.3fx\n", bench_median(speeds[0], n_repeats),
           bench_median(speeds[1], n_repeats), bench_median(ratios, n_repeats));
    say_parts(&(struct parts){.plain_outside = bench_median(outside[0], n_repeats),
                              .outside = bench_median(outside[1], n_repeats),
                              .step = bench_median(plain, n_repeats),
                              .drafts = drafts / n_repeats,
                              .n_draft_steps = (double)n_draft_steps / n_repeats,
                              .n_right = (double)n_right / n_repeats,
                              .n_drawn = b->sum.n_drawn,
                              .n_seqs = b->n_seqs});
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static struct bench bench;
    const char *kind = argc > 2 ? argv[2] : "all";
    uint32_t n_repeats;

    if (argc < 2)
        return fprintf(stderr, "usage: bench_speculate MODEL.gguf [KIND [SEQUENCES [TOKENS [REPEATS]]]]\n"),
               2;
    bench.n_seqs = argc > 3 ? (uint32_t)atoi(argv[3]) : 1;
    bench.n_tokens = argc > 4 ? (uint32_t)atoi(argv[4]) : 128;
    n_repeats = argc > 5 ? (uint32_t)atoi(argv[5]) : 3;
    ASSERT(bench.n_seqs >= 1 && bench.n_seqs <= SEQS_MAX && bench.n_tokens <= TEXT_MAX - PROMPT_TOKENS);
    ASSERT(bench.n_tokens > 1 && n_repeats >= 1 && n_repeats <= REPEATS_MAX);
    open_bench(&bench, argv[1]);
    for (size_t i = 0; i < ARRAY_LEN(KINDS); i++)
        if (strcmp(kind, "all") == 0 || strcmp(kind, KINDS[i]) == 0)
            compare(&bench, KINDS[i], n_repeats);
    return 0;
}
