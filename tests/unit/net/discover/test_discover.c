/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of sources, lists, answers of etcd and DNS, and a watched file from its first version to its removal. */
#include "net/discover/discover.h"
#include "net/discover/discover_priv.h"

#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void urls_are_read(void **state)
{
    struct discover_url url;

    (void)state;
    assert_int_equal(discover_url_parse("file:///etc/baton/routers", NULL, &url), 0);
    assert_string_equal(url.path, "/etc/baton/routers");
    assert_int_equal(discover_url_parse("dns://routers.example:8090?server=127.0.0.1:5353", NULL, &url), 0);
    assert_string_equal(url.name, "routers.example");
    assert_string_equal(url.server, "127.0.0.1:5353");
    assert_int_equal(url.port, 8090);
    assert_int_equal(discover_url_parse("dns+srv://_baton._tcp.example", NULL, &url), 0);
    assert_int_equal(url.kind, DISCOVER_DNS_SRV);
    assert_int_equal(discover_url_parse("dns+srv://_baton._tcp.example?server=::1", NULL, &url), 0);
    assert_int_equal(discover_url_parse("dns+srv://_baton._tcp.example?server=[::1]:8600", NULL, &url), 0);
    assert_string_equal(url.server, "[::1]:8600");
    assert_int_equal(discover_url_parse("etcds://root:pa:ss@a,b:2381,[::1]:9/x/y/", NULL, &url), 0);
    assert_true(url.is_tls);
    assert_string_equal(url.user, "root");
    assert_string_equal(url.password, "pa:ss");
    assert_int_equal(url.n_hosts, 3);
    assert_string_equal(url.hosts[0], "a:2379");
    assert_string_equal(url.hosts[1], "b:2381");
    assert_string_equal(url.hosts[2], "[::1]:9");
    assert_string_equal(url.path, "/x/y");
}

static void bad_urls_are_refused_and_show_no_password(void **state)
{
    static const char *const bad[] = {"redis://a",
                                      "file://etc/x",
                                      "file:///",
                                      "file:///x/",
                                      "dns://a",
                                      "dns://a:0",
                                      "dns://a b:1",
                                      "dns://a:1?x=1",
                                      "dns://a:1?server=consul:8600",
                                      "dns://a:1?server=10.0.0.2:0",
                                      "dns://a:1?server=0.0.0.0:53",
                                      "dns+srv://",
                                      "etcd://a",
                                      "etcd:///p",
                                      "etcd://a/",
                                      "etcd://u@a/p",
                                      "etcd://u:secret@/p",
                                      "etcd://a,,b/p",
                                      "etcd://a:70000/p",
                                      "etcd://u:secret@a b/p",
                                      "etcd://a/p q",
                                      "etcd://a,a,a,a,a,a,a,a,a/p",
                                      "etcd://u:p@secret@h/x",
                                      "etcd://u:secret/ss@h/x",
                                      "://"};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct fault fault = {0};
        struct discover_url url;

        assert_int_equal(discover_url_parse(bad[i], &fault, &url), E_FORMAT);
        assert_true(fault.text[0] != '\0');
        assert_null(strstr(fault.text, "secret"));
    }
    char shown[64];
    discover_url_show("etcd://u:secret@a/p", shown, sizeof(shown));
    assert_string_equal(shown, "etcd://a/p");
}

static void lists_have_no_duplicates_and_a_bound(void **state)
{
    struct endpoints *list = calloc(1, sizeof(*list));

    (void)state;
    endpoints_read(list, bytes_str("  a:1 # the first\n\n#none\nb:2\r\na:1\nno port\nc:0\n[::1]:7"));
    assert_int_equal(list->n, 3);
    assert_string_equal(list->address[2], "[::1]:7");
    assert_int_equal(list->n_refused, 2);
    for (unsigned i = 0; i < 2 * ENDPOINTS_MAX; i++) {
        char text[32];
        int n = snprintf(text, sizeof(text), "host%u:1", i);

        endpoints_add(list, bytes_of(text, (size_t)n));
    }
    assert_int_equal(list->n, ENDPOINTS_MAX);
    free(list);
}

static void etcd_answers_are_read(void **state)
{
    /* {"link":"h:1","fingerprint":"f"}, {"link":"h:2","fingerprint":"g"}, and a value that is not JSON */
    static const char text[] = "{\"header\":{\"revision\":\"12\"},\"kvs\":[{\"value\":"
                               "\"eyJsaW5rIjoiaDoxIiwiZmluZ2VycHJpbnQiOiJmIn0=\"},"
                               "{\"value\":\"eyJsaW5rIjoiaDoyIiwiZmluZ2VycHJpbnQiOiJnIn0=\"},{\"value\":"
                               "\"AAAA\"},{\"value\":\"*\"}]}";
    struct discover_names names = {.role = DISCOVER_WORKERS};
    struct endpoints *list = calloc(1, sizeof(*list));
    uint64_t revision;
    int64_t number;

    (void)state;
    assert_int_equal(etcd_read_range(bytes_str(text), &names, list, &revision), 0);
    assert_int_equal(revision, 12);
    assert_int_equal(list->n, 2);
    assert_int_equal(list->n_refused, 2);
    memset(list, 0, sizeof(*list));
    strcpy(names.fingerprint, "g");
    assert_int_equal(etcd_read_range(bytes_str(text), &names, list, &revision), 0);
    assert_int_equal(list->n, 1);
    assert_string_equal(list->address[0], "h:2");
    assert_int_equal(etcd_read_range(bytes_str("{}"), &names, list, &revision), E_FORMAT);
    assert_int_equal(etcd_read_range(bytes_str("[1"), &names, list, &revision), E_FORMAT);

    assert_int_equal(etcd_read_watch(bytes_str("{\"result\":{\"created\":true}}")), ETCD_WATCH_QUIET);
    assert_int_equal(etcd_read_watch(bytes_str("{\"result\":{\"events\":[{}]}}")), ETCD_WATCH_CHANGED);
    assert_int_equal(
        etcd_read_watch(bytes_str("{\"result\":{\"canceled\":true,\"compact_revision\":\"7\"}}")),
        ETCD_WATCH_LOST);
    assert_int_equal(etcd_read_watch(bytes_str("{\"error\":{}}")), ETCD_WATCH_LOST);
    assert_int_equal(etcd_read_number(bytes_str("{\"result\":{\"TTL\":\"15\"}}"), "TTL", &number), 0);
    assert_int_equal(number, 15);
    assert_int_equal(etcd_read_number(bytes_str("{\"TTL\":\"x\"}"), "TTL", &number), E_FORMAT);
    free(list);
}

static void entries_of_etcd_are_read(void **state)
{
    /* {"node":"a\u001b","link":"h:1","role":"router","host":"x"}, one without a link, and a value that is not JSON */
    static const char text[] =
        "{\"header\":{\"revision\":\"1\"},\"kvs\":[{\"value\":"
        "\"eyJub2RlIjoiYVx1MDAxYiIsImxpbmsiOiJoOjEiLCJyb2xl"
        "Ijoicm91dGVyIiwiaG9zdCI6IngifQ==\"},{\"value\":\"eyJub2RlIjoiYiJ9\"},{\"value\":\"AAAA\"},{}]}";
    struct discover_members *members = calloc(1, sizeof(*members));

    (void)state;
    assert_int_equal(etcd_read_members(bytes_str(text), members), 0);
    assert_int_equal(members->n, 1);
    assert_int_equal(members->n_refused, 3);
    assert_string_equal(members->all[0].node, "a?");
    assert_string_equal(members->all[0].link, "h:1");
    assert_string_equal(members->all[0].phase, "router");
    assert_string_equal(members->all[0].host, "x");
    assert_string_equal(members->all[0].admin, "");
    assert_int_equal(etcd_read_members(bytes_str("{}"), members), E_FORMAT);
    assert_int_equal(etcd_read_members(bytes_str("<"), members), E_FORMAT);
    members->n = DISCOVER_MAX_MEMBERS;
    assert_int_equal(etcd_read_members(bytes_str(text), members), 0);
    assert_int_equal(members->n, DISCOVER_MAX_MEMBERS);
    free(members);
}

static void refusals_of_etcd_are_read(void **state)
{
    char text[24];

    (void)state;
    etcd_read_error(bytes_str("{\"error\":\"e\",\"message\":\"etcdserver: no\",\"code\":7}"), text,
                    sizeof(text));
    assert_string_equal(text, "etcdserver: no");
    etcd_read_error(bytes_str("{\"error\":{\"grpc_code\":7,\"message\":\"m\"}}"), text, sizeof(text));
    assert_string_equal(text, "m");
    etcd_read_error(bytes_str("{\"error\":\"only this\"}"), text, sizeof(text));
    assert_string_equal(text, "only this");
    etcd_read_error(bytes_str("{\"message\":\"0123456789012345678901234567890\"}"), text, sizeof(text));
    assert_string_equal(text, "01234567890123456789012");
    for (unsigned i = 0; i < 4; i++) {
        etcd_read_error(bytes_str((const char *[]){"", "[", "{\"message\":1}", "<html>"}[i]), text,
                        sizeof(text));
        assert_string_equal(text, "refused");
    }
}

static void the_least_time_to_live_counts(void **state)
{
    /* one question (a SRV), two answers whose names point at it: 300 s and 7 s, without data */
    static const uint8_t message[] = {0, 1,    0x81, 0x80, 0,    1,  0, 2,  0, 0, 0, 0, 1, 'a', 0,
                                      0, 33,   0,    1,    0xc0, 12, 0, 33, 0, 1, 0, 0, 1, 44,  0,
                                      0, 0xc0, 12,   0,    33,   0,  1, 0,  0, 0, 7, 0, 0};

    (void)state;
    assert_int_equal(dns_reply_ttl(bytes_of(message, sizeof(message)), 5), 7);
    for (size_t n = 0; n < sizeof(message); n++)
        assert_int_equal(dns_reply_ttl(bytes_of(message, n), 5), 5);
}

/* ---- a watched file ---- */

struct watcher {
    struct ev_loop *loop;
    char text[256]; /* the last list */
    unsigned n_lists;
};

static void watcher_take(void *arg, const struct endpoints *list)
{
    struct watcher *watcher = arg;

    watcher->text[0] = '\0';
    for (uint32_t i = 0; i < list->n; i++) {
        strcat(watcher->text, list->address[i]);
        strcat(watcher->text, " ");
    }
    watcher->n_lists++;
    ev_loop_stop(watcher->loop);
}

static void watcher_wait(struct watcher *watcher, const char *wanted)
{
    for (unsigned i = 0; i < 10 && strcmp(watcher->text, wanted) != 0; i++)
        ev_loop_run(watcher->loop);
    assert_string_equal(watcher->text, wanted);
}

static void watcher_write(const char *path, const char *text)
{
    char other[128];
    FILE *file;

    snprintf(other, sizeof(other), "%s.new", path);
    file = fopen(other, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(rename(other, path), 0);
}

static void a_file_is_followed(void **state)
{
    char folder[] = "/tmp/baton-discover-XXXXXX", path[64], url[80];
    struct watcher watcher = {0};
    struct discover *discover;
    const char *items[] = {url, "fixed:9"};
    struct discover_opts opts = {.items = items, .n_items = 2, .on_list = watcher_take, .arg = &watcher};

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/routers", folder);
    snprintf(url, sizeof(url), "file://%s", path);
    watcher_write(path, "b:2\na:1\n");
    assert_int_equal(ev_loop_new(&watcher.loop), 0);
    opts.loop = watcher.loop;
    assert_int_equal(discover_open(&opts, NULL, &discover), 0);
    watcher_wait(&watcher, "fixed:9 a:1 b:2 ");
    watcher_write(path, "c:3\n");
    watcher_wait(&watcher, "fixed:9 c:3 ");
    watcher_write(path, "");           /* emptied: the last list is kept */
    assert_int_equal(unlink(path), 0); /* lost: likewise */
    watcher_write(path, "d:4\n");
    watcher_wait(&watcher, "fixed:9 d:4 ");
    assert_int_equal(watcher.n_lists, 3);
    discover_close(discover);
    ev_loop_free(watcher.loop);
    unlink(path);
    rmdir(folder);
}

static void plain_addresses_need_no_thread(void **state)
{
    struct discover *discover = (struct discover *)1;
    const char *items[] = {"a:1"}, *bad[] = {"nfs://a"};
    struct discover_opts opts = {.items = items, .n_items = 1};
    struct fault fault = {0};

    (void)state;
    assert_int_equal(discover_open(&opts, &fault, &discover), 0);
    assert_null(discover);
    opts.items = bad;
    assert_int_equal(discover_open(&opts, &fault, &discover), E_FORMAT);
    assert_non_null(strstr(fault.text, "nfs"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urls_are_read),
        cmocka_unit_test(bad_urls_are_refused_and_show_no_password),
        cmocka_unit_test(lists_have_no_duplicates_and_a_bound),
        cmocka_unit_test(etcd_answers_are_read),
        cmocka_unit_test(entries_of_etcd_are_read),
        cmocka_unit_test(refusals_of_etcd_are_read),
        cmocka_unit_test(the_least_time_to_live_counts),
        cmocka_unit_test(a_file_is_followed),
        cmocka_unit_test(plain_addresses_need_no_thread),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
