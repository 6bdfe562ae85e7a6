/* SPDX-License-Identifier: Apache-2.0 */
/* KV over shared memory: the sender announces pieces, the receiver copies them. Hot path: no malloc, no
 * log.
 *
 *     sender's process                               receiver's process
 *     arena (memfd) <......... mapped read-only .....  copy -> its own arena
 *     control page  <......... mapped read-only .....  look at the slot after copying
 *     ANNOUNCE (which blocks, slot, generation) ---->
 *
 * The owner may take blocks back while their announcement is still under way or being copied. So a copy
 * counts only if the push is still valid AFTER it: a seqlock whose writer never waits.
 *
 *     sender                                   receiver
 *     S1  slot.generation = 0                  R1  copy the pieces
 *     S2  fence(release)                       R2  fence(acquire)
 *     S3  blocks get other contents            R3  read slot.generation
 *
 * If R1 saw a byte of S3, the fences order S1 before R3. R3 then reads zero, or the generation of a later
 * push (generations never repeat), and the copy is discarded. If R3 still reads our generation, R1 saw
 * nothing of S3. The copy may read memory while it changes; that is harmless, because the result is not
 * used before R3. The copy's stores bypass the caches and end in a fence of their own. (S3 runs on another
 * thread of the sender, after it received TR_PUSH_STOPPED through a mailbox, which orders it.)
 *
 * The receiver is safe from a broken sender: the memfd's size is sealed, so no access beyond its end can
 * appear later; it is mapped read-only; and every block id is checked against the size. The sender is safe
 * from peers: their descriptor is opened read-only. */
#include "transfer/transport/tr_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem_copy.h"
#include "base/rng.h"

#define FRAME_BYTES  ((size_t)4 << 20)
#define HEADER_BYTES (KV_FRAME_PREFIX_BYTES + KV_FRAME_DATA_BYTES)
#define SEALS        (F_SEAL_GROW | F_SEAL_SHRINK)

struct slot {
    _Alignas(MEM_CACHE_LINE) _Atomic uint64_t generation; /* of the push that owns the slot; 0: none */
};

_Static_assert(sizeof(struct slot) == 64, "the slot's size is part of the protocol");

struct tr_control {
    int fd;
    struct slot *slots;
    uint32_t free_slots[TR_CONTROL_SLOTS];
    uint32_t n_free;
    uint64_t next_generation;
};

enum copying { COPY_HEAD, COPY_IDS, COPY_PIECES };

struct moving {
    /* sender */
    struct tr_batch batch; /* its push is NULL once forgotten */
    bool has_batch;
    uint8_t frame[KV_FRAME_MAX_BYTES + KV_FRAME_MAX_PIECES * sizeof(uint32_t)];
    size_t frame_bytes, at_bytes;

    /* receiver */
    struct mem_region arena; /* the peer's, read-only */
    struct slot *slots;      /* the peer's, read-only */
    enum copying copying;
    struct kv_frame_announce announce;
    struct kv_frame_data run;
    struct tr_ticket *ticket; /* NULL: do not copy */
    uint8_t ids[KV_FRAME_MAX_PIECES * sizeof(uint32_t)];
    uint32_t n_copied;
};

/* ---- the control page, sender's side ---- */

/* Map the page before F_SEAL_FUTURE_WRITE: after it no process, this one included, can map or write it
 * anew. */
static int shm_open_page(struct tr_control *control)
{
    size_t len_bytes = TR_CONTROL_SLOTS * sizeof(struct slot);
    void *base;

    control->fd = memfd_create("baton-kv-control", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (control->fd < 0 || ftruncate(control->fd, (off_t)len_bytes) != 0)
        return E_IO;
    base = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, control->fd, 0);
    if (base == MAP_FAILED)
        return E_NOMEM;
    control->slots = base;
    if (fcntl(control->fd, F_ADD_SEALS, SEALS) != 0)
        return E_IO;
    fcntl(control->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL); /* since Linux 5.1 */
    return 0;
}

int tr_control_open(struct tr_control **out)
{
    struct tr_control *control = calloc(1, sizeof(*control));
    int err;

    if (control == NULL)
        return E_NOMEM;
    control->fd = -1;
    err = shm_open_page(control);
    if (err != 0) {
        tr_control_close(control);
        return err;
    }
    for (uint32_t i = 0; i < TR_CONTROL_SLOTS; i++)
        control->free_slots[control->n_free++] = TR_CONTROL_SLOTS - 1 - i;
    rng_system(&control->next_generation, sizeof(control->next_generation));
    *out = control;
    return 0;
}

void tr_control_close(struct tr_control *control)
{
    if (control == NULL)
        return;
    if (control->slots != NULL)
        munmap(control->slots, TR_CONTROL_SLOTS * sizeof(struct slot));
    if (control->fd >= 0)
        close(control->fd);
    free(control);
}

static int shm_take_slot(struct tr_control *control, uint32_t *slot_out, uint64_t *generation_out)
{
    uint32_t slot;

    if (control->n_free == 0)
        return E_FULL;
    slot = control->free_slots[--control->n_free];
    control->next_generation++;
    if (control->next_generation == 0)
        control->next_generation++;
    atomic_store_explicit(&control->slots[slot].generation, control->next_generation, memory_order_release);
    *slot_out = slot;
    *generation_out = control->next_generation;
    return 0;
}

void tr_control_revoke(struct tr_control *control, uint32_t slot)
{
    atomic_store_explicit(&control->slots[slot].generation, 0, memory_order_relaxed); /* S1 */
    atomic_thread_fence(memory_order_release);                                        /* S2 */
    control->free_slots[control->n_free++] = slot;
}

/* ---- the peer's memory, receiver's side ---- */

static int shm_map_sealed(int fd, size_t len_bytes, const char *what, struct fault *fault, void **out)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    void *base;

    if (seals < 0 || (seals & SEALS) != SEALS)
        return fault_set(fault, E_PROTO, "%s: not a memfd of sealed size", what);
    if (fstat(fd, &st) != 0 || st.st_size < 0 || (uint64_t)st.st_size < len_bytes)
        return fault_set(fault, E_PROTO, "%s: %lld bytes, %zu were promised", what, (long long)st.st_size,
                         len_bytes);
    base = mmap(NULL, len_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return fault_set(fault, E_NOMEM, "%s: cannot map %zu bytes: %s", what, len_bytes, strerror(errno));
    madvise(base, len_bytes, MADV_DONTDUMP);
    *out = base;
    return 0;
}

static int shm_map_peer(struct tr_conn *conn, struct moving *moving, struct fault *fault)
{
    const struct kv_frame_hello *peer = &conn->peer_geometry;
    size_t arena_bytes, page_bytes = TR_CONTROL_SLOTS * sizeof(struct slot);
    void *slots = NULL;
    int err;

    if (conn->stream.n_fds != 2 || peer->n_slots != TR_CONTROL_SLOTS)
        return fault_set(fault, E_PROTO, "MEMORY with %u descriptors, %u slots", conn->stream.n_fds,
                         peer->n_slots);
    if (__builtin_mul_overflow((size_t)peer->n_layers * peer->n_blocks, (size_t)peer->piece_bytes,
                               &arena_bytes) ||
        arena_bytes > SIZE_MAX / 4)
        return fault_set(fault, E_PROTO, "an arena of %u blocks of %llu bytes in %u layers", peer->n_blocks,
                         (unsigned long long)peer->piece_bytes, peer->n_layers);
    err = shm_map_sealed(conn->stream.fds[0], arena_bytes, "arena", fault, &moving->arena.base);
    if (err != 0)
        return err;
    moving->arena.len_bytes = arena_bytes;
    err = shm_map_sealed(conn->stream.fds[1], page_bytes, "control page", fault, &slots);
    if (err != 0)
        return err;
    moving->slots = slots;
    while (conn->stream.n_fds > 0) /* the mappings stay valid */
        close(conn->stream.fds[--conn->stream.n_fds]);
    return 0;
}

static int shm_share(struct tr_conn *conn, struct fault *fault)
{
    struct kv_frame frame = {.type = KV_FRAME_MEMORY};
    uint8_t bytes[KV_FRAME_MAX_BYTES];
    int rc;

    if (conn->peer != NULL) {
        const int fds[2] = {conn->owner->arena_fd, conn->owner->control->fd};
        size_t len_bytes = kv_frame_pack(&frame, bytes);

        rc = tr_stream_send_fds(&conn->stream, bytes_of(bytes, len_bytes), fds);
        return rc < 0 ? fault_set(fault, rc, "cannot hand descriptors over") : rc;
    }
    rc = tr_conn_read_frame(conn, fault, &frame);
    if (rc > 0 && frame.type != KV_FRAME_MEMORY)
        return fault_set(fault, E_PROTO, "frame type %d instead of MEMORY", frame.type);
    return rc;
}

static int shm_ready(struct tr_conn *conn, struct fault *fault)
{
    struct moving *moving = calloc(1, sizeof(*moving));
    int err;

    if (moving == NULL)
        return fault_set(fault, E_NOMEM, "no memory for a connection");
    conn->moving = moving;
    err = conn->peer == NULL ? shm_map_peer(conn, moving, fault) : 0;
    return err != 0 ? err : 1;
}

static void shm_fini(struct tr_conn *conn)
{
    struct moving *moving = conn->moving;

    if (moving == NULL)
        return;
    if (moving->arena.base != NULL)
        munmap(moving->arena.base, moving->arena.len_bytes);
    if (moving->slots != NULL)
        munmap(moving->slots, TR_CONTROL_SLOTS * sizeof(struct slot));
    free(moving);
    conn->moving = NULL;
}

static bool shm_is_busy(const struct tr_conn *conn)
{
    const struct moving *moving = conn->moving;

    if (moving == NULL)
        return false;
    return conn->peer != NULL ? moving->has_batch : moving->copying != COPY_HEAD || conn->head_bytes > 0;
}

/* ---- sender ---- */

static int shm_begin_push(struct tr_node *node, struct tr_push *push, struct fault *fault)
{
    int err;

    if (node->arena_fd < 0 || node->control == NULL)
        return fault_set(fault, E_UNSUPPORTED, "our arena is not shareable memory");
    err = shm_take_slot(node->control, &push->slot, &push->generation);
    return err != 0 ? fault_set(fault, err, "no slot left in the control page") : 0;
}

static void shm_begin_announce(struct tr_conn *conn, struct moving *moving)
{
    const struct tr_batch *batch = &moving->batch;
    struct kv_frame frame = {.type = KV_FRAME_ANNOUNCE};

    frame.as.announce = (struct kv_frame_announce){.ticket = batch->push->ticket,
                                                   .layer = batch->layer,
                                                   .first = batch->first,
                                                   .n_pieces = batch->n,
                                                   .slot = batch->push->slot,
                                                   .generation = batch->push->generation};
    moving->frame_bytes = kv_frame_pack(&frame, moving->frame);
    for (uint32_t i = 0; i < batch->n; i++, moving->frame_bytes += sizeof(uint32_t))
        put_u32(moving->frame + moving->frame_bytes, batch->blocks[i]);
    moving->at_bytes = 0;
    moving->has_batch = true;
    conn->progress_ns = clock_now_ns();
}

static int shm_send(struct tr_conn *conn, struct fault *fault)
{
    struct moving *moving = conn->moving;

    for (;;) {
        struct iovec iov;
        ssize_t n;

        if (!moving->has_batch) {
            if (!tr_push_take(conn->owner, conn, &moving->batch))
                return 0;
            shm_begin_announce(conn, moving);
        }
        iov.iov_base = moving->frame + moving->at_bytes;
        iov.iov_len = moving->frame_bytes - moving->at_bytes;
        n = tr_stream_write(&conn->stream, &iov, 1);
        if (n < 0)
            return fault_set(fault, (int)n, "%s: connection lost", tr_conn_name(conn));
        if (n == 0)
            return 0;
        moving->at_bytes += (size_t)n;
        if (moving->at_bytes < moving->frame_bytes)
            continue;
        moving->has_batch = false;
        if (moving->batch.push != NULL)
            tr_push_sent(conn->owner, &moving->batch);
        moving->batch.push = NULL;
    }
}

/* The generation covers pieces that are already announced; it is revoked right after this call. */
static void shm_forget_push(struct tr_conn *conn, const struct tr_push *push)
{
    struct moving *moving = conn->moving;

    if (!moving->has_batch || moving->batch.push != push)
        return;
    moving->batch.push = NULL;
    if (moving->at_bytes == 0)
        moving->has_batch = false;
}

/* ---- receiver ---- */

static int shm_copy_head(struct tr_conn *conn, struct moving *moving, struct fault *fault)
{
    const struct kv_frame_announce *announce = &moving->announce;
    struct kv_frame frame;
    int rc = tr_conn_read_frame(conn, fault, &frame);

    if (rc <= 0)
        return rc;
    if (frame.type != KV_FRAME_ANNOUNCE)
        return fault_set(fault, E_PROTO, "frame type %d from a sender", frame.type);
    moving->announce = frame.as.announce;
    if (announce->slot >= TR_CONTROL_SLOTS || announce->generation == 0)
        return fault_set(fault, E_PROTO, "ANNOUNCE with slot %u", announce->slot);
    moving->run = (struct kv_frame_data){.ticket = announce->ticket,
                                         .layer = announce->layer,
                                         .first = announce->first,
                                         .n_pieces = announce->n_pieces,
                                         .payload_bytes = announce->n_pieces *
                                                          (uint64_t)conn->owner->opts.geometry.piece_bytes};
    moving->ticket = NULL;
    moving->n_copied = 0;
    rc = tr_ticket_claim(conn->owner, conn, &moving->run, fault, &moving->ticket);
    if (rc == E_PROTO)
        return rc;
    if (rc != 0)
        tr_conn_reject(conn, announce->ticket, rc);
    moving->at_bytes = 0;
    moving->copying = COPY_IDS;
    conn->progress_ns = clock_now_ns();
    return 1;
}

static ssize_t shm_copy_ids(struct tr_conn *conn, struct moving *moving, struct fault *fault)
{
    size_t want_bytes = moving->run.n_pieces * sizeof(uint32_t);
    struct iovec iov = {.iov_base = moving->ids + moving->at_bytes, .iov_len = want_bytes - moving->at_bytes};
    ssize_t n = tr_stream_read(&conn->stream, &iov, 1);

    if (n <= 0)
        return n;
    moving->at_bytes += (size_t)n;
    if (moving->at_bytes < want_bytes)
        return n;
    for (uint32_t i = 0; i < moving->run.n_pieces; i++)
        if (get_u32(moving->ids + i * sizeof(uint32_t)) >= conn->peer_geometry.n_blocks)
            return fault_set(fault, E_PROTO, "block %u of an arena of %u",
                             get_u32(moving->ids + i * sizeof(uint32_t)), conn->peer_geometry.n_blocks);
    moving->copying = COPY_PIECES;
    return n;
}

static bool shm_is_still_valid(const struct moving *moving)
{
    return atomic_load_explicit(&moving->slots[moving->announce.slot].generation, memory_order_relaxed) ==
           moving->announce.generation;
}

static void shm_end_announce(struct tr_conn *conn, struct moving *moving)
{
    bool is_good;

    moving->copying = COPY_HEAD;
    if (moving->ticket == NULL)
        return;
    atomic_thread_fence(memory_order_acquire); /* R2 */
    is_good = shm_is_still_valid(moving);      /* R3 */
    if (!is_good)
        atomic_fetch_add_explicit(&conn->owner->totals.copies_revoked, 1, memory_order_relaxed);
    tr_ticket_end_claim(conn->owner, moving->ticket, &moving->run, is_good);
    moving->ticket = NULL;
}

/* Copies one piece; the last piece ends the frame. */
static ssize_t shm_copy_piece(struct tr_conn *conn, struct moving *moving)
{
    size_t piece_bytes = conn->owner->opts.geometry.piece_bytes;
    uint32_t i = moving->n_copied;
    const uint8_t *source;

    if (moving->ticket == NULL || (i == 0 && !shm_is_still_valid(moving))) {
        shm_end_announce(conn, moving); /* not wanted here, or the push ended before the copy began */
        return 1;
    }
    source = (const uint8_t *)moving->arena.base +
             tr_node_offset(conn->peer_geometry.n_blocks, piece_bytes, moving->run.layer,
                            get_u32(moving->ids + i * sizeof(uint32_t)));
    mem_copy_past_caches(
        tr_ticket_piece(conn->owner, moving->ticket, moving->run.layer, moving->run.first + i), source,
        piece_bytes); /* R1 */
    moving->n_copied++;
    conn->stream.has_moved = true;
    if (moving->n_copied == moving->run.n_pieces)
        shm_end_announce(conn, moving);
    return (ssize_t)piece_bytes;
}

static ssize_t shm_copy_move(struct tr_conn *conn, struct moving *moving, struct fault *fault)
{
    switch (moving->copying) {
    case COPY_HEAD:
        return shm_copy_head(conn, moving, fault);
    case COPY_IDS:
        return shm_copy_ids(conn, moving, fault);
    case COPY_PIECES:
        return shm_copy_piece(conn, moving);
    }
    return 0;
}

static int shm_receive(struct tr_conn *conn, struct fault *fault)
{
    return tr_conn_receive_runs(conn, shm_copy_move, fault);
}

static void shm_forget_ticket(struct tr_conn *conn, const struct tr_ticket *ticket)
{
    struct moving *moving = conn->moving;

    if (moving->ticket == ticket)
        moving->ticket = NULL;
}

const struct tr_conn_ops tr_shm_ops = {
    .frame_bytes = FRAME_BYTES,
    .n_slots = TR_CONTROL_SLOTS,
    .begin_push = shm_begin_push,
    .share = shm_share,
    .ready = shm_ready,
    .receive = shm_receive,
    .send = shm_send,
    .forget_push = shm_forget_push,
    .forget_ticket = shm_forget_ticket,
    .is_busy = shm_is_busy,
    .fini = shm_fini,
};
