/* SPDX-License-Identifier: Apache-2.0 */
/* Converts a router's log (JSON lines) to a trace in Mooncake's format: arrival times, lengths of prompts and
 * answers, and equal beginnings of prompts.
 *
 * Nothing else of the log is in the trace: no tenant, key, address or id.  The ids of prefixes are hashed again
 * with the caller's key, so two exports with different keys cannot be joined with each other or with the log. */
#ifndef CLIENTS_TRACE_EXPORT_H
#define CLIENTS_TRACE_EXPORT_H

#include "base/bytes.h"
#include "base/fault.h"

struct export;

struct export_counts {
    uint64_t n_lines, n_requests;
    uint64_t n_unanswered; /* refused, cancelled before the first token, or calls that generate nothing */
    uint64_t n_other;      /* lines of other events, or that are not JSON objects */
};

/* E_NOMEM. */
int export_new(const uint8_t key[32], struct export **out);
void export_free(struct export *export);
/* Takes one line, without its end.  Lines that are not of interest are counted.  E_NOMEM, E_LIMIT. */
int export_line(struct export *export, struct bytes line);
/* Appends the trace, in order of arrival.  E_NOMEM; E_NOT_FOUND: no request was answered. */
int export_write(struct export *export, struct buf *out, struct export_counts *counts_out);

#endif
