/* SPDX-License-Identifier: Apache-2.0 */
/* Senders that lie, stop in the middle, or stay silent.  The node under test must write only granted blocks,
 * keep all other data, and end the transfer in time.  Run over each kind, like test_transport.c; for hostile
 * receivers see test_transport_receivers.c. */
#include "tests/conformance/tr_raw.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

#define LIMIT_MS 20000
#define PIECE    4096
#define TICKET   5

static const struct worker_opts opts = {.geometry = {.n_layers = 2, .n_blocks = 8, .piece_bytes = PIECE},
                                        .io_timeout_ns = 300 * NS_PER_MS};
static const uint32_t ticket_blocks[2] = {3, 4};
static const struct raw_lies none;

static int set_up(void **state)
{
    struct worker *worker = worker_new(&opts);

    worker_poison(worker);
    assert_int_equal(tr_open_ticket(worker->node, TICKET, ticket_blocks, 2), 0);
    *state = worker;
    return 0;
}

static int tear_down(void **state)
{
    worker_free(*state);
    return 0;
}

static void assert_all_poison(const struct worker *worker)
{
    assert_true(piece_is_poison(worker->arena.base, (size_t)2 * 8 * PIECE));
}

/* The ticket is unharmed: an honest sender completes it. */
static void assert_ticket_lives(struct worker *worker)
{
    struct raw raw;

    raw_dial(&raw, worker);
    assert_true(raw_greet(&raw, &none));
    assert_true(raw_send_pieces(&raw, TICKET, &(struct raw_pieces){0, 0, 2, 100}));
    assert_true(raw_send_pieces(&raw, TICKET, &(struct raw_pieces){1, 0, 2, 200}));
    assert_true(worker_wait(worker, TR_TICKET_COMPLETE, TICKET, LIMIT_MS, NULL));
    assert_true(piece_is(worker_piece(worker, 0, 3), PIECE, 100));
    assert_true(piece_is(worker_piece(worker, 1, 4), PIECE, 201));
    raw_close(&raw);
}

static void handshake_lies_are_refused(void **state)
{
    static const struct raw_lies lies[] = {
        {.layout = 1},          {.version = 2},          {.key = 1}, {.reflects_proof = true},
        {.kind = KV_FRAME_TCP}, /* kinds that this socket cannot have, or that the node does not offer */
        {.kind = KV_FRAME_SHM}, {.kind = KV_FRAME_RDMA},
    };
    struct worker *worker = *state;
    const uint8_t own_kind = kind_now->kind == TR_SHM ? KV_FRAME_SHM : KV_FRAME_TCP;

    for (unsigned i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        struct raw raw;

        if (lies[i].kind == own_kind)
            continue;

        raw_dial(&raw, worker);
        if (raw_greet(&raw, &lies[i]))
            raw_send_pieces(&raw, TICKET, &(struct raw_pieces){0, 0, 2, 1});
        assert_true(raw_is_closed(&raw));
        raw_close(&raw);
    }
    assert_all_poison(worker);
    assert_ticket_lives(worker);
}

static void garbage_is_refused(void **state)
{
    static const char *const lines[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "BKV1\7\0\0\0", "BKV1\4\0\0\0"};
    struct worker *worker = *state;
    uint8_t zeros[200] = {0};
    struct raw raw;

    for (unsigned i = 0; i < 3; i++) {
        raw_dial(&raw, worker);
        raw_send(&raw, lines[i], 8);
        raw_send(&raw, zeros, sizeof(zeros));
        assert_true(raw_is_closed(&raw));
        raw_close(&raw);
    }
    /* The same for a peer that has proved its key. */
    raw_dial(&raw, worker);
    assert_true(raw_greet(&raw, &none));
    raw_send(&raw, zeros, sizeof(zeros));
    assert_true(raw_is_closed(&raw));
    raw_close(&raw);
    assert_all_poison(worker);
    assert_ticket_lives(worker);
}

static void data_before_the_proof_is_refused(void **state)
{
    struct worker *worker = *state;
    struct raw raw;

    raw_dial(&raw, worker);
    raw_send_pieces(&raw, TICKET, &(struct raw_pieces){0, 0, 2, 1});
    assert_true(raw_is_closed(&raw));
    raw_close(&raw);
    assert_all_poison(worker);
}

/* A silent peer gets no reply and is closed.
 * A peer that begins and then stays silent, TLS included, meets a deadline. */
static void silence_meets_a_deadline(void **state)
{
    struct worker *worker = *state;
    struct raw raw;
    uint8_t hello[KV_FRAME_MAX_BYTES] = {0};

    raw_dial(&raw, worker);
    assert_int_equal(raw_receive(&raw, hello, sizeof(hello)), raw.ssl != NULL);
    assert_true(raw_is_closed(&raw));
    raw_close(&raw);

    raw_dial(&raw, worker);
    assert_true(raw_send(&raw, hello, 1));
    assert_true(raw_receive(&raw, hello, sizeof(hello)));
    assert_true(raw_is_closed(&raw));
    raw_close(&raw);
}

static void unknown_tickets_are_thrown_away(void **state)
{
    struct worker *worker = *state;
    struct raw raw;

    raw_dial(&raw, worker);
    assert_true(raw_greet(&raw, &none));
    assert_true(raw_send_pieces(&raw, 999, &(struct raw_pieces){0, 0, 2, 1}));
    assert_true(raw_expect_reject(&raw, 999, E_NOT_FOUND));
    assert_all_poison(worker);
    /* The connection goes on. */
    assert_true(raw_send_pieces(&raw, TICKET, &(struct raw_pieces){0, 0, 2, 100}));
    assert_true(raw_send_pieces(&raw, TICKET, &(struct raw_pieces){1, 0, 2, 200}));
    assert_true(worker_wait(worker, TR_TICKET_COMPLETE, TICKET, LIMIT_MS, NULL));
    raw_close(&raw);
}

static void out_of_range_is_refused(void **state)
{
    struct worker *worker = *state;
    const struct kv_frame_data runs[] = {
        {TICKET, 2, 0, 1, PIECE},              /* layer */
        {TICKET, 0, 2, 1, PIECE},              /* index */
        {TICKET, 0, 1, 2, 2 * PIECE},          /* runs over the end */
        {TICKET, 0, UINT32_MAX - 1, 1, PIECE}, /* wraps */
        {TICKET, 0, 0, 1, PIECE - 1},          /* size; shared memory has none to lie about */
        {TICKET, 0, 0, 2, 4 * PIECE},
    };

    for (unsigned i = 0; i < (kind_now->kind == TR_SHM ? 4u : 6u); i++) {
        uint8_t payload[4 * PIECE] = {1};
        uint32_t blocks[2] = {0, 1};
        struct raw raw;

        raw_dial(&raw, worker);
        assert_true(raw_greet(&raw, &none));
        if (kind_now->kind == TR_SHM) {
            raw_send_announce(
                &raw,
                &(struct kv_frame_announce){TICKET, runs[i].layer, runs[i].first, runs[i].n_pieces, 0, 1},
                blocks);
        } else {
            raw_send_head(&raw, &runs[i], raw.ssl == NULL ? KV_FRAME_FLAG_DIGEST : 0);
            raw_send(&raw, payload, runs[i].payload_bytes);
        }
        assert_true(raw_is_closed(&raw));
        raw_close(&raw);
    }
    assert_all_poison(worker);
    assert_ticket_lives(worker);
}

/* Begins a frame for the first piece and sends `part` bytes of it. */
static void begin_frame(struct raw *raw, size_t part_bytes)
{
    uint8_t payload[PIECE] = {1, 2, 3};
    struct kv_frame_data run = {TICKET, 0, 0, 1, PIECE};

    if (kind_now->kind == TR_SHM) {
        struct kv_frame frame = {.type = KV_FRAME_ANNOUNCE, .as.announce = {TICKET, 0, 0, 1, 0, 1}};
        uint8_t bytes[KV_FRAME_MAX_BYTES];

        assert_true(raw_send(raw, bytes, kv_frame_pack(&frame, bytes)));
    } else {
        assert_true(raw_send_head(raw, &run, raw->ssl == NULL ? KV_FRAME_FLAG_DIGEST : 0));
        assert_true(raw_send(raw, payload, part_bytes));
    }
}

static void a_frame_cut_short_fails_its_ticket(void **state)
{
    struct worker *worker = *state;
    struct tr_event event;
    struct raw raw;

    raw_dial(&raw, worker);
    assert_true(raw_greet(&raw, &none));
    assert_true(raw_send_pieces(&raw, TICKET, &(struct raw_pieces){1, 0, 2, 7}));
    begin_frame(&raw, PIECE / 2);
    raw_close(&raw);
    assert_true(worker_wait(worker, TR_TICKET_FAILED, TICKET, LIMIT_MS, &event));
    assert_int_equal(event.n_leading, 0);
    assert_int_equal(event.n_pieces, 2);
    assert_int_equal(worker_count(worker, TR_TICKET_COMPLETE, TICKET), 0);
}

static void a_frame_that_stalls_fails_its_ticket(void **state)
{
    struct worker *worker = *state;
    struct tr_event event;
    struct raw raw;

    raw_dial(&raw, worker);
    assert_true(raw_greet(&raw, &none));
    begin_frame(&raw, PIECE / 2);
    assert_true(worker_wait(worker, TR_TICKET_FAILED, TICKET, LIMIT_MS, &event));
    assert_int_equal(event.fault.code, E_TIMEOUT);
    assert_true(raw_is_closed(&raw));
    raw_close(&raw);
}

static void an_idle_connection_lives(void **state)
{
    struct worker *worker = *state;
    struct raw raw;

    raw_dial(&raw, worker);
    assert_true(raw_greet(&raw, &none));
    clock_sleep_ns(800 * NS_PER_MS); /* more than the time-out */
    assert_true(raw_send_pieces(&raw, TICKET, &(struct raw_pieces){0, 0, 2, 100}));
    assert_true(raw_send_pieces(&raw, TICKET, &(struct raw_pieces){1, 0, 2, 200}));
    assert_true(worker_wait(worker, TR_TICKET_COMPLETE, TICKET, LIMIT_MS, NULL));
    raw_close(&raw);
}

static void bad_ends_of_frames(void **state)
{
    static const struct {
        uint8_t flags;
        unsigned status;
        bool only_plain;
    } cases[] = {{1, KV_FRAME_GOOD, true}, {1, 7, false}, {0, KV_FRAME_GOOD, true}};
    struct worker *worker = *state;

    if (kind_now->kind == TR_SHM)
        return; /* announcements have no trailer */
    for (unsigned i = 0; i < 3; i++) {
        uint8_t payload[PIECE] = {1, 2, 3};
        uint64_t digest = XXH3_64bits(payload, PIECE);
        struct kv_frame_data run = {TICKET + 1 + i, 0, 0, 1, PIECE};
        struct raw raw;

        if (cases[i].only_plain && kind_now->is_encrypted)
            continue;
        assert_int_equal(tr_open_ticket(worker->node, TICKET + 1 + i, ticket_blocks, 2), 0);
        raw_dial(&raw, worker);
        assert_true(raw_greet(&raw, &none));
        raw_send_head(&raw, &run, cases[i].flags);
        payload[PIECE / 2] ^= 1; /* one bit on its way: the digest no longer matches */
        raw_send(&raw, payload, PIECE);
        raw_send_trailer(&raw, digest, cases[i].status);
        assert_true(raw_is_closed(&raw));
        raw_close(&raw);
        if (cases[i].flags != 0)
            assert_true(worker_wait(worker, TR_TICKET_FAILED, TICKET + 1 + i, LIMIT_MS, NULL));
        assert_int_equal(worker_count(worker, TR_PIECES_ARRIVED, TICKET + 1 + i), 0);
    }
}

/* A frame that ended as void does not count, and its pieces may come again. */
static void void_pieces_do_not_count(void **state)
{
    struct worker *worker = *state;
    uint8_t payload[2 * PIECE] = {0};
    uint32_t blocks[2] = {0, 1};
    struct raw raw;

    raw_dial(&raw, worker);
    assert_true(raw_greet(&raw, &none));
    if (kind_now->kind == TR_SHM) { /* a generation that is revoked, and a slot never used */
        assert_true(raw_send_announce(&raw, &(struct kv_frame_announce){TICKET, 0, 0, 2, 0, 99}, blocks));
        assert_true(raw_send_announce(&raw, &(struct kv_frame_announce){TICKET, 0, 0, 2, 17, 1}, blocks));
    } else {
        assert_true(
            raw_send_head(&raw, &(struct kv_frame_data){TICKET, 0, 0, 2, 2 * PIECE}, raw.ssl == NULL));
        assert_true(raw_send(&raw, payload, sizeof(payload)));
        assert_true(raw_send_trailer(&raw, 0, KV_FRAME_VOID));
    }
    assert_true(raw_send_pieces(&raw, TICKET, &(struct raw_pieces){1, 0, 2, 200}));
    assert_true(worker_wait_pieces(worker, TICKET, 2, LIMIT_MS));
    assert_int_equal(worker_count(worker, TR_TICKET_COMPLETE, TICKET), 0);
    assert_true(raw_send_pieces(&raw, TICKET, &(struct raw_pieces){0, 0, 2, 100}));
    assert_true(worker_wait(worker, TR_TICKET_COMPLETE, TICKET, LIMIT_MS, NULL));
    assert_true(piece_is(worker_piece(worker, 0, 3), PIECE, 100));
    raw_close(&raw);
}

static void a_piece_is_written_once(void **state)
{
    struct worker *worker = *state;
    struct raw raw, other;

    raw_dial(&raw, worker);
    raw_dial(&other, worker);
    assert_true(raw_greet(&raw, &none));
    assert_true(raw_greet(&other, &none));
    assert_true(raw_send_pieces(&raw, TICKET, &(struct raw_pieces){0, 0, 2, 100}));
    assert_true(worker_wait_pieces(worker, TICKET, 2, LIMIT_MS));
    assert_true(raw_send_pieces(&raw, TICKET, &(struct raw_pieces){0, 1, 1, 666}));
    assert_true(raw_expect_reject(&raw, TICKET, E_EXISTS));
    /* Two at once: the second is discarded, although the first is not complete. */
    begin_frame(&other, 0);
    raw_close(&other);
    assert_true(piece_is(worker_piece(worker, 0, 4), PIECE, 101));
    assert_true(raw_send_pieces(&raw, TICKET, &(struct raw_pieces){1, 0, 2, 200}));
    assert_true(worker_wait(worker, TR_TICKET_COMPLETE, TICKET, LIMIT_MS, NULL));
    /* Later frames cannot complete it. */
    assert_true(raw_send_pieces(&raw, TICKET, &(struct raw_pieces){1, 0, 2, 666}));
    clock_sleep_ns(20 * NS_PER_MS);
    assert_true(piece_is(worker_piece(worker, 1, 3), PIECE, 200));
    assert_int_equal(worker_count(worker, TR_TICKET_COMPLETE, TICKET), 1);
    raw_close(&raw);
}

/* ---- shared memory's own ---- */

static unsigned count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    unsigned n = 0;

    while (readdir(folder) != NULL)
        n++;
    closedir(folder);
    return n;
}

static int make_memfd(size_t len_bytes, int seals)
{
    int fd = memfd_create("lie", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_int_equal(ftruncate(fd, (off_t)len_bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void bad_descriptors_are_refused(void **state)
{
    struct worker *worker = *state;
    const size_t arena_bytes = (size_t)2 * 8 * PIECE, page_bytes = 4096 * 64;
    const int sealed = F_SEAL_GROW | F_SEAL_SHRINK;
    const int good = make_memfd(arena_bytes, sealed), page = make_memfd(page_bytes, sealed);
    const int unsealed = make_memfd(arena_bytes, 0), half = make_memfd(arena_bytes, F_SEAL_GROW);
    const int small = make_memfd(arena_bytes - 1, sealed), small_page = make_memfd(page_bytes - 1, sealed);
    const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    const int lies[][3] = {{unsealed, page, 2}, {half, page, 2},     {small, page, 2}, {good, small_page, 2},
                           {file, page, 2},     {good, unsealed, 2}, {good, page, 1},  {good, page, 0}};
    unsigned n_before;

    if (kind_now->kind == TR_SHM) {
        n_before = count_descriptors();
        for (unsigned i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
            struct raw raw;

            raw_dial(&raw, worker);
            assert_true(raw_greet(&raw, &(struct raw_lies){.skips_share = true}));
            raw_share(&raw, lies[i], (unsigned)lies[i][2]);
            raw_send_pieces(&raw, TICKET, &(struct raw_pieces){0, 0, 2, 1});
            assert_true(raw_is_closed(&raw));
            raw_close(&raw);
        }
        clock_sleep_ns(20 * NS_PER_MS);
        assert_int_equal(count_descriptors(), n_before);
        assert_all_poison(worker);
        assert_ticket_lives(worker);
    }
    close(good);
    close(page);
    close(unsealed);
    close(half);
    close(small);
    close(small_page);
    close(file);
}

/* Unwanted descriptors are closed, not collected. */
static void a_flood_of_descriptors_is_not_kept(void **state)
{
    struct worker *worker = *state;
    unsigned n_before = count_descriptors();
    struct raw raw;
    int fds[16];

    if (kind_now->kind != TR_SHM)
        return;
    raw_dial(&raw, worker);
    assert_true(raw_greet(&raw, &(struct raw_lies){.skips_share = true}));
    for (unsigned i = 0; i < 16; i++)
        fds[i] = STDERR_FILENO;
    for (unsigned i = 0; i < 4; i++)
        raw_share(&raw, fds, 16);
    assert_true(raw_is_closed(&raw));
    raw_close(&raw);
    clock_sleep_ns(20 * NS_PER_MS);
    assert_int_equal(count_descriptors(), n_before);
}

static void bad_announcements_are_refused(void **state)
{
    struct worker *worker = *state;
    const struct kv_frame_announce lies[] = {{TICKET + 1, 0, 0, 1, 4096, 1}, {TICKET + 1, 0, 0, 1, 0, 0}};
    const uint32_t good[1] = {0}, beyond[1] = {8};
    struct raw raw;

    if (kind_now->kind != TR_SHM)
        return;
    assert_int_equal(tr_open_ticket(worker->node, TICKET + 1, ticket_blocks, 1), 0);
    for (unsigned i = 0; i < 2; i++) {
        raw_dial(&raw, worker);
        assert_true(raw_greet(&raw, &none));
        raw_send_announce(&raw, &lies[i], good);
        assert_true(raw_is_closed(&raw));
        raw_close(&raw);
    }
    raw_dial(&raw, worker);
    assert_true(raw_greet(&raw, &none));
    raw_send_announce(&raw, &(struct kv_frame_announce){TICKET + 1, 0, 0, 1, 0, 1}, beyond);
    assert_true(worker_wait(worker, TR_TICKET_FAILED, TICKET + 1, LIMIT_MS, NULL));
    raw_close(&raw);
    assert_all_poison(worker);
}

static int run_all(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(handshake_lies_are_refused),         CASE(garbage_is_refused),
        CASE(data_before_the_proof_is_refused),   CASE(silence_meets_a_deadline),
        CASE(unknown_tickets_are_thrown_away),    CASE(out_of_range_is_refused),
        CASE(a_frame_cut_short_fails_its_ticket), CASE(a_frame_that_stalls_fails_its_ticket),
        CASE(an_idle_connection_lives),           CASE(bad_ends_of_frames),
        CASE(void_pieces_do_not_count),           CASE(a_piece_is_written_once),
        CASE(bad_descriptors_are_refused),        CASE(a_flood_of_descriptors_is_not_kept),
        CASE(bad_announcements_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Arguments: a pattern of tests to run (all). */
int main(int argc, char **argv)
{
    log_setup("test_transport_hostile", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    signal(SIGPIPE, SIG_IGN); /* OpenSSL writes to the raw side's sockets by itself */
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return world_run(kind_cases, n_kind_cases, run_all);
}
