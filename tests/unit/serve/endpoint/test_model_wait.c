/* SPDX-License-Identifier: Apache-2.0 */
/* Requests for a model that the backend does not know yet: they wait for a bounded time. */
#include "rig.h"

#include "tests/unit/check.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

static void waiting_long(struct front_opts *opts, struct sim_opts *sim)
{
    opts->bounds.model_wait_ns = 60 * NS_PER_S;
    opts->bounds.max_model_waits = 2;
}

static void waiting_briefly(struct front_opts *opts, struct sim_opts *sim)
{
    opts->bounds.model_wait_ns = NS_PER_S / 5;
    opts->bounds.max_model_waits = 2;
}

static int send_message(const struct rig *rig, const char *more)
{
    struct buf request = {0};
    int fd = raw_connect(rig->port);

    put_message(&request, "hello", more);
    raw_send(fd, request.data, request.len_bytes);
    buf_fini(&request);
    return fd;
}

static void is_answered(int fd, int status)
{
    struct buf head = {0}, body = {0};

    assert_int_equal(raw_read_answer(fd, &head, &body), status);
    if (status == 503)
        assert_true(raw_holds(&body, "nothing is known yet"));
    buf_fini(&head);
    buf_fini(&body);
    close(fd);
}

static void requests_wait_for_their_model(void **state)
{
    struct rig rig;
    int first, second;

    rig_begin(&rig, waiting_long);
    rig.counts->knows_nothing = true;
    first = send_message(&rig, "");
    second = send_message(&rig, "");
    usleep(200000);
    assert_int_equal(rig.counts->n_submitted, 0);
    is_answered(send_message(&rig, ""), 503); /* two may wait */
    rig.counts->knows_nothing = false;
    is_answered(first, 200);
    is_answered(second, 200);
    rig_end(&rig);
}

static void the_wait_is_bounded(void **state)
{
    struct rig rig;

    rig_begin(&rig, waiting_briefly);
    rig.counts->knows_nothing = true;
    is_answered(send_message(&rig, ""), 503);
    rig_end(&rig);
}

static void wait_no_more(void *arg)
{
    const struct front_bounds bounds = {.max_model_waits = 2};

    front_set_bounds(arg, &bounds);
}

static void a_wait_follows_its_bounds(void **state)
{
    struct rig rig;
    int fd;

    rig_begin(&rig, waiting_long);
    rig.counts->knows_nothing = true;
    fd = send_message(&rig, "");
    raw_loop_call(&rig.raw, wait_no_more, rig.front);
    is_answered(fd, 503);
    rig_end(&rig);
}

/* A client that leaves, and a server that stops, end the wait. */
static void a_waiting_request_can_be_left(void **state)
{
    struct rig rig;

    rig_begin(&rig, waiting_long);
    rig.counts->knows_nothing = true;
    close(send_message(&rig, ""));
    close(send_message(&rig, ""));
    usleep(200000);
    (void)send_message(&rig, "");
    usleep(50000);
    rig_end(&rig);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_wait_for_their_model),
        cmocka_unit_test(the_wait_is_bounded),
        cmocka_unit_test(a_wait_follows_its_bounds),
        cmocka_unit_test(a_waiting_request_can_be_left),
    };

    log_set_level(LOG_LEVEL_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
