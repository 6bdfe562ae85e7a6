/* SPDX-License-Identifier: Apache-2.0 */
/* The transport for KV: shared memory on one host,
 * RDMA if both have a rail, else TCP; a setting overrides. */
#include "worker/runner/engine_thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void every_case(void **state)
{
    static const struct {
        struct transport_offer own;
        struct peer_facts peer;
        enum tr_kind wanted;
        const char *word; /* a word of the reason */
    } cases[] = {
        {{true, TR_SHM, true, 1},
         {.is_same_host = true, .unix_path = "/x", .rdma_rails = 1},
         TR_SHM,
         "same host"},
        {{true, TR_SHM, true, 1}, {.is_same_host = true, .rdma_rails = 1}, TR_RDMA, "both with a rail"},
        {{true, TR_SHM, false, 1},
         {.is_same_host = true, .unix_path = "/x", .rdma_rails = 2},
         TR_RDMA,
         "rail"},
        {{true, TR_SHM, true, 1}, {.unix_path = "/x", .rdma_rails = 1}, TR_RDMA, "another host"},
        {{true, TR_SHM, true, 0}, {.rdma_rails = 1}, TR_TCP, "rail here"},
        {{true, TR_SHM, true, 1}, {.rdma_rails = 0}, TR_TCP, "rail there"},
        {{false, TR_TCP, true, 1},
         {.is_same_host = true, .unix_path = "/x", .rdma_rails = 1},
         TR_TCP,
         "= tcp"},
        {{false, TR_SHM, true, 1}, {.rdma_rails = 1}, TR_SHM, "= shm"},
        {{false, TR_RDMA, true, 1},
         {.is_same_host = true, .unix_path = "/x", .rdma_rails = 1},
         TR_RDMA,
         "= rdma"},
        {{false, TR_RDMA, true, 0}, {.rdma_rails = 1}, TR_TCP, "up here"},
        {{false, TR_RDMA, true, 1}, {.rdma_rails = 0}, TR_TCP, "peer has no rail"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *why = NULL;

        assert_int_equal(worker_choose_transport(&cases[i].own, &cases[i].peer, &why), cases[i].wanted);
        assert_non_null(strstr(why, cases[i].word));
        assert_null(strpbrk(why, "\"\\")); /* JSON contains it unescaped */
    }
    assert_string_equal(worker_transport_name(TR_RDMA), "rdma");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_case)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
