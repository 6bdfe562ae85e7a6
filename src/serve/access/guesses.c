/* SPDX-License-Identifier: Apache-2.0 */
/* Failed logins: one leaking bucket for each address that presented a wrong key.  The buckets are in a
 * map and in a list by last use. */
#include "serve/access/guesses.h"

#include <arpa/inet.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/hashmap.h"
#include "base/list.h"
#include "base/rng.h"

#define ADDRESS_BYTES 16
#define MINUTE_NS     (60 * NS_PER_S)

struct guesser {
    struct list node; /* guesses.by_use, most recent last */
    uint8_t address[ADDRESS_BYTES];
    uint64_t last_key; /* hash of its last wrong key, with our salt */
    double used;       /* the level at at_ns */
    uint64_t at_ns;
};

struct guesses {
    uint32_t per_min;
    uint32_t max_addresses;
    struct hashmap *by_address;
    struct list by_use;
    uint8_t salt[16];
};

int guesses_new(uint32_t per_min, uint32_t max_addresses, struct guesses **out)
{
    struct guesses *guesses = calloc(1, sizeof(*guesses));

    if (guesses == NULL)
        return E_NOMEM;
    guesses->per_min = per_min;
    guesses->max_addresses = max_addresses;
    list_init(&guesses->by_use);
    rng_system(guesses->salt, sizeof(guesses->salt));
    if (hashmap_new(ADDRESS_BYTES, &guesses->by_address) < 0) {
        free(guesses);
        return E_NOMEM;
    }
    *out = guesses;
    return 0;
}

static void forget(struct guesses *guesses, struct guesser *guesser)
{
    hashmap_remove(guesses->by_address, guesser->address);
    list_remove(&guesser->node);
    free(guesser);
}

void guesses_free(struct guesses *guesses)
{
    if (guesses == NULL)
        return;
    while (!list_is_empty(&guesses->by_use))
        forget(guesses, container_of(guesses->by_use.next, struct guesser, node));
    hashmap_free(guesses->by_address);
    free(guesses);
}

/* Reads IPv4 in its form mapped into IPv6; of IPv6 only the network of one site.  E_FORMAT: not an
 * address. */
static int read_address(const char *peer, uint8_t out[ADDRESS_BYTES])
{
    static const uint8_t mapped[12] = {[10] = 0xff, 0xff};
    const char *colon = strrchr(peer, ':');
    bool is_v6 = peer[0] == '[';
    char text[INET6_ADDRSTRLEN];
    size_t n;

    memset(out, 0, ADDRESS_BYTES);
    if (colon == NULL || (is_v6 && (colon < peer + 2 || colon[-1] != ']')))
        return E_FORMAT;
    peer += is_v6;
    n = (size_t)(colon - peer) - is_v6;
    if (n >= sizeof(text))
        return E_FORMAT;
    memcpy(text, peer, n);
    text[n] = '\0';
    if (!is_v6) {
        memcpy(out, mapped, sizeof(mapped));
        return inet_pton(AF_INET, text, out + 12) == 1 ? 0 : E_FORMAT;
    }
    if (inet_pton(AF_INET6, text, out) != 1)
        return E_FORMAT;
    if (memcmp(out, mapped, sizeof(mapped)) != 0)
        memset(out + 8, 0, 8);
    return 0;
}

static double used_at(const struct guesses *guesses, const struct guesser *guesser, uint64_t now_ns)
{
    double sunk = now_ns > guesser->at_ns
                      ? (double)(now_ns - guesser->at_ns) * guesses->per_min / (double)MINUTE_NS
                      : 0;

    return sunk < guesser->used ? guesser->used - sunk : 0;
}

uint32_t guesses_wait_s(const struct guesses *guesses, const char *peer, uint64_t now_ns)
{
    uint8_t address[ADDRESS_BYTES];
    const struct guesser *guesser;
    double over;

    if (guesses->per_min == 0 || read_address(peer, address) < 0)
        return 0;
    guesser = hashmap_get(guesses->by_address, address);
    if (guesser == NULL)
        return 0;
    over = used_at(guesses, guesser, now_ns) + 1 - guesses->per_min;
    return over <= 0 ? 0 : (uint32_t)ceil(over * 60 / guesses->per_min);
}

static struct guesser *add(struct guesses *guesses, const uint8_t address[ADDRESS_BYTES])
{
    struct guesser *guesser = calloc(1, sizeof(*guesser));

    if (guesser == NULL)
        return NULL;
    if (hashmap_count(guesses->by_address) >= guesses->max_addresses)
        forget(guesses, container_of(guesses->by_use.next, struct guesser, node));
    memcpy(guesser->address, address, ADDRESS_BYTES);
    list_init(&guesser->node);
    if (hashmap_put(guesses->by_address, address, guesser, NULL) < 0) {
        free(guesser);
        return NULL;
    }
    return guesser;
}

static uint64_t hash_key(const struct guesses *guesses, struct bytes key)
{
    uint8_t hash[EVP_MAX_MD_SIZE];
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    uint64_t out = 0;

    if (context != NULL && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1 &&
        EVP_DigestUpdate(context, guesses->salt, sizeof(guesses->salt)) == 1 &&
        EVP_DigestUpdate(context, key.data, key.len_bytes) == 1 &&
        EVP_DigestFinal_ex(context, hash, NULL) == 1)
        out = get_u64(hash);
    EVP_MD_CTX_free(context);
    return out;
}

void guesses_note(struct guesses *guesses, const char *peer, struct bytes key, uint64_t now_ns)
{
    uint8_t address[ADDRESS_BYTES];
    struct guesser *guesser;
    uint64_t hash;

    if (guesses->per_min == 0 || key.len_bytes == 0 || read_address(peer, address) < 0)
        return;
    hash = hash_key(guesses, key);
    guesser = hashmap_get(guesses->by_address, address);
    if (guesser == NULL)
        guesser = add(guesses, address);
    if (guesser == NULL)
        return; /* out of memory: this wrong key is not counted */
    guesser->used = used_at(guesses, guesser, now_ns) + (guesser->last_key != hash);
    guesser->at_ns = now_ns;
    guesser->last_key = hash;
    list_remove(&guesser->node);
    list_push_back(&guesses->by_use, &guesser->node);
}
