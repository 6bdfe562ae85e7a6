/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: a router's log for baton-trace.  With any lines, the trace parser accepts the resulting
 * trace, which has as many requests as the export counted. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "clients/bench/trace.h"
#include "clients/trace/export.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t key[32] = {1};
    struct export_counts counts;
    struct trace trace = {0};
    struct export *export;
    struct buf out = {0};
    int rc;

    ASSERT(export_new(key, &export) == 0);
    for (size_t at = 0; at < size;) {
        const uint8_t *lf = memchr(data + at, '\n', size - at);
        size_t end = lf != NULL ? (size_t)(lf - data) : size;

        ASSERT(export_line(export, bytes_of(data + at, end - at)) == 0);
        at = end + 1;
    }
    rc = export_write(export, &out, &counts);
    ASSERT((rc == 0) == (counts.n_requests > 0) && (rc == 0 || rc == E_NOT_FOUND));
    if (rc == 0) {
        ASSERT(trace_parse("trace", buf_view(&out), NULL, &trace) == 0);
        ASSERT(trace.n_entries == counts.n_requests);
    }
    trace_fini(&trace);
    buf_fini(&out);
    export_free(export);
    return 0;
}
