/* SPDX-License-Identifier: Apache-2.0 */
/* Which ways this machine does best (choice.h, base/mem_copy.h), tried when a process starts.
 *
 * No way changes a bit of any result, so a wrong choice costs time and nothing else. */
#ifndef COMPUTE_TENSOR_TUNE_H
#define COMPUTE_TENSOR_TUNE_H

#include "base/bytes.h"
#include "base/mem_copy.h"
#include "base/team.h"
#include "compute/tensor/choice.h"

struct kern_table;

enum tune_mode {
    TUNE_AUTO, /* what the cache file says of this machine; else measure, and tell the file */
    TUNE_OFF,  /* the defaults */
    TUNE_REDO, /* measure whatever the file says, and tell it */
};

enum { TUNE_MAX_WAYS = 3 }; /* of a field */

struct tuned {
    struct kern_choice choice;
    const struct mem_copy_way *copy;
    bool is_from_cache;
    bool is_saved; /* measured, and in the file now */
    uint64_t took_ns;
    char path[512]; /* of the cache file; empty: there is no place for one */
    /* Measured only: of each copy GB/s; of all second ways together, and of each way of a field, its time as
     * a part of that of the ways chosen until then (0: not measured). */
    double copy_gbs[MEM_COPY_MAX_WAYS];
    double start_ratio;
    double ratios[KERN_N_FIELDS][TUNE_MAX_WAYS];
};

/* Chooses for the whole process; before threads compute or copy.  At most some 300 ms, usually half of that,
 * and some tens of MiB for as long.  Whatever cannot be measured or kept stays at its default: this does not
 * fail. */
void tensor_tune(struct team *team, const struct kern_table *table, enum tune_mode mode, struct tuned *out);

/* "copy=stream32 wide=all ...": one line, without its end. */
void tuned_line(const struct tuned *tuned, struct buf *out);
/* A table for people: every way, its figure, the chosen ones marked. */
void tuned_table(const struct tuned *tuned, struct buf *out);

#endif
