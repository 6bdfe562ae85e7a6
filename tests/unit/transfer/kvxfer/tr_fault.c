/* SPDX-License-Identifier: Apache-2.0 */
/* See tr_fault.h.  The agenda is an array, searched for its earliest entry, because it has few. */
#include "tr_fault.h"

#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"

#define MAX_AGENDA  4096
#define MAX_OPEN    64
#define MAX_BLOCKS  16
#define MAX_LAYERS  4
#define MAX_PAYLOAD MAX_BLOCKS

enum what { A_READ, A_FRAME, A_MESSAGE, A_EVENT, A_ALARM };

struct due {
    uint64_t at_ns, number; /* number: of two entries due at once, the older one goes first */
    enum what what;
    bool to_sender;
    uint64_t push, ticket;
    uint32_t layer, index, block, value; /* a frame */
    struct kvxfer_message message;
    kv_block_id blocks[MAX_PAYLOAD];
    struct tr_event event;
};

struct ticket {
    uint64_t id; /* 0: none */
    bool is_accepting;
    uint32_t blocks[MAX_BLOCKS], n_blocks, n_pieces;
    bool is_here[MAX_LAYERS][MAX_BLOCKS];
};

struct push {
    uint64_t id, ticket; /* 0: none */
    bool is_broken;
};

static struct {
    struct tr_fault_opts opts;
    struct tr_fault_counts counts;
    struct rng rng;
    uint64_t now_ns, number, last_event_ns[2];
    struct due agenda[MAX_AGENDA];
    uint32_t n_agenda;
    struct ticket tickets[MAX_OPEN];
    struct push pushes[MAX_OPEN];
} f;

void tr_fault_init(const struct tr_fault_opts *opts)
{
    memset(&f, 0, sizeof(f));
    f.opts = *opts;
    f.now_ns = NS_PER_S;
    rng_init(&f.rng, opts->seed);
    ASSERT(opts->n_layers <= MAX_LAYERS);
}

void tr_fault_fini(void)
{
    f.n_agenda = 0;
}

uint64_t tr_fault_now_ns(void)
{
    return f.now_ns;
}

uint64_t tr_fault_random(uint64_t below)
{
    return rng_below(&f.rng, below);
}

void tr_fault_counts(struct tr_fault_counts *out)
{
    *out = f.counts;
}

static bool by_chance(uint32_t in_1000)
{
    return rng_below(&f.rng, 1000) < in_1000;
}

static struct ticket *find_ticket(uint64_t id)
{
    for (uint32_t i = 0; i < MAX_OPEN; i++)
        if (f.tickets[i].id == id)
            return &f.tickets[i];
    return NULL;
}

static struct push *find_push(uint64_t id)
{
    for (uint32_t i = 0; i < MAX_OPEN; i++)
        if (f.pushes[i].id == id)
            return &f.pushes[i];
    return NULL;
}

/* ---- the agenda ---- */

static struct due *add(enum what what, uint64_t delay_ns)
{
    struct due *due = &f.agenda[f.n_agenda];

    ASSERT(f.n_agenda < MAX_AGENDA);
    f.n_agenda++;
    memset(due, 0, sizeof(*due));
    due->what = what;
    due->at_ns = f.now_ns + delay_ns;
    due->number = f.number++;
    return due;
}

static uint64_t some_delay(void)
{
    f.counts.delayed++;
    return 1 + rng_below(&f.rng, f.opts.delay_ns);
}

static void raise_event(bool to_sender, enum tr_event_kind kind, uint64_t id)
{
    struct due *due = add(A_EVENT, some_delay());

    if (due->at_ns < f.last_event_ns[to_sender])
        due->at_ns = f.last_event_ns[to_sender]; /* events of a node come in order */
    f.last_event_ns[to_sender] = due->at_ns;
    due->to_sender = to_sender;
    due->event = (struct tr_event){.kind = kind, .id = id, .fault = {.code = E_IO}};
}

void tr_fault_alarm(uint64_t delay_ns)
{
    (void)add(A_ALARM, delay_ns);
}

static void post_once(bool to_sender, const struct kvxfer_message *message)
{
    struct due *due = add(A_MESSAGE, some_delay());

    due->to_sender = to_sender;
    due->message = *message;
    if (message->blocks != NULL) {
        ASSERT(message->n_blocks <= MAX_PAYLOAD);
        memcpy(due->blocks, message->blocks, message->n_blocks * sizeof(*message->blocks));
    }
}

void tr_fault_post(bool to_sender, const struct kvxfer_message *message)
{
    if (by_chance(f.opts.drop)) {
        f.counts.dropped++;
        return;
    }
    post_once(to_sender, message);
    if (by_chance(f.opts.twice)) {
        f.counts.doubled++;
        post_once(to_sender, message);
    }
}

void tr_fault_cut(void)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < f.n_agenda; i++)
        if (f.agenda[i].what != A_MESSAGE)
            f.agenda[n++] = f.agenda[i];
    f.n_agenda = n;
}

void tr_fault_crash(bool is_sender, uint64_t id)
{
    if (is_sender) {
        struct push *push = find_push(id);

        if (push != NULL)
            memset(push, 0, sizeof(*push));
    } else {
        struct ticket *ticket = find_ticket(id);

        if (ticket != NULL)
            memset(ticket, 0, sizeof(*ticket));
    }
}

/* ---- events ---- */

static void break_push(struct push *push)
{
    struct ticket *ticket = find_ticket(push->ticket);

    push->is_broken = true;
    f.counts.broken++;
    raise_event(true, TR_PUSH_FAILED, push->id);
    if (ticket != NULL && ticket->is_accepting) {
        ticket->is_accepting = false;
        raise_event(false, TR_TICKET_FAILED, ticket->id);
    }
}

/* The frame leaves: reads the source now. */
static void read_frame(const struct due *read)
{
    struct push *push = find_push(read->push);
    struct due frame = *read;
    uint32_t copies = 1;

    if (push == NULL || push->is_broken)
        return;
    if (by_chance(f.opts.break_push)) {
        break_push(push);
        return;
    }
    frame.value = f.opts.read(read->push, read->layer, read->block);
    raise_event(true, TR_PUSH_SENT, push->id);
    if (by_chance(f.opts.drop)) {
        f.counts.dropped++;
        return;
    }
    if (by_chance(f.opts.twice)) {
        f.counts.doubled++;
        copies = 2;
    }
    for (uint32_t i = 0; i < copies; i++) {
        struct due *due = add(A_FRAME, some_delay());
        uint64_t at_ns = due->at_ns, number = due->number;

        *due = frame;
        due->what = A_FRAME;
        due->at_ns = at_ns;
        due->number = number;
    }
}

static void place_frame(const struct due *frame)
{
    struct ticket *ticket = find_ticket(frame->ticket);
    struct push *push = find_push(frame->push);

    if (ticket == NULL || !ticket->is_accepting) {
        f.counts.rejected++;
        if (push != NULL && ticket == NULL)
            raise_event(true, TR_PUSH_FAILED, push->id);
        return;
    }
    if (frame->index >= ticket->n_blocks || ticket->is_here[frame->layer][frame->index])
        return; /* repeated */
    f.opts.write(ticket->id, frame->layer, ticket->blocks[frame->index], frame->value);
    ticket->is_here[frame->layer][frame->index] = true;
    ticket->n_pieces++;
    if (ticket->n_pieces == ticket->n_blocks * f.opts.n_layers) {
        ticket->is_accepting = false;
        raise_event(false, TR_TICKET_COMPLETE, ticket->id);
    } else if (by_chance(300)) {
        raise_event(false, TR_PIECES_ARRIVED, ticket->id);
    }
}

static uint32_t leading(const struct ticket *ticket)
{
    for (uint32_t i = 0; i < ticket->n_blocks; i++)
        for (uint32_t l = 0; l < f.opts.n_layers; l++)
            if (!ticket->is_here[l][i])
                return i;
    return ticket->n_blocks;
}

/* An event is made when it is delivered, because a later one includes all earlier ones. */
static void deliver_event(struct due *due)
{
    struct ticket *ticket = due->to_sender ? NULL : find_ticket(due->event.id);
    struct push *push = due->to_sender ? find_push(due->event.id) : NULL;

    if (ticket == NULL && push == NULL)
        return; /* its process died */
    if (ticket != NULL) {
        due->event.n_pieces = ticket->n_pieces;
        due->event.n_leading = leading(ticket);
        due->event.n_bytes = ticket->n_pieces;
        if (due->event.kind == TR_TICKET_CLOSED)
            memset(ticket, 0, sizeof(*ticket));
    }
    if (push != NULL && due->event.kind == TR_PUSH_STOPPED)
        memset(push, 0, sizeof(*push));
    f.opts.on_event(due->to_sender, &due->event);
}

bool tr_fault_step(void)
{
    uint32_t next = 0;
    struct due due;

    if (f.n_agenda == 0)
        return false;
    for (uint32_t i = 1; i < f.n_agenda; i++)
        if (f.agenda[i].at_ns < f.agenda[next].at_ns ||
            (f.agenda[i].at_ns == f.agenda[next].at_ns && f.agenda[i].number < f.agenda[next].number))
            next = i;
    due = f.agenda[next];
    f.agenda[next] = f.agenda[--f.n_agenda];
    f.now_ns = due.at_ns;
    if (due.message.blocks != NULL)
        due.message.blocks = due.blocks;
    switch (due.what) {
    case A_READ:
        read_frame(&due);
        break;
    case A_FRAME:
        place_frame(&due);
        break;
    case A_MESSAGE:
        f.opts.on_message(due.to_sender, &due.message);
        break;
    case A_EVENT:
        deliver_event(&due);
        break;
    case A_ALARM:
        f.opts.on_alarm();
        break;
    }
    return true;
}

/* ---- the transport that kvxfer sees ---- */

int tr_open_ticket(struct tr_node *node, uint64_t id, const uint32_t *blocks, uint32_t n_blocks)
{
    struct ticket *ticket = find_ticket(0);

    (void)node;
    if (ticket == NULL || n_blocks > MAX_BLOCKS)
        return E_FULL;
    *ticket = (struct ticket){.id = id, .is_accepting = true, .n_blocks = n_blocks};
    memcpy(ticket->blocks, blocks, n_blocks * sizeof(*blocks));
    return 0;
}

int tr_close_ticket(struct tr_node *node, uint64_t id)
{
    (void)node;
    raise_event(false, TR_TICKET_CLOSED, id); /* until then pieces may still be placed */
    return 0;
}

int tr_start_push(struct tr_node *node, uint64_t id, const struct tr_target *target, uint32_t n_pieces)
{
    struct push *push = find_push(0);

    (void)node;
    (void)n_pieces;
    if (push == NULL)
        return E_FULL;
    *push = (struct push){.id = id, .ticket = target->ticket};
    return 0;
}

int tr_push(struct tr_node *node, uint64_t id, const struct tr_pieces *pieces)
{
    struct push *push = find_push(id);

    (void)node;
    ASSERT(push != NULL);
    if (by_chance(50))
        return E_FULL;
    for (uint32_t i = 0; i < pieces->n; i++) {
        struct due *due = add(A_READ, some_delay());

        due->push = id;
        due->ticket = push->ticket;
        due->layer = pieces->layer;
        due->index = pieces->first_index + i;
        due->block = pieces->blocks[i];
    }
    return 0;
}

int tr_stop_push(struct tr_node *node, uint64_t id)
{
    (void)node;
    raise_event(true, TR_PUSH_STOPPED, id); /* until then blocks may still be read */
    return 0;
}
