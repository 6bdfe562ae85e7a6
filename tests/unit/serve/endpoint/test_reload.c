/* SPDX-License-Identifier: Apache-2.0 */
/* A reload beside running requests: the loop answers while a job thread reads, however long that takes. */
#include "rig.h"

#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "serve/access/auth.h"
#include "serve/endpoint/reload.h"
#include "sim_model.h"

static char keys_path[64];

static struct {
    struct rig rig;
    struct reload *reload;
    sem_t may_read;
    atomic_uint n_reads, n_done, n_taken;
    int code;         /* of the last done; 0: applied */
    bool has_refused; /* read refuses the configuration */
    const char *files_keys;
} seen;

static void write_keys(const char *const *names, size_t n, const char *rule)
{
    FILE *file = fopen(keys_path, "w");
    char hash[65];

    for (size_t i = 0; i < n; i++) {
        auth_key_hash(bytes_str(names[i]), hash);
        fprintf(file, "%s t-%s %s\n", hash, names[i], rule);
    }
    fclose(file);
    chmod(keys_path, 0600);
}

static const void *conf_read(void *arg)
{
    (void)arg;
    seen.n_reads++;
    while (sem_wait(&seen.may_read) != 0)
        continue;
    return seen.has_refused ? NULL : &seen;
}

static struct reload_files conf_files(const void *conf)
{
    (void)conf;
    return (struct reload_files){.api_keys = seen.files_keys, .https = {.certificate = "", .key = ""}};
}

static void conf_take(void *arg, const void *conf)
{
    (void)arg;
    (void)conf;
    seen.n_taken++;
}

static void on_done(void *arg, const struct fault *fault)
{
    (void)arg;
    seen.code = fault != NULL ? fault->code : 0;
    seen.n_done++;
}

static const struct reload_calls calls = {
    .read = conf_read, .files = conf_files, .take = conf_take, .done = on_done};

static void with_keys(struct front_opts *opts, struct sim_opts *sim)
{
    (void)sim;
    opts->keys_path = keys_path;
}

static void reload_new_call(void *arg)
{
    const struct reload_opts opts = {
        .loop = seen.rig.raw.loop, .jobs = seen.rig.jobs, .front = seen.rig.front, .calls = &calls};

    (void)arg;
    assert_int_equal(reload_new(&opts, &seen.reload), 0);
}

static void reload_begin_call(void *arg)
{
    (void)arg;
    reload_begin(seen.reload);
}

static int ask_with(const char *key, const char *user)
{
    struct buf request = {0}, answer = {0}, body = {0};
    char field[80];
    int status, fd = raw_connect(seen.rig.port);

    snprintf(field, sizeof(field), "x-api-key: %s\r\n", key);
    buf_printf(&body,
               "{\"model\":\"sim\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}",
               user);
    put_post(&request, "/v1/messages", field, (const char *)body.data);
    raw_send(fd, request.data, request.len_bytes);
    status = raw_read_answer(fd, &answer, NULL);
    close(fd);
    buf_fini(&request);
    buf_fini(&answer);
    buf_fini(&body);
    return status;
}

static int begin(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof(seen));
    sem_init(&seen.may_read, 0, 0);
    snprintf(keys_path, sizeof(keys_path), "/tmp/test_reload.%d", (int)getpid());
    seen.files_keys = keys_path;
    write_keys((const char *const[]){"old", "both"}, 2, "rpm=2");
    rig_begin(&seen.rig, with_keys);
    raw_loop_call(&seen.rig.raw, reload_new_call, NULL);
    return 0;
}

static int end(void **state)
{
    (void)state;
    raw_loop_stop(&seen.rig.raw);
    front_free(seen.rig.front);
    ev_jobs_free(seen.rig.jobs);
    reload_free(seen.reload); /* as the daemons do */
    sim_free(seen.rig.sim);
    metrics_free(seen.rig.metrics);
    sim_model_close(&seen.rig.model);
    ev_loop_free(seen.rig.raw.loop);
    unlink(keys_path);
    return 0;
}

static void a_reload_waits_for_no_loop_and_no_loop_for_it(void **state)
{
    (void)state;
    write_keys((const char *const[]){"new", "both"}, 2, "rpm=2");
    assert_int_equal(ask_with("both", "hello"), 200);
    raw_loop_call(&seen.rig.raw, reload_begin_call, NULL);
    assert_true(reaches(&seen.n_reads, 1));
    assert_int_equal(ask_with("old", "hello"), 200); /* read() hangs, and requests are still answered */
    assert_int_equal(ask_with("new", "hello"), 401);
    assert_int_equal(seen.n_done, 0);
    sem_post(&seen.may_read);
    assert_true(reaches(&seen.n_done, 1));
    assert_int_equal(seen.code, 0);
    assert_int_equal(ask_with("old", "hello"), 401);
    assert_int_equal(ask_with("new", "hello"), 200);
    assert_int_equal(ask_with("both", "hello"), 200); /* its count was carried over: one of two is left */
    assert_int_equal(ask_with("both", "hello"), 429);
}

/* The old keys' accounts remain for requests that began under them. */
static void a_running_request_keeps_its_account(void **state)
{
    struct buf request = {0};
    int fd = raw_connect(seen.rig.port);

    (void)state;
    put_post(&request, "/v1/messages", "x-api-key: old\r\n",
             "{\"model\":\"sim\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"hang\"}]}");
    raw_send(fd, request.data, request.len_bytes);
    assert_true(reaches(&seen.rig.counts->n_running, 1));
    for (unsigned i = 1; i <= 3; i++) {
        write_keys((const char *const[]){"new"}, 1, "");
        raw_loop_call(&seen.rig.raw, reload_begin_call, NULL);
        sem_post(&seen.may_read);
        assert_true(reaches(&seen.n_done, i));
    }
    close(fd);
    assert_true(reaches(&seen.rig.counts->n_running, 0));
    assert_int_equal(ask_with("new", "hello"), 200);
    buf_fini(&request);
}

/* Any number of reloads that are requested meanwhile become one, which reads the changes since the first began
 * to read. */
static void one_more_follows_a_running_one(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 5; i++)
        raw_loop_call(&seen.rig.raw, reload_begin_call, NULL);
    for (unsigned i = 0; i < 5; i++)
        sem_post(&seen.may_read);
    assert_true(reaches(&seen.n_done, 1));
    assert_int_equal(seen.n_reads, 2);
    assert_int_equal(seen.n_taken, 2);
}

static void a_refused_reload_changes_nothing(void **state)
{
    (void)state;
    write_keys((const char *const[]){"new"}, 1, "rpm=often");
    raw_loop_call(&seen.rig.raw, reload_begin_call, NULL);
    sem_post(&seen.may_read);
    assert_true(reaches(&seen.n_done, 1));
    assert_int_equal(seen.code, E_FORMAT);
    seen.has_refused = true;
    raw_loop_call(&seen.rig.raw, reload_begin_call, NULL);
    sem_post(&seen.may_read);
    assert_true(reaches(&seen.n_done, 2));
    assert_int_equal(seen.code, E_FORMAT);
    assert_int_equal(seen.n_taken, 1);
    seen.has_refused = false;
    seen.files_keys = ""; /* removing the keys is refused */
    raw_loop_call(&seen.rig.raw, reload_begin_call, NULL);
    sem_post(&seen.may_read);
    assert_true(reaches(&seen.n_done, 3));
    assert_int_equal(seen.code, E_AUTH);
    assert_int_equal(ask_with("old", "hello"), 200);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)
    static const struct CMUnitTest tests[] = {
        T(a_reload_waits_for_no_loop_and_no_loop_for_it),
        T(a_running_request_keeps_its_account),
        T(one_more_follows_a_running_one),
        T(a_refused_reload_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
