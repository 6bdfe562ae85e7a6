/* SPDX-License-Identifier: Apache-2.0 */
/* The effect of each KV type on answers.  Compares the same texts with keys and values in F32 and in each
 * other type, position by position.  Prints the figures and checks their bounds (docs/operations.md has the
 * table):
 *
 *     KL      mean Kullback-Leibler distance of the next token's distribution from that with F32, in nats
 *     loss    mean negative log likelihood of the text, against that with F32
 *     same    share of positions whose best token is the same
 *
 * The bundled model on the texts of its golden answers; stories260K on its golden story when the shared data
 * folder is there. */
#include "tests/unit/compute/engine/player.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/check.h"
#include "tests/unit/trials.h"

struct text {
    token_id *ids;
    uint32_t n;
};

struct sums {
    double kl, loss, loss_f32;
    uint32_t n, n_same;
};

struct bound {
    enum kv_type type;
    const char *name;
    double kl, loss, same; /* at most, at most more, at least */
};
enum { N_TYPES = 4 };
static const struct bound DEMO_BOUNDS[N_TYPES] = {
    {KV_F16, "f16", 9e-4, 1e-3, 0.99},
    {KV_BF16, "bf16", 9e-4, 3e-3, 0.99},
    {KV_Q8_0, "q8_0", 9e-4, 2e-3, 0.99},
    {KV_Q4_0, "q4_0", 6e-2, 3e-2, 0.96},
};
/* Heads of only 8 numbers, so four bits lose much. */
static const struct bound STORIES_BOUNDS[N_TYPES] = {
    {KV_F16, "f16", 2e-6, 5e-4, 0.99},
    {KV_BF16, "bf16", 1e-4, 5e-4, 0.99},
    {KV_Q8_0, "q8_0", 2e-3, 5e-3, 0.98},
    {KV_Q4_0, "q4_0", 0.8, 0.8, 0.6},
};

static void add_ids(struct text *text, const json_t *list)
{
    uint32_t n = (uint32_t)json_array_size(list);

    text->ids = realloc(text->ids, (text->n + n) * sizeof(*text->ids));
    assert_non_null(text->ids);
    for (uint32_t i = 0; i < n; i++)
        text->ids[text->n++] = (token_id)json_integer_value(json_array_get(list, i));
}

/* log of the sum of exponentials */
static double log_sum(const float *logits, uint32_t n)
{
    double top = -INFINITY, sum = 0;

    for (uint32_t i = 0; i < n; i++)
        top = fmax(top, logits[i]);
    for (uint32_t i = 0; i < n; i++)
        sum += exp(logits[i] - top);
    return top + log(sum);
}

static uint32_t best(const float *logits, uint32_t n)
{
    uint32_t at = 0;

    for (uint32_t i = 1; i < n; i++)
        at = logits[i] > logits[at] ? i : at;
    return at;
}

static void compare(const float *exact, const float *got, uint32_t n, token_id next, struct sums *sums)
{
    double exact_sum = log_sum(exact, n), got_sum = log_sum(got, n);

    for (uint32_t i = 0; i < n; i++)
        sums->kl += exp(exact[i] - exact_sum) * ((exact[i] - exact_sum) - (got[i] - got_sum));
    sums->loss += got_sum - got[next];
    sums->loss_f32 += exact_sum - exact[next];
    sums->n_same += best(exact, n) == best(got, n);
    sums->n++;
}

static void play(const char *model, const struct text *text, enum kv_type type, struct sums *sums)
{
    struct player exact, player;

    player_open(&exact, model, &(struct model_opts){.kv_type = KV_F32}, text->n);
    player_open(&player, model, &(struct model_opts){.kv_type = type}, text->n);
    for (uint32_t i = 0; i + 1 < text->n; i++) {
        player_feed(&exact, &text->ids[i], 1, i);
        player_feed(&player, &text->ids[i], 1, i);
        compare(player_logits(&exact), player_logits(&player), exact.engine.info.vocab_size, text->ids[i + 1],
                sums);
    }
    player_close(&exact);
    player_close(&player);
}

static void check_texts(const char *model, const struct text *texts, uint32_t n_texts,
                        const struct bound *bounds)
{
    for (size_t i = trials(0, N_TYPES - 1); i < N_TYPES; i++) {
        const struct bound *bound = &bounds[i];
        struct sums sums = {0};

        for (uint32_t j = 0; j < n_texts; j++)
            play(model, &texts[j], bound->type, &sums);
        double kl = sums.kl / sums.n, more = (sums.loss - sums.loss_f32) / sums.n;
        double same = (double)sums.n_same / sums.n;
        print_message("%-5s KL %.2e  loss %.4f (%+.1e)  same %.1f%% of %u\n", bound->name, kl,
                      sums.loss / sums.n, more, 100 * same, sums.n);
        assert_true(kl <= bound->kl && more <= bound->loss && same >= bound->same);
    }
}

static void the_bundled_model_stays_near(void **state)
{
    char model[512], golden[512];
    json_error_t error;
    struct text texts[16] = {0};
    uint32_t n = 0;

    (void)state;
    if (!player_source("share/baton-demo.gguf", model) || !player_source("share/demo-golden.json", golden))
        skip();
    json_t *root = json_load_file(golden, 0, &error);
    assert_non_null(root);
    json_t *prompts = json_object_get(root, "prompts");
    for (; n < json_array_size(prompts) && n < ARRAY_LEN(texts); n++) {
        add_ids(&texts[n], json_object_get(json_array_get(prompts, n), "prompt_ids"));
        add_ids(&texts[n], json_object_get(json_array_get(prompts, n), "greedy_ids"));
    }
    json_decref(root);
    assert_true(n > 0);
    check_texts(model, texts, n, DEMO_BOUNDS);
    for (uint32_t i = 0; i < n; i++)
        free(texts[i].ids);
}

static void stories_stay_near(void **state)
{
    char model[512], golden[512];
    json_error_t error;
    struct text text = {0};

    (void)state;
    if (!player_data("models/stories260K.gguf", model) ||
        !player_data("models/stories260K.golden.json", golden))
        skip();
    json_t *root = json_load_file(golden, 0, &error);
    assert_non_null(root);
    add_ids(&text, json_object_get(root, "greedy_ids"));
    json_decref(root);
    check_texts(model, &text, 1, STORIES_BOUNDS);
    free(text.ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bundled_model_stays_near),
        cmocka_unit_test(stories_stay_near),
    };

    return cmocka_run_group_tests_name("engine/kv_types", tests, NULL, NULL);
}
