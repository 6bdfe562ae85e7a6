/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of addresses. An address that cannot be dialled never enters a list, so its users need no checks. */
#include "net/discover/endpoints.h"

#include <string.h>

#include "net/link/addr.h"

bool endpoints_have(const struct endpoints *list, const char *address)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (strcmp(list->address[i], address) == 0)
            return true;
    return false;
}

static bool endpoint_is_dialable(const char *text)
{
    struct addr addr;

    return addr_parse(text, NULL, &addr) == 0 && addr.port != 0 && strcmp(addr.host, "*") != 0;
}

bool endpoints_add(struct endpoints *list, struct bytes address)
{
    char text[ENDPOINT_BYTES];

    if (address.len_bytes == 0 || address.len_bytes >= sizeof(text) ||
        memchr(address.data, '\0', address.len_bytes) != NULL) {
        list->n_refused++;
        return false;
    }
    memcpy(text, address.data, address.len_bytes);
    text[address.len_bytes] = '\0';
    if (endpoints_have(list, text))
        return true;
    if (list->n == ENDPOINTS_MAX || !endpoint_is_dialable(text)) {
        list->n_refused++;
        return false;
    }
    memcpy(list->address[list->n++], text, address.len_bytes + 1);
    return true;
}

void endpoints_merge(struct endpoints *list, const struct endpoints *from)
{
    list->n_refused += from->n_refused;
    for (uint32_t i = 0; i < from->n; i++)
        endpoints_add(list, bytes_str(from->address[i]));
}

bool endpoints_equal(const struct endpoints *a, const struct endpoints *b)
{
    if (a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (strcmp(a->address[i], b->address[i]) != 0)
            return false;
    return true;
}

static struct bytes endpoints_trim(struct bytes line)
{
    const uint8_t *comment = line.len_bytes ? memchr(line.data, '#', line.len_bytes) : NULL;

    if (comment != NULL)
        line.len_bytes = (size_t)(comment - line.data);
    while (line.len_bytes > 0 && line.data[0] <= ' ')
        line.data++, line.len_bytes--;
    while (line.len_bytes > 0 && line.data[line.len_bytes - 1] <= ' ')
        line.len_bytes--;
    return line;
}

void endpoints_read(struct endpoints *list, struct bytes text)
{
    while (text.len_bytes > 0) {
        const uint8_t *end = memchr(text.data, '\n', text.len_bytes);
        size_t n = end ? (size_t)(end - text.data) : text.len_bytes;
        struct bytes line = endpoints_trim(bytes_of(text.data, n));

        if (line.len_bytes > 0)
            endpoints_add(list, line);
        n += end != NULL;
        text = bytes_of(text.data + n, text.len_bytes - n);
    }
}
