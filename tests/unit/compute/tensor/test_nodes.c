/* SPDX-License-Identifier: Apache-2.0 */
/* Products on several memory nodes: the same bits, each node's ranks compute that node's rows or read its copy, and
 * the memory lies there where this machine has two nodes (an emulated one does, tests/rdma/check-numa.vm). */
#include "source.h"

#include "base/numa.h"
#include "compute/tensor/matmul_priv.h"

enum { MANY = 70, COLS = 256 };

static float *multiply_by(struct team *team, const struct weight *weight, const float *x, uint32_t n)
{
    float *y = check_floats((size_t)n * weight->rows);
    void *scratch = check_poisoned(matmul_scratch_bytes(weight, n, team_size(team)));

    matmul(team, &(struct matmul_args){.weight = weight,
                                       .x = x,
                                       .x_stride = weight->cols,
                                       .n = n,
                                       .y = y,
                                       .y_stride = weight->rows,
                                       .scratch = scratch,
                                       .next = weight});
    check_guard(y, (size_t)n * weight->rows);
    free(scratch);
    return y;
}

static void nodes_change_no_bits(void **state)
{
    static const uint32_t tokens[] = {1, 7, MANY};
    struct rng rng;

    (void)state;
    rng_init(&rng, 31);
    for (int type = 0; type < N_TYPES; type++)
        for (uint32_t rows = 1; rows < 1500; rows = rows * 4 + 13) {
            struct team *teams[] = {check_team(1), check_nodes(2, false), check_nodes(5, false),
                                    check_nodes(2, true), check_nodes(5, true)};
            struct source source =
                source_make(&rng, source_types[type], rows, source_cols(source_types[type], COLS));
            float *x = check_floats((size_t)MANY * source.cols), *expected[3];

            check_fill(&rng, x, (size_t)MANY * source.cols);
            for (unsigned i = 0; i < 5; i++) {
                struct weight weight = source_pack(kern_table_get("auto"), &source, teams[i]);

                for (unsigned t = 0; t < 3; t++) {
                    float *y = multiply_by(teams[i], &weight, x, tokens[t]);

                    if (i == 0)
                        expected[t] = y;
                    else
                        assert_memory_equal(y, expected[t], tokens[t] * rows * sizeof(float));
                    if (i > 0)
                        free(y);
                }
                weight_fini(&weight);
                team_free(teams[i]);
            }
            for (unsigned t = 0; t < 3; t++)
                free(expected[t]);
            free(x);
            source_free(&source);
        }
}

/* Computes one token by one rank of a product alone; the others' shares stay poison. */
static float *by_rank(struct team *team, const struct weight *weight, const float *x, unsigned rank)
{
    float *y = check_floats(weight->rows);
    void *scratch = check_poisoned(matmul_scratch_bytes(weight, 1, team_size(team)));
    struct product product;

    matmul_open(&product, team,
                &(struct matmul_args){.weight = weight,
                                      .x = x,
                                      .x_stride = weight->cols,
                                      .n = 1,
                                      .y = y,
                                      .y_stride = weight->rows,
                                      .scratch = scratch});
    if ((const float *)product.x == product.scratch->x)
        matmul_pack_share(&product, 0, 1);
    matmul_units(&product, rank);
    free(scratch);
    return y;
}

static bool is_poison(float number)
{
    uint32_t bits;

    memcpy(&bits, &number, sizeof(bits));
    return bits == POISON;
}

/* Divided: a rank computes all rows of its node, also those of other ranks there, and none of the other node. */
static void ranks_stay_on_their_node(void **state)
{
    struct team *team = check_nodes(5, false);
    struct rng rng;

    (void)state;
    rng_init(&rng, 32);
    for (int type = 0; type < N_TYPES; type++) {
        struct source source =
            source_make(&rng, source_types[type], 805, source_cols(source_types[type], COLS));
        struct weight weight = source_pack(kern_table_get("auto"), &source, team);
        float *x = check_floats(source.cols);

        check_fill(&rng, x, source.cols);
        for (unsigned rank = 0; rank < 5; rank++) {
            const struct team_range range = weight_node_panels(&weight, team, team_node_of(team, rank));
            float *y = by_rank(team, &weight, x, rank);

            assert_true(range.to > range.from);
            for (uint32_t row = 0; row < weight.rows; row++)
                assert_int_equal(is_poison(y[row]),
                                 row / PANEL_ROWS < range.from || row / PANEL_ROWS >= range.to);
            free(y);
        }
        free(x);
        weight_fini(&weight);
        source_free(&source);
    }
    team_free(team);
}

/* Mirrored: a rank reads its own node's copy.  The other copy is destroyed first. */
static void ranks_read_their_copy(void **state)
{
    struct team *team = check_nodes(2, true), *alone = check_team(1);
    struct rng rng;

    (void)state;
    rng_init(&rng, 33);
    for (int type = 0; type < N_TYPES; type++) {
        struct source source =
            source_make(&rng, source_types[type], 805, source_cols(source_types[type], COLS));
        float *x = check_floats(source.cols), *expected;
        struct weight whole = source_pack(kern_table_get("auto"), &source, alone);

        check_fill(&rng, x, source.cols);
        expected = by_rank(alone, &whole, x, 0);
        for (unsigned rank = 0; rank < 2; rank++) {
            struct weight weight = source_pack(kern_table_get("auto"), &source, team);
            float *y;

            assert_true(weight.copy_bytes >= weight.len_bytes &&
                        weight.region_bytes >= 2 * weight.copy_bytes);
            assert_memory_equal(weight.panels, (char *)weight.panels + weight.copy_bytes, weight.len_bytes);
            memset((char *)weight.panels + (1 - rank) * weight.copy_bytes, 0xff, weight.len_bytes);
            y = by_rank(team, &weight, x, rank);
            assert_memory_equal(y, expected, weight.rows * sizeof(float));
            free(y);
            weight_fini(&weight);
        }
        free(expected);
        free(x);
        weight_fini(&whole);
        source_free(&source);
    }
    team_free(team);
    team_free(alone);
}

/* Checks that pages [from, to) of a copy are on a node; pages that begin in the node's part count. */
static void assert_placed(const char *from, const char *to, int id)
{
    unsigned n = 0;

    for (const char *page = (const char *)(((uintptr_t)from + 4095) / 4096 * 4096); page < to;
         page += 4096, n++)
        assert_int_equal(numa_node_of(page), id);
    assert_true(n > 20);
}

static void memory_is_placed(void **state)
{
    struct rng rng;

    (void)state;
    if (numa_try(0) < 0 || numa_try(1) < 0) {
        print_message("this machine has no memory nodes 0 and 1\n");
        skip();
    }
    rng_init(&rng, 34);
    for (int is_mirrored = 0; is_mirrored < 2; is_mirrored++) {
        struct team *team = check_nodes(2, is_mirrored);
        struct source source = source_make(&rng, DTYPE_Q8_0, 1616, 256);
        struct weight weight = source_pack(kern_table_get("auto"), &source, team);

        for (unsigned node = 0; node < 2; node++) {
            const struct team_range range = weight_node_panels(&weight, team, node);
            const char *copy = (const char *)weight.panels + node * weight.copy_bytes;

            if (is_mirrored)
                assert_placed(copy, copy + weight.len_bytes, (int)node);
            else
                assert_placed(copy + range.from * weight_panel_bytes(&weight),
                              copy + range.to * weight_panel_bytes(&weight), (int)node);
        }
        weight_fini(&weight);
        source_free(&source);
        team_free(team);
    }
    print_message("weights lie on nodes 0 and 1\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_change_no_bits),
        cmocka_unit_test(ranks_stay_on_their_node),
        cmocka_unit_test(ranks_read_their_copy),
        cmocka_unit_test(memory_is_placed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
