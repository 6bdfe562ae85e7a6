/* SPDX-License-Identifier: Apache-2.0 */
/* Links over real sockets on loopback, both ends on one loop. */
#include "net/link.h"
#include "net/listener.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BEAT_NS (20 * NS_PER_MS)

struct world;

struct end { /* of a link */
    struct world *world;
    struct link *link;
    Baton__Hello hello;
    Baton__LoadReport load;
    unsigned n_up, n_down, n_hello, n_messages, n_heartbeats;
    uint64_t peer_epoch;
    uint32_t last_request;
    int refuses; /* error for on_hello */
    int breaks;  /* error for on_message */
    bool closes_in_up, closes_in_message, closes_in_hello;
    struct fault why;
};

struct world {
    struct ev_loop *loop;
    struct ev_timer *limit;
    struct tls_context *tls;
    struct listener *listener;
    char address[64];
    struct end dialler, acceptor;
    bool is_plaintext;
    bool (*until)(struct world *world);
    size_t max_queue_bytes;
    bool timed_out;
    bool is_mute; /* accepted sockets are kept and never spoken to */
    int mute_fds[8];
    unsigned n_mute;
};

enum { SOON_MS = 20000 }; /* what must happen: at once where the machine is calm */

static const uint8_t key[32] = {42};

static void look(struct world *world)
{
    if (world->until != NULL && world->until(world))
        ev_loop_stop(world->loop);
}

static int on_hello(void *arg, struct link *link, const ProtobufCMessage *message, struct fault *fault)
{
    struct end *end = arg;
    const Baton__Hello *hello = (const Baton__Hello *)message;

    end->n_hello++;
    end->peer_epoch = hello->epoch;
    if (end->closes_in_hello) {
        link_close(link);
        end->link = NULL;
        ev_loop_stop(end->world->loop);
        return 0;
    }
    if (end->refuses != 0)
        return fault_set(fault, end->refuses, "model %s is not ours", hello->node);
    return 0;
}

static void on_up(void *arg, struct link *link)
{
    struct end *end = arg;

    end->n_up++;
    assert_true(link_is_up(link));
    if (end->closes_in_up) {
        link_close(link);
        end->link = NULL;
    }
    look(end->world);
}

static int on_message(void *arg, struct link *link, enum frame_type type, const ProtobufCMessage *message)
{
    struct end *end = arg;

    if (type == FRAME_HEARTBEAT) {
        const Baton__Heartbeat *beat = (const Baton__Heartbeat *)message;

        end->n_heartbeats++;
        if (beat->load != NULL)
            assert_int_equal(beat->load->blocks_total, 77);
    } else {
        end->n_messages++;
        if (type == FRAME_CANCEL) {
            const Baton__Cancel *cancel = (const Baton__Cancel *)message;

            assert_int_equal(cancel->request, end->last_request + 1);
            end->last_request = (uint32_t)cancel->request;
        }
    }
    if (end->closes_in_message && type != FRAME_HEARTBEAT) {
        link_close(link);
        end->link = NULL;
    }
    look(end->world);
    return type == FRAME_HEARTBEAT ? 0 : end->breaks;
}

static void on_down(void *arg, struct link *link, const struct fault *why)
{
    struct end *end = arg;

    end->n_down++;
    end->why = *why;
    assert_false(link_is_up(link));
    if (end == &end->world->acceptor)
        end->link = NULL;
    look(end->world);
}

static const struct link_events events = {on_hello, on_up, on_message, on_down};

static const ProtobufCMessage *make_hello(void *arg)
{
    return &((struct end *)arg)->hello.base;
}

static const ProtobufCMessage *make_load(void *arg)
{
    return &((struct end *)arg)->load.base;
}

static void set_up_end(struct world *world, struct end *end, Baton__Role role, char *node)
{
    *end = (struct end){.world = world};
    end->hello = (Baton__Hello)BATON__HELLO__INIT;
    end->hello.protocol = LINK_PROTOCOL;
    end->hello.role = role;
    end->hello.node = node;
    end->hello.epoch = 1;
    end->load = (Baton__LoadReport)BATON__LOAD_REPORT__INIT;
    end->load.blocks_total = 77;
}

static struct link_opts opts_for(struct world *world, struct end *end)
{
    return (struct link_opts){.loop = world->loop,
                              .tls = world->is_plaintext ? NULL : world->tls,
                              .is_plaintext = world->is_plaintext,
                              .events = &events,
                              .events_arg = end,
                              .make_hello = make_hello,
                              .make_heartbeat = make_load,
                              .heartbeat_ns = BEAT_NS,
                              .handshake_ns = 400 * NS_PER_MS,
                              .retry_min_ns = 5 * NS_PER_MS,
                              .retry_max_ns = 20 * NS_PER_MS,
                              .max_queue_bytes = world->max_queue_bytes};
}

static void on_accept(void *arg, int fd, const char *peer)
{
    struct world *world = arg;

    if (world->is_mute) {
        world->mute_fds[world->n_mute++ % 8] = fd;
        return;
    }
    struct link_opts opts = opts_for(world, &world->acceptor);
    assert_int_equal(link_accept(&opts, fd, &world->acceptor.link), 0);
}

static void on_limit(void *arg)
{
    struct world *world = arg;

    world->timed_out = true;
    ev_loop_stop(world->loop);
}

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    struct listener_opts opts = {.address = "127.0.0.1:0", .on_accept = on_accept, .arg = world};

    assert_int_equal(ev_loop_new(&world->loop), 0);
    assert_int_equal(ev_timer_new(world->loop, on_limit, world, &world->limit), 0);
    assert_int_equal(tls_context_new(key, NULL, &world->tls), 0);
    opts.loop = world->loop;
    assert_int_equal(listener_open(&opts, NULL, &world->listener), 0);
    strcpy(world->address, listener_address(world->listener));
    set_up_end(world, &world->dialler, BATON__ROLE__ROLE_DECODE, "d1");
    set_up_end(world, &world->acceptor, BATON__ROLE__ROLE_ROUTER, "r1");
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;

    link_close(world->dialler.link);
    link_close(world->acceptor.link);
    listener_close(world->listener);
    for (unsigned i = 0; i < world->n_mute && i < 8; i++)
        close(world->mute_fds[i]);
    ev_timer_free(world->limit);
    ev_loop_free(world->loop);
    tls_context_free(world->tls);
    free(world);
    return 0;
}

/* Runs until the condition holds (checked after every event) or a second went by; returns whether it held. */
static bool run(struct world *world, bool (*until)(struct world *world), unsigned limit_ms)
{
    world->until = until;
    world->timed_out = false;
    ev_timer_start(world->limit, limit_ms * NS_PER_MS);
    if (until == NULL || !until(world))
        ev_loop_run(world->loop);
    ev_timer_stop(world->limit);
    return !world->timed_out;
}

static void dial(struct world *world)
{
    struct link_opts opts = opts_for(world, &world->dialler);

    assert_int_equal(link_dial(&opts, world->address, NULL, &world->dialler.link), 0);
}

static bool both_up(struct world *world)
{
    return world->dialler.link != NULL && link_is_up(world->dialler.link) && world->acceptor.link != NULL &&
           link_is_up(world->acceptor.link);
}

static bool beats_flowed(struct world *world)
{
    return world->dialler.n_heartbeats >= 3 && world->acceptor.n_heartbeats >= 3;
}

static bool acceptor_down(struct world *world)
{
    return world->acceptor.n_down > 0;
}

static bool dialler_down(struct world *world)
{
    return world->dialler.n_down > 0;
}

static bool acceptor_got_hundred(struct world *world)
{
    return world->acceptor.n_messages >= 100;
}

static void send_cancels(struct link *link, unsigned from, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        Baton__Cancel cancel = BATON__CANCEL__INIT;

        cancel.request = from + i;
        assert_int_equal(link_send(link, FRAME_CANCEL, &cancel.base), 0);
    }
}

static void goes_up_and_beats(void **state)
{
    struct world *world = *state;

    dial(world);
    assert_int_equal(link_send(world->dialler.link, FRAME_CANCEL, NULL), E_CLOSED);
    assert_true(run(world, both_up, SOON_MS));
    assert_true(run(world, beats_flowed, SOON_MS));
    assert_int_equal(world->dialler.n_up, 1);
    assert_int_equal(world->acceptor.n_up, 1);
    assert_int_not_equal(link_rtt_ns(world->dialler.link), 0);
    assert_true(link_rtt_ns(world->dialler.link) < NS_PER_S);
    assert_int_equal(link_why_down(world->dialler.link)->code, 0);
}

static void plaintext_works_where_asked_for(void **state)
{
    struct world *world = *state;
    struct link_opts opts;
    struct link *link;

    world->is_plaintext = true;
    dial(world);
    assert_true(run(world, both_up, SOON_MS));
    opts = opts_for(world, &world->dialler);
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
    dial(world);
    assert_true(run(world, both_up, SOON_MS));
}

static void messages_arrive_in_order(void **state)
{
    struct world *world = *state;

    dial(world);
    assert_true(run(world, both_up, SOON_MS));
    send_cancels(world->dialler.link, 1, 100);
    assert_true(run(world, acceptor_got_hundred, SOON_MS));
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

    dial(world);
    assert_true(run(world, both_up, SOON_MS));
    submit.tokens = (ProtobufCBinaryData){.len = len_bytes, .data = calloc(1, len_bytes)};
    submit.n_prompt = 1;
    submit.sampling = &sampling;
    assert_int_equal(link_send(world->dialler.link, FRAME_SUBMIT, &submit.base), 0);
    free(submit.tokens.data);
    assert_true(run(world, acceptor_got_one, SOON_MS));
}

static bool dialler_knows_why(struct world *world)
{
    return world->dialler.link != NULL && link_why_down(world->dialler.link)->code == E_MISMATCH;
}

static void poll_until(void *arg)
{
    look(arg);
}

static bool run_polling(struct world *world, bool (*until)(struct world *world), unsigned limit_ms)
{
    struct ev_timer *poll;
    bool held;

    assert_int_equal(ev_timer_new(world->loop, poll_until, world, &poll), 0);
    ev_timer_repeat(poll, 2 * NS_PER_MS);
    held = run(world, until, limit_ms);
    ev_timer_free(poll);
    return held;
}

static void refusal_carries_its_reason(void **state)
{
    struct world *world = *state;

    world->acceptor.refuses = E_MISMATCH;
    dial(world);
    assert_true(run_polling(world, dialler_knows_why, SOON_MS));
    assert_non_null(strstr(link_why_down(world->dialler.link)->text, "model d1 is not ours"));
    assert_int_equal(world->dialler.n_up, 0);
    assert_int_equal(world->dialler.n_down, 0);

    /* It goes on dialling, and gets in when the reason is gone. */
    world->acceptor.refuses = 0;
    assert_true(run(world, both_up, SOON_MS));
}

static void refusal_by_the_dialler_ends_the_accepted(void **state)
{
    struct world *world = *state;

    world->dialler.refuses = E_MISMATCH;
    dial(world);
    assert_true(run(world, acceptor_down, SOON_MS));
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
    dial(world);
    assert_true(run_polling(world, dialler_knows_version, SOON_MS));
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
    dial(world);
    world->tls = good;
    assert_true(run_polling(world, dialler_knows_auth, SOON_MS));
    assert_int_equal(link_why_down(world->dialler.link)->code, E_AUTH);
    assert_true(run(world, acceptor_down, SOON_MS));
    assert_int_equal(world->acceptor.why.code, E_AUTH);
    assert_int_equal(world->acceptor.n_hello + world->dialler.n_hello, 0);
    link_close(world->dialler.link);
    world->dialler.link = NULL;
    tls_context_free(bad);
}

static void plaintext_peer_is_refused(void **state)
{
    struct world *world = *state;
    struct link_opts opts = opts_for(world, &world->dialler);

    opts.tls = NULL;
    opts.is_plaintext = true;
    assert_int_equal(link_dial(&opts, world->address, NULL, &world->dialler.link), 0);
    assert_true(run(world, acceptor_down, SOON_MS));
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
    dial(world);
    assert_true(run_polling(world, dialler_timed_out, SOON_MS));
    assert_true(clock_now_ns() - start_ns >= 400 * NS_PER_MS);
    assert_int_equal(world->dialler.n_down, 0);
}

/* A peer that froze: its sockets stay open, nothing is read or written. */
static void lost_heartbeats_bring_it_down(void **state)
{
    struct world *world = *state;
    struct world frozen = {0};

    assert_int_equal(ev_loop_new(&frozen.loop), 0); /* the acceptor lives on a loop that will not run */
    frozen.tls = world->tls;
    set_up_end(&frozen, &frozen.acceptor, BATON__ROLE__ROLE_ROUTER, "r1");
    world->is_mute = true; /* the accepted descriptor is kept for the frozen world */
    dial(world);
    while (world->n_mute == 0)
        event_base_loop(ev_loop_base(world->loop), EVLOOP_ONCE);
    struct link_opts opts = opts_for(&frozen, &frozen.acceptor);
    assert_int_equal(link_accept(&opts, world->mute_fds[0], &frozen.acceptor.link), 0);
    world->n_mute = 0;
    while (!link_is_up(world->dialler.link)) {
        event_base_loop(ev_loop_base(frozen.loop), EVLOOP_NONBLOCK);
        event_base_loop(ev_loop_base(world->loop), EVLOOP_NONBLOCK);
    }
    uint64_t start_ns = clock_now_ns();
    assert_true(run(world, dialler_down, SOON_MS));
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

    dial(world);
    assert_true(run(world, both_up, SOON_MS));
    assert_int_equal(world->dialler.peer_epoch, 1);
    link_close(world->acceptor.link); /* the peer dies ... */
    world->acceptor.link = NULL;
    listener_close(world->listener);
    world->listener = NULL;
    assert_true(run(world, dialler_down, SOON_MS));
    assert_int_equal(world->dialler.why.code, E_CLOSED);
    run(world, NULL, 40); /* ... is away for some attempts ... */

    struct listener_opts opts = {
        .loop = world->loop, .address = world->address, .on_accept = on_accept, .arg = world};
    world->acceptor.hello.epoch = 2; /* ... and comes back as another */
    assert_int_equal(listener_open(&opts, NULL, &world->listener), 0);
    assert_true(run(world, dialler_down_then_up, SOON_MS));
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
    dial(world);
    assert_true(run(world, both_up, SOON_MS));
    submit.tokens = (ProtobufCBinaryData){.len = 1 << 20, .data = tokens};
    submit.n_prompt = 1;
    submit.sampling = &sampling;
    for (unsigned i = 0; i < 8 && err == 0; i++) /* the loop does not turn: nothing leaves */
        err = link_send(world->dialler.link, FRAME_SUBMIT, &submit.base);
    free(tokens);
    assert_int_equal(err, E_FULL);
    assert_true(link_queued_bytes(world->dialler.link) <= world->max_queue_bytes);
    assert_int_equal(world->dialler.n_down, 0);
    assert_true(run(world, dialler_down, SOON_MS));
    assert_int_equal(world->dialler.why.code, E_FULL);
}

static void closing_inside_events_is_safe(void **state)
{
    struct world *world = *state;

    world->acceptor.closes_in_hello = true;
    dial(world);
    assert_true(run(world, NULL, SOON_MS));
    assert_int_equal(world->acceptor.n_down, 0);
    world->acceptor.closes_in_hello = false;
    world->acceptor.closes_in_up = true;
    world->dialler.n_down = 0;
    assert_true(run(world, dialler_down, SOON_MS));
    world->acceptor.closes_in_up = false;
    world->acceptor.closes_in_message = true;
    world->dialler.n_down = 0;
    assert_true(run(world, both_up, SOON_MS));
    world->acceptor.last_request = 0;
    send_cancels(world->dialler.link, 1, 10);
    assert_true(run(world, dialler_down, SOON_MS));
    assert_int_equal(world->acceptor.n_messages, 1);
    assert_null(world->acceptor.link);
    assert_int_equal(world->acceptor.n_down, 0);
}

static void an_error_from_the_owner_closes(void **state)
{
    struct world *world = *state;

    world->acceptor.breaks = E_PROTO;
    dial(world);
    assert_true(run(world, both_up, SOON_MS));
    send_cancels(world->dialler.link, 1, 2);
    assert_true(run(world, acceptor_down, SOON_MS));
    assert_int_equal(world->acceptor.why.code, E_PROTO);
    assert_int_equal(world->acceptor.n_messages, 1);
}

static void goodbye_is_orderly(void **state)
{
    struct world *world = *state;

    dial(world);
    assert_true(run(world, both_up, SOON_MS));
    send_cancels(world->dialler.link, 1, 100);
    link_goodbye(world->dialler.link, "restarting");
    world->dialler.link = NULL;
    assert_true(run(world, acceptor_down, SOON_MS));
    assert_int_equal(world->acceptor.n_messages, 100); /* what was queued came first */
    assert_int_equal(world->acceptor.why.code, E_CLOSED);
    assert_non_null(strstr(world->acceptor.why.text, "restarting"));
    assert_int_equal(world->dialler.n_down, 0);
    run(world, NULL, 30);
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
        assert_true(run(world, acceptor_down, SOON_MS));
        assert_int_equal(world->acceptor.why.code, E_PROTO);
        close(fd);
    }
    assert_int_equal(world->acceptor.n_hello, 0);
}

static bool acceptor_got_two(struct world *world)
{
    return world->acceptor.n_messages >= 2;
}

/* A frame cut into single bytes, an unknown type between two known ones. */
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
    assert_true(run(world, acceptor_got_two, SOON_MS));
    assert_int_equal(world->acceptor.n_up, 1);
    buf_fini(&buf);
    close(fd);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(goes_up_and_beats),
        CASE(plaintext_works_where_asked_for),
        CASE(names_are_dialled),
        CASE(messages_arrive_in_order),
        CASE(long_messages_pass),
        CASE(refusal_carries_its_reason),
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
        CASE(garbage_closes_it),
        CASE(frames_may_come_in_bytes),
    };

    log_setup("test_link", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
