/* SPDX-License-Identifier: Apache-2.0 */
/* Regions, aligned memory, arenas. */
#include "tests/unit/check.h"

#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void check_region(size_t len_bytes, bool is_shareable, bool is_populated)
{
    struct mem_region region;
    size_t align = len_bytes >= 2 << 20 ? 2 << 20 : (size_t)sysconf(_SC_PAGESIZE);

    assert_int_equal(mem_region_open(len_bytes, is_shareable, is_populated, "test", &region), 0);
    assert_int_equal((uintptr_t)region.base % align, 0);
    assert_true(region.len_bytes >= len_bytes && region.len_bytes < len_bytes + align);
    assert_int_equal(region.fd >= 0, is_shareable);
    uint8_t *at = region.base;
    assert_int_equal(at[0] | at[region.len_bytes / 2] | at[region.len_bytes - 1], 0);
    at[0] = at[region.len_bytes - 1] = 7;
    mem_region_close(&region);
    assert_null(region.base);
    mem_region_close(&region);
}

static void regions_of_all_kinds(void **state)
{
    struct mem_region region = {0};

    for (int kind = 0; kind < 4; kind++) {
        check_region(1, kind & 1, kind & 2);
        check_region(5 << 20, kind & 1, kind & 2);
    }
    mem_region_close(&region);
    assert_int_equal(mem_region_open(0, false, false, "none", &region), E_INVAL);
    assert_int_equal(mem_region_open(SIZE_MAX / 8, false, false, "huge", &region), E_NOMEM);
    assert_int_equal(mem_region_open(SIZE_MAX / 8, true, false, "huge", &region), E_NOMEM);
}

/* A huge page must not be used for a few excess bytes. */
static void little_is_wasted(void **state)
{
    enum { MIB = 1 << 20 };
    struct mem_region region;

    for (size_t len_bytes = 2 * MIB; len_bytes <= 8 * MIB; len_bytes += 300000) {
        assert_int_equal(mem_region_open(len_bytes, false, false, "test", &region), 0);
        assert_in_range(region.len_bytes, len_bytes, len_bytes + MIB - 1);
        memset(region.base, 1, region.len_bytes);
        mem_region_close(&region);
    }
}

static void a_shared_region_keeps_its_size(void **state)
{
    struct mem_region region;
    struct stat status;

    assert_int_equal(mem_region_open(3 << 20, true, false, "sealed", &region), 0);
    assert_int_equal(fstat(region.fd, &status), 0);
    assert_int_equal(status.st_size, region.len_bytes);
    assert_int_not_equal(ftruncate(region.fd, 4096), 0);
    assert_int_not_equal(ftruncate(region.fd, 64 << 20), 0);
    assert_int_not_equal(fcntl(region.fd, F_ADD_SEALS, F_SEAL_WRITE), 0);

    const uint8_t *peer = mmap(NULL, region.len_bytes, PROT_READ, MAP_SHARED, region.fd, 0);
    assert_ptr_not_equal(peer, MAP_FAILED);
    ((uint8_t *)region.base)[12345] = 42;
    assert_int_equal(peer[12345], 42);
    munmap((void *)peer, region.len_bytes);
    mem_region_close(&region);
}

static void aligned_memory_is_zeroed(void **state)
{
    for (size_t align = 8; align <= 4096; align *= 2) {
        uint8_t *at = mem_aligned(align, 100);

        assert_int_equal((uintptr_t)at % align, 0);
        for (int i = 0; i < 100; i++)
            assert_int_equal(at[i], 0);
        memset(at, 1, 100);
        free(at);
    }
    assert_null(mem_aligned(64, SIZE_MAX));
    free(mem_aligned(64, 0));
}

static void arena_pieces_do_not_overlap(void **state)
{
    struct arena arena;
    uint8_t *pieces[500];

    arena_init(&arena, 0);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < 500; i++) {
            size_t len_bytes = i % 50 == 0 ? 20000 : i;

            pieces[i] = arena_take(&arena, len_bytes);
            assert_non_null(pieces[i]);
            assert_int_equal((uintptr_t)pieces[i] % 16, 0);
            for (size_t at = 0; at < len_bytes; at++)
                assert_int_equal(pieces[i][at], 0);
            memset(pieces[i], (int)i, len_bytes);
        }
        for (size_t i = 0; i < 500; i++)
            assert_true(i % 50 == 0 || i == 0 || pieces[i][i - 1] == (uint8_t)i);
        arena_fini(&arena);
        assert_int_equal(arena.used_bytes, 0);
    }
}

static void arena_keeps_its_limit(void **state)
{
    struct arena arena;

    arena_init(&arena, 100);
    char *text = arena_str(&arena, bytes_str("hello"));
    assert_string_equal(text, "hello");
    assert_string_equal(arena_str(&arena, bytes_str(NULL)), "");
    assert_null(arena_take(&arena, 100));
    assert_null(arena_take(&arena, SIZE_MAX));
    assert_null(arena_take(&arena, SIZE_MAX - 15));
    assert_non_null(arena_take(&arena, 64));
    assert_null(arena_take(&arena, 16));
    arena_fini(&arena);
}

static void arena_frees_what_it_keeps(void **state)
{
    struct arena arena;

    arena_init(&arena, 1000);
    for (int i = 0; i < 4; i++) {
        char *given = malloc(200);

        assert_ptr_equal(arena_keep(&arena, given, 200), given);
        given[199] = (char)i;
    }
    assert_true(arena.used_bytes >= 800);
    assert_null(arena_keep(&arena, malloc(200), 200));
    assert_non_null(arena_take(&arena, 16));
    arena_fini(&arena);
    assert_int_equal(arena.used_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_of_all_kinds),           cmocka_unit_test(little_is_wasted),
        cmocka_unit_test(a_shared_region_keeps_its_size), cmocka_unit_test(aligned_memory_is_zeroed),
        cmocka_unit_test(arena_pieces_do_not_overlap),    cmocka_unit_test(arena_keeps_its_limit),
        cmocka_unit_test(arena_frees_what_it_keeps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
