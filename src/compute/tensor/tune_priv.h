/* SPDX-License-Identifier: Apache-2.0 */
/* Between tune.c, which decides when, tune_trial.c, which measures, and tune_file.c, which remembers. */
#ifndef COMPUTE_TENSOR_TUNE_PRIV_H
#define COMPUTE_TENSOR_TUNE_PRIV_H

#include "compute/tensor/tune.h"

/* ---- trials ---- */

/* Fills in the choice of kernels, and the ratios; leaves the process's choice as it is in *out.  Ends soon
 * after end_ns; false: before all was tried. */
bool tune_kernels(struct team *team, const struct kern_table *table, uint64_t end_ns, struct tuned *out);

/* ---- the cache file ----
 *
 *     baton-tune 1
 *     copy=stream32 wide=all ... keys=second for version=1.2 kernels=avx2 ranks=8 cpu=00a20f12 AMD EPYC 7713
 *
 * A line for each machine, newest first.  What is not exactly so is no line for anybody. */

enum { TUNE_KEY_BYTES = 256, TUNE_FILE_BYTES = 32768, TUNE_MAX_RECORDS = 32 };

/* What a record is for: this program's version, the processor, the kernels and how many threads they have. */
void tune_key(const struct kern_table *table, unsigned n_ranks, char out[TUNE_KEY_BYTES]);
/* The record for the key in a file's text, which may be anything.  False: there is none, or it names what
 * cannot be chosen here; then nothing is written. */
bool tune_record_find(struct bytes text, const char *key, struct kern_choice *choice_out,
                      const struct mem_copy_way **copy_out);
/* The text with this record first, without older ones for its key, without anything malformed. */
void tune_record_put(struct bytes text, const char *key, const struct tuned *tuned, struct buf *out);

/* Where it is: $BATON_TUNE_FILE, else tune in systemd's $CACHE_DIRECTORY, else baton/tune in $XDG_CACHE_HOME
 * or ~/.cache.  Empty when none is set, or BATON_TUNE_FILE is empty. */
void tune_file_path(char *out, size_t cap_bytes);
/* All of it, or nothing: a file that is missing, too long or no file at all reads as empty. */
void tune_file_read(const char *path, struct buf *out);
/* By a new file in its place; makes the folder it is in, and that one's.  False: not written. */
bool tune_file_write(const char *path, struct bytes text);

#endif
