/* SPDX-License-Identifier: Apache-2.0 */
/* Every architecture compared with its reference (tests/reference).  `baton-model make` writes tiny random
 * models, and an independent implementation in float64 gives the logits for the same bytes.
 *
 * A golden file is lines of words: the arguments of make, the tokens to feed, the greedy token after each,
 * and all logits after some of them.  Each is checked with every kernel table, fed one token at a time, and
 * fed at once.
 *
 * Tolerances, relative to the largest logit of a row: 1e-4 with KV in F32 (seen: 3e-6), 4e-3 with KV in F16.
 * A wrong angle, window, scale or norm causes more than 1e-2 in every one of these models.
 *
 * BATON_ARCH_CASE=TEXT checks only the cases whose names hold the text. */
#include "base/check.h"
#include "compute/tensor/tensor.h"
#include "tests/unit/compute/engine/player.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/compute/check_team.h"

static const char *const CASES[] = {
    "llama",
    "llama3",
    "llama-biases",
    "llama-linear",
    "llama-yarn",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma",
    "qwen3-yarn",
    "gemma3",
    "gemma3-62",
    "phi3",
    "phi3-short",
    "phi3-long",
    "granite",
    "olmo2",
    "olmo3",
    "smollm3",
    "glm4",
    "internlm2",
    "ernie4_5",
    "mixtral",
    "qwen3moe",
    "deepseek2-lite",
    "deepseek2-v2",
    "deepseek2-v3",
    "gpt-oss",
    "qwen2moe",
    "olmoe",
    "granitemoe",
    "minimax-m2",
    "hunyuan-dense",
    "hunyuan-moe",
    "seed_oss",
    "arcee",
    "exaone4",
    "glm4moe",
    "ernie4_5-moe",
    "mistral3",
    "gemma2",
    "starcoder2",
    "phi2",
    "gpt2",
    "falcon",
    "falcon-7b",
    "command-r",
    "command-r-plus",
    "cohere2",
    "lfm2",
    "lfm2moe",
    "qwen35",
    "qwen35moe",
    "granitehybrid",
    "granitehybrid-moe",
    "nemotron_h",
    "falcon-h1",
    "falcon-h1-normed",
    "mamba2",
    "qwen3next",
    "bailingmoe2",
    "gemma4",
    "gemma4-inputs",
    "gemma3n",
    "gemma4-experts",
    "gemma4-fused",
    "nemotron_h_moe",
    "nemotron_h_moe-latent",
    "llama4",
    "llama4-interleaved",
    "llama4-full",
    "deepseek32",
    "deepseek32-whole",
    "glm-dsa",
    "glm4-sections",
    "llama-all-biases",
    "llama-yarn-plain",
    "granite-nope",
    "gemma3-capped",
    "qwen3-fused",
    "qwen3moe-fused",
    "glm4moe-fused",
    "gpt-oss-fused",
    "deepseek2-dense",
    "deepseek2-temperature",
    "arcee-biases",
    "qwen2vl",
    "qwen3vl",
    "qwen3vlmoe",
    "exaone",
    "dots1",
    "hy_v3",
    "exaone-moe",
    "nemotron",
    "stablelm",
    "stablelm-12b",
    "gpt-oss-fused-biases",
    "phimoe",
    "phimoe-plain",
    "olmo",
    "olmo-clamped",
    "gptneox",
    "gptneox-serial",
    "apertus",
    "afmoe",
    "bailingmoe",
    "hunyuan_vl",
    "cohere2moe",
    "mimo2",
    "step35",
    "kimi-linear",
    "kimi-linear-last",
};

enum { MAX_TOKENS = 64, MAX_SHOWN = 4, MAX_VOCAB = 4096 };

struct expected {
    char make[1600];
    token_id tokens[MAX_TOKENS], greedy[MAX_TOKENS];
    uint32_t n_tokens, n_greedy;
    uint32_t shown[MAX_SHOWN]; /* positions */
    float *logits[MAX_SHOWN];
    uint32_t n_shown, n_logits;
};

/* ---- the golden file ---- */

static uint32_t read_ids(char *words, token_id *out)
{
    uint32_t n = 0;
    char *rest = NULL;

    for (char *word = strtok_r(words, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
        assert_true(n < MAX_TOKENS);
        out[n++] = (token_id)strtoul(word, NULL, 10);
    }
    return n;
}

static void read_logits(char *words, struct expected *out)
{
    char *rest = NULL, *word = strtok_r(words, " \n", &rest);
    uint32_t n = 0;

    assert_true(out->n_shown < MAX_SHOWN);
    out->shown[out->n_shown] = (uint32_t)strtoul(word, NULL, 10);
    out->logits[out->n_shown] = calloc(MAX_VOCAB, sizeof(float));
    assert_non_null(out->logits[out->n_shown]);
    while ((word = strtok_r(NULL, " \n", &rest)) != NULL) {
        assert_true(n < MAX_VOCAB);
        out->logits[out->n_shown][n++] = strtof(word, NULL);
    }
    out->n_logits = n;
    out->n_shown++;
}

static void read_expected(const char *name, struct expected *out)
{
    char file_name[128], path[512], *line = NULL;
    size_t line_bytes = 0;
    FILE *file;

    memset(out, 0, sizeof(*out));
    snprintf(file_name, sizeof(file_name), "tests/golden/arch/%s.txt", name);
    if (player_source(file_name, path) == NULL)
        fail_msg("%s is not there", path);
    file = fopen(path, "r");
    assert_non_null(file);
    while (getline(&line, &line_bytes, file) > 0) {
        char *words = strchr(line, ' ');

        assert_non_null(words);
        *words++ = '\0';
        if (strcmp(line, "make") == 0)
            snprintf(out->make, sizeof(out->make), "%.*s", (int)strcspn(words, "\n"), words);
        else if (strcmp(line, "tokens") == 0)
            out->n_tokens = read_ids(words, out->tokens);
        else if (strcmp(line, "greedy") == 0)
            out->n_greedy = read_ids(words, out->greedy);
        else if (strcmp(line, "logits") == 0)
            read_logits(words, out);
        else
            fail_msg("%s: a line of %s", path, line);
    }
    free(line);
    fclose(file);
    assert_true(out->n_tokens > 0 && out->n_greedy == out->n_tokens && out->n_shown > 0);
}

/* ---- the check ---- */

struct comparison {
    const char *name;
    const struct expected *expected;
    double tolerance, worst; /* distance of the logits: allowed, seen so far */
};

static void compare(struct comparison *comparison, struct player *player, uint32_t position)
{
    const struct expected *e = comparison->expected;

    for (uint32_t i = 0; i < e->n_shown; i++) {
        double apart;

        if (e->shown[i] != position)
            continue;
        apart = player_distance(player_logits(player), e->logits[i], e->n_logits);
        comparison->worst = apart > comparison->worst ? apart : comparison->worst;
        if (!(apart <= comparison->tolerance))
            fail_msg("%s: off by %g after token %u, more than %g", comparison->name, apart, position,
                     comparison->tolerance);
    }
}

static double check_with(const char *name, const char *path, const struct expected *e, const char *kernels,
                         enum kv_type kv)
{
    struct comparison comparison = {name, e, .tolerance = kv == KV_F16 ? 4e-3 : 1e-4};
    struct player player;

    player_open(&player, path, &(struct model_opts){.kernels = kernels, .kv_type = kv}, MAX_TOKENS);
    assert_int_equal(player.engine.info.vocab_size, e->n_logits);
    for (uint32_t i = 0; i < e->n_tokens; i++) {
        token_id greedy = player_feed(&player, e->tokens + i, 1, i);

        if (kv == KV_F32 && greedy != e->greedy[i])
            fail_msg("%s, %s kernels: token %u is followed by %u, not %u", name, kernels, i, greedy,
                     e->greedy[i]);
        compare(&comparison, &player, i);
    }
    player_feed(&player, e->tokens, e->n_tokens, 0);
    compare(&comparison, &player, e->n_tokens - 1);
    player_close(&player);
    return comparison.worst;
}

/* ---- MTP heads ---- */

/* A head fed with the rows of its model: [n_tokens][hidden], one for each token that it reads. */
struct head {
    struct model *model;
    struct engine engine;
    void *arena;
    kv_block_id *blocks;
    uint32_t n_blocks;
    token_id tokens[MAX_TOKENS];
    float *rows;
};

/* Feeds the model, and keeps the rows and the tokens that follow them. */
static void read_rows(struct head *head, struct player *player, const struct expected *e)
{
    uint32_t hidden = player->engine.info.hidden;

    head->rows = calloc(e->n_tokens, hidden * sizeof(float));
    assert_non_null(head->rows);
    for (uint32_t i = 0; i < e->n_tokens; i++) {
        token_id greedy = player_feed(player, e->tokens + i, 1, i);

        head->tokens[i] = i + 1 < e->n_tokens ? e->tokens[i + 1] : greedy;
        memcpy(head->rows + (size_t)i * hidden, player->engine.ops->hidden(player->engine.self, 0, 0),
               hidden * sizeof(float));
    }
}

/* The same rows from two chunks of the prompt, to the bit: in the first no token is sampled. */
static void check_prompt_rows(const struct head *head, struct player *player, const struct expected *e)
{
    uint32_t hidden = player->engine.info.hidden, n_first = e->n_tokens / 3;
    float *rows = calloc(e->n_tokens, hidden * sizeof(float));
    struct sample_result drawn;

    assert_non_null(rows);
    for (uint32_t from = 0, n; from < e->n_tokens; from += n) {
        struct kv_state_cut cut = {.blocks = player->state};
        struct engine_item item = {.tokens = e->tokens + from,
                                   .recurrent = from > 0 ? player->state : NULL,
                                   .cuts = &cut,
                                   .n_cuts = player->engine.info.layout.state_bytes > 0,
                                   .position = from,
                                   .blocks = player->blocks,
                                   .n_blocks = player->n_blocks,
                                   .wants_token = from > 0,
                                   .rows = rows + (size_t)from * hidden,
                                   .tokens_left = 1,
                                   .sample = {.top_p = 1}};

        item.n_tokens = cut.n_tokens = n = from == 0 ? n_first : e->n_tokens - from;
        assert_int_equal(
            engine_step(&player->engine, &(struct engine_batch){.items = &item, .n_items = 1}, &drawn), 0);
    }
    memcpy(rows + (size_t)(e->n_tokens - 1) * hidden, player->engine.ops->hidden(player->engine.self, 0, 0),
           hidden * sizeof(float));
    assert_memory_equal(rows, head->rows, e->n_tokens * hidden * sizeof(float));
    free(rows);
}

static void head_open(struct head *head, struct player *player, const struct model_opts *opts)
{
    struct model_opts own = *opts;
    struct fault fault = {0};

    memset(head, 0, sizeof(*head));
    own.mtp_of = player->model;
    assert_true(model_has_mtp(player->model, player->gguf));
    if (model_new(player->gguf, player->team, &own, &fault, &head->model) < 0)
        fail_msg("%s", fault.text);
    assert_int_equal(model_kv_layout(head->model)->n_layers, 1);
    head->n_blocks = player->n_blocks;
    head->blocks = player->blocks;
    head->arena = calloc(head->n_blocks, kv_layout_block_bytes(model_kv_layout(head->model)));
    assert_int_equal(engine_cpu_new(&(struct engine_cpu_opts){.model = head->model,
                                                              .team = player->team,
                                                              .kv_arena = head->arena,
                                                              .n_blocks = head->n_blocks,
                                                              .max_batch_tokens = MAX_TOKENS,
                                                              .max_items = 1},
                                    &head->engine),
                     0);
}

static void head_close(struct head *head)
{
    engine_free(&head->engine);
    model_free(head->model);
    free(head->arena);
    free(head->rows);
}

/* Feeds n tokens from position `from` on, and returns the logits after the last. */
static const float *head_feed(struct head *head, uint32_t from, uint32_t n)
{
    struct engine_item item = {.tokens = head->tokens + from,
                               .hidden = head->rows + (size_t)from * head->engine.info.hidden,
                               .n_tokens = n,
                               .position = from,
                               .blocks = head->blocks,
                               .n_blocks = head->n_blocks,
                               .wants_token = true,
                               .sample = {.top_p = 1}};
    struct sample_result drawn;

    assert_true(head->engine.info.is_mtp);
    assert_int_equal(engine_step(&head->engine, &(struct engine_batch){.items = &item, .n_items = 1}, &drawn),
                     0);
    return head->engine.ops->logits(head->engine.self, 0);
}

/* One token at a time, and again with all tokens before the shown ones in one step. */
static double check_head_with(const char *path, const struct expected *e, const char *kernels)
{
    const struct model_opts opts = {.kernels = kernels, .kv_type = KV_F32};
    struct player player;
    struct head head;
    double worst = 0;

    player_open(&player, path, &opts, MAX_TOKENS);
    head_open(&head, &player, &opts);
    read_rows(&head, &player, e);
    check_prompt_rows(&head, &player, e);
    for (uint32_t is_whole = 0; is_whole < 2; is_whole++)
        for (uint32_t i = 0, shown = 0; i < e->n_tokens && shown < e->n_shown; i++) {
            uint32_t n = is_whole ? e->shown[shown] - i + 1 : 1;
            const float *logits = head_feed(&head, i, n);

            i += n - 1;
            if (i == e->shown[shown])
                worst = fmax(worst, player_distance(logits, e->logits[shown++], e->n_logits));
        }
    head_close(&head);
    player_close(&player);
    return worst;
}

static void make_file(const struct expected *e, const char *path)
{
    char command[2000];

    snprintf(command, sizeof(command), "./baton-model make %s %s 2>/dev/null", e->make, path);
    if (system(command) != 0)
        fail_msg("%s", command);
}

static const char *const MTP_CASES[] = {
    "llama-mtp",      "qwen3-mtp",       "glm4moe-mtp",    "qwen35-mtp",     "qwen35moe-mtp",
    "qwen3next-mtp",  "deepseek2-mtp",   "deepseek32-mtp", "glm-dsa-mtp",    "exaone4-mtp",
    "exaone-moe-mtp", "bailingmoe2-mtp", "hy_v3-mtp",      "cohere2moe-mtp", "step35-mtp"};

static double check_head(const char *name)
{
    char path[] = "/tmp/baton-mtp-XXXXXX";
    const struct kern_table *table;
    struct expected expected;
    double worst = 0;
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    close(fd);
    read_expected(name, &expected);
    make_file(&expected, path);
    for (uint32_t k = 0; (table = kern_table_at(k)) != NULL; k++)
        worst = fmax(worst, check_head_with(path, &expected, kern_table_name(table)));
    print_message("%-14s off by at most %.1e\n", name, worst);
    unlink(path);
    for (uint32_t i = 0; i < expected.n_shown; i++)
        free(expected.logits[i]);
    return worst;
}

static void mtp_heads_agree_with_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(MTP_CASES); i++)
        assert_true(check_head(MTP_CASES[i]) <= 1e-5);
}

/* ---- all cases ---- */

static void check_case(const char *name)
{
    char path[] = "/tmp/baton-arch-XXXXXX";
    const struct kern_table *table;
    struct expected expected;
    double worst[2] = {0, 0};
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    close(fd);
    read_expected(name, &expected);
    make_file(&expected, path);
    for (uint32_t k = 0; (table = kern_table_at(k)) != NULL; k++) {
        worst[0] = fmax(worst[0], check_with(name, path, &expected, kern_table_name(table), KV_F32));
        worst[1] = fmax(worst[1], check_with(name, path, &expected, kern_table_name(table), KV_F16));
    }
    print_message("%-14s off by at most %.1e, with KV in F16 %.1e\n", name, worst[0], worst[1]);
    unlink(path);
    for (uint32_t i = 0; i < expected.n_shown; i++)
        free(expected.logits[i]);
}

static void logits_agree_with_the_references(void **state)
{
    const char *chosen = getenv("BATON_ARCH_CASE");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++)
        if (chosen == NULL || strstr(CASES[i], chosen) != NULL)
            check_case(CASES[i]);
}

/* ---- ranks ---- */

enum {
    LONE_TOKENS = 200,
    LONE_VOCAB = 259
}; /* keys of several parts (forward_index.c), one query at a time */

/* Feeds one token at a time with so many threads, which share even the smallest work. */
static void play_alone(const char *path, unsigned n_threads, float *logits_out)
{
    const struct model_opts opts = {.kernels = "auto", .kv_type = KV_F16};
    struct player player;
    struct team *team;

    player_open(&player, path, &opts, LONE_TOKENS);
    engine_free(&player.engine);
    team = check_team(n_threads);
    assert_int_equal(engine_cpu_new(&(struct engine_cpu_opts){.model = player.model,
                                                              .team = team,
                                                              .kv_arena = player.arena,
                                                              .n_blocks = player.n_blocks,
                                                              .max_batch_tokens = 1,
                                                              .max_items = 1,
                                                              .team_from_bytes = 1},
                                    &player.engine),
                     0);
    for (uint32_t i = 0; i < LONE_TOKENS; i++) {
        token_id token = i * 37 % LONE_VOCAB;

        player_feed(&player, &token, 1, i);
        memcpy(logits_out + (size_t)i * LONE_VOCAB, player_logits(&player), LONE_VOCAB * sizeof(float));
    }
    player_close(&player);
    team_free(team);
}

static void sparse_choices_do_not_depend_on_ranks(void **state)
{
    const size_t len_bytes = (size_t)LONE_TOKENS * LONE_VOCAB * sizeof(float);
    char path[] = "/tmp/baton-ranks-XXXXXX";
    float *alone = malloc(len_bytes), *shared = malloc(len_bytes);
    struct expected expected;
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0 && alone != NULL && shared != NULL);
    close(fd);
    read_expected("deepseek32", &expected);
    make_file(&expected, path);
    play_alone(path, 1, alone);
    for (unsigned n_threads = 2; n_threads <= 5; n_threads++) {
        play_alone(path, n_threads, shared);
        assert_memory_equal(shared, alone, len_bytes);
    }
    unlink(path);
    for (uint32_t i = 0; i < expected.n_shown; i++)
        free(expected.logits[i]);
    free(alone);
    free(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_agree_with_the_references),
        cmocka_unit_test(mtp_heads_agree_with_the_reference),
        cmocka_unit_test(sparse_choices_do_not_depend_on_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
