/* SPDX-License-Identifier: Apache-2.0 */
/* The context of a distributed trace: which trace a piece of work belongs to, and which span caused it.
 *
 * The text form is W3C Trace Context's traceparent: 00-TRACE_ID-PARENT_ID-FLAGS.  All functions but the two that
 * draw ids are pure.  Any thread. */
#ifndef BASE_TRACE_CONTEXT_H
#define BASE_TRACE_CONTEXT_H

#include "base/bytes.h"

#define TRACE_ID_BYTES     16
#define SPAN_ID_BYTES      8
#define TRACE_PARENT_TEXT  56 /* with its NUL */
#define TRACE_FLAG_SAMPLED 1u /* of the traceparent's flags */

struct trace_context { /* all zero: the work belongs to no trace */
    uint8_t trace_id[TRACE_ID_BYTES];
    uint8_t parent_id[SPAN_ID_BYTES]; /* the span that caused the work; all zero: it is the trace's first */
    bool is_known;                    /* the ids are set */
    bool is_sampled;                  /* spans of this trace are recorded */
};

/* Reads a traceparent of version 00, or the part of a later version that 00 defines.  False: it is malformed, and
 * *out is unchanged. */
bool trace_context_read(struct bytes traceparent, struct trace_context *out);
void trace_context_write(const struct trace_context *context, char out[TRACE_PARENT_TEXT]);

/* True if this trace belongs to the sampled ratio (0 to 1) of all traces.  Every daemon gets the same result. */
bool trace_context_is_chosen(const uint8_t trace_id[TRACE_ID_BYTES], double ratio);

/* Begins a new trace, sampled with this ratio. */
void trace_context_begin(double ratio, struct trace_context *out);
void trace_span_id_make(uint8_t out[SPAN_ID_BYTES]); /* never all zero */

#endif
