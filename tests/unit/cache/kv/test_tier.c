/* SPDX-License-Identifier: Apache-2.0 */
/* The disk tier: blocks that were written are read again, by the same process and by the next one.  Damaged
 * blocks, blocks of another generation and foreign files are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "cache/kv/tier_priv.h"
#include "cache/kv/tier_record_priv.h"
#include "tier_help.h"

static int begin(void **state)
{
    static struct rig rig;

    rig_init(&rig, "unit");
    assert_int_equal(rig_open(&rig), 0);
    *state = &rig;
    return 0;
}

static int end(void **state)
{
    rig_fini(*state);
    return 0;
}

static void a_written_block_is_read_back(void **state)
{
    struct rig *rig = *state;
    struct block_hash hashes[3] = {rig_hash(1), rig_hash(2), rig_hash(3)};
    struct kv_tier_counts counts;

    assert_int_equal(rig_read(rig, 0, 1), E_NOT_FOUND);
    assert_int_equal(rig_write(rig, 1, 0), 0);
    assert_int_equal(rig_write(rig, 1, 0), E_EXISTS);
    assert_int_equal(rig_write(rig, 2, 0), 0);
    assert_int_equal(kv_tier_peek(rig->tier, hashes, 3), 2);
    memset(rig->arena, 0, RIG_BLOCKS * RIG_LAYERS * RIG_PIECE);
    assert_int_equal(rig_read(rig, 5, 1), 0);
    assert_int_equal(rig_read(rig, 0, 2), 0);
    assert_true(rig_is(rig, 5, 1) && rig_is(rig, 0, 2));
    kv_tier_counts(rig->tier, &counts);
    assert_int_equal(counts.n_written, 2);
    assert_int_equal(counts.n_read, 2);
    assert_int_equal(counts.read_bytes, 2 * RIG_LAYERS * RIG_PIECE);
}

/* The reader was stopped in mid-read, or the clock was set: one block at a thousandth of the speed, and one
 * at a thousand times it. */
static void a_bad_read_is_not_believed(void **state)
{
    static const double bads[] = {0.001, 1000};
    struct rig *rig = *state;
    struct kv_tier_counts counts;

    assert_int_equal(rig_write(rig, 1, 0), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(rig_read(rig, 5, 1), 0);
    for (int i = 0; i < 2; i++) {
        double before, level = rate_level(&rig->tier->read_rate);

        kv_tier_counts(rig->tier, &counts);
        before = counts.read_bytes_per_s;
        tier_note_read(rig->tier, level * bads[i]);
        kv_tier_counts(rig->tier, &counts);
        assert_true(counts.read_bytes_per_s < 1.3 * before && counts.read_bytes_per_s > before / 1.3);
    }
}

static void the_next_process_finds_it(void **state)
{
    struct rig *rig = *state;

    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(rig_write(rig, i, 0), 0);
    rig_reopen(rig);
    for (uint64_t i = 0; i < 100; i++) {
        assert_int_equal(rig_read(rig, (kv_block_id)i % RIG_BLOCKS, i), 0);
        assert_true(rig_is(rig, (kv_block_id)i % RIG_BLOCKS, i));
    }
    assert_int_equal(rig_write(rig, 7, 0), E_EXISTS);
    assert_int_equal(rig_write(rig, 1000, 0), 0); /* in a new file: old ones are never appended to */
    rig_reopen(rig);
    assert_int_equal(rig_read(rig, 0, 1000), 0);
    assert_int_equal(rig_read(rig, 0, 50), 0);
}

/* ---- events of the tier ---- */

#define N_TOLD 900 /* more than fit */

static struct block_hash numbered[N_TOLD];
static bool is_told[N_TOLD]; /* readable, according to on_block */

static void on_block(void *arg, const struct block_hash *hash, bool is_here)
{
    uint32_t i = 0;

    while (!block_hash_equal(hash, &numbered[i]))
        assert_true(++i < N_TOLD);
    assert_int_not_equal(is_told[i], is_here); /* each change is reported once */
    is_told[i] = is_here;
}

struct visited {
    bool is_there[N_TOLD];
    uint32_t n, last;
};

static void visit(void *arg, const struct block_hash *hash)
{
    struct visited *visited = arg;
    uint32_t i = 0;

    while (!block_hash_equal(hash, &numbered[i]))
        assert_true(++i < N_TOLD);
    assert_false(visited->is_there[i]);
    visited->is_there[i] = true;
    visited->n++;
    visited->last = i;
}

/* The reported, the visited and the existing blocks are the same. */
static uint32_t assert_reported_right(const struct rig *rig)
{
    struct visited visited = {.n = 0};

    kv_tier_each(rig->tier, UINT32_MAX, visit, &visited);
    for (uint32_t i = 0; i < N_TOLD; i++) {
        assert_int_equal(is_told[i], kv_tier_has(rig->tier, &numbered[i]));
        assert_int_equal(visited.is_there[i], is_told[i]);
    }
    return visited.n;
}

static void stored_and_dropped_blocks_are_reported(void **state)
{
    struct rig *rig = *state;
    struct kv_tier_counts counts;
    struct visited few = {.n = 0};
    char path[400];
    uint32_t n;

    memset(is_told, 0, sizeof(is_told));
    for (uint32_t i = 0; i < N_TOLD; i++)
        numbered[i] = rig_hash(i);
    rig->opts.on_block = on_block;
    rig_reopen(rig);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(rig_write(rig, i, 0), 0);
    assert_int_equal(assert_reported_right(rig), 100);
    for (uint32_t i = 100; i < N_TOLD; i++)
        while (rig_write(rig, i, 0) == E_AGAIN) /* a file must leave first */
            clock_sleep_ns(NS_PER_MS);
    n = assert_reported_right(rig);
    kv_tier_counts(rig->tier, &counts);
    assert_true(counts.n_dropped > 0 && n == N_TOLD - counts.n_dropped);
    kv_tier_each(rig->tier, 10, visit, &few); /* the most recently used ones */
    assert_true(few.n <= 10 && few.n > 0 && few.last == N_TOLD - 1);

    rig_reopen(rig); /* found in the folder: no block comes or goes */
    assert_int_equal(assert_reported_right(rig), n);
    assert_true(rig_file(rig, 0, path));
    assert_int_equal(truncate(path, 8192), 0);
    for (uint32_t i = 0; i < N_TOLD; i++)
        if (is_told[i])
            rig_read(rig, 0, i);
    assert_true(assert_reported_right(rig) < n);
}

static void other_users_cannot_read_the_folder(void **state)
{
    struct rig *rig = *state;
    struct stat st;
    char path[400];
    struct kv_tier *second = NULL;
    struct fault fault = {0};

    assert_int_equal(rig_write(rig, 1, 0), 0);
    assert_int_equal(stat(rig->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_true(rig_file(rig, 0, path));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(kv_tier_open(&rig->opts, &fault, &second), E_EXISTS);
    assert_non_null(strstr(fault.text, "in use by another worker"));
}

/* The payload in the file differs from memory, and equal blocks have different payloads. */
static void content_is_sealed(void **state)
{
    struct rig *rig = *state;
    uint8_t file[16384] = {0}, piece[64];
    char path[400];

    assert_int_equal(rig_write(rig, 1, 0), 0);
    memcpy(piece, rig->arena + (size_t)(RIG_BLOCKS - 1) * RIG_PIECE, sizeof(piece));
    assert_true(rig_file(rig, 0, path));
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    for (size_t got; (got = fread(file, 1, sizeof(file), in)) > 0;)
        assert_int_equal(bytes_find(bytes_of(file, got), bytes_of(piece, 16), 0), SIZE_MAX);
    fclose(in);
}

static void other_generations_are_kept_apart(void **state)
{
    struct rig *rig = *state;
    struct block_hash hash = rig_hash(1);

    assert_int_equal(rig_write(rig, 1, 0), 0);
    rig->opts.generation = "another model";
    rig_reopen(rig);
    assert_false(kv_tier_has(rig->tier, &hash));
    assert_int_equal(rig_write(rig, 2, 0), 0);
    rig->opts.key[0] ^= 1;
    rig_reopen(rig);
    assert_false(kv_tier_has(rig->tier, &hash));
    rig->opts.key[0] ^= 1;
    rig->opts.generation = "model layout version"; /* the original generation again: its blocks are there */
    rig_reopen(rig);
    assert_int_equal(rig_read(rig, 0, 1), 0);
    assert_true(rig_is(rig, 0, 1));
    /* Files of the other generation leave first. */
    struct kv_tier_counts counts = {0};

    for (uint64_t i = 10; counts.n_dropped == 0; i++) {
        assert_int_equal(rig_write(rig, i, 0), 0);
        kv_tier_counts(rig->tier, &counts);
    }
    rig->opts.generation = "another model";
    rig_reopen(rig);
    assert_int_equal(rig_read(rig, 0, 2), E_NOT_FOUND);
}

static void a_flipped_bit_costs_one_block(void **state)
{
    struct rig *rig = *state;
    struct rng rng;
    unsigned n_lost = 0;

    for (uint64_t i = 0; i < 12; i++)
        assert_int_equal(rig_write(rig, i, 0), 0);
    rng_init(&rng, 1);
    for (unsigned round = 0; round < 30; round++) {
        char path[400];
        uint8_t byte;

        rig_close(rig);
        assert_true(rig_file(rig, 0, path));
        FILE *file = fopen(path, "r+b");
        assert_non_null(file);
        /* A random place in the table or the payloads. */
        uint64_t at = TIER_TABLE_AT + rng_below(&rng, 60000);
        fseek(file, (long)at, SEEK_SET);
        if (fread(&byte, 1, 1, file) == 1) {
            byte ^= (uint8_t)(1u << rng_below(&rng, 8));
            fseek(file, (long)at, SEEK_SET);
            fwrite(&byte, 1, 1, file);
        }
        fclose(file);
        assert_int_equal(rig_open(rig), 0);
        n_lost = 0;
        for (uint64_t i = 0; i < 12; i++) {
            if (rig_read(rig, 3, i) == 0)
                assert_true(rig_is(rig, 3, i));
            else
                n_lost++;
        }
        assert_true(n_lost <= round + 1);
        if (n_lost == 12)
            break;
    }
    assert_true(n_lost > 0);
}

static void a_torn_file_costs_what_is_torn(void **state)
{
    struct rig *rig = *state;
    char path[400];
    struct stat st;

    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(rig_write(rig, i, 0), 0);
    assert_true(rig_file(rig, 0, path));
    assert_int_equal(stat(path, &st), 0);
    for (off_t len = st.st_size; len >= 0; len -= 977) {
        uint64_t n_found = 0;

        rig_close(rig);
        if (access(path, F_OK) == 0)
            assert_int_equal(truncate(path, len), 0);
        assert_int_equal(rig_open(rig), 0);
        for (uint64_t i = 0; i < 10; i++) {
            if (rig_read(rig, 3, i) == 0) {
                assert_true(rig_is(rig, 3, i));
                n_found++;
            }
        }
        assert_true(n_found * RIG_LAYERS * RIG_PIECE <= (uint64_t)len);
    }
    rig_close(rig);
    assert_int_not_equal(access(path, F_OK), 0); /* unusable, so it was deleted */
}

static void the_folder_is_bounded(void **state)
{
    struct rig *rig = *state;
    struct kv_tier_counts counts;
    struct block_hash hash;

    for (uint64_t i = 0; i < 1500; i++) {
        assert_int_equal(rig_write(rig, i, 0), 0);
        if (i % 100 == 0)
            assert_true(rig_bytes(rig) <= rig->opts.size_bytes);
        if (i % 50 == 0 && i > 0) /* the first block is used again and again, so it stays */
            assert_int_equal(rig_read(rig, 0, 1), 0);
    }
    kv_tier_counts(rig->tier, &counts);
    assert_true(counts.n_dropped > 1000 && counts.n_blocks > 200);
    assert_true(counts.used_bytes <= rig->opts.size_bytes);
    hash = rig_hash(200);
    assert_false(kv_tier_has(rig->tier, &hash));
    hash = rig_hash(1499);
    assert_true(kv_tier_has(rig->tier, &hash));
    rig->opts.size_bytes /= 2; /* a smaller limit applies at once */
    rig_reopen(rig);
    while (rig_bytes(rig) > rig->opts.size_bytes) {
        struct kv_tier_event none;

        assert_false(kv_tier_poll(rig->tier, &none));
        clock_sleep_ns(NS_PER_MS);
    }
}

/* Pins of 1 h outlive pins of 5 min, and these outlive unpinned blocks, in any order of arrival.  An expired
 * pin does not count. */
static void marks_decide_what_leaves(void **state)
{
    struct rig *rig = *state;
    uint64_t now_ns = clock_unix_ns(), hour_ns = 3600 * NS_PER_S, minutes_ns = 290 * NS_PER_S;
    struct block_hash lapsed = rig_hash(1), five = rig_hash(2), hour = rig_hash(3);
    uint64_t gone_five_at = 0;

    assert_int_equal(rig_write(rig, 3, now_ns + hour_ns), 0);
    assert_int_equal(rig_write(rig, 2, now_ns + minutes_ns), 0);
    assert_int_equal(rig_write(rig, 1, now_ns - NS_PER_S), 0);
    for (uint64_t i = 100; i < 700; i++)
        assert_int_equal(rig_write(rig, i, 0), 0);
    assert_false(kv_tier_has(rig->tier, &lapsed));
    assert_true(kv_tier_has(rig->tier, &five) && kv_tier_has(rig->tier, &hour));
    for (uint64_t i = 1000; i < 1600 && gone_five_at == 0; i++) {
        assert_int_equal(rig_write(rig, i, now_ns + hour_ns), 0);
        if (!kv_tier_has(rig->tier, &five))
            gone_five_at = i;
        assert_true(kv_tier_has(rig->tier, &hour));
    }
    assert_true(gone_five_at > 0);
    assert_int_equal(rig_write(rig, 5000, now_ns + minutes_ns), E_FULL); /* no segment may leave for it */
    rig_reopen(rig);
    assert_true(kv_tier_has(rig->tier, &hour));
}

static void lifetimes_end(void **state)
{
    struct rig *rig = *state;
    struct block_hash plain = rig_hash(1), marked = rig_hash(2);

    assert_int_equal(rig_write(rig, 1, 0), 0);
    assert_int_equal(rig_write(rig, 2, clock_unix_ns() + 3600 * NS_PER_S), 0);
    rig->opts.lifetime_ns = 1;
    rig_reopen(rig);
    assert_false(kv_tier_has(rig->tier, &plain));
    assert_true(kv_tier_has(rig->tier, &marked));
}

/* A file that may not grow imitates a full disk. */
static void a_full_disk_is_no_end(void **state)
{
    struct rig *rig = *state;
    struct rlimit before, small = {.rlim_cur = 20000, .rlim_max = RLIM_INFINITY};
    struct kv_tier_counts counts;
    int rc = 0;

    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(rig_write(rig, 1, 0), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (uint64_t i = 10; i < 30 && rc == 0; i++)
        rc = rig_write(rig, i, 0);
    assert_int_equal(rc, E_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    kv_tier_counts(rig->tier, &counts);
    assert_true(counts.is_resting && counts.n_write_failed == 1);
    assert_int_equal(rig_write(rig, 40, 0), E_CLOSED);
    assert_int_equal(rig_read(rig, 0, 1), 0); /* reading goes on */
    assert_true(rig_is(rig, 0, 1));
    rig_reopen(rig);
    assert_int_equal(rig_read(rig, 0, 1), 0);
    assert_int_equal(rig_write(rig, 40, 0), 0);
}

static void a_path_that_cannot_be_a_folder_is_refused(void **state)
{
    struct rig *rig = *state;
    struct fault fault = {0};
    struct kv_tier_opts opts = rig->opts;
    struct kv_tier *tier = NULL;

    opts.path = "/proc/nothing/here";
    assert_int_equal(kv_tier_open(&opts, &fault, &tier), E_IO);
    assert_int_equal(chmod(rig->path, 0750), 0);
    rig_close(rig);
    assert_int_equal(rig_open(rig), E_AUTH); /* the tier does not change the folder's mode */
    assert_int_equal(chmod(rig->path, 0700), 0);
    opts.path = "/dev/null";
    assert_int_equal(kv_tier_open(&opts, &fault, &tier), E_IO);
    opts = rig->opts;
    opts.size_bytes = 1000;
    assert_int_equal(kv_tier_open(&opts, &fault, &tier), E_INVAL);
}

static void strangers_in_the_folder_do_no_harm(void **state)
{
    struct rig *rig = *state;
    char path[400], link_path[400];
    FILE *file;

    assert_int_equal(rig_write(rig, 1, 0), 0);
    rig_close(rig);
    snprintf(path, sizeof(path), "%s/notes.txt", rig->path);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs("not ours", file);
    fclose(file);
    snprintf(link_path, sizeof(link_path), "%s/seg-00000000000000aa", rig->path);
    assert_int_equal(symlink("/dev/zero", link_path), 0);
    snprintf(link_path, sizeof(link_path), "%s/seg-00000000000000ab", rig->path);
    assert_int_equal(mkfifo(link_path, 0600), 0);
    snprintf(link_path, sizeof(link_path), "%s/seg-00000000000000ac", rig->path);
    assert_int_equal(mkdir(link_path, 0700), 0);
    assert_int_equal(rig_open(rig), 0);
    assert_int_equal(rig_read(rig, 0, 1), 0);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(rig_write(rig, 2, 0), 0);
}

static void reads_come_from_several_threads(void **state)
{
    struct rig *rig = *state;
    bool is_seen[32] = {false};

    for (uint64_t i = 0; i < 32; i++)
        assert_int_equal(rig_write(rig, i, 0), 0);
    for (uint64_t i = 0; i < 32; i++) {
        struct block_hash hash = rig_hash(i);

        assert_int_equal(kv_tier_read(rig->tier, (kv_block_id)i, &hash, &is_seen[i]), 0);
    }
    assert_true(kv_tier_read_ns(rig->tier, 1) > 0);
    for (uint64_t i = 0; i < 32; i++) {
        struct kv_tier_event event = rig_wait(rig);

        assert_int_equal(event.kind, KV_TIER_READ);
        assert_int_equal(event.result, 0);
        *(bool *)event.user = true;
    }
    for (uint64_t i = 0; i < 32; i++)
        assert_true(is_seen[i] && rig_is(rig, (kv_block_id)i, i));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {T(a_written_block_is_read_back),
                                       T(a_bad_read_is_not_believed),
                                       T(the_next_process_finds_it),
                                       T(stored_and_dropped_blocks_are_reported),
                                       T(other_users_cannot_read_the_folder),
                                       T(content_is_sealed),
                                       T(other_generations_are_kept_apart),
                                       T(a_flipped_bit_costs_one_block),
                                       T(a_torn_file_costs_what_is_torn),
                                       T(the_folder_is_bounded),
                                       T(marks_decide_what_leaves),
                                       T(lifetimes_end),
                                       T(a_full_disk_is_no_end),
                                       T(a_path_that_cannot_be_a_folder_is_refused),
                                       T(strangers_in_the_folder_do_no_harm),
                                       T(reads_come_from_several_threads)};
#undef T
    return cmocka_run_group_tests(tests, NULL, NULL);
}
