/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: what discovery reads. The first byte chooses: an address of a source, a file of addresses, an answer of etcd,
 * a line of its watch, a DNS message. Every address that a list takes can be dialled, and the list keeps its bound. */
#include <stdlib.h>

#include "base/check.h"
#include "net/discover/discover_priv.h"
#include "net/link/addr.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_list(const struct endpoints *list)
{
    struct addr addr;

    ASSERT(list->n <= ENDPOINTS_MAX);
    for (uint32_t i = 0; i < list->n; i++)
        ASSERT(addr_parse(list->address[i], NULL, &addr) == 0 && addr.port != 0);
}

static void check_url(struct bytes text)
{
    char *copy = malloc(text.len_bytes + 1);
    struct discover_url url;
    struct fault fault = {0};

    ASSERT(copy != NULL);
    memcpy(copy, text.data, text.len_bytes);
    copy[text.len_bytes] = '\0';
    if (discover_url_parse(copy, &fault, &url) < 0)
        ASSERT(fault.text[0] != '\0');
    else if (url.kind == DISCOVER_ETCD)
        ASSERT(url.n_hosts > 0 && url.path[0] == '/');
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct discover_names names = {.role = DISCOVER_WORKERS};
    struct endpoints *list = calloc(1, sizeof(*list));
    struct bytes text;
    uint64_t revision;
    int64_t number;

    ASSERT(list != NULL);
    text = bytes_of(size ? data + 1 : NULL, size ? size - 1 : 0);
    switch (size ? data[0] % 5 : 5) {
    case 0:
        check_url(text);
        break;
    case 1:
        endpoints_read(list, text);
        break;
    case 2:
        (void)etcd_read_range(text, &names, list, &revision);
        break;
    case 3:
        (void)etcd_read_watch(text);
        (void)etcd_read_number(text, "TTL", &number);
        break;
    case 4:
        (void)dns_reply_ttl(text, 5);
        break;
    }
    check_list(list);
    free(list);
    return 0;
}
