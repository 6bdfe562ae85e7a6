/* SPDX-License-Identifier: Apache-2.0 */
/* Turns in the queue of large requests, and gzip within limits. */
#include "serve/access/fair_queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "serve/access/unzip.h"

/* ---- turns ---- */

#define N_JOBS 64

struct piece {
    struct fair_queue_job job;
    struct bench *bench;
    char owner;
};

struct bench {
    struct ev_loop *loop;
    struct ev_jobs *jobs;
    struct fair_queue *queue;
    struct piece pieces[N_JOBS];
    unsigned n;
    unsigned n_wanted;
    char order[N_JOBS + 1];
    unsigned n_done;
    atomic_bool is_held; /* the threads wait */
};

static void bench_begin(struct bench *bench, uint32_t max_waiting, uint64_t max_bytes)
{
    memset(bench, 0, sizeof(*bench));
    assert_int_equal(ev_loop_new(&bench->loop), 0);
    assert_int_equal(ev_jobs_new(1, 64, &bench->jobs), 0);
    struct fair_queue_opts opts = {
        .jobs = bench->jobs, .loop = bench->loop, .max_waiting = max_waiting, .max_waiting_bytes = max_bytes};

    assert_int_equal(fair_queue_new(&opts, &bench->queue), 0);
    bench->is_held = true;
}

static void bench_end(struct bench *bench)
{
    bench->is_held = false;
    ev_jobs_free(bench->jobs);
    ev_loop_drain(bench->loop);
    fair_queue_free(bench->queue);
    ev_loop_free(bench->loop);
}

static void work(void *arg)
{
    struct piece *piece = arg;

    while (atomic_load(&piece->bench->is_held))
        clock_sleep_ns(NS_PER_MS / 10);
}

static void done(void *arg)
{
    struct piece *piece = arg;
    struct bench *bench = piece->bench;

    bench->order[bench->n_done++] = piece->owner;
    if (bench->n_done == bench->n_wanted)
        ev_loop_stop(bench->loop);
}

static int submit(struct bench *bench, char owner, uint64_t size_bytes)
{
    static const char identities[128];
    struct piece *piece = &bench->pieces[bench->n];
    int rc;

    *piece = (struct piece){.bench = bench, .owner = owner};
    piece->job = (struct fair_queue_job){.owner = owner == '-' ? NULL : &identities[(int)owner],
                                         .size_bytes = size_bytes,
                                         .work = work,
                                         .done = done,
                                         .arg = piece};
    rc = fair_queue_submit(bench->queue, &piece->job);
    bench->n += rc == 0;
    return rc;
}

static void run(struct bench *bench)
{
    bench->n_wanted = bench->n;
    bench->is_held = false;
    ev_loop_run(bench->loop);
}

/* a came first with many jobs; b and c do not wait for all of them. */
static void owners_take_turns(void **state)
{
    struct bench bench;

    bench_begin(&bench, 100, 1000);
    for (int i = 0; i < 8; i++)
        assert_int_equal(submit(&bench, 'a', 1), 0);
    assert_int_equal(submit(&bench, 'b', 1), 0);
    assert_int_equal(submit(&bench, 'b', 1), 0);
    assert_int_equal(submit(&bench, 'c', 1), 0);
    assert_int_equal(submit(&bench, '-', 1), 0);
    run(&bench);
    assert_string_equal(bench.order, "aaabc-abaaaa"); /* two were begun before the others came */
    bench_end(&bench);
}

static void one_owner_cannot_fill_it(void **state)
{
    struct bench bench;

    bench_begin(&bench, 10, 100);
    for (int i = 0; i < 7; i++) /* two running and half of ten waiting */
        assert_int_equal(submit(&bench, 'a', 1), 0);
    assert_int_equal(submit(&bench, 'a', 1), E_LIMIT);
    assert_int_equal(submit(&bench, 'b', 1), 0);
    assert_int_equal(submit(&bench, 'b', 50), E_LIMIT); /* half of the bytes */
    assert_int_equal(submit(&bench, 'c', 95), E_FULL);
    assert_int_equal(submit(&bench, 'c', 94), 0); /* alone, a job may exceed half */
    assert_int_equal(submit(&bench, 'd', 1), E_FULL);
    run(&bench);
    assert_int_equal(bench.n_done, 9);
    assert_int_equal(submit(&bench, 'd', 100), 0);
    run(&bench);
    bench_end(&bench);
}

static void withdrawn_jobs_are_not_called(void **state)
{
    struct bench bench;
    unsigned n = 0;

    bench_begin(&bench, 100, 1000);
    for (int i = 0; i < 12; i++)
        assert_int_equal(submit(&bench, (char)('a' + i % 3), 1), 0);
    for (int i = 0; i < 12; i++)
        if (i % 2 == 1 && fair_queue_withdraw(&bench.pieces[i].job)) {
            bench.pieces[i].owner = '!';
            n++;
            assert_false(fair_queue_withdraw(&bench.pieces[i].job));
        }
    assert_int_equal(n, 5); /* the second was begun */
    bench.n_wanted = bench.n -= n;
    bench.is_held = false;
    ev_loop_run(bench.loop);
    assert_null(strchr(bench.order, '!'));
    assert_int_equal(bench.n_done, 7);
    bench_end(&bench);
}

/* ---- gzip ---- */

static void gzip(const void *data, size_t n, struct buf *out)
{
    z_stream stream;
    uint8_t piece[4096];

    memset(&stream, 0, sizeof(stream));
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (uint8_t *)(uintptr_t)data;
    stream.avail_in = (unsigned)n;
    do {
        stream.next_out = piece;
        stream.avail_out = sizeof(piece);
        deflate(&stream, Z_FINISH);
        buf_append(out, piece, sizeof(piece) - stream.avail_out);
    } while (stream.avail_out == 0);
    deflateEnd(&stream);
}

static void compressed_bodies_are_unpacked(void **state)
{
    struct buf plain = {0};
    struct buf packed = {0};
    struct buf out = {0};
    struct rng rng;

    rng_init(&rng, 1);
    for (int i = 0; i < 300000; i++)
        buf_append_byte(&plain, (uint8_t)("{\"a\": 12, \"b\": [3]}"[rng_below(&rng, 19)]));
    gzip(plain.data, plain.len_bytes, &packed);
    assert_int_equal(unzip_body(buf_view(&packed), 1 << 20, &out), 0);
    assert_true(bytes_equal(buf_view(&out), buf_view(&plain)));
    /* Two members unpack to both texts. */
    gzip("tail", 4, &packed);
    buf_clear(&out);
    assert_int_equal(unzip_body(buf_view(&packed), 1 << 20, &out), 0);
    assert_int_equal(out.len_bytes, 300004);
    assert_memory_equal(out.data + 300000, "tail", 4);
    /* Exactly as many bytes as are allowed. */
    buf_clear(&out);
    assert_int_equal(unzip_body(buf_view(&packed), 300004, &out), 0);
    buf_clear(&out);
    assert_int_equal(unzip_body(buf_view(&packed), 300003, &out), E_RANGE);
    /* An empty input unpacks to an empty text. */
    buf_clear(&packed);
    buf_clear(&out);
    gzip("", 0, &packed);
    assert_int_equal(unzip_body(buf_view(&packed), 10, &out), 0);
    assert_int_equal(out.len_bytes, 0);
    buf_fini(&plain);
    buf_fini(&packed);
    buf_fini(&out);
}

/* If it is cut anywhere or one byte changes, it is refused or gives no more than allowed. */
static void damage_is_seen(void **state)
{
    static const char text[] =
        "{\"model\": \"m\", \"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]}";
    struct buf packed = {0};
    struct buf out = {0};

    assert_int_equal(unzip_body(bytes_of(NULL, 0), 100, &out), E_FORMAT);
    gzip(text, sizeof(text), &packed);
    for (size_t n = 0; n < packed.len_bytes; n++) {
        buf_clear(&out);
        assert_int_equal(unzip_body(bytes_of(packed.data, n), 100, &out), E_FORMAT);
    }
    for (size_t at = 10; at < packed.len_bytes; at++) /* the first ten bytes hold time and system, too */
        for (int bit = 0; bit < 8; bit++) {
            packed.data[at] ^= (uint8_t)(1 << bit);
            buf_clear(&out);
            /* Only changes of meaningless bits (padding of the last byte) may pass. */
            if (unzip_body(buf_view(&packed), 100, &out) == 0)
                assert_true(bytes_equal(buf_view(&out), bytes_of(text, sizeof(text))));
            assert_true(out.len_bytes <= 100);
            packed.data[at] ^= (uint8_t)(1 << bit);
        }
    buf_append_str(&packed, "x");
    buf_clear(&out);
    assert_int_equal(unzip_body(buf_view(&packed), 100, &out), E_FORMAT);
    buf_fini(&packed);
    buf_fini(&out);
}

static void bombs_stop_at_the_bound(void **state)
{
    size_t n = 64 << 20;
    void *zeros = calloc(1, n);
    struct buf packed = {0};
    struct buf out = {0};

    gzip(zeros, n, &packed);
    assert_true(packed.len_bytes < n / 900);
    /* A thousand times its size is refused; a hundred times is allowed. */
    assert_int_equal(unzip_body(buf_view(&packed), SIZE_MAX, &out), E_RANGE);
    assert_true(out.len_bytes <= packed.len_bytes * UNZIP_MAX_RATIO);
    buf_clear(&out);
    assert_int_equal(unzip_body(buf_view(&packed), 1000000, &out), E_RANGE);
    assert_true(out.len_bytes <= 1000000);
    /* Small texts may have any ratio. */
    buf_clear(&out);
    buf_clear(&packed);
    gzip(zeros, 1000000, &packed);
    assert_int_equal(unzip_body(buf_view(&packed), SIZE_MAX, &out), 0);
    buf_fini(&packed);
    buf_fini(&out);
    free(zeros);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owners_take_turns),
        cmocka_unit_test(one_owner_cannot_fill_it),
        cmocka_unit_test(withdrawn_jobs_are_not_called),
        cmocka_unit_test(compressed_bodies_are_unpacked),
        cmocka_unit_test(damage_is_seen),
        cmocka_unit_test(bombs_stop_at_the_bound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
