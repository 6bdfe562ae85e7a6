/* SPDX-License-Identifier: Apache-2.0 */
/* Declared beginnings: rendered once per model, by one thread at a time, and kept by use. */
#include "serve/prompt/public_prefix.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"
#include "serve/api/parse.h"
#include "serve/prompt/prompt.h"
#include "tests/unit/serve/endpoint/sim_model.h"

#define SYSTEM "You answer each question of the customers of Example Ltd. in one short and polite sentence."
#define KEPT   64u /* models whose beginnings are kept */

static struct gen_model models[KEPT + 1]; /* one model under many fingerprints */

static int set_up(void **state)
{
    char path[] = "/tmp/baton-public-XXXXXX";
    static const char text[] = "[{\"system\": \"" SYSTEM "\"}]";
    struct fault fault = {0};
    struct public_prefix *prefix;
    int fd = mkstemp(path);

    assert_true(fd >= 0 && write(fd, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1);
    close(fd);
    if (public_prefix_load(path, &fault, &prefix) < 0)
        fail_msg("%s", fault.text);
    unlink(path);
    assert_int_equal(sim_model_open(4096, &models[0]), 0);
    for (size_t i = 1; i < ARRAY_LEN(models); i++) {
        models[i] = models[0];
        snprintf(models[i].fingerprint, sizeof(models[i].fingerprint), "%zu", i);
    }
    *state = prefix;
    return 0;
}

static int tear_down(void **state)
{
    public_prefix_free(*state);
    sim_model_close(&models[0]);
    return 0;
}

static void make(const char *question, struct prompt *out)
{
    struct gen_request request;
    struct api_error error = {0};
    struct buf body = {0};

    buf_printf(&body,
               "{\"model\":\"m\",\"system\":\"" SYSTEM "\",\"messages\":[{\"role\":\"user\","
               "\"content\":\"%s\"}]}",
               question);
    if (api_parse_request(buf_view(&body), API_COUNT_TOKENS, &request, &error) < 0 ||
        prompt_make(&models[0], &request, NULL, out, &error) < 0)
        fail_msg("%s", error.message);
    gen_request_fini(&request);
    buf_fini(&body);
}

static void a_prompt_is_public_once_its_model_is_ready(void **state)
{
    struct prompt prompt;
    uint32_t n;

    make("What is new?", &prompt);
    assert_int_equal(public_prefix_state(*state, &models[0]), PUBLIC_PREFIX_NONE);
    assert_int_equal(public_prefix_tokens(*state, &models[0], &prompt.ids), 0);
    assert_int_equal(public_prefix_prepare(*state, &models[0]), 0);
    assert_int_equal(public_prefix_state(*state, &models[0]), PUBLIC_PREFIX_READY);
    n = public_prefix_tokens(*state, &models[0], &prompt.ids);
    assert_true(n >= models[0].block_tokens && n < prompt.ids.n && n % models[0].block_tokens == 0);
    assert_int_equal(public_prefix_tokens(NULL, &models[0], &prompt.ids), 0);
    assert_int_equal(public_prefix_state(*state, &models[1]), PUBLIC_PREFIX_NONE);
    prompt_fini(&prompt);
}

static void the_least_recently_used_model_makes_room(void **state)
{
    for (size_t i = 0; i < KEPT; i++)
        assert_int_equal(public_prefix_prepare(*state, &models[i]), 0);
    assert_int_equal(public_prefix_prepare(*state, &models[0]), 0); /* used again */
    assert_int_equal(public_prefix_prepare(*state, &models[KEPT]), 0);
    assert_int_equal(public_prefix_state(*state, &models[1]), PUBLIC_PREFIX_NONE);
    for (size_t i = 0; i <= KEPT; i++)
        if (i != 1)
            assert_int_equal(public_prefix_state(*state, &models[i]), PUBLIC_PREFIX_READY);
}

/* Prepares every model, and counts the prompt's tokens meanwhile.  Returns the faults' number. */
static void *prepare_all(void *arg)
{
    struct prompt prompt;
    uintptr_t n_bad = 0;

    make("And now?", &prompt);
    for (size_t i = 0; i < KEPT; i++) {
        int rc;

        while ((rc = public_prefix_prepare(arg, &models[i])) == E_AGAIN)
            sched_yield();
        n_bad += rc != 0 || public_prefix_tokens(arg, &models[i], &prompt.ids) == 0;
    }
    prompt_fini(&prompt);
    return (void *)n_bad;
}

static void threads_share_what_one_renders(void **state)
{
    pthread_t threads[3];
    void *n_bad;

    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, prepare_all, *state), 0);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
        assert_int_equal(pthread_join(threads[i], &n_bad), 0);
        assert_null(n_bad);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_prompt_is_public_once_its_model_is_ready, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_least_recently_used_model_makes_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(threads_share_what_one_renders, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
