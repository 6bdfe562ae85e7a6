/* SPDX-License-Identifier: Apache-2.0 */
/* Links over real sockets on loopback, both ends on one loop. */
#include "link_rig.h"

#include "base/err.h"
#include "base/log.h"
#include "net/link/link_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static bool beats_flowed(struct world *world)
{
    return world->dialler.n_heartbeats >= 3 && world->acceptor.n_heartbeats >= 3;
}

static bool acceptor_got_hundred(struct world *world)
{
    return world->acceptor.n_messages >= 100;
}

static void goes_up_and_beats(void **state)
{
    struct world *world = *state;

    world_dial(world);
    assert_int_equal(link_send(world->dialler.link, FRAME_CANCEL, NULL), E_CLOSED);
    assert_true(world_run(world, both_up, SOON_MS));
    assert_true(world_run(world, beats_flowed, SOON_MS));
    assert_int_equal(world->dialler.n_up, 1);
    assert_int_equal(world->acceptor.n_up, 1);
    assert_int_not_equal(link_rtt_ns(world->dialler.link), 0);
    assert_true(link_rtt_ns(world->dialler.link) < NS_PER_S);
    assert_int_equal(link_why_down(world->dialler.link)->code, 0);
}

static uint32_t beats_wanted;

static bool more_beats_flowed(struct world *world)
{
    return world->dialler.n_heartbeats >= beats_wanted;
}

/* A pause of one side looked like a long round trip.  The next few heartbeats correct it. */
static void a_bad_rtt_is_forgotten(void **state)
{
    struct world *world = *state;
    uint64_t bad_ns;

    world_dial(world);
    assert_true(world_run(world, beats_flowed, SOON_MS));
    world->dialler.link->rtt_s.level *= 1000;
    bad_ns = link_rtt_ns(world->dialler.link);
    beats_wanted = world->dialler.n_heartbeats + 8;
    assert_true(world_run(world, more_beats_flowed, SOON_MS));
    assert_true(link_rtt_ns(world->dialler.link) < bad_ns / 20);
}

static void plaintext_works_where_asked_for(void **state)
{
    struct world *world = *state;
    struct link_opts opts;
    struct link *link;

    world->is_plaintext = true;
    world_dial(world);
    assert_true(world_run(world, both_up, SOON_MS));
    opts = world_opts(world, &world->dialler);
    opts.is_plaintext = false;
    assert_int_equal(link_dial(&opts, world->address, NULL, &link), E_INVAL);
    opts.tls = world->tls;
    opts.is_plaintext = true;
    assert_int_equal(link_dial(&opts, world->address, NULL, &link), E_INVAL);
}

static void names_are_dialled(void **state)
{
    struct world *world = *state;
    char port[64];

    snprintf(port, sizeof(port), "localhost%s", strrchr(world->address, ':'));
    strcpy(world->address, port);
    world_dial(world);
    assert_true(world_run(world, both_up, SOON_MS));
}

static void messages_arrive_in_order(void **state)
{
    struct world *world = *state;

    world_dial(world);
    assert_true(world_run(world, both_up, SOON_MS));
    send_cancels(world->dialler.link, 1, 100);
    assert_true(world_run(world, acceptor_got_hundred, SOON_MS));
    assert_int_equal(world->acceptor.last_request, 100);
}

static bool acceptor_got_one(struct world *world)
{
    return world->acceptor.n_messages >= 1;
}

static void long_messages_pass(void **state)
{
    struct world *world = *state;
    Baton__Submit submit = BATON__SUBMIT__INIT;
    Baton__Sampling sampling = BATON__SAMPLING__INIT;
    size_t len_bytes = (size_t)8 << 20;

    world_dial(world);
    assert_true(world_run(world, both_up, SOON_MS));
    submit.tokens = (ProtobufCBinaryData){.len = len_bytes, .data = calloc(1, len_bytes)};
    submit.n_prompt = 1;
    submit.sampling = &sampling;
    assert_int_equal(link_send(world->dialler.link, FRAME_SUBMIT, &submit.base), 0);
    free(submit.tokens.data);
    assert_true(world_run(world, acceptor_got_one, SOON_MS));
}

static bool dialler_knows_why(struct world *world)
{
    return world->dialler.link != NULL && link_why_down(world->dialler.link)->code == E_MISMATCH;
}

static void refusal_carries_its_reason(void **state)
{
    struct world *world = *state;

    world->acceptor.refuses = E_MISMATCH;
    world_dial(world);
    assert_true(world_run_polling(world, dialler_knows_why, SOON_MS));
    assert_non_null(strstr(link_why_down(world->dialler.link)->text, "model d1 is not ours"));
    assert_int_equal(world->dialler.n_up, 0);
    assert_int_equal(world->dialler.n_down, 0);

    /* It dials again, and is accepted once the reason is gone. */
    world->acceptor.refuses = 0;
    assert_true(world_run(world, both_up, SOON_MS));
}

static bool dialler_knows_field(struct world *world)
{
    return world->dialler.link != NULL &&
           strstr(link_why_down(world->dialler.link)->text, "refuses: ") != NULL;
}

/* A HELLO with a field out of range: the peer receives the field's name. */
static void a_bad_field_is_named_to_the_peer(void **state)
{
    struct world *world = *state;
    char node[] = "d\x07";

    world->dialler.hello.build = node;
    world_dial(world);
    assert_true(world_run_polling(world, dialler_knows_field, SOON_MS));
    assert_non_null(strstr(link_why_down(world->dialler.link)->text, "Hello.build: 'd?' has characters"));
    assert_int_equal(link_why_down(world->dialler.link)->code, E_PROTO);
    assert_int_equal(world->dialler.n_up, 0);
    world->dialler.hello.build = NULL;
}

static void refusal_by_the_dialler_ends_the_accepted(void **state)
{
    struct world *world = *state;

    world->dialler.refuses = E_MISMATCH;
    world_dial(world);
    assert_true(world_run(world, acceptor_down, SOON_MS));
    assert_int_equal(world->acceptor.why.code, E_MISMATCH);
    assert_non_null(strstr(world->acceptor.why.text, "model r1 is not ours"));
    assert_int_equal(world->acceptor.n_up, 0);
}

static bool dialler_knows_version(struct world *world)
{
    return link_why_down(world->dialler.link)->code == E_VERSION;
}

static void other_protocol_is_refused(void **state)
{
    struct world *world = *state;

    world->dialler.hello.protocol = 99;
    world_dial(world);
    assert_true(world_run_polling(world, dialler_knows_version, SOON_MS));
    assert_non_null(strstr(link_why_down(world->dialler.link)->text, "99"));
    assert_int_equal(world->acceptor.n_hello, 0);
}

static bool dialler_knows_auth(struct world *world)
{
    return link_why_down(world->dialler.link)->code != 0;
}

static void other_key_is_refused(void **state)
{
    struct world *world = *state;
    static const uint8_t other[32] = {43};
    struct tls_context *good = world->tls, *bad;

    assert_int_equal(tls_context_new(other, NULL, &bad), 0);
    world->tls = bad;
    world_dial(world);
    world->tls = good;
    assert_true(world_run_polling(world, dialler_knows_auth, SOON_MS));
    assert_int_equal(link_why_down(world->dialler.link)->code, E_AUTH);
    assert_true(world_run(world, acceptor_down, SOON_MS));
    assert_int_equal(world->acceptor.why.code, E_AUTH);
    assert_int_equal(world->acceptor.n_hello + world->dialler.n_hello, 0);
    link_close(world->dialler.link);
    world->dialler.link = NULL;
    tls_context_free(bad);
}

static void plaintext_peer_is_refused(void **state)
{
    struct world *world = *state;
    struct link_opts opts = world_opts(world, &world->dialler);

    opts.tls = NULL;
    opts.is_plaintext = true;
    assert_int_equal(link_dial(&opts, world->address, NULL, &world->dialler.link), 0);
    assert_true(world_run(world, acceptor_down, SOON_MS));
    assert_int_equal(world->acceptor.n_hello, 0);
    assert_int_equal(world->acceptor.n_up, 0);
}

static bool dialler_timed_out(struct world *world)
{
    return link_why_down(world->dialler.link)->code == E_TIMEOUT;
}

static void mute_peer_meets_the_deadline(void **state)
{
    struct world *world = *state;
    uint64_t start_ns = clock_now_ns();

    world->is_mute = true;
    world_dial(world);
    assert_true(world_run_polling(world, dialler_timed_out, SOON_MS));
    assert_true(clock_now_ns() - start_ns >= 400 * NS_PER_MS);
    assert_int_equal(world->dialler.n_down, 0);
}

/* A frozen peer: its sockets stay open, and it reads and writes nothing. */
static void lost_heartbeats_bring_it_down(void **state)
{
    struct world *world = *state;
    struct world frozen = {0};

    assert_int_equal(ev_loop_new(&frozen.loop), 0); /* the acceptor is on a loop that will not run */
    frozen.tls = world->tls;
    end_init(&frozen, &frozen.acceptor, BATON__ROLE__ROLE_ROUTER, "r1");
    world->is_mute = true; /* the accepted descriptor is kept for the frozen world */
    world_dial(world);
    while (world->n_mute == 0)
        event_base_loop(ev_loop_base(world->loop), EVLOOP_ONCE);
    struct link_opts opts = world_opts(&frozen, &frozen.acceptor);
    assert_int_equal(link_accept(&opts, world->mute_fds[0], &frozen.acceptor.link), 0);
    world->n_mute = 0;
    while (!link_is_up(world->dialler.link)) {
        event_base_loop(ev_loop_base(frozen.loop), EVLOOP_NONBLOCK);
        event_base_loop(ev_loop_base(world->loop), EVLOOP_NONBLOCK);
    }
    uint64_t start_ns = clock_now_ns();
    assert_true(world_run(world, dialler_down, SOON_MS));
    assert_int_equal(world->dialler.why.code, E_TIMEOUT);
    assert_non_null(strstr(world->dialler.why.text, "heartbeats"));
    assert_true(clock_now_ns() - start_ns >= 2 * BEAT_NS);
    link_close(frozen.acceptor.link);
    ev_loop_free(frozen.loop);
}

static bool dialler_down_then_up(struct world *world)
{
    return world->dialler.n_down == 1 && both_up(world);
}

static void comes_back_after_a_restart(void **state)
{
    struct world *world = *state;

    world_dial(world);
    assert_true(world_run(world, both_up, SOON_MS));
    assert_int_equal(world->dialler.peer_epoch, 1);
    link_close(world->acceptor.link); /* the peer dies ... */
    world->acceptor.link = NULL;
    listener_close(world->listener);
    world->listener = NULL;
    assert_true(world_run(world, dialler_down, SOON_MS));
    assert_int_equal(world->dialler.why.code, E_CLOSED);
    assert_true(world->dialler.peer_has_ended);
    world_run(world, NULL, 40); /* ... is away for some attempts ... */

    struct listener_opts opts = {
        .loop = world->loop, .address = world->address, .on_accept = world_on_accept, .arg = world};
    world->acceptor.hello.epoch = 2; /* ... and returns with another epoch */
    assert_int_equal(listener_open(&opts, NULL, &world->listener), 0);
    assert_true(world_run(world, dialler_down_then_up, SOON_MS));
    assert_int_equal(world->dialler.peer_epoch, 2);
    assert_int_equal(world->dialler.n_up, 2);
}

static void a_peer_that_does_not_read_is_dead(void **state)
{
    struct world *world = *state;
    Baton__Submit submit = BATON__SUBMIT__INIT;
    Baton__Sampling sampling = BATON__SAMPLING__INIT;
    uint8_t *tokens = calloc(1, 1 << 20);
    int err = 0;

    world->max_queue_bytes = 4 << 20;
    world_dial(world);
    assert_true(world_run(world, both_up, SOON_MS));
    submit.tokens = (ProtobufCBinaryData){.len = 1 << 20, .data = tokens};
    submit.n_prompt = 1;
    submit.sampling = &sampling;
    for (unsigned i = 0; i < 8 && err == 0; i++) /* the loop does not run: no byte leaves */
        err = link_send(world->dialler.link, FRAME_SUBMIT, &submit.base);
    free(tokens);
    assert_int_equal(err, E_FULL);
    assert_true(link_queued_bytes(world->dialler.link) <= world->max_queue_bytes);
    assert_int_equal(world->dialler.n_down, 0);
    assert_true(world_run(world, dialler_down, SOON_MS));
    assert_int_equal(world->dialler.why.code, E_FULL);
    assert_false(world->dialler.peer_has_ended);
}

static void closing_inside_events_is_safe(void **state)
{
    struct world *world = *state;

    world->acceptor.closes_in_hello = true;
    world_dial(world);
    assert_true(world_run(world, NULL, SOON_MS));
    assert_int_equal(world->acceptor.n_down, 0);
    world->acceptor.closes_in_hello = false;
    world->acceptor.closes_in_up = true;
    world->dialler.n_down = 0;
    assert_true(world_run(world, dialler_down, SOON_MS));
    world->acceptor.closes_in_up = false;
    world->acceptor.closes_in_message = true;
    world->dialler.n_down = 0;
    assert_true(world_run(world, both_up, SOON_MS));
    world->acceptor.last_request = 0;
    send_cancels(world->dialler.link, 1, 10);
    assert_true(world_run(world, dialler_down, SOON_MS));
    assert_int_equal(world->acceptor.n_messages, 1);
    assert_null(world->acceptor.link);
    assert_int_equal(world->acceptor.n_down, 0);
}

static void an_error_from_the_owner_closes(void **state)
{
    struct world *world = *state;

    world->acceptor.breaks = E_PROTO;
    world_dial(world);
    assert_true(world_run(world, both_up, SOON_MS));
    send_cancels(world->dialler.link, 1, 2);
    assert_true(world_run(world, acceptor_down, SOON_MS));
    assert_int_equal(world->acceptor.why.code, E_PROTO);
    assert_int_equal(world->acceptor.n_messages, 1);
}

static void goodbye_is_orderly(void **state)
{
    struct world *world = *state;

    world_dial(world);
    assert_true(world_run(world, both_up, SOON_MS));
    send_cancels(world->dialler.link, 1, 100);
    link_goodbye(world->dialler.link, "restarting");
    world->dialler.link = NULL;
    assert_true(world_run(world, acceptor_down, SOON_MS));
    assert_int_equal(world->acceptor.n_messages, 100); /* queued messages came first */
    assert_int_equal(world->acceptor.why.code, E_CLOSED);
    assert_non_null(strstr(world->acceptor.why.text, "restarting"));
    assert_false(world->acceptor.peer_has_ended);
    assert_int_equal(world->dialler.n_down, 0);
    world_run(world, NULL, 30);
}

static void the_end_of_a_process_is_no_failure_on_the_way(void **state)
{
    const struct {
        struct link_end end;
        bool is_peers;
    } cases[] = {
        {{.what = BEV_EVENT_EOF}, true}, /* FIN */
        {{.what = BEV_EVENT_EOF, .is_tls = true, .has_tls_end = true}, true},
        {{.what = BEV_EVENT_EOF, .is_tls = true, .socket_error = ETIMEDOUT}, false}, /* a partition */
        {{.what = BEV_EVENT_EOF, .is_tls = true, .socket_error = EHOSTUNREACH}, false},
        {{.what = BEV_EVENT_ERROR, .socket_error = ETIMEDOUT}, false},
        {{.what = BEV_EVENT_EOF, .is_tls = true, .socket_error = ECONNRESET},
         true}, /* RST: it had not read all */
        {{.what = BEV_EVENT_ERROR, .socket_error = EPIPE}, true},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(link_end_is_peers(&cases[i].end), cases[i].is_peers);
}

/* Bytes on a plain connection, as a stranger would send them. */
static int raw_connect(struct world *world)
{
    struct addr addr;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(addr_parse(world->address, NULL, &addr), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr.sa, addr.sa_bytes), 0);
    return fd;
}

static void garbage_closes_it(void **state)
{
    struct world *world = *state;
    static const char *const lines[] = {"GET / HTTP/1.1\r\n\r\n", "BTN1\1\0\24\0\0\0\0\0",
                                        "BTN1\1\0\1\0\0\0\0\377"};

    world->is_plaintext = true;
    for (unsigned i = 0; i < 3; i++) {
        int fd = raw_connect(world);

        world->acceptor.n_down = 0;
        assert_int_equal(write(fd, lines[i], i == 0 ? 18 : 12), i == 0 ? 18 : 12);
        assert_true(world_run(world, acceptor_down, SOON_MS));
        assert_int_equal(world->acceptor.why.code, E_PROTO);
        close(fd);
    }
    assert_int_equal(world->acceptor.n_hello, 0);
}

static bool acceptor_got_two(struct world *world)
{
    return world->acceptor.n_messages >= 2;
}

/* A frame in single bytes, and an unknown type between two known ones. */
static void frames_may_come_in_bytes(void **state)
{
    struct world *world = *state;
    struct buf buf = {0};
    Baton__Cancel cancel = BATON__CANCEL__INIT;
    Baton__Heartbeat beat = BATON__HEARTBEAT__INIT;
    struct frame_header odd = {.version = FRAME_VERSION, .type = 999, .len_bytes = 3};
    uint8_t header[FRAME_HEADER_BYTES];
    int fd;

    world->is_plaintext = true;
    fd = raw_connect(world);
    assert_int_equal(frame_pack(FRAME_HELLO, &world->dialler.hello.base, &buf), 0);
    assert_int_equal(frame_pack(FRAME_HEARTBEAT, &beat.base, &buf), 0);
    cancel.request = 1;
    assert_int_equal(frame_pack(FRAME_CANCEL, &cancel.base, &buf), 0);
    frame_header_pack(&odd, header);
    buf_append(&buf, header, sizeof(header));
    buf_append(&buf, "abc", 3);
    cancel.request = 2;
    assert_int_equal(frame_pack(FRAME_CANCEL, &cancel.base, &buf), 0);
    for (size_t i = 0; i < buf.len_bytes; i++) {
        assert_int_equal(write(fd, buf.data + i, 1), 1);
        event_base_loop(ev_loop_base(world->loop), EVLOOP_NONBLOCK);
    }
    assert_true(world_run(world, acceptor_got_two, SOON_MS));
    assert_int_equal(world->acceptor.n_up, 1);
    buf_fini(&buf);
    close(fd);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, world_set_up, world_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(goes_up_and_beats),
        CASE(a_bad_rtt_is_forgotten),
        CASE(plaintext_works_where_asked_for),
        CASE(names_are_dialled),
        CASE(messages_arrive_in_order),
        CASE(long_messages_pass),
        CASE(refusal_carries_its_reason),
        CASE(a_bad_field_is_named_to_the_peer),
        CASE(refusal_by_the_dialler_ends_the_accepted),
        CASE(other_protocol_is_refused),
        CASE(other_key_is_refused),
        CASE(plaintext_peer_is_refused),
        CASE(mute_peer_meets_the_deadline),
        CASE(lost_heartbeats_bring_it_down),
        CASE(comes_back_after_a_restart),
        CASE(a_peer_that_does_not_read_is_dead),
        CASE(closing_inside_events_is_safe),
        CASE(an_error_from_the_owner_closes),
        CASE(goodbye_is_orderly),
        cmocka_unit_test(the_end_of_a_process_is_no_failure_on_the_way),
        CASE(garbage_closes_it),
        CASE(frames_may_come_in_bytes),
    };

    log_setup("test_link", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
