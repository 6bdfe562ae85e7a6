/* SPDX-License-Identifier: Apache-2.0 */
/* Implements log.prefixes: logs the common beginnings of prompts, for baton-trace(1).
 *
 *    {"event": "prefix", "request_id": ..., "from": 0, "ids": "3f09... 81aa... "}
 *
 * An id stands for all tokens up to the end of its part of TRACE_TOKENS tokens: the first 48 bits of that
 * block's hash, which is keyed by the cluster's key.  So the log shows that two prompts begin alike, but
 * nothing of their text.  The ids of one prompt take several lines, because a line's values are bounded. */
#include "fleet/router/router_priv.h"

#include <stdio.h>

#include "base/log.h"

#define TRACE_TOKENS   512
#define IDS_PER_LINE   64
#define MOST_IDS       1024 /* per prompt, enough for half a million tokens */
#define ID_BYTES       6
#define ID_TEXT_LENGTH (2 * ID_BYTES + 1)

static void trace_line(const struct job *job, size_t from, size_t n, size_t blocks_per_id)
{
    char ids[IDS_PER_LINE * ID_TEXT_LENGTH + 1];
    size_t len = 0;

    for (size_t i = from; i < from + n; i++) {
        const struct block_hash *hash = &job->hashes[(i + 1) * blocks_per_id - 1];

        for (unsigned byte = 0; byte < ID_BYTES; byte++)
            len += (size_t)snprintf(ids + len, sizeof(ids) - len, "%02x", hash->bytes[byte]);
        ids[len++] = ' ';
    }
    ids[len - 1] = '\0';
    log_info("prefix", LOG_STR("request_id", job->order.work.request_id), LOG_U64("from", from),
             LOG_STR("ids", ids));
}

void router_trace_declare(void)
{
    (void)log_set_limit("prefix", 0);
    (void)log_set_limit("access", 0); /* no limit on access lines: without all requests the trace would be
                                       * another load */
}

void router_trace_job(const struct job *job)
{
    uint32_t block_tokens = job->model->gen.block_tokens;
    size_t blocks_per_id, n;

    if (!job->router->conf->log_prefixes || job->hashes == NULL || block_tokens == 0 ||
        block_tokens > TRACE_TOKENS)
        return;
    blocks_per_id = TRACE_TOKENS / block_tokens;
    n = job->n_hashes / blocks_per_id;
    n = n < MOST_IDS ? n : MOST_IDS;
    for (size_t from = 0; from < n; from += IDS_PER_LINE)
        trace_line(job, from, n - from < IDS_PER_LINE ? n - from : IDS_PER_LINE, blocks_per_id);
}
