/* SPDX-License-Identifier: Apache-2.0 */
/* How rails are named and found: kv.rdma_devices, GIDs by address, and the report on a rail that cannot be
 * used.  Uses the devices of tests/conformance/verbs_fake.c; test_rdma.c tests working rails. */
#include "tests/conformance/tr_world.h"
#include "tests/conformance/verbs_fake.h"

#include "base/err.h"
#include "base/log.h"
#include "transfer/transport/tr_rdma_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct worker_opts usual = {.geometry = {.n_layers = 8, .n_blocks = 32, .piece_bytes = 8192}};

static int reset(void **state)
{
    fake_reset();
    return 0;
}

static void rails_are_named(void **state)
{
    static const char *const bad[] = {"", ":1", "a:", "a:0", "a:255", "a:1x", "a:-1", "a@", "@1", "a:1@"};
    struct rdma_rail_name name;
    struct fault fault;

    assert_int_equal(rdma_rail_name_parse(bytes_str("mlx5_0"), &fault, &name), 0);
    assert_string_equal(name.device, "mlx5_0");
    assert_int_equal(name.port, 1);
    assert_string_equal(name.address, "");
    assert_int_equal(rdma_rail_name_parse(bytes_str("mlx5_1:2@fd00::5"), &fault, &name), 0);
    assert_int_equal(name.port, 2);
    assert_string_equal(name.address, "fd00::5");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(rdma_rail_name_parse(bytes_str(bad[i]), &fault, &name), E_FORMAT);
}

static void a_gid_is_found_by_address_only(void **state)
{
    struct ibv_gid_entry entries[4] = {
        {.gid.raw = {[10] = 0xff, 0xff, 10, 0, 0, 1},
         .gid_index = 0,
         .port_num = 1,
         .gid_type = IBV_GID_TYPE_ROCE_V1},
        {.gid.raw = {[10] = 0xff, 0xff, 10, 0, 0, 1},
         .gid_index = 3,
         .port_num = 2,
         .gid_type = IBV_GID_TYPE_ROCE_V2},
        {.gid.raw = {[10] = 0xff, 0xff, 10, 0, 0, 1},
         .gid_index = 5,
         .port_num = 1,
         .gid_type = IBV_GID_TYPE_ROCE_V2},
        {.gid.raw = {0xfd, [15] = 7}, .gid_index = 6, .port_num = 1, .gid_type = IBV_GID_TYPE_ROCE_V2}};

    assert_int_equal(rdma_gid_find(entries, 4, 1, "10.0.0.1"), 5);
    assert_int_equal(rdma_gid_find(entries, 4, 2, "10.0.0.1"), 3);
    assert_int_equal(rdma_gid_find(entries, 4, 1, "fd00::7"), 6);
    assert_int_equal(rdma_gid_find(entries, 4, 1, "10.0.0.2"), E_NOT_FOUND);
    assert_int_equal(rdma_gid_find(entries, 4, 1, ""), E_NOT_FOUND);
    assert_int_equal(rdma_gid_find(entries, 4, 1, "rail"), E_NOT_FOUND);
}

static void name_a_stranger(struct tr_opts *opts)
{
    opts->rdma_devices = "fake7, fake0:1@10.1.1.1";
}

static void refused_rails_say_why(void **state)
{
    struct worker_opts opts = usual;
    struct worker *worker;

    opts.adjust = name_a_stranger;
    worker = worker_new(&opts);
    assert_int_equal(tr_node_rdma_rails(worker->node), 0);
    assert_non_null(strstr(tr_node_rdma_text(worker->node), "no RDMA device 'fake7'"));
    assert_non_null(strstr(tr_node_rdma_text(worker->node), "fake0:1 has no RoCE v2 GID for 10.1.1.1"));
    worker_free(worker);
    fake_fail_call(FAKE_MAY_LOCK, 0, 1);
    worker = worker_new(&usual);
    assert_non_null(strstr(tr_node_rdma_text(worker->node), "LimitMEMLOCK=infinity"));
    worker_free(worker);
    fake_set_devices(0);
    worker = worker_new(&usual);
    assert_non_null(strstr(tr_node_rdma_text(worker->node), "no RDMA device"));
    worker_free(worker);
}

static int run_all(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rails_are_named),
        cmocka_unit_test(a_gid_is_found_by_address_only),
        cmocka_unit_test_setup(refused_rails_say_why, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
    log_setup("test_rdma_names", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return world_run(&rdma_cases[1], 1, run_all);
}
