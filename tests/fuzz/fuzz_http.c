/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: heads, chunks and queries from clients.
 *
 * Beyond not crashing: a head gets the same verdict in pieces as whole; spans stay inside the text; a chunked
 * body decodes to the same bytes in two pieces as in one. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/http/chunked_priv.h"
#include "net/http/parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_span(struct http_span span, const struct http_head *head)
{
    ASSERT((uint64_t)span.at + span.len <= head->len_bytes);
}

static void check_head(const struct http_head *head, struct bytes text)
{
    char out[64];

    ASSERT(head->len_bytes <= text.len_bytes && head->n_fields <= HTTP_MAX_FIELDS);
    check_span(head->path, head);
    check_span(head->query, head);
    check_span(head->method_text, head);
    for (unsigned i = 0; i < head->n_fields; i++) {
        check_span(head->fields[i].name, head);
        check_span(head->fields[i].value, head);
    }
    http_head_lists(head, text, "connection", "close");
    if (http_query_get(http_span_of(head->query, text), "limit", out, sizeof(out)))
        ASSERT(strlen(out) < sizeof(out));
    http_percent_decode(http_span_of(head->path, text), out, sizeof(out));
}

static void try_request(struct bytes text)
{
    static const struct http_head_limits limits = {256, 1024, 16};
    struct http_refusal refusal = {0};
    struct http_refusal part_refusal = {0};
    struct http_head head;
    struct http_head part;
    int rc = http_parse_request(text, &limits, &head, &refusal);
    size_t half = text.len_bytes / 2;
    int part_rc = http_parse_request(bytes_of(text.data, half), &limits, &part, &part_refusal);

    ASSERT(part_rc == 0 || (part_rc == rc && part_refusal.status == refusal.status));
    if (rc == 1)
        check_head(&head, text);
    else if (rc < 0)
        ASSERT(refusal.status >= 400 && refusal.why != NULL);
}

/* Decodes in pieces that end at split and at the end; returns the last rc and a sum over the body. */
static int decode(struct bytes text, size_t split, uint64_t *sum_out)
{
    struct http_chunked chunked = {0};
    size_t at = 0;
    uint64_t sum = 0;
    int rc = 0;

    while (rc == 0 && at < text.len_bytes) {
        size_t end = at < split ? split : text.len_bytes;
        struct bytes body;
        size_t used;

        rc = http_chunked_take(&chunked, bytes_of(text.data + at, end - at), &used, &body);
        if (rc < 0)
            break;
        ASSERT(used <= end - at && used > 0);
        for (size_t i = 0; i < body.len_bytes; i++)
            sum = sum * 31 + body.data[i] + 1;
        at += used;
    }
    *sum_out = rc < 0 ? 0 : sum;
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes text = bytes_of(data, size);
    struct http_head head;
    uint64_t whole, parts;

    try_request(text);
    if (http_parse_response(text, false, &head) == 1)
        check_head(&head, text);
    ASSERT(decode(text, 0, &whole) == decode(text, size / 3, &parts));
    ASSERT(whole == parts);
    return 0;
}
