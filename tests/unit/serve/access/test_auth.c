/* SPDX-License-Identifier: Apache-2.0 */
/* API keys, ids and trace headers. */
#include "serve/access/auth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"
#include "serve/api/ids.h"

static void a_hash_is_sha256(void **state)
{
    char hash[65];

    auth_key_hash(bytes_str("test"), hash);
    assert_string_equal(hash, "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08");
}

static void keys_are_found(void **state)
{
    struct auth_keys *keys;
    struct auth_key who;
    struct buf text = {0};
    char hash[65];

    buf_append_str(&text, "# keys\n\n");
    for (int i = 0; i < 100; i++) {
        char key[16];

        snprintf(key, sizeof(key), "key-%d", i);
        auth_key_hash(bytes_str(key), hash);
        buf_printf(&text, "%s\tteam-%d%s\r\n", hash, i % 3, i == 7 ? "  laptop" : "");
    }
    assert_int_equal(auth_keys_parse("f", buf_view(&text), NULL, &keys), 0);
    assert_int_equal(auth_keys_count(keys), 100);
    assert_int_equal(auth_check(keys, bytes_str("key-7"), &who), 0);
    assert_string_equal(who.tenant, "team-1");
    assert_string_equal(who.name, "laptop");
    assert_int_equal(auth_check(keys, bytes_str("key-99"), &who), 0);
    assert_string_equal(who.name, "");
    assert_int_equal(auth_check(keys, bytes_str("key-100"), &who), E_AUTH);
    assert_int_equal(auth_check(keys, bytes_str("key-"), &who), E_AUTH);
    assert_int_equal(auth_check(keys, bytes_of(NULL, 0), &who), E_AUTH);
    assert_int_equal(auth_check(keys, bytes_str(hash), &who), E_AUTH);
    auth_keys_free(keys);
    buf_fini(&text);
}

static void the_empty_key_opens_nothing(void **state)
{
    struct auth_keys *keys;
    struct auth_key who;
    char line[80];
    char hash[65];

    auth_key_hash(bytes_str(""), hash);
    snprintf(line, sizeof(line), "%s t", hash);
    assert_int_equal(auth_keys_parse("f", bytes_str(line), NULL, &keys), 0);
    assert_int_equal(auth_check(keys, bytes_of(NULL, 0), &who), E_AUTH);
    auth_keys_free(keys);
}

#define HASH "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

static void bad_lines_are_named(void **state)
{
    static const char *const bad[] = {"\nnonsense team\n",          "\n" HASH "\n",
                                      "\n" HASH " te/am\n",         "\n" HASH "0 team\n",
                                      "\n" HASH " team key more\n", "\n" HASH " team k\xc3\xa9y\n"};
    struct auth_keys *keys;
    struct fault fault;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(auth_keys_parse("keys", bytes_str(bad[i]), &fault, &keys), E_FORMAT);
        assert_int_equal(strncmp(fault.text, "keys:2: ", 8), 0);
    }
    assert_int_equal(auth_keys_parse("keys", bytes_of(HASH "\0 team", sizeof(HASH) + 5), &fault, &keys),
                     E_FORMAT);
}

static void a_world_readable_key_file_is_refused(void **state)
{
    char path[] = "/tmp/baton-keys-XXXXXX";
    int fd = mkstemp(path);
    struct auth_keys *keys;
    struct fault fault;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, HASH " team\n", 70), 70);
    close(fd);
    assert_int_equal(auth_keys_load(path, &fault, &keys), 0);
    auth_keys_free(keys);
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(auth_keys_load(path, &fault, &keys), E_AUTH);
    unlink(path);
    assert_int_equal(auth_keys_load(path, &fault, &keys), E_IO);
}

static void ids_look_right_and_differ(void **state)
{
    char a[IDS_BYTES], b[IDS_BYTES];

    ids_make("toolu_", a);
    ids_make("toolu_", b);
    assert_int_equal(strlen(a), 30);
    assert_int_equal(strspn(a + 6, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"), 24);
    assert_string_not_equal(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hash_is_sha256),
        cmocka_unit_test(keys_are_found),
        cmocka_unit_test(the_empty_key_opens_nothing),
        cmocka_unit_test(bad_lines_are_named),
        cmocka_unit_test(a_world_readable_key_file_is_refused),
        cmocka_unit_test(ids_look_right_and_differ),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
