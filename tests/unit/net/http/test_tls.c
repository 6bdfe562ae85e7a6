/* SPDX-License-Identifier: Apache-2.0 */
/* TLS before the server: refused certificates, versions,
 * ALPN, latency, reload under load, deadlines and ends. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "echo.h"
#include "pki.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"
#define DAY_S     86400

struct world {
    char folder[PKI_PATH_BYTES];
    struct rig rig;
    struct http_tls *tls;
    struct metrics *metrics;
    enum http_tls_min min;
    bool has_no_http2;
};

static struct http_tls_files files_of(const struct world *world, const char *certificate, const char *key)
{
    return (struct http_tls_files){pki_path(world->folder, certificate), pki_path(world->folder, key),
                                   world->min};
}

static void add_tls(struct http_server_opts *opts, void *arg)
{
    struct world *world = arg;
    struct http_tls_opts tls = {.files = files_of(world, "a.pem", "a.key"),
                                .has_http2 = !world->has_no_http2,
                                .loop = opts->loop,
                                .metrics = world->metrics,
                                .poll_ns = 20 * NS_PER_MS};
    struct fault fault = {0};

    if (http_tls_new(&tls, &fault, &world->tls) < 0)
        fail_msg("%s", fault.text);
    opts->tls = world->tls;
}

static void begin(struct world *world, const struct http_limits *limits)
{
    pki_begin(world->folder);
    pki_make(world->folder, "a", -DAY_S, 30 * DAY_S);
    assert_int_equal(metrics_new(&world->metrics), 0);
    rig_begin_with(&world->rig, limits, add_tls, world);
}

static void end(struct world *world)
{
    raw_loop_stop(&world->rig.raw);
    http_server_free(world->rig.server);
    http_tls_free(world->tls);
    ev_timer_free(world->rig.late);
    ev_loop_free(world->rig.raw.loop);
    metrics_free(world->metrics);
    pki_end(world->folder);
}

static int get_status(struct world *world, const struct tls_client_opts *opts)
{
    struct tls_client client;
    struct buf in = {0};
    int status = 0;

    if (tls_client_open(&client, world->rig.port, opts) &&
        tls_client_send(&client, GET("/stream"), strlen(GET("/stream"))) &&
        tls_client_read(&client, "\r\n0\r\n\r\n", &in))
        status = atoi((const char *)in.data + 9);
    tls_client_close(&client);
    buf_fini(&in);
    return status;
}

/* ---- files ---- */

static void expect_fault(struct world *world, const char *certificate, const char *key, int code,
                         const char *text)
{
    struct http_tls_files files = files_of(world, certificate, key);
    struct fault fault = {0};

    assert_int_equal(http_tls_check(&files, &fault), code);
    if (code < 0 && strstr(fault.text, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", fault.text, text);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    chmod(path, 0600);
}

static void unusable_files_are_named(void **state)
{
    struct world world = {0};

    pki_begin(world.folder);
    pki_make(world.folder, "a", -DAY_S, DAY_S);
    pki_make(world.folder, "b", -DAY_S, DAY_S);
    pki_make(world.folder, "old", -3 * DAY_S, -2 * DAY_S);
    pki_make(world.folder, "future", DAY_S, 2 * DAY_S);
    write_file(pki_path(world.folder, "junk"), "nothing\n");
    expect_fault(&world, "a.pem", "a.key", 0, "");
    expect_fault(&world, "no.pem", "a.key", E_NOT_FOUND, "no.pem");
    expect_fault(&world, "a.pem", "no.key", E_NOT_FOUND, "no.key");
    expect_fault(&world, "junk", "a.key", E_FORMAT, "no usable certificate");
    expect_fault(&world, "a.pem", "junk", E_FORMAT, "no private key");
    expect_fault(&world, "a.pem", "b.key", E_INVAL, "not the key of the certificate");
    expect_fault(&world, "old.pem", "old.key", E_INVAL, "expired 48 hours ago");
    expect_fault(&world, "future.pem", "future.key", E_INVAL, "valid only in");
    chmod(pki_path(world.folder, "a.key"), 0644);
    expect_fault(&world, "a.pem", "a.key", E_AUTH, "mode 0644");
    chmod(pki_path(world.folder, "a.key"), 0640);
    expect_fault(&world, "a.pem", "a.key", 0, "");
    write_file(pki_path(world.folder, "locked"),
               "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"
               "MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAgAAAAAAAAAAAICCAAw\n"
               "DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEAAAAAAAAAAAAAAAAAAAAAAEgZAA\n"
               "-----END ENCRYPTED PRIVATE KEY-----\n");
    expect_fault(&world, "a.pem", "locked", E_FORMAT, "locked");
    pki_end(world.folder);
}

/* ---- exchanges ---- */

static void versions_and_protocols_are_agreed_on(void **state)
{
    const struct {
        enum http_tls_min min;
        struct tls_client_opts client;
        int status;
    } talks[] = {
        {HTTP_TLS_1_2, {0}, 200},
        {HTTP_TLS_1_2, {.max = TLS1_2_VERSION}, 200},
        {HTTP_TLS_1_2, {.min = TLS1_3_VERSION}, 200},
        {HTTP_TLS_1_2, {.max = TLS1_1_VERSION}, 0},
        {HTTP_TLS_1_3, {.max = TLS1_2_VERSION}, 0},
        {HTTP_TLS_1_3, {.min = TLS1_3_VERSION}, 200},
        {HTTP_TLS_1_2, {.alpn = "\x08http/1.1"}, 200},
        {HTTP_TLS_1_2, {.alpn = "\x03zip"}, 0},
    };

    for (size_t i = 0; i < sizeof(talks) / sizeof(talks[0]); i++) {
        struct world world = {.min = talks[i].min};

        begin(&world, NULL);
        assert_int_equal(get_status(&world, &talks[i].client), talks[i].status);
        end(&world);
    }
}

static void alpn_prefers_http2_unless_it_is_off(void **state)
{
    for (int is_off = 0; is_off < 2; is_off++) {
        struct world world = {.has_no_http2 = is_off};
        struct tls_client client;
        const struct tls_client_opts opts = {.alpn = "\x08http/1.1\x02h2"};
        const unsigned char *name;
        unsigned len;

        begin(&world, NULL);
        assert_true(tls_client_open(&client, world.rig.port, &opts));
        SSL_get0_alpn_selected(client.ssl, &name, &len);
        assert_int_equal(len, is_off ? 8 : 2);
        assert_memory_equal(name, is_off ? "http/1.1" : "h2", len);
        tls_client_close(&client);
        end(&world);
    }
}

/* Two writes make an answer.  With Nagle's algorithm, the second would wait 40 ms for the first one's
 * acknowledgement. */
static void small_answers_are_fast(void **state)
{
    struct world world = {0};
    struct tls_client client;
    const struct tls_client_opts opts = {0};
    uint64_t least_ns = UINT64_MAX;
    uint64_t sum_ns = 0;

    begin(&world, NULL);
    assert_true(tls_client_open(&client, world.rig.port, &opts));
    for (int i = 0; i < 40; i++) {
        struct buf in = {0};
        uint64_t began = clock_now_ns();
        uint64_t took;

        assert_true(tls_client_send(&client, GET("/two"), strlen(GET("/two"))));
        assert_true(tls_client_read(&client, "\r\n0\r\n\r\n", &in));
        took = clock_now_ns() - began;
        sum_ns += took;
        if (took < least_ns)
            least_ns = took;
        buf_fini(&in);
    }
    print_message("answers over TLS: least %.3f ms, mean %.3f ms\n", (double)least_ns / 1e6,
                  (double)sum_ns / 40e6);
    assert_true(least_ns < 15 * NS_PER_MS);
    assert_true(sum_ns / 40 < 30 * NS_PER_MS);
    tls_client_close(&client);
    end(&world);
}

static void large_bodies_pass_both_ways(void **state)
{
    struct world world = {0};
    struct tls_client client;
    const struct tls_client_opts opts = {0};
    const size_t len = 3 << 20;
    char *body = malloc(len);
    struct buf in = {0};
    char head[100];

    begin(&world, NULL);
    for (size_t i = 0; i < len; i++)
        body[i] = (char)('a' + i % 23);
    assert_true(tls_client_open(&client, world.rig.port, &opts));
    snprintf(head, sizeof(head),
             "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n", len);
    assert_true(tls_client_send(&client, head, strlen(head)));
    assert_true(tls_client_send(&client, body, len));
    assert_true(tls_client_read(&client, NULL, &in)); /* and the end is a proper one */
    assert_true(in.len_bytes > len);
    assert_memory_equal(in.data + in.len_bytes - len, body, len);
    tls_client_close(&client);
    buf_fini(&in);
    free(body);
    end(&world);
}

static void clients_that_leave_are_noticed(void **state)
{
    struct world world = {0};
    const struct tls_client_opts opts = {0};

    begin(&world, NULL);
    for (int way = 0; way < 2; way++) {
        struct tls_client client;

        assert_true(tls_client_open(&client, world.rig.port, &opts));
        assert_true(tls_client_send(&client, GET("/hang"), strlen(GET("/hang"))));
        assert_true(reaches(&world.rig.n_requests, way + 1));
        if (way == 0)
            SSL_shutdown(client.ssl); /* half a close, done properly */
        else
            shutdown(client.fd, SHUT_RDWR); /* a connection cut */
        assert_true(reaches(&world.rig.n_aborts, way + 1));
        assert_int_equal(world.rig.abort_why, HTTP_ABORT_CLIENT);
        tls_client_close(&client);
    }
    assert_true(conns_become(&world.rig, 0));
    end(&world);
}

static void an_answer_survives_the_close_behind_it(void **state)
{
    struct world world = {0};
    struct tls_client client;
    const struct tls_client_opts opts = {0};
    struct buf in = {0};

    begin(&world, NULL);
    assert_true(tls_client_open(&client, world.rig.port, &opts));
    assert_true(tls_client_send(&client, GET("/big"), strlen(GET("/big"))));
    assert_true(reaches(&world.rig.n_requests, 1));
    SSL_shutdown(client.ssl);
    (void)tls_client_read(&client, NULL, &in);
    assert_true(in.len_bytes > 4 << 20);
    tls_client_close(&client);
    buf_fini(&in);
    assert_true(conns_become(&world.rig, 0));
    end(&world);
}

static void handshakes_meet_a_deadline(void **state)
{
    struct http_limits limits = {.handshake_ns = 150 * NS_PER_MS};
    static const char part[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    struct world world = {0};

    begin(&world, &limits);
    for (int n = 0; n < 3; n++) {
        int fd = raw_connect(world.rig.port);
        bool is_closed = false;

        if (n == 1)
            raw_send(fd, part, sizeof(part) - 1); /* begins, then stays silent */
        if (n == 2)
            raw_send_str(fd, GET("/echo")); /* not TLS at all, so the server need not wait */
        for (int i = 0; i < 500 && !is_closed; i++)
            is_closed = raw_is_closed(fd, 10);
        assert_true(is_closed);
        close(fd);
    }
    assert_true(conns_become(&world.rig, 0));
    assert_int_equal(world.rig.n_requests, 0);
    end(&world);
}

static void slow_readers_over_tls_are_cut(void **state)
{
    struct http_limits limits = {.max_queue_bytes = 64 << 10, .stall_ns = 300 * NS_PER_MS};
    struct world world = {0};
    struct tls_client client;
    const struct tls_client_opts opts = {0};

    begin(&world, &limits);
    assert_true(tls_client_open(&client, world.rig.port, &opts));
    assert_true(tls_client_send(&client, GET("/flood"), strlen(GET("/flood"))));
    assert_true(reaches(&world.rig.n_pauses, 1));
    assert_true(reaches(&world.rig.n_aborts, 1));
    assert_int_equal(world.rig.abort_why, HTTP_ABORT_SLOW_READER);
    tls_client_close(&client);
    end(&world);
}

/* ---- reload ---- */

static void rename_over(const char *folder, const char *from, const char *to)
{
    char target[PKI_PATH_BYTES + 64];

    snprintf(target, sizeof(target), "%s/%s", folder, to);
    assert_int_equal(rename(pki_path(folder, from), target), 0);
}

/* Returns whether the server shows the certificate in this file. */
static bool shows(struct world *world, const char *name)
{
    struct tls_client client;
    const struct tls_client_opts opts = {.ca = pki_path(world->folder, name)};
    bool is_shown = tls_client_open(&client, world->rig.port, &opts);

    tls_client_close(&client);
    return is_shown;
}

static void changed_files_are_taken_under_load(void **state)
{
    struct world world = {0};
    struct tls_client before;
    const struct tls_client_opts any = {0};
    struct buf in = {0};
    bool is_shown = false;

    begin(&world, NULL);
    assert_true(tls_client_open(&before, world.rig.port, &any));
    pki_make(world.folder, "b", -DAY_S, 60 * DAY_S);
    pki_make(world.folder, "old", -3 * DAY_S, -DAY_S);
    write_file(pki_path(world.folder, "copy.pem"), "");
    assert_true(shows(&world, "a.pem"));
    assert_false(shows(&world, "b.pem"));
    /* The certificate changes first: for a while the pair does not match, and the old one stays. */
    assert_int_equal(link(pki_path(world.folder, "b.pem"), pki_path(world.folder, "b2.pem")), 0);
    assert_int_equal(link(pki_path(world.folder, "a.pem"), pki_path(world.folder, "a2.pem")), 0);
    rename_over(world.folder, "b2.pem", "a.pem");
    for (int i = 0; i < 8; i++) {
        assert_int_equal(get_status(&world, &any), 200);
        clock_sleep_ns(10 * NS_PER_MS);
    }
    assert_true(shows(&world, "a2.pem"));
    rename_over(world.folder, "b.key", "a.key");
    for (int i = 0; i < 200 && !is_shown; i++) {
        assert_int_equal(get_status(&world, &any), 200);
        is_shown = shows(&world, "b.pem");
    }
    assert_true(is_shown);
    assert_true(http_tls_expiry_unix_s(world.tls) > clock_unix_ns() / NS_PER_S + 59 * DAY_S);
    /* An expired pair is refused. */
    rename_over(world.folder, "old.pem", "a.pem");
    rename_over(world.folder, "old.key", "a.key");
    clock_sleep_ns(100 * NS_PER_MS);
    assert_true(shows(&world, "b.pem"));
    /* Earlier connections are not disturbed. */
    assert_true(tls_client_send(&before, GET("/stream"), strlen(GET("/stream"))));
    assert_true(tls_client_read(&before, "\r\n0\r\n\r\n", &in));
    tls_client_close(&before);
    buf_clear(&in);
    metrics_render(world.metrics, &in);
    assert_true(raw_holds(&in, "baton_tls_certificate_expiry_seconds 51"));
    buf_fini(&in);
    end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unusable_files_are_named),
        cmocka_unit_test(versions_and_protocols_are_agreed_on),
        cmocka_unit_test(alpn_prefers_http2_unless_it_is_off),
        cmocka_unit_test(small_answers_are_fast),
        cmocka_unit_test(large_bodies_pass_both_ways),
        cmocka_unit_test(clients_that_leave_are_noticed),
        cmocka_unit_test(an_answer_survives_the_close_behind_it),
        cmocka_unit_test(handshakes_meet_a_deadline),
        cmocka_unit_test(slow_readers_over_tls_are_cut),
        cmocka_unit_test(changed_files_are_taken_under_load),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
