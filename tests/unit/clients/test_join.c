/* SPDX-License-Identifier: Apache-2.0 */
/* Messages and tokens of a join: accepted and refused ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/rng.h"
#include "base/str.h"
#include "clients/ctl/join.h"
#include "net/link/tls.h"

static struct join_message message, again;

static void a_token_reads_back(void **state)
{
    uint8_t secret[32], found[32];
    char text[JOIN_TOKEN_BYTES];
    struct fault fault;

    (void)state;
    rng_system(secret, sizeof(secret));
    assert_int_equal(join_token_print(secret, text), 0);
    assert_int_equal(strlen(text), JOIN_TOKEN_BYTES - 1);
    assert_int_equal(join_token_parse(text, NULL, found), 0);
    assert_memory_equal(secret, found, sizeof(secret));
    /* a wrong digit anywhere is found before the token travels, and the message does not repeat the token */
    for (size_t i = 4; i < JOIN_TOKEN_BYTES - 1; i++) {
        char was = text[i];

        text[i] = was == '0' ? '1' : '0';
        assert_int_equal(join_token_parse(text, &fault, found), E_FORMAT);
        assert_null(strstr(fault.text, text + 8));
        text[i] = was;
    }
    text[JOIN_TOKEN_BYTES - 2] = '\0';
    assert_int_equal(join_token_parse(text, &fault, found), E_FORMAT);
    assert_int_equal(join_token_parse("", &fault, found), E_FORMAT);
}

static void tokens_keys_are_apart(void **state)
{
    uint8_t secret[32] = {1}, key[32], link[32];

    (void)state;
    assert_int_equal(join_token_key(secret, key), 0);
    assert_memory_not_equal(secret, key, 32);
    assert_int_equal(cluster_key_derive(secret, "link", link), 0);
    assert_memory_not_equal(link, key, 32);
}

static void a_message_reads_back(void **state)
{
    struct buf text = {0};

    (void)state;
    message = (struct join_message){.kind = JOIN_WELCOME, .clock_ns = 5, .has_keys = true, .pad_bytes = 7};
    str_copy(message.host, sizeof(message.host), "node-1");
    message.has_certificates = true;
    memset(message.keys.current, 0xab, sizeof(message.keys.current));
    memset(message.keys.second, 0xcd, sizeof(message.keys.second));
    memset(message.keys.data, 0xef, sizeof(message.keys.data));
    message.keys.step = CLUSTER_STEP_FORMER;
    assert_true(join_message_place(&message, "router", "10.0.0.1:8090"));
    assert_true(join_message_place(&message, "kv.decode0", "[fd00::1]:8104"));
    str_copy(message.places[1].result, sizeof(message.places[1].result), "refused: nothing listens there");
    message.n_models = 1;
    memset(message.models[0].fingerprint, 'a', 32);
    str_copy(message.models[0].name, sizeof(message.models[0].name), "a name with blanks");
    assert_int_equal(join_message_print(&message, &text), 0);
    assert_int_equal(join_message_end(buf_view(&text)), text.len_bytes);
    assert_int_equal(join_message_end(bytes_of(text.data, text.len_bytes - 1)), 0);
    assert_int_equal(join_message_parse(buf_view(&text), NULL, &again), 0);
    assert_memory_equal(&message, &again, sizeof(message));
    buf_fini(&text);
}

static void refuse(const char *lines, int code, const char *why)
{
    struct fault fault = {0};
    int rc = join_message_parse(bytes_str(lines), &fault, &again);

    if (rc != code || strstr(fault.text, why) == NULL)
        print_error("%s: %d, %s\n", lines, rc, fault.text);
    assert_int_equal(rc, code);
    assert_non_null(strstr(fault.text, why));
}

static void hostile_messages_are_named(void **state)
{
    struct buf many = {0};

    (void)state;
    refuse("", E_FORMAT, "no end");
    refuse("\nend\n", E_FORMAT, "line 1");
    refuse("GET / HTTP/1.1\nend\n", E_FORMAT, "line 1");
    refuse("baton-join 2 hello\nend\n", E_VERSION, "another version");
    refuse("baton-join 1 steal\nend\n", E_FORMAT, "line 1");
    refuse("baton-join 1 hello\nend\nmore", E_FORMAT, "more behind");
    refuse("baton-join 1 hello\nhost a b\nend\n", E_FORMAT, "line 2");
    refuse("baton-join 1 hello\nhost \x1b[2J\nend\n", E_FORMAT, "printable");
    refuse("baton-join 1 hello\nhost a\nhost b\nend\n", E_FORMAT, "line 3");
    refuse("baton-join 1 welcome\nkey 00\nend\n", E_FORMAT, "the cluster's key");
    refuse("baton-join 1 hello\npad 65537\nend\n", E_FORMAT, "line 2");
    refuse("baton-join 1 probe\nplace a 10.0.0.1\nend\n", E_FORMAT, "line 2");
    refuse("baton-join 1 probe\nplace a 10.0.0.1:0\nend\n", E_FORMAT, "line 2");
    refuse("baton-join 1 probe\nplace ../a 10.0.0.1:1\nend\n", E_FORMAT, "line 2");
    (void)buf_append_str(&many, "baton-join 1 probe\n");
    for (int i = 0; i <= JOIN_MAX_PLACES; i++)
        (void)buf_append_str(&many, "place a 10.0.0.1:1\n");
    (void)buf_append_str(&many, "end\n");
    refuse((const char *)many.data, E_LIMIT, "too many");
    buf_clear(&many);
    while (many.len_bytes <= JOIN_MAX_TEXT)
        (void)buf_append_str(&many, "later words\n");
    refuse((const char *)many.data, E_LIMIT, "longer");
    buf_fini(&many);
    assert_int_equal(join_message_parse(bytes_str("baton-join 1 hello\nlater word\nend\n"), NULL, &again), 0);
}

static void files_name_their_addresses(void **state)
{
    static struct join_conf conf;

    (void)state;
    join_conf_parse(
        bytes_str(
            "listen = 1.2.3.4:5\n[http]\nlisten = 10.0.0.9:80\n[link]\n# listen = 10.0.0.8:1\n"
            " listen = 10.0.0.7:8094 \nrouters=10.0.0.1:8090\n[kv]\ntcp_listen = 10.0.0.7:0\n"
            "tcp_listen=10.0.0.7:8104\n[link]\nlisten=127.0.0.1:8094\nlisten=*:8095\n[model]\npath = /a b"),
        &conf);
    assert_int_equal(conf.probe.n_places, 2);
    assert_string_equal(conf.probe.places[0].address, "10.0.0.7:8094");
    assert_string_equal(conf.probe.places[1].address, "10.0.0.7:8104");
    assert_int_equal(conf.n_models, 1);
    assert_string_equal(conf.models[0], "/a b");
}

static void members_are_read_from_a_status(void **state)
{
    static const char status[] =
        "{\"link\": \"10.0.0.1:8090\", \"workers\": [{\"node\": \"p0\", \"up\": true, \"model\": \"m\", "
        "\"fingerprint\": "
        "\"0123456789abcdef0123456789abcdef\", \"link\": \"10.0.0.2:1\", \"kv\": \"10.0.0.2:2\"}, {\"node\": "
        "\"d0\", "
        "\"up\": true, \"model\": \"m\", \"fingerprint\": \"0123456789abcdef0123456789abcdef\", \"link\": "
        "\"10.0.0.3:1\", "
        "\"kv\": \"\"}, {\"node\": \"gone\", \"up\": false, \"link\": \"10.0.0.4:1\"}, 7]}";

    (void)state;
    memset(&message, 0, sizeof(message));
    assert_int_equal(members_parse(bytes_str(status), &message), 0);
    assert_int_equal(message.n_places, 4);
    assert_string_equal(message.places[0].name, "router");
    assert_string_equal(message.places[2].name, "kv.p0");
    assert_string_equal(message.places[3].name, "d0");
    assert_int_equal(message.n_models, 1);
    assert_int_equal(members_parse(bytes_str("[]"), &message), E_FORMAT);
}

/* A welcome omits settings that the new host would refuse. */
static void odd_members_leave_a_welcome_whole(void **state)
{
    static const char status[] =
        "{\"link\": \"0.0.0.0:8090\", \"link_keys\": {\"certificate_expires_unix_s\": 5}, \"workers\": ["
        "{\"node\": \"w0\", \"up\": true, \"model\": \"mod\u00e8le\", "
        "\"fingerprint\": \"0123456789abcdef0123456789abcdef\", \"link\": \"[::]:1\", \"kv\": "
        "\"10.0.0.2:0\"}, "
        "{\"node\": \"w 1\", \"up\": true, \"model\": \"m\", "
        "\"fingerprint\": \"no digits in this text, 32 bytes.\", \"link\": \"10.0.0.3:1\", \"kv\": \"*:4\"}, "
        "{\"node\": \"w2\", \"up\": true, \"link\": \"a b:1\", \"kv\": \"10.0.0.4:2\"}]}";
    struct buf text = {0};

    (void)state;
    message = (struct join_message){.kind = JOIN_WELCOME};
    assert_int_equal(members_parse(bytes_str(status), &message), 0);
    assert_true(message.has_certificates);
    assert_int_equal(message.n_models, 1);
    assert_string_equal(message.models[0].name, "mod??le");
    assert_int_equal(message.n_places, 1);
    assert_string_equal(message.places[0].name, "kv.w2");
    assert_int_equal(join_message_print(&message, &text), 0);
    assert_int_equal(join_message_parse(buf_view(&text), NULL, &again), 0);
    buf_fini(&text);
}

#define HEAD                                                                                                 \
    "{\"running\": false, \"left_out\": 2, \"rows\": 3, \"targets\": [{\"node\": \"\", \"address\": "        \
    "\"10.0.0.1:8090\"}, {\"node\": "                                                                        \
    "\"p\", \"address\": \"10.0.0.2:1\"}, {\"node\": \"d\", \"address\": \"127.0.0.1:2\", \"loopback\": "    \
    "true}, {\"node\": \"d\", "                                                                              \
    "\"address\": \"10.0.0.3:3\", \"kv\": true}]}"

static void add_row(struct check_view *view, const char *text)
{
    assert_int_equal(check_view_add(view, bytes_str(text)), 0);
}

static void a_check_names_what_is_wrong(void **state)
{
    static const char *const wanted[] = {
        "  1 p                       +0.5 ms   1500  ok     self both -   \n",
        "  2 d                       -90.0 s   1000  ok     ok   self -   \n",
        "WRONG  p -> d, KV 10.0.0.3:3: no answer",
        "WRONG  d: its clock is 90.0 s behind the router's. Fix: ",
        "WRONG  d: a path takes packets of 1000 bytes only. Fix: ",
        "note   old is of an older version",
        "WRONG  d listens on 127.0.0.1:2, which workers of other hosts cannot reach. Fix: link.listen",
        "WRONG  model: two files are called m",
        "note   2 more workers were left out"};
    struct check_view *view;
    struct buf text = {0};

    (void)state;
    assert_int_equal(check_view_new(bytes_str(HEAD), &view), 0);
    add_row(view, "{\"node\": \"p\", \"asked\": true, \"answered\": true, \"skew_ms\": 0.5, \"found\": [[1, "
                  "9, 1500], [1, 9, 9000], "
                  "[0, 0, 0], [3, 0, 0]]}");
    add_row(view, "{\"node\": \"d\", \"asked\": true, \"answered\": true, \"skew_ms\": -90000, \"found\": "
                  "[[1, 9, 1500], [1, 9, "
                  "1000], [1, 0, 65535], [1, 0, 1500]]}");
    add_row(view, "{\"node\": \"old\", \"asked\": false, \"answered\": false, \"found\": []}");
    memset(&message, 0, sizeof(message));
    message.n_models = 2;
    strcpy(message.models[0].name, "m");
    strcpy(message.models[1].name, "m");
    check_view_models(view, &message);
    assert_int_equal(check_view_render(view, &text), 5);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        if (strstr((const char *)text.data, wanted[i]) == NULL)
            fail_msg("'%s' is missing in\n%s", wanted[i], (const char *)text.data);
    assert_int_equal(check_view_new(bytes_str("{}"), &view), E_FORMAT);
    check_view_free(view);
    buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_reads_back),
        cmocka_unit_test(tokens_keys_are_apart),
        cmocka_unit_test(a_message_reads_back),
        cmocka_unit_test(hostile_messages_are_named),
        cmocka_unit_test(files_name_their_addresses),
        cmocka_unit_test(members_are_read_from_a_status),
        cmocka_unit_test(odd_members_leave_a_welcome_whole),
        cmocka_unit_test(a_check_names_what_is_wrong),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
