/* SPDX-License-Identifier: Apache-2.0 */
/* Spans as an OTLP message, and the address of a collector.  Pure functions. */
#ifndef NET_OTLP_OTLP_ENCODE_H
#define NET_OTLP_OTLP_ENCODE_H

#include "base/fault.h"
#include "base/span.h"

struct otlp_source {     /* the process that the spans come from; borrowed texts */
    const char *service; /* "baton-router" */
    const char *node;
    const char *version;
};

/* Appends an ExportTraceServiceRequest with the spans. wall_ns is added to their monotonic times to get wall time.
 * E_NOMEM. */
int otlp_encode(const struct otlp_source *source, const struct span *const *spans, size_t n, uint64_t wall_ns,
                struct buf *out);

/* The number of refused spans in the collector's answer; 0 if the answer has none or cannot be read. */
uint64_t otlp_rejected(struct bytes answer);

struct otlp_url {
    char address[288]; /* host:port */
    char path[256];
};

/* Reads http://HOST[:PORT][/PATH].  Without a port: 4318; without a path: /v1/traces.  E_FORMAT; E_UNSUPPORTED:
 * https. */
int otlp_url_read(const char *text, struct fault *fault, struct otlp_url *out);

#endif
