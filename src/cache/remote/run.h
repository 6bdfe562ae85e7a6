/* SPDX-License-Identifier: Apache-2.0 */
/* A value in the store: the records of a run, which is some consecutive blocks of one chain.
 *
 *     chain    b0 b1 b2 b3 b4 b5 ...          key      of the run's last block (record.h)
 *                 [ run   ]                   value    record of b4 | of b3 | of b2 | of b1
 *
 * Large values cost the network and the store less for each byte.  A block's hash names the whole chain before it,
 * so the last hash and the length say which blocks the value has: it needs no directory.  The last block comes
 * first, so the record of a block lies at its distance from the last block, however long the value is.  A value that
 * was cut is a shorter run, and a part of a value can be read alone.
 *
 * Pure functions; any thread. */
#ifndef CACHE_REMOTE_RUN_H
#define CACHE_REMOTE_RUN_H

#include <stddef.h>
#include <stdint.h>

#define REMOTE_NOT_THERE UINT32_MAX

enum {
    REMOTE_VALUE_BYTES = (4 << 20) + 4096, /* of a value, with the heads of its records, at most */
    REMOTE_RUN_BLOCKS = 16 /* of a run, at most: a prompt that shares less than a run does not find it */
};

/* Blocks of the longest run; at least one. */
uint32_t remote_run_blocks(size_t record_bytes);
/* Blocks of a value with so many bytes.  0: no value.  A value that is no row of records has at least one block, which
 * will not open: so it is read and removed. */
uint32_t remote_run_length(size_t record_bytes, uint64_t value_bytes);
/* Which values have a chain's blocks.  runs: [n] the length of the value that ends with each block, 0: none.
 * ends_out: [n] the last block of the longest-reaching value that has the block, or REMOTE_NOT_THERE. */
void remote_run_cover(const uint32_t *runs, uint32_t n, uint32_t *ends_out);

#endif
