/* SPDX-License-Identifier: Apache-2.0 */
/* Which tenant gives room on the disk: the rule alone, over files that are only numbers, in many random
 * floods. test_tier_tenants.c tests the tier itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "cache/kv/pool_quota.h"
#include "cache/kv/tier_quota_priv.h"

enum { DISK = 100000, N_TENANTS = 6, MAX_FILES = 512, FILE_BYTES = 1000, N_RANKS = 3 };

struct file {
    unsigned at, rank;
    uint64_t bytes, used;
};

static struct file files[MAX_FILES]; /* bytes 0: no file */
static struct tier_quotas quotas;
static uint64_t now;

static void digest_of(kv_tenant tenant, uint8_t out[TIER_TENANT_BYTES])
{
    memset(out, 0, TIER_TENANT_BYTES);
    memcpy(out, &tenant, sizeof(tenant));
}

static unsigned place(kv_tenant tenant)
{
    uint8_t digest[TIER_TENANT_BYTES];
    unsigned at;

    digest_of(tenant, digest);
    at = tier_quotas_place(&quotas, digest);
    tier_quotas_name(&quotas, at, tenant);
    return at;
}

static int begin(void **state)
{
    uint8_t nobody[TIER_TENANT_BYTES];

    (void)state;
    digest_of(0, nobody);
    tier_quotas_init(&quotas, nobody);
    memset(files, 0, sizeof(files));
    now = 0;
    return 0;
}

static uint64_t used_bytes(void)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < MAX_FILES; i++)
        bytes += files[i].bytes;
    return bytes;
}

static uint64_t has(kv_tenant tenant)
{
    unsigned at = tier_quotas_find(&quotas, tenant);

    return at == TIER_NO_PLACE ? 0 : quotas.all[at].bytes;
}

/* Returns a tenant's first file to evict: the lowest rank, then the oldest. */
static unsigned first_of(unsigned at)
{
    unsigned best = MAX_FILES;

    for (unsigned i = 0; i < MAX_FILES; i++)
        if (files[i].bytes > 0 && files[i].at == at &&
            (best == MAX_FILES || files[i].rank < files[best].rank ||
             (files[i].rank == files[best].rank && files[i].used < files[best].used)))
            best = i;
    return best;
}

/* Checks conditions that hold for every file that leaves. */
static void check_victim(const struct tier_wish *wish, unsigned victim, const struct tier_first *firsts)
{
    uint64_t each = tier_quotas_each(&quotas, wish), bytes = quotas.all[victim].bytes;
    uint64_t taker = quotas.all[wish->at].bytes + wish->more_bytes, left = bytes - firsts[victim].bytes;

    if (victim == wish->at) {
        assert_true(firsts[victim].rank <= wish->rank); /* own files never leave for a lower rank */
        return;
    }
    assert_true(bytes > each); /* a tenant within its quota gives nothing */
    assert_true(left >= each || (left >= taker && each - left < firsts[victim].bytes));
    if (taker > each) { /* a taker that has its quota takes only from tenants that have more, and nothing of
                         * higher rank */
        assert_true(bytes >= taker && left >= each);
        assert_true(firsts[victim].rank <= wish->rank);
    }
}

/* Writes a file; false: it is not saved. */
static bool write_file(kv_tenant tenant, unsigned rank, uint64_t bytes)
{
    unsigned at = place(tenant), i = 0;
    struct tier_wish wish = {.at = at, .rank = rank, .more_bytes = bytes, .size_bytes = DISK};

    while (used_bytes() + bytes > DISK) {
        struct tier_first firsts[TIER_PLACES] = {{0}};
        unsigned victim, gone;

        for (unsigned other = 0; other < quotas.n_seen; other++) {
            unsigned file = first_of(other);

            if (file < MAX_FILES)
                firsts[other] = (struct tier_first){.rank = files[file].rank, .bytes = files[file].bytes};
        }
        victim = tier_quotas_victim(&quotas, firsts, &wish);
        if (victim == TIER_NO_PLACE)
            return false;
        check_victim(&wish, victim, firsts);
        gone = first_of(victim);
        tier_quotas_add(&quotas, victim, -1, -(int64_t)files[gone].bytes);
        files[gone].bytes = 0;
    }
    while (files[i].bytes > 0)
        i++;
    files[i] = (struct file){.at = at, .rank = rank, .bytes = bytes, .used = ++now};
    tier_quotas_add(&quotas, at, 1, (int64_t)bytes);
    return true;
}

static void a_single_tenant_may_fill_the_disk(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 300; i++) {
        assert_true(write_file(1, 0, FILE_BYTES));
        if (i >= DISK / FILE_BYTES)
            assert_int_equal(has(1), DISK);
    }
}

static void a_flood_ends_at_the_others_quota(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 30; i++)
        assert_true(write_file(1, 0, FILE_BYTES));
    for (unsigned i = 0; i < 1000; i++) {
        assert_true(write_file(2, 2, FILE_BYTES)); /* of any rank */
        assert_int_equal(has(1), 30 * FILE_BYTES);
    }
    assert_int_equal(has(2), DISK - 30 * FILE_BYTES);
    /* The other tenant reaches its quota, although the first one pinned everything for longer. */
    for (unsigned i = 0; i < 100; i++)
        write_file(1, 0, FILE_BYTES);
    assert_int_equal(has(1), DISK / 2);
    assert_int_equal(has(2), DISK / 2);
    for (unsigned i = 0; i < 100; i++)
        assert_true(write_file(2, 2, FILE_BYTES));
    assert_int_equal(has(1), DISK / 2);
}

static void a_tenant_takes_its_quota_from_pinned_files_of_others(void **state)
{
    (void)state;
    for (unsigned i = 0; i < DISK / FILE_BYTES; i++)
        assert_true(write_file(1, 2, FILE_BYTES));
    assert_false(write_file(1, 1, FILE_BYTES)); /* its own files rank higher */
    assert_true(write_file(1, 2, FILE_BYTES));
    for (unsigned i = 0; i < 10; i++)
        assert_true(write_file(2, 0, FILE_BYTES)); /* its quota is free to take, pinned or not */
    assert_int_equal(has(1), DISK - 10 * FILE_BYTES);
}

/* The tenant with the most gives, although another has content of lower rank.
 * It gives its own lowest rank. */
static void the_greediest_gives_what_it_wants_least(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 20; i++)
        assert_true(write_file(1, i == 7 ? 0 : 1, FILE_BYTES) && write_file(1, 2, FILE_BYTES));
    for (unsigned i = 0; i < 60; i++)
        assert_true(write_file(2, i == 33 ? 1 : 2, FILE_BYTES));
    assert_true(write_file(3, 0, FILE_BYTES));
    assert_int_equal(has(1), 40 * FILE_BYTES);
    assert_int_equal(has(2), 59 * FILE_BYTES);
    for (unsigned i = 0; i < MAX_FILES; i++)
        assert_false(files[i].bytes > 0 && files[i].at == 2 && files[i].rank == 1);
}

/* Random floods with files of all sizes; check_victim() checks every file that leaves.  In the end a tenant
 * that floods has its quota, up to one file.  Other tenants keep their blocks, up to their quota. */
static void quotas_hold(void **state)
{
    struct rng rng;

    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint64_t low[N_TENANTS + 1];

        begin(state);
        rng_init(&rng, seed);
        for (unsigned flood = 0; flood < 25; flood++) {
            kv_tenant tenant = 1 + rng_below(&rng, N_TENANTS);
            unsigned n = (unsigned)rng_below(&rng, 150), rank = (unsigned)rng_below(&rng, N_RANKS + 1);

            for (kv_tenant t = 1; t <= N_TENANTS; t++)
                low[t] = has(t);
            for (unsigned i = 0; i < n; i++)
                write_file(tenant, rank < N_RANKS ? rank : (unsigned)rng_below(&rng, N_RANKS),
                           1 + rng_below(&rng, FILE_BYTES));
            for (kv_tenant t = 1; t <= N_TENANTS; t++) {
                struct tier_wish wish = {.at = place(tenant), .size_bytes = DISK};
                uint64_t each = tier_quotas_each(&quotas, &wish), least = low[t] < each ? low[t] : each;

                if (t != tenant && n > 0)
                    assert_true(has(t) >= least || has(t) + FILE_BYTES > each);
            }
        }
        for (unsigned i = 0; i < 200 * N_TENANTS; i++) /* all tenants flood at once, with the highest rank */
            write_file(1 + rng_below(&rng, N_TENANTS), N_RANKS - 1, FILE_BYTES);
        for (kv_tenant t = 1; t <= N_TENANTS; t++)
            assert_true(has(t) + FILE_BYTES > DISK / N_TENANTS);
    }
}

/* Files of a formerly larger disk with few tenants: larger than a quota. */
static void large_files_of_old_do_not_keep_others_out(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++)
        assert_true(write_file(1, 2, DISK / 4));
    for (unsigned i = 0; i < 400; i++)
        for (kv_tenant t = 2; t <= 9; t++)
            write_file(t, 0, FILE_BYTES);
    assert_int_equal(has(1), DISK / 4); /* more than a ninth, but a file cannot be divided */
    for (kv_tenant t = 2; t <= 9; t++)
        assert_true(has(t) + FILE_BYTES > 3 * DISK / 4 / 8);
}

static void places_are_found_by_number_or_digest(void **state)
{
    uint8_t digest[TIER_TENANT_BYTES];
    unsigned at;

    (void)state;
    assert_int_equal(tier_quotas_find(&quotas, KV_TENANT_NONE), 0);
    assert_int_equal(tier_quotas_find(&quotas, 7), TIER_NO_PLACE);
    digest_of(7, digest); /* found on disk: its tenant is not known yet */
    at = tier_quotas_place(&quotas, digest);
    tier_quotas_add(&quotas, at, 1, 10);
    assert_int_not_equal(at, 0);
    assert_int_equal(tier_quotas_find(&quotas, 7), TIER_NO_PLACE);
    assert_int_equal(place(7), at);
    assert_int_equal(tier_quotas_find(&quotas, 7), at);
    tier_quotas_add(&quotas, at, -1, -10); /* no file is left, so another tenant gets the place */
    assert_int_equal(tier_quotas_find(&quotas, 7), TIER_NO_PLACE);
    assert_int_equal(place(8), at);
    assert_int_equal(tier_quotas_find(&quotas, 7), TIER_NO_PLACE);
}

static void tenants_beyond_the_last_place_share_one_quota(void **state)
{
    (void)state;
    for (kv_tenant t = 1; t < TIER_PLACES; t++)
        assert_true(write_file(t, 0, FILE_BYTES / 2));
    assert_int_equal(tier_quotas_tenants(&quotas), TIER_PLACES - 1);
    assert_int_equal(place(500), 0);
    assert_true(write_file(500, 0, FILE_BYTES / 2) && write_file(501, 0, FILE_BYTES / 2));
    assert_int_equal(quotas.all[0].bytes, FILE_BYTES);
    assert_int_equal(quotas.all[0].number, KV_TENANT_NONE); /* no name was stored there */
    assert_int_equal(tier_quotas_tenants(&quotas), TIER_PLACES);
    for (unsigned i = 0; i < 3000; i++) { /* together they have one quota */
        write_file(500 + i % 50, 2, FILE_BYTES / 2);
        assert_true(has(1) == FILE_BYTES / 2 && has(TIER_PLACES - 1) == FILE_BYTES / 2);
    }
}

static void a_smaller_disk_is_obeyed(void **state)
{
    struct tier_first firsts[TIER_PLACES] = {{0}};
    struct tier_wish wish = {.at = TIER_NO_PLACE, .size_bytes = DISK / 10};

    (void)state;
    assert_int_equal(tier_quotas_victim(&quotas, firsts, &wish), TIER_NO_PLACE);
    for (unsigned i = 0; i < 3; i++)
        assert_true(write_file(1 + i, 2, DISK / 4));
    while (used_bytes() > wish.size_bytes) {
        unsigned victim;

        for (unsigned at = 0; at < quotas.n_seen; at++) {
            unsigned file = first_of(at);

            firsts[at] = file < MAX_FILES
                             ? (struct tier_first){.rank = files[file].rank, .bytes = files[file].bytes}
                             : (struct tier_first){0};
        }
        victim = tier_quotas_victim(&quotas, firsts, &wish);
        assert_int_not_equal(victim, TIER_NO_PLACE); /* one tenant has more than its quota */
        tier_quotas_add(&quotas, victim, -1, -(int64_t)firsts[victim].bytes);
        files[first_of(victim)].bytes = 0;
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, begin)
    const struct CMUnitTest tests[] = {T(a_single_tenant_may_fill_the_disk),
                                       T(a_flood_ends_at_the_others_quota),
                                       T(a_tenant_takes_its_quota_from_pinned_files_of_others),
                                       T(the_greediest_gives_what_it_wants_least),
                                       T(quotas_hold),
                                       T(large_files_of_old_do_not_keep_others_out),
                                       T(places_are_found_by_number_or_digest),
                                       T(tenants_beyond_the_last_place_share_one_quota),
                                       T(a_smaller_disk_is_obeyed)};
#undef T
    return cmocka_run_group_tests(tests, NULL, NULL);
}
