/* SPDX-License-Identifier: Apache-2.0 */
/* Frames in and out, and the frames that the peer may send in each state.
 *
 *     GREETING   HELLO, REFUSED                    reads nothing else; a stranger may send 64 KiB at most
 *     GREETED    HEARTBEAT (the peer accepted us), REFUSED, GOODBYE
 *     UP         every type
 *     LEAVING    all are ignored
 *
 * A frame is parsed as soon as it is complete, so the input holds at most one frame.
 *
 * Round-trip time: a heartbeat returns the send time of the last heartbeat received, and how long its
 * sender held it: rtt = now - echo_sent - echo_held. This needs no synchronised clocks and no extra
 * messages. */
#include "net/link/link_priv.h"

#include <event2/buffer.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"

#define RTT_ALPHA          0.125
#define SCRATCH_KEEP_BYTES (64u << 10) /* a longer frame is sent from the buffer where it was packed */

static void drop_packed(const void *data, size_t len_bytes, void *arg)
{
    free(arg);
}

/* Long frames change owner instead of being copied again. */
static int queue_packed(struct link *link, struct evbuffer *output)
{
    struct buf *packed = &link->scratch;

    if (packed->len_bytes <= SCRATCH_KEEP_BYTES)
        return evbuffer_add(output, packed->data, packed->len_bytes) == 0 ? 0 : E_NOMEM;
    if (evbuffer_add_reference(output, packed->data, packed->len_bytes, drop_packed, packed->data) != 0)
        return E_NOMEM;
    *packed = (struct buf){0};
    return 0;
}

int link_put(struct link *link, enum frame_type type, const ProtobufCMessage *message)
{
    struct evbuffer *output = bufferevent_get_output(link->bev);
    int err;

    buf_clear(&link->scratch);
    err = frame_pack(type, message, &link->scratch);
    if (err == 0 && evbuffer_get_length(output) + link->scratch.len_bytes > link->opts.max_queue_bytes)
        err = E_FULL;
    if (err == 0)
        err = queue_packed(link, output);
    /* A buffer that failed once stays unusable. */
    if (err != 0 || link->scratch.cap_bytes > SCRATCH_KEEP_BYTES) {
        buf_fini(&link->scratch);
        link->scratch = (struct buf){0};
    }
    return err;
}

void link_send_heartbeat(struct link *link)
{
    Baton__Heartbeat beat = BATON__HEARTBEAT__INIT;
    Baton__KeyProof keys[TLS_MAX_KEYS], *list[TLS_MAX_KEYS];
    struct tls_proof proofs[TLS_MAX_KEYS];
    uint64_t now_ns = clock_now_ns();

    beat.number = ++link->beat_number;
    beat.sent_ns = now_ns;
    if (link->peer_sent_ns != 0) {
        beat.echo_sent_ns = link->peer_sent_ns;
        beat.echo_held_ns = now_ns - link->peer_received_ns;
    }
    if (link->opts.make_heartbeat != NULL)
        beat.load = (Baton__LoadReport *)(uintptr_t)link->opts.make_heartbeat(link->opts.events_arg);
    beat.n_keys = link_keys_prove(link, proofs);
    beat.keys = list;
    for (size_t i = 0; i < beat.n_keys; i++) {
        baton__key_proof__init(&keys[i]);
        keys[i].id = proofs[i].id;
        keys[i].mac = (ProtobufCBinaryData){sizeof(proofs[i].mac), proofs[i].mac};
        list[i] = &keys[i];
    }
    /* If the queue is full, the link goes down by itself. */
    link_put(link, FRAME_HEARTBEAT, &beat.base);
}

static void fail_with(struct link *link, int code, const char *text)
{
    struct fault fault;

    fault_set(&fault, code, "%s: %s", link->address, text);
    link_fail(link, &fault);
}

static void link_frame_refuse(struct link *link, const struct fault *why)
{
    Baton__Refused refused = BATON__REFUSED__INIT;

    refused.code = why->code;
    refused.text = (char *)(uintptr_t)why->text;
    link_part(link, FRAME_REFUSED, &refused.base, why);
}

static void was_refused(struct link *link, const Baton__Refused *refused)
{
    struct fault fault;

    fault_set(&fault, refused->code < 0 ? refused->code : E_PEER, "%s refuses: %s", link->address,
              refused->text);
    link_fail(link, &fault);
}

static void link_receive_heartbeat(struct link *link, const Baton__Heartbeat *beat)
{
    uint64_t now_ns = clock_now_ns();

    link_keys_receive(link, beat);
    link->peer_sent_ns = beat->sent_ns;
    link->peer_received_ns = now_ns;
    if (beat->echo_sent_ns == 0 || beat->echo_sent_ns > now_ns ||
        beat->echo_held_ns > now_ns - beat->echo_sent_ns)
        return; /* no echo, or an echo of a time that is not ours */

    uint64_t rtt_ns = now_ns - beat->echo_sent_ns - beat->echo_held_ns;
    rate_learn(&link->rtt_s, (double)rtt_ns / (double)NS_PER_S, RTT_ALPHA, 1, now_ns);
}

static void in_greeting(struct link *link, enum frame_type type, const ProtobufCMessage *message)
{
    const Baton__Hello *hello = (const Baton__Hello *)message;
    struct fault fault = {0};
    int err = 0;

    if (type == FRAME_REFUSED) {
        was_refused(link, (const Baton__Refused *)message);
        return;
    }
    if (hello->protocol != LINK_PROTOCOL)
        err = fault_set(&fault, E_VERSION, "%s speaks protocol %u, this side %u", hello->node,
                        hello->protocol, LINK_PROTOCOL);
    else if (link->opts.events->on_hello != NULL)
        err = link->opts.events->on_hello(link->opts.events_arg, link, message, &fault);
    if (link->is_closed)
        return;
    if (err != 0) {
        if (fault.code == 0)
            fault_set(&fault, err, "%s", err_text(err));
        link_frame_refuse(link, &fault);
        return;
    }
    link_set_state(link, LINK_GREETED);
    link_send_heartbeat(link);
    ev_timer_repeat(link->beat, link->opts.heartbeat_ns);
}

static void in_greeted(struct link *link, enum frame_type type, const ProtobufCMessage *message)
{
    if (type == FRAME_REFUSED) {
        was_refused(link, (const Baton__Refused *)message);
    } else if (type != FRAME_HEARTBEAT) {
        fail_with(link, E_PROTO, "said something before its first HEARTBEAT");
    } else {
        link_receive_heartbeat(link, (const Baton__Heartbeat *)message);
        link_went_up(link);
        if (!link->is_closed && link->state == LINK_UP)
            link->opts.events->on_message(link->opts.events_arg, link, type, message);
    }
}

static void in_up(struct link *link, enum frame_type type, const ProtobufCMessage *message)
{
    if (type == FRAME_HELLO || type == FRAME_REFUSED) {
        fail_with(link, E_PROTO, "greets twice");
        return;
    }
    if (type == FRAME_HEARTBEAT)
        link_receive_heartbeat(link, (const Baton__Heartbeat *)message);

    int err = link->opts.events->on_message(link->opts.events_arg, link, type, message);
    if (err != 0 && !link->is_closed)
        fail_with(link, err, err_text(err));
}

static void link_frame_receive(struct link *link, enum frame_type type, const ProtobufCMessage *message)
{
    if (type == FRAME_GOODBYE) {
        struct fault fault;

        fault_set(&fault, E_CLOSED, "%s says goodbye: %s", link->address,
                  ((const Baton__Goodbye *)message)->text);
        link_fail(link, &fault);
        return;
    }
    switch (link->state) {
    case LINK_GREETING:
        in_greeting(link, type, message);
        return;
    case LINK_GREETED:
        in_greeted(link, type, message);
        return;
    case LINK_UP:
        in_up(link, type, message);
        return;
    case LINK_WAITING:
    case LINK_RESOLVING:
    case LINK_CONNECTING:
    case LINK_LEAVING:
    case LINK_ENDED:
        return;
    }
}

static bool link_may_receive(const struct link *link, uint16_t type)
{
    return link->state != LINK_GREETING || type == FRAME_HELLO || type == FRAME_REFUSED ||
           type == FRAME_GOODBYE;
}

/* Reads one frame from the input. False: no frame is complete, or the link stopped reading. */
static bool read_frame(struct link *link, struct evbuffer *input)
{
    uint8_t bytes[FRAME_HEADER_BYTES];
    struct frame_header header;
    struct fault fault;
    ProtobufCMessage *message;
    int err;

    if (evbuffer_copyout(input, bytes, sizeof(bytes)) < (ev_ssize_t)sizeof(bytes))
        return false;
    err = frame_header_unpack(bytes, &fault, &header);
    if (err == 0 && !link_may_receive(link, header.type))
        err = fault_set(&fault, E_PROTO, "%s: %s instead of HELLO", link->address,
                        frame_type_name(header.type));
    if (err == E_VERSION) {
        link_frame_refuse(link, &fault);
        return false;
    }
    if (err != 0) {
        link_fail(link, &fault);
        return false;
    }
    if (evbuffer_get_length(input) < sizeof(bytes) + header.len_bytes)
        return false;
    evbuffer_drain(input, sizeof(bytes));
    if (!frame_type_known(header.type)) { /* a type of a later version */
        evbuffer_drain(input, header.len_bytes);
        return true;
    }
    err = frame_unpack(header.type, bytes_of(evbuffer_pullup(input, header.len_bytes), header.len_bytes),
                       &fault, &message);
    evbuffer_drain(input, header.len_bytes);
    if (err != 0) {
        if (link->state == LINK_GREETING && header.type == FRAME_HELLO)
            link_frame_refuse(link,
                              &fault); /* the fault names the field, so the peer's operator can fix it */
        else
            link_fail(link, &fault);
        return false;
    }
    link_frame_receive(link, header.type, message);
    frame_message_free(message);
    return true;
}

void link_read_frames(struct link *link)
{
    link->has_received = true;
    while (!link->is_closed && link->bev != NULL && link->state != LINK_LEAVING &&
           read_frame(link, bufferevent_get_input(link->bev)))
        ;
    if (!link->is_closed && link->state == LINK_LEAVING)
        evbuffer_drain(bufferevent_get_input(link->bev), SIZE_MAX);
}
