/* SPDX-License-Identifier: Apache-2.0 */
/* The world counts both ends' events; a waiting test checks it after each event. */
#include "link_rig.h"

#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const uint8_t key[32] = {42};

static void world_look(struct world *world)
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
    world_look(end->world);
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
    world_look(end->world);
    return type == FRAME_HEARTBEAT ? 0 : end->breaks;
}

static void on_down(void *arg, struct link *link, const struct fault *why)
{
    struct end *end = arg;

    end->n_down++;
    end->why = *why;
    end->peer_has_ended = link_peer_has_ended(link);
    assert_false(link_is_up(link));
    if (end == &end->world->acceptor && end->link == link) /* not if a later one was accepted meanwhile */
        end->link = NULL;
    world_look(end->world);
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

void end_init(struct world *world, struct end *end, Baton__Role role, char *node)
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

struct link_opts world_opts(struct world *world, struct end *end)
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

void world_on_accept(void *arg, int fd, const char *peer, struct stranger *stranger)
{
    struct world *world = arg;

    if (world->is_mute) {
        world->mute_fds[world->n_mute++ % 8] = fd;
        return;
    }
    struct link_opts opts = world_opts(world, &world->acceptor);
    assert_int_equal(link_accept(&opts, fd, &world->acceptor.link), 0);
}

static void on_limit(void *arg)
{
    struct world *world = arg;

    world->timed_out = true;
    ev_loop_stop(world->loop);
}

int world_set_up(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    struct listener_opts opts = {.address = "127.0.0.1:0", .on_accept = world_on_accept, .arg = world};

    assert_int_equal(ev_loop_new(&world->loop), 0);
    assert_int_equal(ev_timer_new(world->loop, on_limit, world, &world->limit), 0);
    assert_int_equal(tls_context_new(key, NULL, &world->tls), 0);
    opts.loop = world->loop;
    assert_int_equal(listener_open(&opts, NULL, &world->listener), 0);
    strcpy(world->address, listener_address(world->listener));
    end_init(world, &world->dialler, BATON__ROLE__ROLE_DECODE, "d1");
    end_init(world, &world->acceptor, BATON__ROLE__ROLE_ROUTER, "r1");
    *state = world;
    return 0;
}

int world_tear_down(void **state)
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

bool world_run(struct world *world, bool (*until)(struct world *world), unsigned limit_ms)
{
    world->until = until;
    world->timed_out = false;
    ev_timer_start(world->limit, limit_ms * NS_PER_MS);
    if (until == NULL || !until(world))
        ev_loop_run(world->loop);
    ev_timer_stop(world->limit);
    return !world->timed_out;
}

void world_dial(struct world *world)
{
    struct link_opts opts = world_opts(world, &world->dialler);

    assert_int_equal(link_dial(&opts, world->address, NULL, &world->dialler.link), 0);
}

bool both_up(struct world *world)
{
    return world->dialler.link != NULL && link_is_up(world->dialler.link) && world->acceptor.link != NULL &&
           link_is_up(world->acceptor.link);
}

bool acceptor_down(struct world *world)
{
    return world->acceptor.n_down > 0;
}

bool dialler_down(struct world *world)
{
    return world->dialler.n_down > 0;
}

void send_cancels(struct link *link, unsigned from, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        Baton__Cancel cancel = BATON__CANCEL__INIT;

        cancel.request = from + i;
        assert_int_equal(link_send(link, FRAME_CANCEL, &cancel.base), 0);
    }
}

static void poll_until(void *arg)
{
    world_look(arg);
}

bool world_run_polling(struct world *world, bool (*until)(struct world *world), unsigned limit_ms)
{
    struct ev_timer *poll;
    bool held;

    assert_int_equal(ev_timer_new(world->loop, poll_until, world, &poll), 0);
    ev_timer_repeat(poll, 2 * NS_PER_MS);
    held = world_run(world, until, limit_ms);
    ev_timer_free(poll);
    return held;
}
