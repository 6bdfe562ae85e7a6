/* SPDX-License-Identifier: Apache-2.0 */
/* Several tenants on one disk tier, on real files.  A flood takes nothing that another tenant has within its
 * quota, before and after restarts.  Pins keep their order within a tenant.  A head's tenant is believed only
 * if its checksum and seal match. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "cache/kv/pool_quota.h"
#include "cache/kv/tier_priv.h"
#include "tier_help.h"

enum { CALM = 11, LOUD = 12, OTHER = 13, HEAD = TIER_HEAD_BYTES };

static uint64_t next_number; /* number of the next block: each is written once */

static int begin(void **state)
{
    static struct rig rig;

    rig_init(&rig, "tenants");
    assert_int_equal(rig_open(&rig), 0);
    next_number = 1;
    *state = &rig;
    return 0;
}

static int end(void **state)
{
    rig_fini(*state);
    return 0;
}

static uint64_t in_an_hour(void)
{
    return clock_unix_ns() + 3600 * NS_PER_S;
}

static uint64_t in_five_minutes(void)
{
    return clock_unix_ns() + 290 * NS_PER_S;
}

static uint64_t in_a_moment(void) /* a pin that ends during the test */
{
    return clock_unix_ns() + 100 * NS_PER_MS;
}

/* Writes so many blocks.  Returns the number of the first. */
static uint64_t flood(struct rig *rig, kv_tenant tenant, uint32_t n, uint64_t pin_end_unix_ns)
{
    uint64_t first = next_number;

    rig->tenant = tenant;
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(rig_write(rig, next_number++, pin_end_unix_ns), 0);
    return first;
}

/* Returns how many of these blocks can be read; all of these must be right. */
static uint32_t count(struct rig *rig, uint64_t first, uint32_t n)
{
    uint32_t found = 0;

    for (uint64_t number = first; number < first + n; number++) {
        struct block_hash hash = rig_hash(number);

        if (!kv_tier_has(rig->tier, &hash))
            continue;
        assert_int_equal(rig_read(rig, 0, number), 0);
        assert_true(rig_is(rig, 0, number));
        found++;
    }
    return found;
}

static uint32_t tenants(const struct rig *rig)
{
    struct kv_tier_counts counts;

    kv_tier_counts(rig->tier, &counts);
    return counts.n_tenants;
}

static void a_flood_leaves_others_alone(void **state)
{
    struct rig *rig = *state;
    uint64_t calm = flood(rig, CALM, 60, 0), last;

    flood(rig, LOUD, 1500, 0); /* five times as much as fits */
    assert_int_equal(count(rig, calm, 60), 60);
    flood(rig, LOUD, 800, in_an_hour()); /* also if it pins its blocks */
    assert_int_equal(count(rig, calm, 60), 60);
    last = flood(rig, LOUD, 100, in_an_hour());
    assert_int_equal(count(rig, last, 100), 100); /* and the flood has the rest */
    assert_int_equal(tenants(rig), 2);
    assert_true(rig_bytes(rig) <= rig->opts.size_bytes);
}

static void a_single_tenant_may_fill_the_disk(void **state)
{
    struct rig *rig = *state;
    struct kv_tier_counts counts;

    flood(rig, CALM, 1000, 0);
    kv_tier_counts(rig->tier, &counts);
    assert_int_equal(counts.n_tenants, 1);
    /* The disk is full but for one file and one block. */
    assert_true(counts.used_bytes + 80000 > rig->opts.size_bytes);
    assert_true(counts.n_blocks * RIG_LAYERS * RIG_PIECE * 10 > rig->opts.size_bytes * 8);
}

/* After a restart only digests of tenants are known, until their first request. */
static void a_restart_keeps_all_tenants(void **state)
{
    struct rig *rig = *state;
    uint64_t calm = flood(rig, CALM, 60, 0), more;

    flood(rig, LOUD, 100, 0);
    rig_reopen(rig);
    assert_int_equal(tenants(rig), 2);
    flood(rig, LOUD, 1500, 0); /* before the calm tenant returned */
    assert_int_equal(count(rig, calm, 60), 60);
    more = flood(rig, CALM, 30, 0);
    assert_int_equal(tenants(rig), 2); /* the same two, not a third */
    rig_reopen(rig);
    flood(rig, LOUD, 1000, 0);
    assert_int_equal(count(rig, calm, 60) + count(rig, more, 30), 90);
}

static void marks_keep_their_order_within_a_tenant(void **state)
{
    struct rig *rig = *state;
    uint64_t plain, five, hour, n_hour = 60, plain_left, five_left;

    flood(rig, CALM, 40, 0);
    five = flood(rig, CALM, 40, in_five_minutes());
    hour = flood(rig, CALM, (uint32_t)n_hour, in_an_hour());
    plain = flood(rig, CALM, 200, 0);
    for (unsigned i = 0; i < 30; i++) { /* the calm tenant had everything, and is reduced to its quota */
        flood(rig, LOUD, 10, 0);
        plain_left = count(rig, plain, 200);
        five_left = count(rig, five, 40);
        assert_true(five_left == 40 || plain_left == 0);
        assert_int_equal(count(rig, hour, (uint32_t)n_hour), n_hour);
    }
    assert_true(plain_left < 200);
    /* None of its own files leaves for content of lower rank:
     * such blocks get only the room of a file that left. */
    hour = flood(rig, CALM, 300, in_an_hour());
    n_hour = count(rig, hour, 300);
    plain = next_number;
    for (rig->tenant = CALM; next_number < plain + 100; next_number++) {
        int rc = rig_write(rig, next_number, 0);

        assert_true(rc == 0 || rc == E_FULL);
    }
    assert_true(count(rig, plain, 100) <= 20);
    assert_int_equal(count(rig, hour, 300), n_hour);
    flood(rig, CALM, 1, in_an_hour());
}

/* ---- the accounts ---- */

/* Compares the queues' choice with a search through all segments. */
static void check_first(struct kv_tier *tier, unsigned at, uint64_t now_unix_ns)
{
    const struct tier_segment *best = NULL;
    unsigned best_rank = 0, rank_said = TIER_N_RETENTIONS;

    list_for_each (node, &tier->segments) {
        const struct tier_segment *segment = container_of(node, const struct tier_segment, all);
        unsigned rank = segment->pin_end_unix_ns > now_unix_ns ? segment->head.retention : TIER_PLAIN;

        if (segment->is_leaving || segment->slots == NULL || segment->quota != at)
            continue;
        if (best == NULL || rank < best_rank || (rank == best_rank && best->is_open && !segment->is_open)) {
            best = segment;
            best_rank = rank;
        }
    }
    assert_ptr_equal(tier_queue_first(tier, at, now_unix_ns, &rank_said), best);
    assert_int_equal(rank_said, best == NULL ? TIER_N_RETENTIONS : best_rank);
}

static void check_books(struct kv_tier *tier)
{
    uint64_t bytes[TIER_PLACES] = {0}, total = 0, leaving = 0, in_files = 0, now_unix_ns = clock_unix_ns();
    uint32_t n_files[TIER_PLACES] = {0};

    list_for_each (node, &tier->segments) {
        const struct tier_segment *segment = container_of(node, const struct tier_segment, all);
        bool is_going = segment->is_leaving && segment->n_jobs > 0; /* only its deletion is in flight here */

        assert_true(segment->charged_bytes >= tier->least_bytes);
        total += is_going ? 0 : segment->charged_bytes;
        in_files += segment->file_bytes;
        leaving += segment->is_leaving && !is_going ? segment->charged_bytes : 0;
        if (segment->is_leaving || segment->slots == NULL)
            continue;
        assert_true(segment->n_used > 0);
        assert_memory_equal(segment->head.tenant, tier->quotas.all[segment->quota].digest, TIER_TENANT_BYTES);
        bytes[segment->quota] += segment->charged_bytes;
        n_files[segment->quota]++;
        if (segment->is_open)
            assert_ptr_equal(tier->open[segment->quota][segment->head.retention], segment);
    }
    assert_true(total == tier->total_bytes && leaving == tier->leaving_bytes);
    assert_true(in_files == tier->file_bytes);
    for (unsigned at = 0; at < TIER_PLACES; at++) {
        check_first(tier, at, now_unix_ns);
        assert_int_equal(bytes[at], tier->quotas.all[at].bytes);
        assert_int_equal(n_files[at], tier->quotas.all[at].n_files);
    }
}

/* Random floods, pins and restarts.  After each write the accounts are right.  No tenant has lost content
 * within its quota, but for a part of a file to a tenant that has no more. */
static void no_flood_takes_anothers_quota(void **state)
{
    struct rig *rig = *state;
    uint64_t before[TIER_PLACES], n_lost = 0;
    struct rng rng;

    rng_init(&rng, 5);
    for (unsigned round = 0; round < 60; round++) {
        kv_tenant tenant = 1 + rng_below(&rng, 5);
        uint32_t n = (uint32_t)rng_below(&rng, 120), mark = (uint32_t)rng_below(&rng, 5);

        if (rng_below(&rng, 6) == 0)
            rig_reopen(rig);
        for (uint32_t i = 0; i < n; i++) {
            const struct tier_quotas *quotas = &rig->tier->quotas;
            uint32_t how = mark < 4 ? mark : (uint32_t)rng_below(&rng, 4);
            uint64_t marks[] = {0, in_five_minutes(), in_an_hour(), in_a_moment()};
            uint64_t each, has;
            unsigned at;
            int rc;

            for (unsigned other = 0; other < TIER_PLACES; other++)
                before[other] = quotas->all[other].n_files > 0 ? quotas->all[other].bytes : 0;
            rig->tenant = tenant;
            rc = rig_write(rig, next_number++, marks[how]);
            assert_true(rc == 0 || rc == E_FULL);
            if (rng_below(&rng, 3) == 0)
                rig_read(rig, 0, next_number - rng_below(&rng, 200)); /* it may have been evicted */
            check_books(rig->tier);
            at = tier_quotas_find(quotas, tenant);
            has = at == TIER_NO_PLACE ? 0 : quotas->all[at].bytes;
            each = rig->opts.size_bytes / tenants(rig);
            for (unsigned other = 1; other < TIER_PLACES; other++) {
                uint64_t left = quotas->all[other].n_files > 0 ? quotas->all[other].bytes : 0;

                if (other == at || left >= before[other])
                    continue;
                assert_true(before[other] > each);
                assert_true(left >= each || left >= has);
                n_lost++;
            }
        }
    }
    assert_true(n_lost > 10);
    assert_true(rig_bytes(rig) <= rig->opts.size_bytes);
}

static void those_beyond_the_last_place_have_one_quota(void **state)
{
    struct rig *rig = *state;
    uint64_t calm;

    rig->opts.size_bytes = 4 << 20;
    rig_reopen(rig);
    calm = flood(rig, CALM, 3, 0);
    for (kv_tenant tenant = 100; tenant < 200; tenant++)
        flood(rig, tenant, 2, 0);
    assert_int_equal(tenants(rig), KV_MAX_TENANTS);
    for (kv_tenant tenant = 1000; tenant < 1400; tenant++)
        flood(rig, tenant, 5, in_an_hour());
    assert_int_equal(count(rig, calm, 3), 3);
    rig_reopen(rig);
    assert_int_equal(tenants(rig), KV_MAX_TENANTS);
    check_books(rig->tier);
    for (kv_tenant tenant = 1000; tenant < 1200; tenant++)
        flood(rig, tenant, 5, in_an_hour());
    assert_int_equal(count(rig, calm, 3), 3);
    assert_int_equal(tenants(rig), KV_MAX_TENANTS);
}

/* The limit holds even if each file has little content. */
static void files_are_no_more_than_descriptors_allow(void **state)
{
    struct rig *rig = *state;
    struct rlimit before, few;
    uint64_t calm;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = 256; /* a quarter of it */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    rig->opts.size_bytes = 8 << 20;
    rig_reopen(rig);
    calm = flood(rig, CALM, 3, 0);
    for (unsigned restart = 0; restart < 60; restart++) {
        rig_reopen(rig);
        flood(rig, LOUD, 1, 0);
        flood(rig, OTHER, 1, in_an_hour());
        check_books(rig->tier);
        assert_true(rig_n_files(rig) <= 64);
    }
    assert_int_equal(count(rig, calm, 3), 3);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* ---- heads ---- */

static void with_head(const struct rig *rig, unsigned index, void (*change)(uint8_t head[HEAD]))
{
    uint8_t head[HEAD];
    char path[400];
    int fd;

    assert_true(rig_file(rig, index, path));
    fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, head, HEAD, 0), HEAD);
    change(head);
    assert_int_equal(pwrite(fd, head, HEAD, 0), HEAD);
    close(fd);
}

static void make_version_1(uint8_t head[HEAD])
{
    put_u32(head + 8, 1);
    put_u64(head + 88, XXH3_64bits(head, 88));
    memset(head + 96, 0, HEAD - 96);
}

static void make_anothers(uint8_t head[HEAD])
{
    head[96] ^= 1;
    put_u64(head + 112, XXH3_64bits(head, 112));
}

static void damage_tenant(uint8_t head[HEAD])
{
    head[96] ^= 1;
}

static void older_files_are_kept_and_leave_first(void **state)
{
    struct rig *rig = *state;
    uint64_t old = flood(rig, CALM, 15, 0), calm, loud;

    rig_close(rig);
    with_head(rig, 0, make_version_1);
    assert_int_equal(rig_open(rig), 0);
    assert_int_equal(tenants(rig), 0);
    assert_int_equal(count(rig, old, 15), 0);
    assert_int_equal(rig_n_files(rig), 1);
    calm = flood(rig, CALM, 60, 0);
    rig_reopen(rig);
    assert_int_equal(rig_n_files(rig), 5); /* counts as before */
    loud = flood(rig, LOUD, 230, 0);       /* now it has to leave */
    assert_int_equal(count(rig, calm, 60), 60);
    assert_int_equal(count(rig, loud, 230), 230);
    with_head(rig, 0, damage_tenant); /* the first file belongs to another tenant, because the old one has
                                       * left */
    rig_reopen(rig);
    assert_true(count(rig, calm, 60) < 60);
    check_books(rig->tier);
}

/* A writer to the disk may damage blocks, but cannot charge them to another tenant. */
static void a_forged_tenant_is_not_believed(void **state)
{
    struct rig *rig = *state;
    struct kv_tier_counts counts;
    uint64_t calm = flood(rig, CALM, 5, 0);

    rig_close(rig);
    with_head(rig, 0, make_anothers);
    assert_int_equal(rig_open(rig), 0);
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(rig_read(rig, 0, calm + i), E_AUTH);
    kv_tier_counts(rig->tier, &counts);
    assert_int_equal(counts.n_damaged, 5);
}

static void names_are_not_on_disk(void **state)
{
    struct rig *rig = *state;
    uint8_t head[2][HEAD], other[TIER_TENANT_BYTES], number[8];
    char path[400];

    flood(rig, CALM, 1, 0);
    flood(rig, CALM, 1, in_an_hour());
    put_u64(number, CALM);
    for (unsigned i = 0; i < 2; i++) {
        FILE *file;

        assert_true(rig_file(rig, i, path));
        file = fopen(path, "rb");
        assert_non_null(file);
        assert_int_equal(fread(head[i], 1, HEAD, file), HEAD);
        fclose(file);
    }
    assert_memory_equal(head[0] + 96, head[1] + 96, TIER_TENANT_BYTES);
    assert_int_equal(bytes_find(bytes_of(head[0] + 96, 16), bytes_of(number, 6), 0), SIZE_MAX);
    rig->opts.key[5] ^= 1; /* a digest means nothing without the key */
    assert_int_equal(tier_tenant(rig->opts.key, CALM, other), 0);
    assert_memory_not_equal(head[0] + 96, other, TIER_TENANT_BYTES);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {T(a_flood_leaves_others_alone),
                                       T(a_single_tenant_may_fill_the_disk),
                                       T(a_restart_keeps_all_tenants),
                                       T(marks_keep_their_order_within_a_tenant),
                                       T(no_flood_takes_anothers_quota),
                                       T(those_beyond_the_last_place_have_one_quota),
                                       T(files_are_no_more_than_descriptors_allow),
                                       T(older_files_are_kept_and_leave_first),
                                       T(a_forged_tenant_is_not_believed),
                                       T(names_are_not_on_disk)};
#undef T
    return cmocka_run_group_tests(tests, NULL, NULL);
}
