/* SPDX-License-Identifier: Apache-2.0 */
/* Sends a daemon's spans to an OTLP collector, on a thread of its own.
 *
 * No request ever waits for the exporter.  While the collector is away or slow, the queue (SPAN_QUEUE_SPANS) and
 * one batch keep spans.  Further spans are dropped and counted in baton_trace_spans_dropped_total. */
#ifndef NET_OTLP_OTLP_EXPORT_H
#define NET_OTLP_OTLP_EXPORT_H

#include "base/fault.h"
#include "base/metrics/metrics.h"
#include "net/otlp/otlp_encode.h"

struct otlp_exporter;

struct otlp_opts {
    const char *url;           /* otlp_url_read(); "": none */
    struct otlp_source source; /* its texts are copied */
    struct metrics *metrics;   /* borrowed */
};

/* Starts the thread.  With an empty url *out is NULL, and that is no error. E_FORMAT, E_UNSUPPORTED, E_NOMEM. */
int otlp_exporter_new(const struct otlp_opts *opts, struct fault *fault, struct otlp_exporter **out);
/* Sends the spans of the queue, for at most one second, and joins the thread.  Accepts NULL. */
void otlp_exporter_free(struct otlp_exporter *exporter);

/* The exporter's queue, for any thread.  With a NULL exporter returns NULL, which span_queue_put() accepts. */
struct span_queue *otlp_exporter_queue(struct otlp_exporter *exporter);

#endif
