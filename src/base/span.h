/* SPDX-License-Identifier: Apache-2.0 */
/* Spans of a trace, and the bounded queue that takes them to the exporter (net/otlp).
 *
 *     loop, engine thread -- span_queue_put() --> queue -- span_queue_take() --> exporter's thread
 *
 * A span is one plain value of fixed size, so the queue's bound in spans also bounds its bytes.  A full queue drops
 * the span and counts it, so tracing never delays requests. */
#ifndef BASE_SPAN_H
#define BASE_SPAN_H

#include "base/trace_context.h"

enum { SPAN_MAX_ATTRIBUTES = 26, SPAN_TEXT_BYTES = 64, SPAN_QUEUE_SPANS = 2048 };

enum span_kind { SPAN_INTERNAL = 1, SPAN_SERVER = 2, SPAN_CLIENT = 3 }; /* OTLP's numbers */

enum span_value {
    SPAN_TEXT,
    SPAN_TEXT_LIST,
    SPAN_COUNT,
    SPAN_REAL,
    SPAN_FLAG
}; /* TEXT_LIST: a list with one text */

struct span_attribute {
    const char *key; /* static */
    enum span_value kind;
    union {
        char text[SPAN_TEXT_BYTES];
        uint64_t count;
        double real;
        bool flag;
    } as;
};

struct span {
    struct trace_context context; /* its trace, and its parent */
    uint8_t id[SPAN_ID_BYTES];
    char name[SPAN_TEXT_BYTES];
    enum span_kind kind;
    uint64_t begin_ns, end_ns; /* CLOCK_MONOTONIC: the exporter converts them to wall time */
    bool is_failed;
    char failure[SPAN_TEXT_BYTES]; /* with is_failed: what went wrong, may be empty */
    unsigned n_attributes;
    struct span_attribute attributes[SPAN_MAX_ATTRIBUTES];
};

/* Begins a span in the context's trace, with a new span id. */
void span_begin(struct span *span, const struct trace_context *context, const char *name, uint64_t begin_ns);
/* Add an attribute; key is a static string.  A text is cut at a character boundary.  An empty text adds nothing; a
 * span that is full ignores the attribute. */
void span_add_text(struct span *span, const char *key, const char *text);
void span_add_list(struct span *span, const char *key, const char *text);
void span_add_count(struct span *span, const char *key, uint64_t count);
void span_add_real(struct span *span, const char *key, double real);
void span_add_flag(struct span *span, const char *key, bool flag);
void span_fail(struct span *span, const char *why);

struct span_queue;

int span_queue_new(struct span_queue **out); /* E_NOMEM */
void span_queue_free(struct span_queue *queue);
/* Copies the span into the queue.  Does nothing if queue is NULL (no exporter).  Any thread. */
void span_queue_put(struct span_queue *queue, const struct span *span);
uint64_t span_queue_n_dropped(const struct span_queue *queue); /* since the start; any thread */
/* The exporter's thread only.  The next span, which the caller frees with free(); NULL: none. */
struct span *span_queue_take(struct span_queue *queue);

#endif
