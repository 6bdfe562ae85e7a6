/* SPDX-License-Identifier: Apache-2.0 */
/* The generated structs of a batch lie in one block of memory, which is freed with the batch.
 *
 *    TraceRequest -> ResourceSpans -> ScopeSpans -> Span [n] -> KeyValue [n * attributes] -> AnyValue
 *                        -> Resource -> KeyValue [3] */
#include "net/otlp/otlp_encode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "net/otlp/otlp.pb-c.h"

#define N_RESOURCE   4
#define STATUS_ERROR 2

struct otlp_batch { /* room for all messages of a request */
    Otlp__Span *spans;
    Otlp__Span **span_list;
    Otlp__Status *statuses;
    Otlp__KeyValue *pairs;
    Otlp__KeyValue **pair_list;
    Otlp__AnyValue *values;
    Otlp__ArrayValue *arrays;
    Otlp__AnyValue *items;
    Otlp__AnyValue **item_list;
    size_t n_pairs;
};

static int otlp_batch_init(struct otlp_batch *batch, size_t n_spans, size_t n_pairs)
{
    *batch = (struct otlp_batch){.spans = calloc(n_spans, sizeof(*batch->spans)),
                                 .span_list = calloc(n_spans, sizeof(Otlp__Span *)),
                                 .statuses = calloc(n_spans, sizeof(*batch->statuses)),
                                 .pairs = calloc(n_pairs, sizeof(*batch->pairs)),
                                 .pair_list = calloc(n_pairs, sizeof(Otlp__KeyValue *)),
                                 .values = calloc(n_pairs, sizeof(*batch->values)),
                                 .arrays = calloc(n_pairs, sizeof(*batch->arrays)),
                                 .items = calloc(n_pairs, sizeof(*batch->items)),
                                 .item_list = calloc(n_pairs, sizeof(Otlp__AnyValue *))};
    return batch->spans && batch->span_list && batch->statuses && batch->pairs && batch->pair_list &&
                   batch->values && batch->arrays && batch->items && batch->item_list
               ? 0
               : E_NOMEM;
}

static void otlp_batch_fini(struct otlp_batch *batch)
{
    free(batch->spans);
    free(batch->span_list);
    free(batch->statuses);
    free(batch->pairs);
    free(batch->pair_list);
    free(batch->values);
    free(batch->arrays);
    free(batch->items);
    free(batch->item_list);
}

static void otlp_set_text(Otlp__AnyValue *value, const char *text)
{
    otlp__any_value__init(value);
    value->value_case = OTLP__ANY_VALUE__VALUE_STRING_VALUE;
    value->string_value = (char *)text;
}

static void otlp_set_list(struct otlp_batch *batch, size_t at, const char *text)
{
    Otlp__AnyValue *value = &batch->values[at];

    otlp_set_text(&batch->items[at], text);
    batch->item_list[at] = &batch->items[at];
    otlp__array_value__init(&batch->arrays[at]);
    batch->arrays[at].values = &batch->item_list[at];
    batch->arrays[at].n_values = 1;
    value->value_case = OTLP__ANY_VALUE__VALUE_ARRAY_VALUE;
    value->array_value = &batch->arrays[at];
}

static void otlp_add_attribute(struct otlp_batch *batch, const struct span_attribute *from)
{
    size_t at = batch->n_pairs++;
    Otlp__AnyValue *value = &batch->values[at];

    otlp__any_value__init(value);
    otlp__key_value__init(&batch->pairs[at]);
    batch->pairs[at].key = (char *)from->key;
    batch->pairs[at].value = value;
    batch->pair_list[at] = &batch->pairs[at];
    switch (from->kind) {
    case SPAN_TEXT:
        otlp_set_text(value, from->as.text);
        break;
    case SPAN_TEXT_LIST:
        otlp_set_list(batch, at, from->as.text);
        break;
    case SPAN_COUNT:
        value->value_case = OTLP__ANY_VALUE__VALUE_INT_VALUE;
        value->int_value = (int64_t)from->as.count;
        break;
    case SPAN_REAL:
        value->value_case = OTLP__ANY_VALUE__VALUE_DOUBLE_VALUE;
        value->double_value = from->as.real;
        break;
    case SPAN_FLAG:
        value->value_case = OTLP__ANY_VALUE__VALUE_BOOL_VALUE;
        value->bool_value = from->as.flag;
        break;
    }
}

static void otlp_add_span(struct otlp_batch *batch, size_t at, const struct span *from, uint64_t wall_ns)
{
    static const uint8_t none[SPAN_ID_BYTES] = {0};
    Otlp__Span *to = &batch->spans[at];

    otlp__span__init(to);
    batch->span_list[at] = to;
    to->trace_id.data = (uint8_t *)from->context.trace_id;
    to->trace_id.len = TRACE_ID_BYTES;
    to->span_id.data = (uint8_t *)from->id;
    to->span_id.len = SPAN_ID_BYTES;
    if (memcmp(from->context.parent_id, none, SPAN_ID_BYTES) != 0) {
        to->parent_span_id.data = (uint8_t *)from->context.parent_id;
        to->parent_span_id.len = SPAN_ID_BYTES;
    }
    to->name = (char *)from->name;
    to->kind = (uint32_t)from->kind;
    to->start_time_unix_nano = from->begin_ns + wall_ns;
    to->end_time_unix_nano = (from->end_ns > from->begin_ns ? from->end_ns : from->begin_ns) + wall_ns;
    to->flags = TRACE_FLAG_SAMPLED;
    to->attributes = batch->pair_list + batch->n_pairs;
    to->n_attributes = from->n_attributes;
    for (unsigned i = 0; i < from->n_attributes; i++)
        otlp_add_attribute(batch, &from->attributes[i]);
    if (!from->is_failed)
        return;
    otlp__status__init(&batch->statuses[at]);
    batch->statuses[at].code = STATUS_ERROR;
    batch->statuses[at].message = (char *)from->failure;
    to->status = &batch->statuses[at];
}

static void otlp_add_resource(struct otlp_batch *batch, const struct otlp_source *source,
                              Otlp__Resource *resource)
{
    const struct {
        const char *key, *text;
    } rows[] = {{"service.name", source->service},
                {"service.namespace", "baton"},
                {"service.instance.id", source->node},
                {"service.version", source->version}};
    struct span_attribute attribute = {.kind = SPAN_TEXT};

    _Static_assert(sizeof(rows) / sizeof(rows[0]) == N_RESOURCE, "the batch has room for them");
    resource->attributes = batch->pair_list + batch->n_pairs;
    resource->n_attributes = N_RESOURCE;
    for (size_t i = 0; i < N_RESOURCE; i++) {
        attribute.key = rows[i].key;
        otlp_add_attribute(batch, &attribute);
        otlp_set_text(&batch->values[batch->n_pairs - 1], rows[i].text);
    }
}

static int otlp_pack(const Otlp__TraceRequest *request, struct buf *out)
{
    size_t len = otlp__trace_request__get_packed_size(request);

    if (buf_reserve(out, len) < 0)
        return E_NOMEM;
    out->len_bytes += otlp__trace_request__pack(request, out->data + out->len_bytes);
    return 0;
}

int otlp_encode(const struct otlp_source *source, const struct span *const *spans, size_t n, uint64_t wall_ns,
                struct buf *out)
{
    Otlp__TraceRequest request = OTLP__TRACE_REQUEST__INIT;
    Otlp__ResourceSpans group = OTLP__RESOURCE_SPANS__INIT, *group_list = &group;
    Otlp__Resource resource = OTLP__RESOURCE__INIT;
    Otlp__ScopeSpans scoped = OTLP__SCOPE_SPANS__INIT, *scoped_list = &scoped;
    Otlp__Scope scope = OTLP__SCOPE__INIT;
    struct otlp_batch batch;
    size_t n_pairs = N_RESOURCE;
    int rc;

    for (size_t i = 0; i < n; i++)
        n_pairs += spans[i]->n_attributes;
    rc = otlp_batch_init(&batch, n + 1, n_pairs);
    if (rc == 0) {
        otlp_add_resource(&batch, source, &resource);
        for (size_t i = 0; i < n; i++)
            otlp_add_span(&batch, i, spans[i], wall_ns);
        scope.name = (char *)"baton";
        scope.version = (char *)source->version;
        scoped.scope = &scope;
        scoped.spans = batch.span_list;
        scoped.n_spans = n;
        group.resource = &resource;
        group.scope_spans = &scoped_list;
        group.n_scope_spans = 1;
        request.resource_spans = &group_list;
        request.n_resource_spans = 1;
        rc = otlp_pack(&request, out);
    }
    otlp_batch_fini(&batch);
    return rc;
}

uint64_t otlp_rejected(struct bytes answer)
{
    Otlp__TraceAnswer *read = otlp__trace_answer__unpack(NULL, answer.len_bytes, answer.data);
    int64_t n = read != NULL && read->partial_success != NULL ? read->partial_success->rejected_spans : 0;

    if (read != NULL)
        otlp__trace_answer__free_unpacked(read, NULL);
    return n > 0 ? (uint64_t)n : 0;
}

/* ---- the collector's address ---- */

static bool otlp_is_url_text(const char *text)
{
    for (; *text != '\0'; text++)
        if (*text <= ' ' || *text > '~')
            return false;
    return true;
}

int otlp_url_read(const char *text, struct fault *fault, struct otlp_url *out)
{
    static const char scheme[] = "http://";
    struct otlp_url url;
    const char *host = text + sizeof(scheme) - 1, *colon;
    size_t len;

    if (strncmp(text, "https://", 8) == 0)
        return fault_set(fault, E_UNSUPPORTED,
                         "spans are sent over http:// only: name a collector on this host, which can forward "
                         "them over TLS");
    if (strncmp(text, scheme, sizeof(scheme) - 1) != 0 || !otlp_is_url_text(text))
        return fault_set(fault, E_FORMAT, "http://HOST[:PORT][/PATH] is wanted");
    len = strcspn(host, "/?#@");
    colon = memrchr(host, ':', len);
    if (colon != NULL && memchr(colon, ']', len - (size_t)(colon - host)) != NULL)
        colon = NULL; /* a colon of an IPv6 address */
    if (len == 0 || len + 6 > sizeof(url.address) || (host[len] != '\0' && host[len] != '/') || colon == host)
        return fault_set(fault, E_FORMAT, "http://HOST[:PORT][/PATH] is wanted");
    snprintf(url.address, sizeof(url.address), "%.*s%s", (int)len, host, colon == NULL ? ":4318" : "");
    if (!str_copy(url.path, sizeof(url.path),
                  host[len] == '\0' || strcmp(host + len, "/") == 0 ? "/v1/traces" : host + len))
        return fault_set(fault, E_FORMAT, "the path is too long");
    *out = url;
    return 0;
}
