/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of Redis servers: accepted and refused ones, and no password in an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "net/redis/redis_error.h"
#include "net/redis/redis_url.h"

static void addresses_are_read(void **state)
{
    static const struct {
        const char *text, *user, *password, *host;
        uint16_t port;
        unsigned db, n_seeds;
        bool is_tls, is_cluster, reads_replicas;
    } cases[] = {
        {"redis://cache", "", "", "cache", 6379, 0, 1, false, false, false},
        {"redis://10.0.0.7:7000/3", "", "", "10.0.0.7", 7000, 3, 1, false, false, false},
        {"rediss://:secret@cache/", "", "secret", "cache", 6379, 0, 1, true, false, false},
        {"redis://baton:p%40s%3as@[::1]:9/1", "baton", "p@s:s", "::1", 9, 1, 1, false, false, false},
        {"redis://u:p@ss@h", "u", "p@ss", "h", 6379, 0, 1, false, false, false},
        {"redis+cluster://a:1,b,[fe80::1]:3", "", "", "a", 1, 0, 3, false, true, false},
        {"rediss+cluster://u:p@a", "u", "p", "a", 6379, 0, 1, true, true, false},
        {"redis+cluster://a:1,b/?replicas=yes", "", "", "a", 1, 0, 2, false, true, true},
        {"redis+cluster://u:p?replicas=yes@a?replicas=no", "u", "p?replicas=yes", "a", 6379, 0, 1, false,
         true, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fault fault = {0};
        struct redis_url url;

        assert_true(redis_url_is(cases[i].text));
        assert_int_equal(redis_url_parse(cases[i].text, &fault, &url), 0);
        assert_string_equal(url.user, cases[i].user);
        assert_string_equal(url.password, cases[i].password);
        assert_string_equal(url.seeds[0].host, cases[i].host);
        assert_int_equal(url.seeds[0].port, cases[i].port);
        assert_int_equal(url.db, cases[i].db);
        assert_int_equal(url.n_seeds, cases[i].n_seeds);
        assert_int_equal(url.is_tls, cases[i].is_tls);
        assert_int_equal(url.is_cluster, cases[i].is_cluster);
        assert_int_equal(url.reads_replicas, cases[i].reads_replicas);
    }
}

static void others_are_refused(void **state)
{
    static const char *const cases[] = {"",
                                        "http://cache",
                                        "redis://",
                                        "redis://:hidden@",
                                        "redis://hidden@host",
                                        "redis://u:hidden%4@host",
                                        "redis://u:hidden%zz@host",
                                        "redis://u:hidden%00@host",
                                        "redis://host:0",
                                        "redis://host:65536",
                                        "redis://host:x",
                                        "redis://host/x",
                                        "redis://a,b",
                                        "redis://[::1",
                                        "redis://::1",
                                        "redis://ho st",
                                        "redis+cluster://a/1",
                                        "redis+cluster://a?replicas=maybe",
                                        "redis+cluster://a?db=1",
                                        "redis://a?replicas=yes",
                                        "redis+cluster://a,,b",
                                        "redis+cluster://a,b,c,d,e,f,g,h,i"};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fault fault = {0};
        struct redis_url url;

        assert_int_equal(redis_url_parse(cases[i], &fault, &url), E_FORMAT);
        assert_true(fault.text[0] != '\0');
        assert_null(strstr(fault.text, "hidden"));
    }
}

static void logins_are_taken_as_they_are(void **state)
{
    char text[300];
    struct redis_url url = {0};

    (void)state;
    assert_int_equal(redis_url_login(&url, "user:pa%41:ss", NULL), 0);
    assert_string_equal(url.user, "user");
    assert_string_equal(url.password, "pa%41:ss");
    assert_int_equal(redis_url_login(&url, "alone", NULL), 0);
    assert_string_equal(url.user, "");
    assert_string_equal(url.password, "alone");
    memset(text, 'a', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(redis_url_login(&url, text, NULL), E_FORMAT);
}

static void errors_name_their_cause(void **state)
{
    static const struct {
        bool is_cluster;
        const char *error, *text;
    } rows[] = {
        {false, "MOVED 12 10.0.0.1:7000",
         "the server is part of a cluster: use redis+cluster:// (it answers MOVED 12 10.0.0.1:7000)"},
        {false, "ASK 12 h:1",
         "the server is part of a cluster: use redis+cluster:// (it answers ASK 12 h:1)"},
        {true, "MOVED 12 10.0.0.1:7000", "MOVED 12 10.0.0.1:7000"},
        {true, "ERR This instance has cluster support disabled",
         "the server is not part of a cluster: use redis://"},
        {false, "NOAUTH Authentication required.", "the server wants a password, and there is none (NOAUTH)"},
        {true, "NOPERM no", "NOPERM no"},
        {false, "", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct redis_url url = {.is_cluster = rows[i].is_cluster};
        struct fault fault = {0};

        assert_int_equal(redis_error_fault(&url, bytes_str(rows[i].error), E_PROTO, &fault), E_PROTO);
        assert_int_equal(fault.code, E_PROTO);
        assert_string_equal(fault.text, rows[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_read),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(logins_are_taken_as_they_are),
        cmocka_unit_test(errors_name_their_cause),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
