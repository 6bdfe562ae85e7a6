/* SPDX-License-Identifier: Apache-2.0 */
/* The decision to sample looks at the trace id alone, as OpenTelemetry's ratio sampler does, so daemons need not
 * agree on anything else. */
#include "base/trace_context.h"

#include <stdio.h>

#include "base/err.h"
#include "base/rng.h"
#include "base/str.h"

#define TEXT_LENGTH (TRACE_PARENT_TEXT - 1) /* 2 + 1 + 32 + 1 + 16 + 1 + 2 */

static bool trace_context_is_lower_hex(const uint8_t *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(text[i] >= '0' && text[i] <= '9') && !(text[i] >= 'a' && text[i] <= 'f'))
            return false;
    return true;
}

static bool trace_context_is_zero(const uint8_t *id, size_t n)
{
    uint8_t any = 0;

    for (size_t i = 0; i < n; i++)
        any |= id[i];
    return any == 0;
}

static bool trace_context_has_form(struct bytes text)
{
    const uint8_t *d = text.data;

    if (text.len_bytes < TEXT_LENGTH || d[2] != '-' || d[35] != '-' || d[52] != '-')
        return false;
    if (!trace_context_is_lower_hex(d, 2) || !trace_context_is_lower_hex(d + 3, 32) ||
        !trace_context_is_lower_hex(d + 36, 16) || !trace_context_is_lower_hex(d + 53, 2))
        return false;
    if (d[0] == 'f' && d[1] == 'f')
        return false;
    if (d[0] == '0' && d[1] == '0')
        return text.len_bytes == TEXT_LENGTH;
    return text.len_bytes == TEXT_LENGTH || d[TEXT_LENGTH] == '-';
}

bool trace_context_read(struct bytes traceparent, struct trace_context *out)
{
    struct trace_context context = {.is_known = true};
    uint8_t flags;

    if (!trace_context_has_form(traceparent) ||
        hex_decode(bytes_of(traceparent.data + 3, 32), context.trace_id, TRACE_ID_BYTES) < 0 ||
        hex_decode(bytes_of(traceparent.data + 36, 16), context.parent_id, SPAN_ID_BYTES) < 0 ||
        hex_decode(bytes_of(traceparent.data + 53, 2), &flags, 1) < 0 ||
        trace_context_is_zero(context.trace_id, TRACE_ID_BYTES) ||
        trace_context_is_zero(context.parent_id, SPAN_ID_BYTES))
        return false;
    context.is_sampled = (flags & TRACE_FLAG_SAMPLED) != 0;
    *out = context;
    return true;
}

void trace_context_write(const struct trace_context *context, char out[TRACE_PARENT_TEXT])
{
    char trace[2 * TRACE_ID_BYTES + 1], parent[2 * SPAN_ID_BYTES + 1];

    hex_encode(context->trace_id, TRACE_ID_BYTES, trace);
    hex_encode(context->parent_id, SPAN_ID_BYTES, parent);
    snprintf(out, TRACE_PARENT_TEXT, "00-%s-%s-%02x", trace, parent,
             context->is_sampled ? TRACE_FLAG_SAMPLED : 0);
}

bool trace_context_is_chosen(const uint8_t trace_id[TRACE_ID_BYTES], double ratio)
{
    uint64_t number = 0; /* the last 56 bits, which are random in every known format of trace ids */

    for (size_t i = TRACE_ID_BYTES - 7; i < TRACE_ID_BYTES; i++)
        number = number << 8 | trace_id[i];
    return (double)number < ratio * 0x1p56;
}

void trace_context_begin(double ratio, struct trace_context *out)
{
    *out = (struct trace_context){.is_known = true};
    do
        rng_system(out->trace_id, TRACE_ID_BYTES);
    while (trace_context_is_zero(out->trace_id, TRACE_ID_BYTES));
    out->is_sampled = trace_context_is_chosen(out->trace_id, ratio);
}

void trace_span_id_make(uint8_t out[SPAN_ID_BYTES])
{
    do
        rng_system(out, SPAN_ID_BYTES);
    while (trace_context_is_zero(out, SPAN_ID_BYTES));
}
