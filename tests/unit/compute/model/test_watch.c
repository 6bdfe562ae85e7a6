/* SPDX-License-Identifier: Apache-2.0 */
/* The inputs that watch.c shows are those that the pass multiplies. */
#include "compute/model/watch.h"
#include "tests/unit/compute/model/tiny.h"

#include <math.h>
#include <string.h>

#include "tests/unit/check.h"
#include "tests/unit/compute/check_team.h"

struct seen { /* inputs of the down-projections */
    const struct model *model;
    float most_of_experts, most_of_shared;
    uint32_t n_of_experts, n_of_shared;
};

static void look(void *arg, const struct model_input *input)
{
    struct seen *seen = arg;
    char name[64];

    for (uint32_t i = 0; model_input_tensor(seen->model, input->layer, input->group, i, name); i++) {
        bool is_of_experts = strstr(name, "ffn_down_exps") != NULL;
        float *most = is_of_experts ? &seen->most_of_experts : &seen->most_of_shared;

        if (!is_of_experts && strstr(name, "ffn_down_shexp") == NULL)
            continue;
        (is_of_experts ? &seen->n_of_experts : &seen->n_of_shared)[0] += input->n_rows;
        for (uint32_t column = 0; column < input->n_cols; column++)
            *most = fmaxf(*most, fabsf(input->x[column]));
    }
}

static void watch(const struct tiny_shape *shape, struct team *team, struct seen *seen)
{
    struct model *model = tiny_model(shape, team, &(struct model_opts){0});

    *seen = (struct seen){.model = model};
    assert_int_equal(model_watch_inputs(model, &(struct model_watch){.on_input = look, .arg = seen}), 0);
    tiny_run(model, team, NULL);
    model_free(model);
}

/* silu is at least -0.279, so a limit below it bounds a gated number by 0.279 times the limit. */
static void limits_of_experts_apply(void **state)
{
    static const char *const FREE[] = {"attention.sliding_window=9", "attention.sliding_window_pattern=1,0",
                                       NULL};
    static const char *const LIMITED[] = {"attention.sliding_window=9",
                                          "attention.sliding_window_pattern=1,0", "swiglu_clamp_exp=0.01",
                                          "swiglu_clamp_shexp=0.001", NULL};
    struct tiny_shape shape = tiny_experts("step35");
    struct seen seen;

    shape.n_shared = 1;
    shape.set = FREE;
    watch(&shape, *state, &seen);
    assert_int_equal(seen.n_of_experts, 2 * TINY_TOKENS * 3);
    assert_int_equal(seen.n_of_shared, 2 * TINY_TOKENS);
    assert_true(seen.most_of_experts > 0.01f && seen.most_of_shared > 0.01f);
    shape.set = LIMITED;
    watch(&shape, *state, &seen);
    assert_true(seen.most_of_experts > 0 && seen.most_of_experts < 0.279f * 0.01f);
    assert_true(seen.most_of_shared > 0 && seen.most_of_shared < 0.279f * 0.001f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(limits_of_experts_apply, check_team_open, check_team_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
