/* SPDX-License-Identifier: Apache-2.0 */
/* batonctl key status: the daemon against the key file, and its links. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "clients/ctl/key_view.h"

static struct cluster_keys file;
static char text[2000];
static char ids[3][12]; /* of the current, the second and a strange key */

static int before_each(void **state)
{
    uint8_t strange[CLUSTER_KEY_BYTES] = {9};

    (void)state;
    file = (struct cluster_keys){.step = CLUSTER_STEP_NEXT, .current = {1}, .second = {2}, .data = {1}};
    snprintf(ids[0], sizeof(ids[0]), "%08x", cluster_key_id(file.current));
    snprintf(ids[1], sizeof(ids[1]), "%08x", cluster_key_id(file.second));
    snprintf(ids[2], sizeof(ids[2]), "%08x", cluster_key_id(strange));
    return 0;
}

/* Renders a status with these link keys and workers; the result must be n and the text must have the line. */
static void expect(const char *link_keys, const char *workers, int n, const char *line)
{
    struct buf out = {0};
    int rc;

    snprintf(text, sizeof(text), "{\"node\": \"r\", \"link_keys\": {%s}, \"workers\": [%s]}", link_keys,
             workers);
    rc = key_view_render(bytes_str(text), &file, false, &out);
    assert_int_equal(buf_append_byte(&out, 0), 0);
    if (rc != n || strstr((const char *)out.data, line) == NULL)
        print_error("%d: %s", rc, (const char *)out.data);
    assert_int_equal(rc, n);
    assert_non_null(strstr((const char *)out.data, line));
    buf_fini(&out);
}

static const char *keys_of(const char *current, const char *word, const char *second)
{
    static char keys[200];

    snprintf(keys, sizeof(keys), "\"current\": \"%s\", \"data\": \"%s\"%s%s%s%s%s", current, ids[0],
             word != NULL ? ", \"" : "", word != NULL ? word : "", word != NULL ? "\": \"" : "",
             word != NULL ? second : "", word != NULL ? "\"" : "");
    return keys;
}

static void a_daemon_is_compared_with_the_file(void **state)
{
    (void)state;
    expect(keys_of(ids[0], "next", ids[1]), "", 0, "all 0 links are up to date");
    expect(keys_of(ids[0], NULL, NULL), "", 1, "<- behind: the key file has other keys");
    expect(keys_of(ids[0], "former", ids[1]), "", 1, "<- behind");
    expect(keys_of(ids[0], "next", ids[2]), "", 1, "<- behind");
    expect(keys_of(ids[2], "next", ids[1]), "", 1, "<- behind");
    file.data[0] = 7;
    expect(keys_of(ids[0], "next", ids[1]), "", 1, "<- behind");
}

static void links_are_behind_or_unknown(void **state)
{
    char workers[600];

    (void)state;
    snprintf(workers, sizeof(workers),
             "{\"node\": \"a\", \"up\": true, \"keys\": {\"used\": \"%s\", \"current\": \"%s\", \"second\": "
             "\"%s\"}}, "
             "{\"node\": \"b\", \"up\": true, \"keys\": {\"used\": \"%s\", \"current\": \"%s\"}}, "
             "{\"node\": \"c\", \"up\": false}",
             ids[0], ids[0], ids[1], ids[0], ids[0]);
    expect(keys_of(ids[0], "next", ids[1]), workers, 2, "  c: the link is down  <- unknown\n");
    expect(keys_of(ids[0], "next", ids[1]), workers, 2, "1 of 3 links are behind");
    expect(keys_of(ids[0], "next", ids[1]), workers, 2, "1 of 3 links are unknown");
}

static void certificates_tell_nothing(void **state)
{
    char keys[400];

    (void)state;
    snprintf(keys, sizeof(keys), "%s, \"certificate_expires_unix_s\": 7", keys_of(ids[0], "next", ids[1]));
    expect(keys, "{\"node\": \"a\", \"up\": true}", 0, "ask each daemon");
    snprintf(keys, sizeof(keys), "%s, \"certificate_expires_unix_s\": 7", keys_of(ids[0], NULL, NULL));
    expect(keys, "{\"node\": \"a\", \"up\": true}", 1, "<- behind");
}

static void json_says_the_same(void **state)
{
    struct buf out = {0};

    (void)state;
    snprintf(text, sizeof(text), "{\"link_keys\": {%s}, \"peers\": [{\"node\": \"a\", \"up\": false}]}",
             keys_of(ids[0], NULL, NULL));
    assert_int_equal(key_view_render(bytes_str(text), &file, true, &out), 2);
    assert_int_equal(buf_append_byte(&out, 0), 0);
    assert_string_equal((const char *)out.data,
                        "{\"links\": [{\"peer\": \"a\", \"behind\": null}], \"behind\": 0, \"unknown\": 1, "
                        "\"daemon_behind\": true, \"certificates\": false}\n");
    buf_fini(&out);
    assert_int_equal(key_view_render(bytes_str("[]"), &file, true, &out), E_FORMAT);
    buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_daemon_is_compared_with_the_file, before_each),
        cmocka_unit_test_setup(links_are_behind_or_unknown, before_each),
        cmocka_unit_test_setup(certificates_tell_nothing, before_each),
        cmocka_unit_test_setup(json_says_the_same, before_each),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
