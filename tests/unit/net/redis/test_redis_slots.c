/* SPDX-License-Identifier: Apache-2.0 */
/* The slots of keys, redirections and maps of slots. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "net/redis/redis_slots.h"

/* The first is the check value of CRC-16 XMODEM; the others were read from CLUSTER KEYSLOT of a server. */
static void keys_have_the_servers_slots(void **state)
{
    (void)state;
    assert_int_equal(redis_slot(bytes_str("123456789")), 0x31c3);
    assert_int_equal(redis_slot(bytes_str("")), 0);
    assert_int_equal(redis_slot(bytes_str("foo")), 12182);
    assert_int_equal(redis_slot(bytes_str("{foo}bar")), 12182);
    assert_int_equal(redis_slot(bytes_str("x{foo}{bar}")), 12182);
    assert_int_equal(redis_slot(bytes_str("hello")), 866);
    assert_int_not_equal(redis_slot(bytes_str("{}foo")), 12182);
}

static void redirections_are_read(void **state)
{
    struct redis_redirect to;

    (void)state;
    assert_int_equal(redis_redirect_parse(bytes_str("MOVED 3999 127.0.0.1:6381"), &to), 0);
    assert_true(!to.is_ask && to.slot == 3999 && to.node.port == 6381);
    assert_string_equal(to.node.host, "127.0.0.1");
    assert_int_equal(redis_redirect_parse(bytes_str("ASK 16383 cache.example:7"), &to), 0);
    assert_true(to.is_ask && to.slot == 16383 && to.node.port == 7);
    assert_int_equal(redis_redirect_parse(bytes_str("MOVED 1 fe80::7:6380"), &to), 0);
    assert_string_equal(to.node.host, "fe80::7");
    assert_int_equal(redis_redirect_parse(bytes_str("MOVED 1 :6380"), &to), 0);
    assert_string_equal(to.node.host, "");
    assert_int_equal(to.node.port, 6380);
    for (const char *const *text =
             (const char *const[]){"ERR x", "MOVED", "MOVED ", "MOVED 16384 a:1", "MOVED 1", "MOVED 1 a:0",
                                   "MOVED 1 a:x", "ASK 1 a b:1", "ASK x a:1", "MOVED 1 a", NULL};
         *text != NULL; text++)
        assert_int_equal(redis_redirect_parse(bytes_str(*text), &to), E_FORMAT);
}

static void on_range(void *arg, unsigned first, unsigned last, const struct redis_node *nodes,
                     unsigned n_nodes)
{
    unsigned *n = arg;

    assert_true(first <= last && last < REDIS_N_SLOTS);
    *n += last - first + 1;
    assert_true(nodes[0].port == 30001 || nodes[0].port == 30002);
    assert_true(n_nodes >= 1 && n_nodes <= REDIS_MAX_COPIES);
    if (n_nodes > 1)
        assert_true(nodes[1].port >= 30003 && nodes[1].host[0] != '\0');
}

static void maps_are_read(void **state)
{
    static const char reply[] =
        "*2\r\n*4\r\n:0\r\n:5460\r\n*4\r\n$9\r\n127.0.0.1\r\n:30001\r\n$2\r\nid\r\n*2\r\n"
        "$8\r\nhostname\r\n$1\r\nh\r\n*3\r\n$9\r\n127.0.0.1\r\n:30004\r\n$2\r\nid\r\n"
        "*3\r\n:5461\r\n:16383\r\n*2\r\n$-1\r\n:30002\r\n";
    unsigned n = 0;

    (void)state;
    assert_int_equal(redis_slots_parse(bytes_str(reply), on_range, &n), 0);
    assert_int_equal(n, REDIS_N_SLOTS);
    for (size_t len = 0; len + 1 < sizeof(reply); len++) {
        n = 0;
        assert_int_equal(redis_slots_parse(bytes_of(reply, len), on_range, &n), E_FORMAT);
    }
    for (const char *const *text = (const char *const[]){"-ERR no cluster\r\n", "*1\r\n*2\r\n:0\r\n:1\r\n",
                                                         "*1\r\n*3\r\n:2\r\n:1\r\n*2\r\n+h\r\n:1\r\n",
                                                         "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n+h\r\n:1\r\n",
                                                         "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n+h\r\n:0\r\n", NULL};
         *text != NULL; text++)
        assert_int_equal(redis_slots_parse(bytes_str(*text), on_range, &n), E_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_have_the_servers_slots),
        cmocka_unit_test(redirections_are_read),
        cmocka_unit_test(maps_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
