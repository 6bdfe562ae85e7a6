/* SPDX-License-Identifier: Apache-2.0 */
/* Finds this machine's fastest kernel variants (choice.h) and copies (base/mem_copy.h) when a process
 * starts.
 *
 * No variant changes a bit of any result, so a wrong choice only costs time. */
#ifndef COMPUTE_TENSOR_TUNE_H
#define COMPUTE_TENSOR_TUNE_H

#include "base/bytes.h"
#include "base/mem_copy.h"
#include "base/team.h"
#include "compute/tensor/choice.h"

struct kern_table;

enum tune_mode {
    TUNE_AUTO, /* use the cache file's choice for this machine; else measure and write it to the file */
    TUNE_OFF,  /* the defaults */
    TUNE_REDO, /* measure in any case and write the file */
    TUNE_WAIT, /* as TUNE_REDO, for a user who waits for it: takes up to 5 s on a busy machine */
};

enum { TUNE_MAX_VARIANTS = 3 }; /* variants of a field */

struct tuned {
    struct kern_choice choice;
    const struct mem_copy_method *copy;
    bool is_from_cache;
    bool is_saved; /* measured, and now in the file */
    uint64_t took_ns;
    char path[512]; /* path of the cache file; empty: no place for one */
    /* Set only by a measurement. copy_gbs: GB/s of each copy. start_ratio: time of all second variants
     * together. ratios: time of each variant. Both are relative to the variants chosen so far (0: not
     * measured). */
    double copy_gbs[MEM_COPY_MAX_METHODS];
    double start_ratio;
    double ratios[KERN_N_FIELDS][TUNE_MAX_VARIANTS];
};

/* Chooses for the whole process. Call it before threads compute or copy. Takes at most about 300 ms (longer with
 * TUNE_WAIT), usually half of that, and some tens of MiB of memory meanwhile. Never fails: fields that cannot be
 * measured keep their defaults. */
void tensor_tune(struct team *team, const struct kern_table *table, enum tune_mode mode, struct tuned *out);

/* One line without its end: "copy=stream32 wide=all ...". */
void tuned_line(const struct tuned *tuned, struct buf *out);
/* A table for people: every variant with its figure, the chosen ones marked. */
void tuned_table(const struct tuned *tuned, struct buf *out);

#endif
