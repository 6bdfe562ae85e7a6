/* SPDX-License-Identifier: Apache-2.0 */
/* A span enters the queue when it ends, so nothing here refers to an open span. */
#include "base/span.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mailbox.h"
#include "base/str.h"

struct span_queue {
    struct mailbox *box;
    atomic_uint n_waiting; /* in the box; checked before memory is allocated for a copy */
    atomic_uint_fast64_t n_dropped;
};

static void span_copy_text(char out[SPAN_TEXT_BYTES], const char *text)
{
    if (!str_copy(out, SPAN_TEXT_BYTES, text))
        out[utf8_valid_prefix(bytes_str(out))] = '\0';
}

void span_begin(struct span *span, const struct trace_context *context, const char *name, uint64_t begin_ns)
{
    *span =
        (struct span){.context = *context, .kind = SPAN_INTERNAL, .begin_ns = begin_ns, .end_ns = begin_ns};
    span_copy_text(span->name, name);
    trace_span_id_make(span->id);
}

static struct span_attribute *span_add(struct span *span, const char *key, enum span_value kind)
{
    struct span_attribute *attribute;

    if (span->n_attributes == SPAN_MAX_ATTRIBUTES)
        return NULL;
    attribute = &span->attributes[span->n_attributes++];
    *attribute = (struct span_attribute){.key = key, .kind = kind};
    return attribute;
}

void span_add_text(struct span *span, const char *key, const char *text)
{
    struct span_attribute *attribute = text[0] != '\0' ? span_add(span, key, SPAN_TEXT) : NULL;

    if (attribute != NULL)
        span_copy_text(attribute->as.text, text);
}

void span_add_list(struct span *span, const char *key, const char *text)
{
    struct span_attribute *attribute = text[0] != '\0' ? span_add(span, key, SPAN_TEXT_LIST) : NULL;

    if (attribute != NULL)
        span_copy_text(attribute->as.text, text);
}

void span_add_count(struct span *span, const char *key, uint64_t count)
{
    struct span_attribute *attribute = span_add(span, key, SPAN_COUNT);

    if (attribute != NULL)
        attribute->as.count = count;
}

void span_add_real(struct span *span, const char *key, double real)
{
    struct span_attribute *attribute = span_add(span, key, SPAN_REAL);

    if (attribute != NULL)
        attribute->as.real = real;
}

void span_add_flag(struct span *span, const char *key, bool flag)
{
    struct span_attribute *attribute = span_add(span, key, SPAN_FLAG);

    if (attribute != NULL)
        attribute->as.flag = flag;
}

void span_fail(struct span *span, const char *why)
{
    span->is_failed = true;
    span_copy_text(span->failure, why);
}

/* ---- the queue ---- */

int span_queue_new(struct span_queue **out)
{
    struct span_queue *queue = calloc(1, sizeof(*queue));

    if (queue == NULL || mailbox_new(SPAN_QUEUE_SPANS, &queue->box) < 0) {
        free(queue);
        return E_NOMEM;
    }
    *out = queue;
    return 0;
}

void span_queue_free(struct span_queue *queue)
{
    struct span *span;

    if (queue == NULL)
        return;
    while ((span = mailbox_receive(queue->box)) != NULL)
        free(span);
    mailbox_free(queue->box);
    free(queue);
}

void span_queue_put(struct span_queue *queue, const struct span *span)
{
    struct span *copy;

    if (queue == NULL)
        return;
    copy = atomic_fetch_add_explicit(&queue->n_waiting, 1, memory_order_relaxed) < SPAN_QUEUE_SPANS
               ? malloc(sizeof(*copy))
               : NULL;
    if (copy != NULL)
        *copy = *span;
    if (copy == NULL || mailbox_send(queue->box, copy) < 0) {
        free(copy);
        atomic_fetch_sub_explicit(&queue->n_waiting, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&queue->n_dropped, 1, memory_order_relaxed);
    }
}

uint64_t span_queue_n_dropped(const struct span_queue *queue)
{
    return atomic_load_explicit(&queue->n_dropped, memory_order_relaxed);
}

struct span *span_queue_take(struct span_queue *queue)
{
    struct span *span = mailbox_receive(queue->box);

    if (span != NULL)
        atomic_fetch_sub_explicit(&queue->n_waiting, 1, memory_order_relaxed);
    return span;
}
