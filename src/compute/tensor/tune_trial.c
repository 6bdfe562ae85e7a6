/* SPDX-License-Identifier: Apache-2.0 */
/* Trials: products and attention that take a fraction of a millisecond each, over memory that no cache can
 * hold, alternating between variants.
 *
 *     round 1:  A B   round 2:  B A   round 3:  A B       of each case; each variant's median counts
 *
 *     ratio of a variant = geometric mean over the cases of (its time / that of the variants chosen so far)
 *
 * The median counts, not the best time. Other work on the machine is a part of a variant's conditions: two
 * variants that are equal while memory is idle may differ by a third under load. Alternating exposes both
 * to the same load. A variant is chosen when it is much better over all its cases, or a little better
 * twice and worse in none. So noise does not choose, and a field that makes no difference keeps its
 * default.
 *
 * Variants depend on each other (one panel at a time is fast only with two-level prefetch). So all second
 * variants are tried together first; then each field is tried from that result. */
#include "compute/tensor/tune_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "compute/kernels/kern.h"
#include "compute/tensor/weight_priv.h"

enum {
    COLS = 2048,
    PART_ROWS = 64, /* made once and packed many times */
    MAX_PARTS = 1024,
    MAX_TOKENS = 16,
    ROUNDS = 3,
    LONE_ROUNDS = 9, /* for a field with one case, where no other case can outweigh a disturbed one */
    HEADS = 32,
    KV_HEADS = 8,
    HEAD_DIM = 128,
    BLOCK_TOKENS = 32,
    MAX_BLOCKS = 256,
    KEYS_PER_RANK = 1024,
};
#define RANK_BYTES  ((size_t)2 << 20) /* bytes of each weight */
#define MIN_BYTES   ((size_t)4 << 20)
#define TOUCH_BYTES ((size_t)1 << 20)
#define MAX_BYTES   ((size_t)24 << 20)
#define SLOW_NS                                                                                              \
    (6 * NS_PER_MS) /* limit of the trial of one token; if it is slower, the other trials
                                     * would take too long */

static const double BETTER = 0.97, MUCH_BETTER = 0.92, WORSE = 1.05;

enum trial_weight { TRIAL_Q8_0, TRIAL_Q4_0, TRIAL_Q4_K, TRIAL_F16, N_TRIAL_WEIGHTS, TRIAL_KEYS };
static const enum dtype trial_types[N_TRIAL_WEIGHTS] = {DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_K, DTYPE_F16};

struct trial_case {
    enum trial_weight weight;
    uint32_t n_tokens; /* 0 ends a list */
};

static const struct trial_case cases_of_all[] = {
    {TRIAL_Q8_0, 1}, {TRIAL_Q4_0, 1},  {TRIAL_Q4_K, 1},  {TRIAL_Q8_0, 4},
    {TRIAL_Q4_0, 4}, {TRIAL_Q4_0, 16}, {TRIAL_Q4_K, 16}, {0}};
static const struct trial_case cases[KERN_N_FIELDS][7] = {
    [KERN_WIDE] = {{TRIAL_Q8_0, 4}, {TRIAL_Q8_0, 16}, {TRIAL_Q4_0, 4}, {TRIAL_Q4_K, 4}},
    [KERN_PANELS] = {{TRIAL_Q8_0, 1}, {TRIAL_Q4_0, 1}, {TRIAL_Q4_K, 1}},
    [KERN_SLICES] = {{TRIAL_Q8_0, 16}, {TRIAL_Q4_0, 16}, {TRIAL_Q4_K, 16}},
    [KERN_FETCH] = {{TRIAL_Q8_0, 1}, {TRIAL_Q4_0, 1}, {TRIAL_Q4_K, 1}, {TRIAL_Q4_0, 4}},
    [KERN_PLAIN] = {{TRIAL_F16, 1}},
    [KERN_KEYS] = {{TRIAL_KEYS, 1}},
};

struct trials {
    struct team *team;
    const struct kern_table *table;
    uint64_t end_ns;
    uint64_t last_ns; /* duration of the latest trial with its preparation */
    bool is_late;     /* the time ran out before all was tried */
    struct weight weights[N_TRIAL_WEIGHTS];
    float *x, *y; /* [MAX_TOKENS][COLS], [MAX_TOKENS][rows] */
    size_t y_stride;
    void *scratch;
    struct mem_region keys;
    uint32_t n_keys;
    uint32_t blocks[MAX_BLOCKS];
    void *attn_scratch;
    size_t attn_scratch_bytes;
};

static bool trials_are_late(struct trials *trials)
{
    trials->is_late = trials->is_late || clock_now_ns() + trials->last_ns >= trials->end_ns;
    return trials->is_late;
}

/* ---- operands ---- */

/* Random bits, except for scales (at either end of a qblk) that keep sums small. */
static void *make_part(enum dtype type)
{
    const struct dtype_info *info = dtype_info(type);
    size_t len_bytes = (size_t)PART_ROWS * COLS / info->qblk_weights * info->qblk_bytes;
    uint8_t *data = malloc(len_bytes);
    struct rng rng;

    rng_init(&rng, 1);
    for (size_t i = 0; data != NULL && i < len_bytes; i += 2) {
        size_t at = i % info->qblk_bytes;
        uint16_t bits = (uint16_t)rng_u64(&rng);

        if (type == DTYPE_F16)
            bits = (uint16_t)((bits & 0x83ff) | 0x2000);
        else if (at <= 2 || at + 4 >= info->qblk_bytes)
            bits = 0x1000;
        put_u16(data + i, bits);
    }
    return data;
}

/* Plain weights take twice as many bytes: they are read faster, and short runs would measure their start. */
static size_t trial_bytes(const struct trials *trials, enum trial_weight which)
{
    size_t len_bytes = team_size(trials->team) * RANK_BYTES * (which == TRIAL_F16 ? 2 : 1);

    return len_bytes < MIN_BYTES ? MIN_BYTES : len_bytes > MAX_BYTES ? MAX_BYTES : len_bytes;
}

static bool trials_make_weight(struct trials *trials, enum trial_weight which)
{
    static struct weight_part parts[MAX_PARTS];
    const struct dtype_info *info = dtype_info(trial_types[which]);
    const size_t part_bytes = (size_t)PART_ROWS * COLS / info->qblk_weights * info->qblk_bytes;
    size_t n = trial_bytes(trials, which) / part_bytes;
    void *data = make_part(trial_types[which]);

    n = n < MAX_PARTS ? n : MAX_PARTS;
    for (size_t i = 0; i < n; i++)
        parts[i] = (struct weight_part){data, PART_ROWS};
    const struct weight_packing packing = {.table = trials->table,
                                           .type = trial_types[which],
                                           .parts = parts,
                                           .n_parts = (uint32_t)n,
                                           .cols = COLS,
                                           .team = trials->team,
                                           .end_ns = trials->end_ns};
    int rc = data == NULL ? E_NOMEM : weight_pack(&packing, &trials->weights[which]);
    free(data);
    trials->is_late = trials->is_late || rc == E_TIMEOUT;
    if (rc == 0 && trials->y_stride < n * PART_ROWS)
        trials->y_stride = n * PART_ROWS;
    return rc == 0;
}

/* Populates the keys' memory piece by piece, because fresh memory takes long on a busy machine. */
static bool trials_touch_keys(struct trials *trials)
{
    for (size_t at = 0; at < trials->keys.len_bytes; at += TOUCH_BYTES) {
        size_t rest = trials->keys.len_bytes - at;

        if (trials_are_late(trials))
            return false;
        memset((char *)trials->keys.base + at, 0, rest < TOUCH_BYTES ? rest : TOUCH_BYTES);
    }
    return true;
}

static bool trials_make_keys(struct trials *trials)
{
    struct attn_sizes sizes = {.max_tokens = 1,
                               .n_heads = HEADS,
                               .k_dim = HEAD_DIM,
                               .v_dim = HEAD_DIM,
                               .n_ranks = team_size(trials->team)};
    uint32_t n_blocks = team_size(trials->team) * KEYS_PER_RANK / BLOCK_TOKENS;

    n_blocks = n_blocks < 64 ? 64 : n_blocks > MAX_BLOCKS ? MAX_BLOCKS : n_blocks;
    for (uint32_t i = 0; i < n_blocks; i++)
        trials->blocks[i] = i;
    trials->n_keys = n_blocks * BLOCK_TOKENS;
    sizes.max_context = trials->n_keys;
    trials->attn_scratch_bytes = attn_scratch_bytes(&sizes);
    trials->attn_scratch = mem_aligned(64, trials->attn_scratch_bytes);
    return trials->attn_scratch != NULL &&
           mem_region_open((size_t)trials->n_keys * KV_HEADS * 2 * kv_row_bytes(DTYPE_F16, HEAD_DIM), false,
                           false, "tune", &trials->keys) == 0 &&
           trials_touch_keys(trials);
}

static bool trials_make_weights(struct trials *trials)
{
    for (int i = 0; i < N_TRIAL_WEIGHTS; i++)
        if (trials_are_late(trials) || !trials_make_weight(trials, (enum trial_weight)i))
            return false;
    return !trials_are_late(trials);
}

static bool trials_make(struct trials *trials)
{
    if (!trials_make_weights(trials))
        return false;
    trials->x = mem_aligned(64, (size_t)MAX_TOKENS * COLS * sizeof(float));
    trials->y = mem_aligned(64, MAX_TOKENS * trials->y_stride * sizeof(float));
    trials->scratch = mem_aligned(64, matmul_scratch_most(MAX_TOKENS, COLS, team_size(trials->team)));
    if (trials->x == NULL || trials->y == NULL || trials->scratch == NULL || trials_are_late(trials) ||
        !trials_make_keys(trials))
        return false;
    for (uint32_t i = 0; i < MAX_TOKENS * COLS; i++)
        trials->x[i] = (float)(i % 31) - 15.0f;
    return true;
}

static void trials_fini(struct trials *trials)
{
    for (int i = 0; i < N_TRIAL_WEIGHTS; i++)
        weight_fini(&trials->weights[i]);
    free(trials->x);
    free(trials->y);
    free(trials->scratch);
    free(trials->attn_scratch);
    mem_region_close(&trials->keys);
}

/* ---- one trial ---- */

static void forget_job(void *arg, unsigned rank, unsigned n_ranks)
{
    const struct bytes *all = arg;

    const struct team_range range = team_split(all->len_bytes, MEM_CACHE_LINE, rank, n_ranks);
    mem_copy_forget(all->data + range.from, range.to - range.from);
}

/* Clears the processor's address translations by changing access rights, because a model is larger than
 * they can cover. Pages are only read. */
static void forget_places(void *base, size_t len_bytes)
{
    if (base != NULL && mprotect(base, len_bytes, PROT_READ) == 0)
        (void)mprotect(base, len_bytes, PROT_READ | PROT_WRITE);
}

static void trial_forget(struct trials *trials, enum trial_weight which)
{
    struct bytes all = bytes_of(trials->keys.base, trials->keys.len_bytes);

    if (which != TRIAL_KEYS)
        all = bytes_of(trials->weights[which].panels, trials->weights[which].len_bytes);
    team_run(trials->team, forget_job, &all);
    if (which == TRIAL_KEYS)
        forget_places(trials->keys.base, trials->keys.len_bytes);
    else
        forget_places(trials->weights[which].panels, trials->weights[which].region_bytes);
}

static void trial_product(struct trials *trials, const struct trial_case *trial)
{
    matmul(trials->team, &(struct matmul_args){.weight = &trials->weights[trial->weight],
                                               .x = trials->x,
                                               .x_stride = COLS,
                                               .n = trial->n_tokens,
                                               .y = trials->y,
                                               .y_stride = trials->y_stride,
                                               .scratch = trials->scratch});
}

/* One token after all keys; queries and output lie in x and y. */
static void trial_attention(struct trials *trials)
{
    const struct attn_item item = {.n_tokens = 1, .position = trials->n_keys - 1, .blocks = trials->blocks};

    _Static_assert(HEADS * HEAD_DIM <= MAX_TOKENS * COLS, "queries fit x");
    attention(trials->team, &(struct attn_args){.table = trials->table,
                                                .q = trials->x,
                                                .q_stride = HEADS * HEAD_DIM,
                                                .out = trials->y,
                                                .out_stride = HEADS * HEAD_DIM,
                                                .kv_layer = trials->keys.base,
                                                .block_bytes = (size_t)BLOCK_TOKENS * KV_HEADS * 2 *
                                                               kv_row_bytes(DTYPE_F16, HEAD_DIM),
                                                .kv_type = DTYPE_F16,
                                                .n_heads = HEADS,
                                                .n_kv_heads = KV_HEADS,
                                                .k_dim = HEAD_DIM,
                                                .v_dim = HEAD_DIM,
                                                .block_tokens = BLOCK_TOKENS,
                                                .scale = 0.0625f,
                                                .items = &item,
                                                .n_items = 1,
                                                .scratch = trials->attn_scratch,
                                                .scratch_bytes = trials->attn_scratch_bytes});
}

static uint64_t trial_ns(struct trials *trials, const struct trial_case *trial,
                         const struct kern_choice *choice)
{
    uint64_t begun_ns = clock_now_ns();

    kern_choice_set(choice);
    trial_forget(trials, trial->weight);
    uint64_t start_ns = clock_now_ns();
    if (trial->weight == TRIAL_KEYS)
        trial_attention(trials);
    else
        trial_product(trials, trial);
    uint64_t end_ns = clock_now_ns();
    trials->last_ns = end_ns - begun_ns;
    return end_ns - start_ns + 1;
}

/* ---- comparing two choices ---- */

static int tune_trial_by_time(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return (left > right) - (left < right);
}

/* Time of the second relative to the first; 0 when there is no time left. */
static double trials_ratio_of(struct trials *trials, const struct trial_case *trial, int n_rounds,
                              const struct kern_choice *const both[2])
{
    uint64_t ns[2][LONE_ROUNDS];

    for (int turn = 0; turn < 2 * n_rounds; turn++) {
        int which = (turn + turn / 2) % 2;

        if (trials_are_late(trials))
            return 0.0;
        ns[which][turn / 2] = trial_ns(trials, trial, both[which]);
    }
    for (int i = 0; i < 2; i++)
        qsort(ns[i], (size_t)n_rounds, sizeof(ns[i][0]), tune_trial_by_time);
    return (double)ns[1][(n_rounds - 1) / 2] / (double)ns[0][(n_rounds - 1) / 2];
}

/* The mean ratio over the cases, and the worst one; 0 when there was no time. */
static double trials_mean(struct trials *trials, const struct trial_case *list, const struct kern_choice *a,
                          const struct kern_choice *b, double *worst_out)
{
    const struct kern_choice *const both[] = {a, b};
    const int n_rounds = list[1].n_tokens == 0 ? LONE_ROUNDS : ROUNDS;
    double sum = 0.0;
    int n = 0;

    *worst_out = 0.0;
    for (; list[n].n_tokens > 0; n++) {
        double ratio = trials_ratio_of(trials, &list[n], n_rounds, both);

        if (ratio == 0.0)
            return 0.0;
        sum += log(ratio);
        *worst_out = ratio > *worst_out ? ratio : *worst_out;
    }
    return exp(sum / n);
}

/* The same, and whether b should be chosen. */
static double trials_compare(struct trials *trials, const struct trial_case *list,
                             const struct kern_choice *a, const struct kern_choice *b, bool *is_better_out)
{
    double worst;
    double mean = trials_mean(trials, list, a, b, &worst);

    *is_better_out = mean > 0 && mean < MUCH_BETTER;
    if (mean == 0 || mean < MUCH_BETTER || mean >= BETTER || worst >= WORSE)
        return mean;
    double again = trials_mean(trials, list, a, b, &worst);
    *is_better_out = again > 0 && again < BETTER && worst < WORSE;
    return again > mean ? again : mean;
}

/* True if the field has any effect with this table. */
static bool trials_matters(const struct kern_table *table, enum kern_field field)
{
    switch (field) {
    case KERN_WIDE:
        return table->q8->wide_tokens > 0;
    case KERN_PANELS:
        return table->q8->direct != NULL && table->q8->direct_panels > 1;
    case KERN_SLICES:
    case KERN_FETCH:
        return table->q8->direct != NULL;
    case KERN_PLAIN:
    case KERN_KEYS:
    case KERN_N_FIELDS:
        break;
    }
    return true;
}

static void trials_try_field(struct trials *trials, enum kern_field field, struct tuned *out)
{
    const uint8_t before = out->choice.at[field];

    if (!trials_matters(trials->table, field))
        return;
    out->ratios[field][before] = 1.0;
    for (uint32_t variant = 0; variant < kern_choice_n_variants(field); variant++) {
        struct kern_choice other = out->choice;
        bool is_better;

        if (variant == before)
            continue;
        other.at[field] = (uint8_t)variant;
        double ratio = trials_compare(trials, cases[field], &out->choice, &other, &is_better);
        /* A third variant is compared with the second one if that was chosen. */
        out->ratios[field][variant] = ratio * out->ratios[field][out->choice.at[field]];
        if (is_better)
            out->choice = other;
    }
}

/* The second variants of all fields that depend on each other, if this table has them. */
static struct kern_choice all_second(const struct trials *trials, const struct kern_choice *before)
{
    struct kern_choice choice = *before;

    for (int field = 0; field <= KERN_FETCH; field++)
        choice.at[field] = trials_matters(trials->table, (enum kern_field)field);
    return choice;
}

/* True if the trial is slow three times, so not just disturbed. Also true if the time runs out. */
static bool trials_are_slow(struct trials *trials, const struct kern_choice *choice)
{
    static const struct trial_case ones[] = {
        {TRIAL_Q8_0, 1}, {TRIAL_Q4_0, 1}, {TRIAL_Q4_K, 1}, {TRIAL_F16, 1}, {TRIAL_KEYS, 1}};

    for (size_t i = 0; i < sizeof(ones) / sizeof(ones[0]); i++) {
        int n_slow = 0;

        while (n_slow < 3 && !trials_are_late(trials) && trial_ns(trials, &ones[i], choice) >= SLOW_NS)
            n_slow++;
        if (n_slow == 3 || trials_are_late(trials))
            return true;
    }
    return false;
}

bool tune_kernels(struct team *team, const struct kern_table *table, uint64_t end_ns, struct tuned *out)
{
    /* Short, independent trials come first; the others may find no time left. */
    static const enum kern_field alone[] = {KERN_KEYS, KERN_PLAIN},
                                 rest[] = {KERN_WIDE, KERN_FETCH, KERN_PANELS, KERN_SLICES};
    struct trials trials = {.team = team, .table = table, .end_ns = end_ns};
    bool is_better = false;

    if (trials_make(&trials) && !trials_are_slow(&trials, &out->choice)) {
        for (size_t i = 0; i < sizeof(alone) / sizeof(alone[0]); i++)
            trials_try_field(&trials, alone[i], out);
        struct kern_choice second = all_second(&trials, &out->choice);
        if (memcmp(&second, &out->choice, sizeof(second)) != 0)
            out->start_ratio = trials_compare(&trials, cases_of_all, &out->choice, &second, &is_better);
        out->choice = is_better ? second : out->choice;
        for (size_t i = 0; i < sizeof(rest) / sizeof(rest[0]); i++)
            trials_try_field(&trials, rest[i], out);
    }
    kern_choice_set(&out->choice);
    trials_fini(&trials);
    return !trials.is_late;
}
