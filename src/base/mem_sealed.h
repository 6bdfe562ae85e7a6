/* SPDX-License-Identifier: Apache-2.0 */
/* A sealed arena: one process fills the memory once, seals it, and passes it to other processes as a file
 * descriptor.
 *
 *      FILLING --mem_sealed_seal()--> SEALED --descriptor--> another process: mem_sealed_attach(): SEALED
 *
 * An attached process takes the same pieces in the same order as the maker, and finds them filled. After the seal
 * no process can write, grow or shrink the memory, not even the maker (memfd_create(2), file seals). The memory
 * exists while any process has it open. One thread at a time, except for mem_sealed_fd(). */
#ifndef BASE_MEM_SEALED_H
#define BASE_MEM_SEALED_H

#include <stdbool.h>
#include <stddef.h>

struct mem_sealed;

/* Reserves address space for max_bytes; pages are used as they are written. E_NOMEM. */
int mem_sealed_new(size_t max_bytes, const char *name, struct mem_sealed **out);
/* Maps an arena that another process sealed. Takes fd, also on failure. E_MISMATCH: fd is not a sealed arena;
 * E_NOMEM. */
int mem_sealed_attach(int fd, struct mem_sealed **out);
/* The next piece of len_bytes, page aligned. E_FULL: past the end. */
int mem_sealed_take(struct mem_sealed *arena, size_t len_bytes, void **out);
bool mem_sealed_is_filled(
    const struct mem_sealed *arena); /* pieces hold their bytes, and cannot be written */
/* Call after the last piece is filled. Addresses stay. E_NOMEM, E_IO. */
int mem_sealed_seal(struct mem_sealed *arena);
int mem_sealed_fd(const struct mem_sealed *arena);       /* borrowed; -1 before the seal */
size_t mem_sealed_bytes(const struct mem_sealed *arena); /* of all pieces so far */
void mem_sealed_free(struct mem_sealed *arena);          /* accepts NULL */

/* True if the system gives such memory huge pages (/sys/kernel/mm/transparent_hugepage/shmem_enabled). */
bool mem_sealed_gets_huge_pages(void);

#endif
