/* SPDX-License-Identifier: Apache-2.0 */
/* A trained model compared with golden vectors from elsewhere.  stories260K must write the same story, token
 * for token, and its logits must agree to 1e-4 of the row's largest.  The file is not part of the project;
 * without the shared data folder the test reports that and is skipped. */
#include "compute/tensor/tensor.h"
#include "tests/unit/compute/engine/player.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

enum { N_ROWS = 128, VOCAB = 512 };

static token_id greedy_ids[N_ROWS];
static uint32_t n_prompt;
static float logits[N_ROWS][VOCAB];

static int read_golden(void **state)
{
    char path[512];
    json_error_t error;
    json_t *root;
    FILE *file;

    (void)state;
    assert_non_null(player_data("models/stories260K.golden.json", path));
    root = json_load_file(path, 0, &error);
    if (root == NULL)
        fail_msg("%s:%d: %s", path, error.line, error.text);
    assert_int_equal(json_array_size(json_object_get(root, "greedy_ids")), N_ROWS);
    n_prompt = (uint32_t)json_array_size(json_object_get(root, "prompt_ids"));
    for (size_t i = 0; i < N_ROWS; i++)
        greedy_ids[i] = (token_id)json_integer_value(json_array_get(json_object_get(root, "greedy_ids"), i));
    json_decref(root);
    assert_non_null(player_data("models/stories260K.golden_logits.f32", path));
    file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(logits, sizeof(logits[0]), N_ROWS, file), N_ROWS);
    fclose(file);
    return 0;
}

static void with_kernels(const char *kernels)
{
    struct player player;
    char path[512];
    double worst = 0;

    assert_non_null(player_data("models/stories260K.gguf", path));
    player_open(&player, path, &(struct model_opts){.kernels = kernels, .kv_type = KV_F32}, N_ROWS);
    for (uint32_t i = 0; i < N_ROWS; i++) {
        token_id drawn = player_feed(&player, greedy_ids + i, 1, i);
        double apart = player_distance(player_logits(&player), logits[i], VOCAB);

        worst = apart > worst ? apart : worst;
        if (!(apart <= 1e-4))
            fail_msg("%s kernels: logits are off by %g at position %u", kernels, apart, i);
        if (i + 1 >= n_prompt && i + 1 < N_ROWS)
            assert_int_equal(drawn, greedy_ids[i + 1]);
    }
    print_message("%s: logits off by at most %.1e\n", kernels, worst);
    player_close(&player);
}

static void logits_agree(void **state)
{
    const struct kern_table *table;

    (void)state;
    for (uint32_t i = 0; (table = kern_table_at(i)) != NULL; i++)
        with_kernels(kern_table_name(table));
}

/* As in service: the prompt in one step, keys and values in F16. */
static void the_story_is_the_same(void **state)
{
    struct player player;
    char path[512];
    token_id drawn;

    (void)state;
    assert_non_null(player_data("models/stories260K.gguf", path));
    player_open(&player, path, &(struct model_opts){.kv_type = KV_F16}, N_ROWS);
    drawn = player_feed(&player, greedy_ids, n_prompt, 0);
    for (uint32_t i = n_prompt; i < N_ROWS; i++) {
        assert_int_equal(drawn, greedy_ids[i]);
        drawn = player_feed(&player, &drawn, 1, i);
    }
    player_close(&player);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_agree),
        cmocka_unit_test(the_story_is_the_same),
    };
    char path[512];

    if (player_data("models/stories260K.gguf", path) == NULL) {
        printf("skipped: %s is not there (set BATON_DATA)\n", path);
        return 77;
    }
    return cmocka_run_group_tests(tests, read_golden, NULL);
}
