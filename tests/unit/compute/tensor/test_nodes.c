/* SPDX-License-Identifier: Apache-2.0 */
/* Products on several memory nodes: the same bits, each node's ranks compute that node's rows or read its copy, also of
 * gate and up and of experts, and the memory lies there where this machine has two nodes (an emulated one does, tests/rdma/check-numa.vm). */
#include "source.h"

#include <stdatomic.h>

#include "base/numa.h"
#include "compute/tensor/gated.h"
#include "compute/tensor/grouped.h"
#include "compute/tensor/matmul_priv.h"

#ifdef CHECK_EMULATED /* the bits of all types are those of one rank, which other tests multiply by */
enum { MANY = 20, TYPE_STEP = 5 };
#else
enum { MANY = 70, TYPE_STEP = 1 };
#endif
enum { COLS = 256 };

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
    for (int type = 0; type < N_TYPES; type += TYPE_STEP)
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

/* Products of a weight of several runs, on teams of one shape and of another than the one that packed it. */
static void check_runs(struct rng *rng, enum dtype type, uint32_t n_runs, uint32_t run_rows)
{
    static const uint32_t tokens[] = {1, 7, MANY};
    struct team *teams[] = {check_team(1), check_nodes(2, false), check_nodes(5, false),
                            check_nodes(5, true)};
    struct source source = source_make(rng, type, n_runs * run_rows, source_cols(type, COLS));
    float *x = check_floats((size_t)MANY * source.cols), *row = check_floats(source.cols), *expected[3];

    check_fill(rng, x, (size_t)MANY * source.cols);
    for (unsigned packer = 0; packer < 4; packer++) {
        struct weight weight = source_pack_runs(kern_table_get("auto"), &source, teams[packer], n_runs);

        assert_int_equal(weight_n_runs(&weight), packer == 1 || packer == 2 ? n_runs : 1);
        for (uint32_t i = 0; i < weight.rows; i++) {
            weight_row(&weight, i, row);
            assert_memory_equal(row, source.floats + (size_t)i * source.cols, source.cols * sizeof(float));
        }
        for (unsigned i = 0; i < 4; i++)
            for (unsigned t = 0; t < 3; t++) {
                float *y = multiply_by(teams[i], &weight, x, tokens[t]);

                if (packer == 0 && i == 0)
                    expected[t] = y;
                else
                    assert_memory_equal(y, expected[t], (size_t)tokens[t] * weight.rows * sizeof(float));
                if (packer > 0 || i > 0)
                    free(y);
            }
        weight_fini(&weight);
    }
    for (unsigned t = 0; t < 3; t++)
        free(expected[t]);
    for (unsigned i = 0; i < 4; i++)
        team_free(teams[i]);
    free(row);
    free(x);
    source_free(&source);
}

static void runs_change_no_bits(void **state)
{
    static const struct {
        uint32_t n_runs, rows;
    } shapes[] = {{2, 16}, {2, 336}, {3, 48}, {6, 80}};
    struct rng rng;

    (void)state;
    rng_init(&rng, 35);
    for (int type = 0; type < N_TYPES; type += TYPE_STEP)
        for (unsigned i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
            check_runs(&rng, source_types[type], shapes[i].n_runs, shapes[i].rows);
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

/* Divided: a rank computes all rows of its node, of every run, also those of other ranks there, and none of the other
 * node. */
static void ranks_stay_on_their_node(void **state)
{
    static const uint32_t shapes[][2] = {{1, 805}, {2, 400}, {5, 160}}; /* runs, and their rows */
    struct team *team = check_nodes(5, false);
    struct rng rng;

    (void)state;
    rng_init(&rng, 32);
    for (int i = 0; i < N_TYPES * 3; i++) {
        const enum dtype type = source_types[i / 3];
        const uint32_t n_runs = shapes[i % 3][0], run_rows = shapes[i % 3][1];
        struct source source = source_make(&rng, type, n_runs * run_rows, source_cols(type, COLS));
        struct weight weight = source_pack_runs(kern_table_get("auto"), &source, team, n_runs);
        float *x = check_floats(source.cols);

        check_fill(&rng, x, source.cols);
        for (unsigned rank = 0; rank < 5; rank++) {
            const struct team_range range =
                weight_run_part(team, weight_n_panels(run_rows), n_runs, team_node_of(team, rank));
            float *y = by_rank(team, &weight, x, rank);

            assert_true(range.to > range.from);
            for (uint32_t row = 0; row < weight.rows; row++)
                assert_int_equal(is_poison(y[row]), row % run_rows / PANEL_ROWS < range.from ||
                                                        row % run_rows / PANEL_ROWS >= range.to);
            free(y);
        }
        free(x);
        weight_fini(&weight);
        source_free(&source);
    }
    team_free(team);
}

/* ---- gate and up, experts: which node's threads read which node's memory ---- */

static _Thread_local unsigned node_here; /* of a thread of the team */

static void note_node(void *arg, unsigned rank, unsigned n_ranks)
{
    (void)n_ranks;
    node_here = team_node_of(arg, rank);
}

/* A weight of F32 whose numbers are 1 in the memory of node 0 and 2 in that of node 1. */
static struct weight marked_weight(struct rng *rng, struct team *team, uint32_t n_runs, uint32_t run_rows)
{
    struct source source = source_make(rng, DTYPE_F32, n_runs * run_rows, 32);
    struct weight weight = source_pack_runs(kern_table_get("auto"), &source, team, n_runs);

    for (unsigned node = 0; node < team_n_nodes(team); node++) {
        const struct team_range range = weight_node_panels(&weight, team, node);
        float *from = (float *)weight.panels + range.from * weight_panel_bytes(&weight) / sizeof(float);

        assert_true(range.to > range.from);
        for (size_t i = 0; i < (range.to - range.from) * weight_panel_bytes(&weight) / sizeof(float); i++)
            from[i] = (float)node + 1;
    }
    source_free(&source);
    return weight;
}

static atomic_uint n_near, n_far; /* numbers from this node's memory, and from the other's */

static void act_by_node(const struct kern_table *table, float *gate, const float *up, uint32_t n)
{
    (void)table;
    for (uint32_t i = 0; i < n; i++) {
        const float mark = (float)node_here + 1;

        atomic_fetch_add(gate[i] == mark && up[i] == mark ? &n_near : &n_far, 1);
    }
}

static void gate_and_up_are_of_one_node(void **state)
{
    enum { TOKENS = 5, WIDTH = 32 * 21, ROWS = 40 };
    struct team *team = check_nodes(5, false);
    struct rng rng;

    (void)state;
    rng_init(&rng, 36);
    team_run(team, note_node, team);
    struct weight gate_up = marked_weight(&rng, team, 2, WIDTH);
    struct source source = source_make(&rng, DTYPE_F32, ROWS, WIDTH);
    struct weight down = source_pack(kern_table_get("auto"), &source, team);
    float *x = calloc((size_t)TOKENS * 32, sizeof(*x)), *y = check_floats((size_t)TOKENS * ROWS);
    void *scratch = check_poisoned(gated_scratch_bytes(&gate_up, &down, TOKENS, team_size(team)));

    assert_non_null(x);
    for (size_t i = 0; i < TOKENS; i++)
        x[32 * i] = 1;
    atomic_store(&n_near, 0);
    atomic_store(&n_far, 0);
    matmul_gated(team, &(struct gated_args){.gate_up = &gate_up,
                                            .down = &down,
                                            .act = act_by_node,
                                            .x = x,
                                            .x_stride = 32,
                                            .n = TOKENS,
                                            .y = y,
                                            .y_stride = ROWS,
                                            .scratch = scratch});
    assert_int_equal(atomic_load(&n_far), 0);
    assert_int_equal(atomic_load(&n_near), TOKENS * WIDTH);
    weight_fini(&gate_up);
    weight_fini(&down);
    source_free(&source);
    free(scratch);
    free(x);
    free(y);
    team_free(team);
}

static void load_node(const struct grouped_piece *piece, uint32_t i, float *out)
{
    (void)i;
    memset(out, 0, piece->weight->cols * sizeof(*out));
    out[0] = (float)node_here + 1;
}

/* Each output is (node of the memory + 1) (node of the thread + 1). */
static void check_marked_pieces(struct team *team, struct team *const *solos, const struct weight *weight,
                                uint32_t piece_rows)
{
    enum { TOKENS = 3, PIECES = 6 };
    float *y = check_floats((size_t)PIECES * TOKENS * piece_rows);
    void *scratch = check_poisoned(grouped_scratch_bytes(PIECES, 32, team_size(team)));
    struct grouped_piece pieces[PIECES];
    unsigned n_first = 0;

    for (uint32_t i = 0; i < PIECES; i++)
        pieces[i] = (struct grouped_piece){.weight = weight,
                                           .first_row = i * piece_rows,
                                           .n_rows = piece_rows,
                                           .n = TOKENS,
                                           .load = load_node,
                                           .y = y + (size_t)i * TOKENS * piece_rows,
                                           .y_stride = piece_rows};
    matmul_grouped(
        team, &(struct grouped_args){
                  .pieces = pieces, .n_pieces = PIECES, .solos = solos, .max_cols = 32, .scratch = scratch});
    for (size_t i = 0; i < (size_t)PIECES * TOKENS * piece_rows; i++) {
        assert_true(y[i] == 1 || y[i] == 4);
        n_first += y[i] == 1;
    }
    const struct team_range of_first = weight_node_panels(weight, team, 0);
    assert_int_equal(n_first, (of_first.to - of_first.from) * PANEL_ROWS * TOKENS);
    free(scratch);
    free(y);
}

static void experts_are_read_where_they_lie(void **state)
{
    struct team *team = check_nodes(5, false), *solos[5];
    struct rng rng;

    (void)state;
    rng_init(&rng, 37);
    team_run(team, note_node, team);
    for (unsigned i = 0; i < 5; i++)
        solos[i] = check_team(1);
    for (uint32_t rows = 160; rows <= 320; rows *= 2) {
        /* Experts of one run each, of two (gate and up), and heads, which are rows of one matrix. */
        struct weight experts = marked_weight(&rng, team, 6, rows),
                      gate_up = marked_weight(&rng, team, 12, rows / 2),
                      heads = marked_weight(&rng, team, 1, 6 * rows);

        check_marked_pieces(team, solos, &experts, rows);
        check_marked_pieces(team, solos, &gate_up, rows);
        check_marked_pieces(team, solos, &heads, rows);
        weight_fini(&experts);
        weight_fini(&gate_up);
        weight_fini(&heads);
    }
    for (unsigned i = 0; i < 5; i++)
        team_free(solos[i]);
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
    for (int i = 0; i < 3; i++) {
        const bool is_mirrored = i == 1;
        struct team *team = check_nodes(2, is_mirrored);
        struct source source = source_make(&rng, DTYPE_Q8_0, i == 2 ? 1600 : 1616, 256);
        struct weight weight = source_pack_runs(kern_table_get("auto"), &source, team, i == 2 ? 4 : 1);

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

/* With the argument "placed": where memory lies alone, for an emulated machine. */
int main(int argc, char **argv)
{
    const struct CMUnitTest placed[] = {cmocka_unit_test(memory_is_placed)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_change_no_bits),
        cmocka_unit_test(runs_change_no_bits),
        cmocka_unit_test(ranks_stay_on_their_node),
        cmocka_unit_test(gate_and_up_are_of_one_node),
        cmocka_unit_test(experts_are_read_where_they_lie),
        cmocka_unit_test(ranks_read_their_copy),
        cmocka_unit_test(memory_is_placed),
    };

    return argc > 1 && strcmp(argv[1], "placed") == 0 ? cmocka_run_group_tests(placed, NULL, NULL)
                                                      : cmocka_run_group_tests(tests, NULL, NULL);
}
