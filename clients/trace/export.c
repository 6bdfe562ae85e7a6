/* SPDX-License-Identifier: Apache-2.0 */
/* Two kinds of lines belong together by the request's id, in any order:
 *
 *    {"ts": "...Z", "event": "access", "request_id": R, "class": c, "tokens_in": n, "tokens_out": m, "total_us": t, ...}
 *    {"ts": "...Z", "event": "prefix", "request_id": R, "from": 0, "ids": "3f09... 81aa... "}
 *
 * Both lists are sorted by the id's hash and merged.  A request with several choices has its prefix more than
 * once: the first line from each position counts. */
#include "clients/trace/export.h"

#include <inttypes.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/name.h"
#include "base/str.h"
#include "clients/bench/trace.h"

#define KEY_BYTES   32
#define MOST_TOKENS (16u << 20)
#define ID_DIGITS   12
#define CLASS_BYTES 32
#define MOST_LINES  (UINT64_C(1) << 31)

struct entry { /* of an access line */
    uint64_t request, at_ns;
    uint32_t tokens_in, tokens_out;
    char class_name[CLASS_BYTES]; /* empty: none, or "default" */
    size_t first_part, n_parts;
};

struct part { /* of a prefix line: ids[first_id, first_id + n_ids) */
    uint64_t request, order;
    uint32_t from, n_ids;
    size_t first_id;
};

struct export
{
    uint8_t key[KEY_BYTES];
    struct entry *entries;
    struct part *parts;
    uint64_t *ids;
    size_t n_entries, cap_entries, n_parts, cap_parts, n_ids, cap_ids;
    struct export_counts counts;
};

int export_new(const uint8_t key[KEY_BYTES], struct export **out)
{
    struct export *export = calloc(1, sizeof(*export));

    if (export == NULL)
        return E_NOMEM;
    memcpy(export->key, key, KEY_BYTES);
    *out = export;
    return 0;
}

void export_free(struct export *export)
{
    if (export == NULL)
        return;
    free(export->entries);
    free(export->parts);
    free(export->ids);
    free(export);
}

/* Room for one more of n elements. */
static int export_grow(void **array, size_t n, size_t *cap, size_t element_bytes)
{
    size_t more = *cap > 0 ? 2 * *cap : 1024;
    void *grown;

    if (n < *cap)
        return 0;
    grown = reallocarray(*array, more, element_bytes);
    if (grown == NULL)
        return E_NOMEM;
    *array = grown;
    *cap = more;
    return 0;
}

/* ---- fields ---- */

static bool take_number(const json_t *line, const char *name, uint64_t most, uint64_t *out)
{
    const json_t *value = json_object_get(line, name);

    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > most)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static bool take_text(const json_t *line, const char *name, struct bytes *out)
{
    const char *text = json_string_value(json_object_get(line, name));

    if (text == NULL)
        return false;
    *out = bytes_str(text);
    return true;
}

/* 63 bits, so that every JSON reader takes them for an integer. */
static uint64_t export_keyed(const struct export *export, uint64_t id)
{
    uint8_t digest[EVP_MAX_MD_SIZE], data[8];
    unsigned len = 0;
    uint64_t out = 0;

    for (unsigned i = 0; i < 8; i++)
        data[i] = (uint8_t)(id >> 8 * i);
    if (HMAC(EVP_sha256(), export->key, KEY_BYTES, data, sizeof(data), digest, &len) == NULL)
        return id;
    memcpy(&out, digest, sizeof(out));
    return out & INT64_MAX;
}

/* A name as router.conf allows, which needs no escapes. */
static void take_class(const json_t *line, char out[CLASS_BYTES])
{
    const char *name = json_string_value(json_object_get(line, "class"));

    if (name == NULL || strcmp(name, "default") == 0 || !name_is_valid(bytes_str(name), CLASS_BYTES - 1))
        name = "";
    memcpy(out, name, strlen(name) + 1);
}

/* ---- lines ---- */

static int take_access(struct export *export, const json_t *line)
{
    uint64_t tokens_in, tokens_out, total_us, end_ns;
    struct bytes request, at;
    struct entry *entry;
    int rc;

    if (!take_text(line, "request_id", &request) || !take_text(line, "ts", &at) ||
        !trace_time_parse(at, &end_ns) || !take_number(line, "tokens_in", MOST_TOKENS, &tokens_in) ||
        !take_number(line, "tokens_out", MOST_TOKENS, &tokens_out) ||
        !take_number(line, "total_us", end_ns / NS_PER_US, &total_us)) {
        export->counts.n_other++;
        return 0;
    }
    if (tokens_in == 0 || tokens_out == 0) {
        export->counts.n_unanswered++;
        return 0;
    }
    rc = export_grow((void **)&export->entries, export->n_entries, &export->cap_entries,
                     sizeof(*export->entries));
    if (rc < 0)
        return rc;
    entry = &export->entries[export->n_entries++];
    *entry = (struct entry){.request = str_digest((const char *)request.data),
                            .at_ns = end_ns - total_us * NS_PER_US,
                            .tokens_in = (uint32_t)tokens_in,
                            .tokens_out = (uint32_t)tokens_out};
    take_class(line, entry->class_name);
    return 0;
}

static bool take_id(struct bytes text, size_t *at, uint64_t *out)
{
    uint64_t id = 0;

    if (text.len_bytes - *at < ID_DIGITS)
        return false;
    for (size_t end = *at + ID_DIGITS; *at < end; ++*at) {
        uint8_t c = text.data[*at];

        if ((c < '0' || c > '9') && (c < 'a' || c > 'f'))
            return false;
        id = id << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    if (*at < text.len_bytes && text.data[(*at)++] != ' ')
        return false;
    *out = id;
    return true;
}

static int take_prefix(struct export *export, const json_t *line)
{
    struct part part = {.order = export->counts.n_lines, .first_id = export->n_ids};
    struct bytes request, ids;
    uint64_t from, id;
    size_t at = 0;
    int rc = 0;

    if (!take_text(line, "request_id", &request) || !take_text(line, "ids", &ids) ||
        !take_number(line, "from", MOST_TOKENS, &from)) {
        export->counts.n_other++;
        return 0;
    }
    while (rc == 0 && at < ids.len_bytes) {
        if (!take_id(ids, &at, &id)) {
            export->n_ids = part.first_id;
            export->counts.n_other++;
            return 0;
        }
        rc = export_grow((void **)&export->ids, export->n_ids, &export->cap_ids, sizeof(*export->ids));
        if (rc == 0)
            export->ids[export->n_ids++] = export_keyed(export, id);
    }
    if (rc == 0)
        rc =
            export_grow((void **)&export->parts, export->n_parts, &export->cap_parts, sizeof(*export->parts));
    if (rc < 0)
        return rc;
    part.request = str_digest((const char *)request.data);
    part.from = (uint32_t)from;
    part.n_ids = (uint32_t)(export->n_ids - part.first_id);
    export->parts[export->n_parts++] = part;
    return 0;
}

int export_line(struct export *export, struct bytes line)
{
    json_t *root;
    struct bytes event;
    int rc = 0;

    if (line.len_bytes == 0)
        return 0;
    if (++export->counts.n_lines > MOST_LINES)
        return E_LIMIT;
    root = json_loadb((const char *)line.data, line.len_bytes, 0, NULL);
    if (!take_text(root, "event", &event))
        export->counts.n_other++;
    else if (bytes_equal(event, bytes_str("access")))
        rc = take_access(export, root);
    else if (bytes_equal(event, bytes_str("prefix")))
        rc = take_prefix(export, root);
    else
        export->counts.n_other++;
    json_decref(root);
    return rc;
}

/* ---- the trace ---- */

static int export_compare(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int by_request(const void *a, const void *b)
{
    return export_compare(((const struct entry *)a)->request, ((const struct entry *)b)->request);
}

static int by_time(const void *a, const void *b)
{
    return export_compare(((const struct entry *)a)->at_ns, ((const struct entry *)b)->at_ns);
}

static int by_place(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    int order = export_compare(x->request, y->request);

    order = order != 0 ? order : export_compare(x->from, y->from);
    return order != 0 ? order : export_compare(x->order, y->order);
}

static void join_parts(struct export *export)
{
    size_t at = 0;

    qsort(export->entries, export->n_entries, sizeof(*export->entries), by_request);
    if (export->n_parts > 0)
        qsort(export->parts, export->n_parts, sizeof(*export->parts), by_place);
    for (size_t i = 0; i < export->n_entries; i++) {
        struct entry *entry = &export->entries[i];

        while (at < export->n_parts && export->parts[at].request < entry->request)
            at++;
        entry->first_part = at;
        while (at + entry->n_parts < export->n_parts &&
               export->parts[at + entry->n_parts].request == entry->request)
            entry->n_parts++;
    }
    qsort(export->entries, export->n_entries, sizeof(*export->entries), by_time);
}

/* Ids in order from the first on, without gaps, none beyond the prompt. */
static void write_ids(const struct export *export, const struct entry *entry, struct buf *out)
{
    uint32_t n = 0, most = entry->tokens_in / TRACE_BLOCK_TOKENS;

    for (size_t i = 0; i < entry->n_parts; i++) {
        const struct part *part = &export->parts[entry->first_part + i];

        for (uint32_t k = 0; part->from == n && k < part->n_ids && n + k < most; k++)
            buf_printf(out, "%s%" PRIu64, n + k > 0 ? ", " : "", export->ids[part->first_id + k]);
        if (part->from == n)
            n = part->from + part->n_ids;
    }
}

int export_write(struct export *export, struct buf *out, struct export_counts *counts_out)
{
    export->counts.n_requests = export->n_entries;
    *counts_out = export->counts;
    if (export->n_entries == 0)
        return E_NOT_FOUND;
    join_parts(export);
    for (size_t i = 0; i < export->n_entries; i++) {
        const struct entry *entry = &export->entries[i];

        buf_printf(
            out, "{\"timestamp\": %" PRIu64 ", \"input_length\": %u, \"output_length\": %u, \"hash_ids\": [",
            (entry->at_ns - export->entries[0].at_ns) / NS_PER_MS, entry->tokens_in, entry->tokens_out);
        write_ids(export, entry, out);
        buf_append_str(out, "]");
        if (entry->class_name[0] != '\0')
            buf_printf(out, ", \"class\": \"%s\"", entry->class_name);
        buf_append_str(out, "}\n");
    }
    return out->is_bad ? E_NOMEM : 0;
}
