/* SPDX-License-Identifier: Apache-2.0 */
/* Sealed arenas: pieces in order, the seal, a second mapping, and descriptors that are none. */
#include "base/mem_sealed.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void pieces_are_found_again_in_order(void **state)
{
    const size_t sizes[] = {1, 5000, (size_t)3 << 20, 64};
    struct mem_sealed *maker, *user;
    void *at, *first[4];

    (void)state;
    assert_int_equal(mem_sealed_new((size_t)16 << 20, "test", &maker), 0);
    assert_false(mem_sealed_is_filled(maker));
    assert_int_equal(mem_sealed_fd(maker), -1);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(mem_sealed_take(maker, sizes[i], &first[i]), 0);
        assert_int_equal((uintptr_t)first[i] % 4096, 0);
        memset(first[i], (int)i + 1, sizes[i]);
    }
    assert_int_equal(mem_sealed_take(maker, (size_t)1 << 40, &at), E_FULL);
    assert_int_equal(mem_sealed_seal(maker), 0);
    assert_int_equal(mem_sealed_seal(maker), 0);
    assert_int_equal(mem_sealed_attach(dup(mem_sealed_fd(maker)), &user), 0);
    assert_true(mem_sealed_is_filled(user));
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(mem_sealed_take(user, sizes[i], &at), 0);
        assert_memory_equal(at, first[i], sizes[i]);
    }
    assert_int_equal(mem_sealed_take(user, 8192, &at), E_FULL);
    assert_int_equal(mem_sealed_bytes(user), mem_sealed_bytes(maker));
    mem_sealed_free(maker); /* the memory lives on */
    assert_int_equal(*(uint8_t *)at, 4);
    mem_sealed_free(user);
}

static void no_process_writes_after_the_seal(void **state)
{
    struct mem_sealed *arena;
    uint8_t byte = 1;
    void *at;
    int fd, status;

    (void)state;
    assert_int_equal(mem_sealed_new(1 << 20, "test", &arena), 0);
    assert_int_equal(mem_sealed_take(arena, 100, &at), 0);
    assert_int_equal(mem_sealed_seal(arena), 0);
    fd = mem_sealed_fd(arena);
    assert_int_equal(pwrite(fd, &byte, 1, 5000), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(fd, 1 << 20), -1);
    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    if (fork() == 0) { /* the maker cannot write either */
        *(volatile uint8_t *)at = 1;
        _exit(0);
    }
    assert_true(wait(&status) > 0);
    assert_true(status != 0);
    mem_sealed_free(arena);
}

static void other_descriptors_are_refused(void **state)
{
    struct mem_sealed *arena;
    uint8_t page[4096] = {0};
    FILE *file;
    int fds[2], fd = memfd_create("test", MFD_ALLOW_SEALING);

    (void)state;
    assert_int_equal(write(fd, page, sizeof(page)), sizeof(page));
    assert_int_equal(mem_sealed_attach(dup(fd), &arena), E_MISMATCH); /* not sealed */
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
    assert_int_equal(mem_sealed_attach(fd, &arena), E_MISMATCH); /* no arena */
    file = tmpfile();                                            /* has no seals at all */
    assert_non_null(file);
    assert_int_equal(mem_sealed_attach(dup(fileno(file)), &arena), E_MISMATCH);
    fclose(file);
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(mem_sealed_attach(fds[0], &arena), E_MISMATCH);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_found_again_in_order),
        cmocka_unit_test(no_process_writes_after_the_seal),
        cmocka_unit_test(other_descriptors_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
