/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded arrivals: the time, the lengths and the shared blocks of each request. */
#ifndef CLIENTS_BENCH_TRACE_H
#define CLIENTS_BENCH_TRACE_H

#include "base/bytes.h"
#include "base/fault.h"

#define TRACE_BLOCK_TOKENS 512 /* of a block id in Mooncake's traces */

struct trace_entry {
    uint64_t at_ns; /* since the first */
    uint32_t prompt_tokens;
    uint32_t answer_tokens;
    uint32_t first_block; /* index into block_ids; equal leading ids are an equal prefix */
    uint32_t n_blocks;    /* 0: unknown */
    bool has_other_class; /* its class is named, and not "default" */
};

struct trace {
    struct trace_entry *entries; /* by time */
    size_t n_entries;
    uint64_t *block_ids;
    size_t n_block_ids;
};

/* Reads Azure's LLM inference CSV (TIMESTAMP,ContextTokens,GeneratedTokens) or Mooncake's JSON lines
 * (timestamp in ms, input_length, output_length, hash_ids; baton-trace adds class).  The first line that is not
 * empty shows which; a byte order mark before it is skipped.  name names the file in the fault.  E_FORMAT with the line, E_LIMIT, E_NOMEM. */
int trace_parse(const char *name, struct bytes text, struct fault *fault, struct trace *out);
int trace_load(const char *path, struct fault *fault, struct trace *out); /* "-": standard input; also E_IO */
/* "2023-11-16 18:17:03.9799600"; also with 'T', without a fraction, or with "Z" or "+00:00" at the end. */
bool trace_time_parse(struct bytes text, uint64_t *ns_out);
void trace_fini(struct trace *trace); /* accepts a zeroed struct */

#endif
