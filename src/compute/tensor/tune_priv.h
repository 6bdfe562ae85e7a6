/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by tune.c (decides when to measure), tune_trial.c (measures) and tune_file.c (the cache file). */
#ifndef COMPUTE_TENSOR_TUNE_PRIV_H
#define COMPUTE_TENSOR_TUNE_PRIV_H

#include "compute/tensor/tune.h"

/* ---- trials ---- */

/* Measures, and fills in the kernel choice and the ratios of *out. The choice in *out becomes the
 * process's choice. No trial and no set-up begins after end_ns; false: not all was tried, and what was not
 * keeps its default. */
bool tune_kernels(struct team *team, const struct kern_table *table, uint64_t end_ns, struct tuned *out);

/* ---- the cache file ----
 *
 *     baton-tune 1
 *     copy=stream32 wide=all ... keys=second for version=1.2 kernels=avx2 ranks=8 cpu=00a20f12 AMD EPYC 7713
 *
 * One line per machine, newest first. A line of any other form is ignored. */

enum { TUNE_KEY_BYTES = 256, TUNE_FILE_BYTES = 32768, TUNE_MAX_RECORDS = 32 };

/* The key of a record: this program's version, the processor, the kernels and the number of threads. */
void tune_key(const struct kern_table *table, unsigned n_ranks, char out[TUNE_KEY_BYTES]);
/* Finds the record of the key in a file's text, which may be anything. False: no record, or it names a
 * variant that cannot be chosen here; then the outputs are unchanged. */
bool tune_record_find(struct bytes text, const char *key, struct kern_choice *choice_out,
                      const struct mem_copy_method **copy_out);
/* Writes the text with this record first, without older records of its key and without malformed lines. */
void tune_record_put(struct bytes text, const char *key, const struct tuned *tuned, struct buf *out);

/* Path of the file: $BATON_TUNE_FILE, else tune in systemd's $CACHE_DIRECTORY, else baton/tune in
 * $XDG_CACHE_HOME or ~/.cache. Empty when none is set, or BATON_TUNE_FILE is empty. */
void tune_file_path(char *out, size_t cap_bytes);
/* Reads the whole file, or nothing: a missing, too long or irregular file reads as empty. */
void tune_file_read(const char *path, struct buf *out);
/* Replaces the file by a new one; creates its folder and that folder's parent. False: not written. */
bool tune_file_write(const char *path, struct bytes text);

#endif
