/* SPDX-License-Identifier: Apache-2.0 */
/* The bundled model must give the answers of its reference.  share/demo-golden.json has prompts and the
 * greedy ids that follow, computed in double precision from the same file (tools/demo-model/golden.py).  The
 * prompts avoid near ties, which leaves room for activations of eight bits.  Skipped if those files are
 * missing. */
#include "tests/unit/compute/engine/player.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static const double NEAR_TIE = 0.25; /* in logits */

static token_id *read_ids(const json_t *list, uint32_t *n_out)
{
    uint32_t n = (uint32_t)json_array_size(list);
    token_id *ids = calloc(n + 1, sizeof(*ids));

    assert_non_null(ids);
    assert_true(n > 0);
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (token_id)json_integer_value(json_array_get(list, i));
    *n_out = n;
    return ids;
}

static void check_prompt(const char *model, const json_t *prompt)
{
    const char *kind = json_string_value(json_object_get(prompt, "kind"));
    uint32_t n_prompt, n_greedy;
    token_id *ids = read_ids(json_object_get(prompt, "prompt_ids"), &n_prompt);
    token_id *greedy = read_ids(json_object_get(prompt, "greedy_ids"), &n_greedy);
    double margin = json_number_value(json_object_get(prompt, "min_margin"));
    struct player player;
    token_id drawn;

    player_open(&player, model, &(struct model_opts){.kv_type = KV_F16}, n_prompt + n_greedy);
    drawn = player_feed(&player, ids, n_prompt, 0);
    for (uint32_t i = 0; i < n_greedy; i++) {
        const float *logits = player_logits(&player);

        if (drawn != greedy[i] && (margin > NEAR_TIE || logits[drawn] - logits[greedy[i]] > NEAR_TIE))
            fail_msg("%s: id %u of the answer is %u, expected %u", kind ? kind : "?", i, drawn, greedy[i]);
        if (drawn != greedy[i])
            print_message("%s: id %u fell the other way, %.3f apart\n", kind ? kind : "?", i,
                          (double)(logits[drawn] - logits[greedy[i]]));
        drawn = player_feed(&player, &greedy[i], 1, n_prompt + i);
    }
    player_close(&player);
    free(ids);
    free(greedy);
}

static void answers_as_its_reference(void **state)
{
    char model[512], golden[512];
    json_error_t error;
    json_t *root, *prompts;

    (void)state;
    assert_non_null(player_source("share/baton-demo.gguf", model));
    assert_non_null(player_source("share/demo-golden.json", golden));
    root = json_load_file(golden, 0, &error);
    if (root == NULL)
        fail_msg("%s:%d: %s", golden, error.line, error.text);
    prompts = json_object_get(root, "prompts");
    assert_true(json_array_size(prompts) > 0);
    for (size_t i = 0; i < json_array_size(prompts); i++)
        check_prompt(model, json_array_get(prompts, i));
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_as_its_reference),
    };
    char path[512];

    if (player_source("share/baton-demo.gguf", path) == NULL ||
        player_source("share/demo-golden.json", path) == NULL) {
        printf("skipped: %s is not there\n", path);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
