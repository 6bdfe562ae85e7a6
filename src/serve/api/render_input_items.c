/* SPDX-License-Identifier: Apache-2.0 */
/* The input items of a kept response, a page at a time, and the answer to its deletion.
 *
 * Items are kept as JSON objects with ",\n" between them, and JSON text has no line feed inside, so a page is
 * found without parsing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "serve/api/ids.h"
#include "serve/api/render_responses.h"

#define MAX_PAGE_BYTES ((size_t)1 << 20)
#define ID_HEAD        "{\"id\": \""
#define OWN_PREFIX     "in" /* of ids for items without one */

struct walk { /* the items in the order of the page */
    const char *response_id;
    const struct bytes *lines;
    size_t n;
    bool is_ascending;
};

/* Takes the line at *at and moves *at behind it.  False: there is none. */
static bool input_items_next_line(struct bytes items, size_t *at, struct bytes *out)
{
    const uint8_t *end;
    size_t n;

    if (*at >= items.len_bytes)
        return false;
    end = memchr(items.data + *at, '\n', items.len_bytes - *at);
    n = end == NULL ? items.len_bytes - *at : (size_t)(end - (items.data + *at));
    *out = bytes_of(items.data + *at, end == NULL ? n : n - 1); /* without the comma */
    *at += end == NULL ? n : n + 1;
    return true;
}

/* An item's own id, as JSON text writes it, without quotes.  Empty: it has none. */
static struct bytes input_items_id_in(struct bytes line)
{
    const size_t head = strlen(ID_HEAD);
    size_t at = head;

    if (!bytes_starts_with(line, ID_HEAD))
        return bytes_of(NULL, 0);
    while (at < line.len_bytes && line.data[at] != '"')
        at += line.data[at] == '\\' ? 2 : 1;
    return at < line.len_bytes ? bytes_of(line.data + head, at - head) : bytes_of(NULL, 0);
}

static size_t input_items_index_of(const struct walk *walk, size_t i)
{
    return walk->is_ascending ? i : walk->n - 1 - i;
}

/* The item's id, or one made from its index. */
static struct bytes input_items_id_of(const struct walk *walk, size_t i, char own[IDS_BYTES])
{
    size_t index = input_items_index_of(walk, i);
    struct bytes id = input_items_id_in(walk->lines[index]);

    if (id.len_bytes > 0)
        return id;
    ids_make_item(OWN_PREFIX, walk->response_id, (unsigned)index, own);
    return bytes_str(own);
}

static void input_items_put_line(struct buf *out, const struct walk *walk, size_t i)
{
    struct bytes line = walk->lines[input_items_index_of(walk, i)];
    char own[IDS_BYTES];

    if (input_items_id_in(line).len_bytes > 0) {
        buf_append(out, line.data, line.len_bytes);
        return;
    }
    buf_append_str(out, ID_HEAD);
    buf_append(out, input_items_id_of(walk, i, own).data, input_items_id_of(walk, i, own).len_bytes);
    buf_append_str(out, "\"");
    if (line.len_bytes > 2)
        buf_append_str(out, ", ");
    if (line.len_bytes > 0)
        buf_append(out, line.data + 1, line.len_bytes - 1);
}

/* Reads all lines.  NULL: no memory. */
static struct bytes *input_items_read_all(struct bytes items, size_t *n_out)
{
    struct bytes *lines, line;
    size_t n = 0, at = 0;

    while (input_items_next_line(items, &at, &line))
        n++;
    lines = calloc(n + 1, sizeof(*lines));
    at = 0;
    for (size_t i = 0; lines != NULL && i < n; i++)
        (void)input_items_next_line(items, &at, &lines[i]);
    *n_out = n;
    return lines;
}

/* Finds the index after the item with this id.  A made id contains its item's index, so only the id of that item is
 * made again and compared.  A long list thus takes little time. */
static int input_items_find_first(const struct walk *walk, struct bytes after, size_t *out)
{
    size_t digits = after.len_bytes;
    uint64_t place = UINT64_MAX;
    char own[IDS_BYTES];

    *out = 0;
    if (after.len_bytes == 0)
        return 0;
    while (digits > 0 && after.data[digits - 1] >= '0' && after.data[digits - 1] <= '9')
        digits--;
    (void)str_to_u64(bytes_of(after.data + digits, after.len_bytes - digits), &place);
    for (size_t i = 0; i < walk->n; i++) {
        struct bytes id = input_items_id_in(walk->lines[input_items_index_of(walk, i)]);

        if (id.len_bytes == 0 && input_items_index_of(walk, i) == place)
            id = input_items_id_of(walk, i, own);
        if (!bytes_equal(id, after))
            continue;
        *out = i + 1;
        return 0;
    }
    return E_NOT_FOUND;
}

static void input_items_put_page(struct buf *out, const struct walk *walk, size_t first, uint32_t limit)
{
    size_t begun = out->len_bytes, i = first;
    char own[IDS_BYTES];
    struct bytes id = {0};

    buf_append_str(out, "{\"object\":\"list\",\"data\":[");
    for (; i < walk->n && i - first < limit && out->len_bytes - begun < MAX_PAGE_BYTES; i++) {
        if (i > first)
            buf_append_byte(out, ',');
        input_items_put_line(out, walk, i);
    }
    buf_append_str(out, "],\"first_id\":\"");
    if (i > first)
        id = input_items_id_of(walk, first, own);
    buf_append(out, id.data, id.len_bytes);
    buf_append_str(out, "\",\"last_id\":\"");
    if (i > first)
        id = input_items_id_of(walk, i - 1, own);
    buf_append(out, id.data, id.len_bytes);
    buf_printf(out, "\",\"has_more\":%s}", i < walk->n ? "true" : "false");
}

int api_put_input_items(struct buf *out, const char *response_id, struct bytes items,
                        const struct api_item_page *page)
{
    struct walk walk = {.response_id = response_id, .is_ascending = page->is_ascending};
    struct bytes *lines = input_items_read_all(items, &walk.n);
    size_t first;
    int rc;

    if (lines == NULL)
        return E_NOMEM;
    walk.lines = lines;
    rc = input_items_find_first(&walk, page->after, &first);
    if (rc == 0)
        input_items_put_page(out, &walk, first, page->limit);
    free(lines);
    return rc < 0 ? rc : out->is_bad ? E_NOMEM : 0;
}

int api_put_input_tokens(struct buf *out, uint32_t n_tokens)
{
    return buf_printf(out, "{\"object\":\"response.input_tokens\",\"input_tokens\":%u}", n_tokens);
}

int api_put_response_deleted(struct buf *out, const char *response_id)
{
    buf_append_str(out, "{\"id\":");
    json_put_str(out, bytes_str(response_id));
    return buf_append_str(out, ",\"object\":\"response\",\"deleted\":true}");
}
