/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: replies of a Redis server.  The parsers stay inside their input.  A complete reply
 * stays complete with bytes behind it, and its items add up to it.  Also maps of slots, redirections and addresses. */
#include "net/redis/redis_slots.h"
#include "net/redis/resp.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_range(void *arg, unsigned first, unsigned last, const struct redis_node *nodes, unsigned n)
{
    (void)arg;
    ASSERT(first <= last && last < REDIS_N_SLOTS && nodes[0].port > 0 && n >= 1 && n <= REDIS_MAX_COPIES);
}

static void check_text(struct bytes input)
{
    char *text = malloc(input.len_bytes + 1);
    struct redis_redirect redirect;
    struct redis_url url;

    ASSERT(text != NULL);
    memcpy(text, input.data, input.len_bytes);
    text[input.len_bytes] = '\0';
    if (redis_redirect_parse(input, &redirect) == 0)
        ASSERT(redirect.slot < REDIS_N_SLOTS && redirect.node.port > 0);
    if (redis_url_parse(text, NULL, &url) == 0)
        ASSERT(url.n_seeds >= 1 && url.seeds[url.n_seeds - 1].host[0] != '\0');
    ASSERT(redis_slot(input) < REDIS_N_SLOTS);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes input = bytes_of(size > 0 ? data : (const uint8_t *)"", size);
    size_t used = 0, at = 0, n;
    int rc = resp_reply_bytes(input, &used);

    ASSERT(rc == 0 || rc == E_AGAIN || rc == E_PROTO);
    ASSERT(rc == 0 ? used > 0 && used <= size : rc != E_AGAIN || used == 0 || used > size);
    while (rc == 0 && at < used) {
        struct resp_item item;

        ASSERT(resp_item_parse(bytes_of(input.data + at, used - at), &item, &n) == 0);
        ASSERT(item.number >= 0 || item.kind == RESP_INTEGER || item.kind == RESP_NULL);
        at += n;
    }
    ASSERT(rc != 0 || (at == used && resp_reply_bytes(bytes_of(input.data, used), &n) == 0 && n == used));
    (void)redis_slots_parse(input, on_range, NULL);
    check_text(input);
    return 0;
}
