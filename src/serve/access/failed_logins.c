/* SPDX-License-Identifier: Apache-2.0 */
/* Failed logins: one leaking bucket for each address that presented a wrong key.  The buckets are in a
 * map and in a list by last use. */
#include "serve/access/failed_logins.h"

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

#define ADDRESS_BYTES FAILED_LOGINS_ADDRESS
#define MINUTE_NS     (60 * NS_PER_S)

struct login_source {
    struct list node; /* logins.by_use, most recent last */
    uint8_t address[ADDRESS_BYTES];
    uint64_t last_key; /* hash of its last wrong key, with our salt */
    double used;       /* the level at at_ns */
    uint64_t at_ns;
};

struct failed_logins {
    uint32_t per_min;
    uint32_t max_addresses;
    struct hashmap *by_address;
    struct list by_use;
    uint8_t salt[16];
    bool is_shared;
    struct failed_login unsent[FAILED_LOGINS_UNSENT]; /* for the other routers */
    uint32_t n_unsent;
};

int failed_logins_new(uint32_t per_min, uint32_t max_addresses, struct failed_logins **out)
{
    struct failed_logins *logins = calloc(1, sizeof(*logins));

    if (logins == NULL)
        return E_NOMEM;
    logins->per_min = per_min;
    logins->max_addresses = max_addresses;
    list_init(&logins->by_use);
    rng_system(logins->salt, sizeof(logins->salt));
    if (hashmap_new(ADDRESS_BYTES, &logins->by_address) < 0) {
        free(logins);
        return E_NOMEM;
    }
    *out = logins;
    return 0;
}

static void failed_logins_forget(struct failed_logins *logins, struct login_source *source)
{
    hashmap_remove(logins->by_address, source->address);
    list_remove(&source->node);
    free(source);
}

void failed_logins_free(struct failed_logins *logins)
{
    if (logins == NULL)
        return;
    while (!list_is_empty(&logins->by_use))
        failed_logins_forget(logins, container_of(logins->by_use.next, struct login_source, node));
    hashmap_free(logins->by_address);
    free(logins);
}

/* Parses an address.  IPv4 becomes an IPv6-mapped address; IPv6 is cut to the network of one site.  E_FORMAT: not
 * an address. */
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

static double failed_logins_used_at(const struct failed_logins *logins, const struct login_source *source,
                                    uint64_t now_ns)
{
    double sunk =
        now_ns > source->at_ns ? (double)(now_ns - source->at_ns) * logins->per_min / (double)MINUTE_NS : 0;

    return sunk < source->used ? source->used - sunk : 0;
}

uint32_t failed_logins_wait_s(const struct failed_logins *logins, const char *peer, uint64_t now_ns)
{
    uint8_t address[ADDRESS_BYTES];
    const struct login_source *source;
    double over;

    if (logins->per_min == 0 || read_address(peer, address) < 0)
        return 0;
    source = hashmap_get(logins->by_address, address);
    if (source == NULL)
        return 0;
    over = failed_logins_used_at(logins, source, now_ns) + 1 - logins->per_min;
    return over <= 0 ? 0 : (uint32_t)ceil(over * 60 / logins->per_min);
}

static struct login_source *failed_logins_add(struct failed_logins *logins,
                                              const uint8_t address[ADDRESS_BYTES])
{
    struct login_source *source = calloc(1, sizeof(*source));

    if (source == NULL)
        return NULL;
    if (hashmap_count(logins->by_address) >= logins->max_addresses)
        failed_logins_forget(logins, container_of(logins->by_use.next, struct login_source, node));
    memcpy(source->address, address, ADDRESS_BYTES);
    list_init(&source->node);
    if (hashmap_put(logins->by_address, address, source, NULL) < 0) {
        free(source);
        return NULL;
    }
    return source;
}

static uint64_t failed_logins_hash_key(const struct failed_logins *logins, struct bytes key)
{
    uint8_t hash[EVP_MAX_MD_SIZE];
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    uint64_t out = 0;

    if (context != NULL && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1 &&
        EVP_DigestUpdate(context, logins->salt, sizeof(logins->salt)) == 1 &&
        EVP_DigestUpdate(context, key.data, key.len_bytes) == 1 &&
        EVP_DigestFinal_ex(context, hash, NULL) == 1)
        out = get_u64(hash);
    EVP_MD_CTX_free(context);
    return out;
}

/* The entry of the address, now the most recent.  NULL: no memory. */
static struct login_source *failed_logins_use(struct failed_logins *logins,
                                              const uint8_t address[ADDRESS_BYTES])
{
    struct login_source *source = hashmap_get(logins->by_address, address);

    if (source == NULL)
        source = failed_logins_add(logins, address);
    if (source == NULL)
        return NULL;
    list_remove(&source->node);
    list_push_back(&logins->by_use, &source->node);
    return source;
}

void failed_logins_note(struct failed_logins *logins, const char *peer, struct bytes key, uint64_t now_ns)
{
    uint8_t address[ADDRESS_BYTES];
    struct login_source *source;
    uint64_t hash;

    if (logins->per_min == 0 || key.len_bytes == 0 || read_address(peer, address) < 0)
        return;
    hash = failed_logins_hash_key(logins, key);
    source = failed_logins_use(logins, address);
    if (source == NULL)
        return; /* out of memory: this wrong key is not counted */
    if (logins->is_shared && source->last_key != hash && logins->n_unsent < FAILED_LOGINS_UNSENT) {
        struct failed_login *login = &logins->unsent[logins->n_unsent++];

        memcpy(login->address, address, sizeof(login->address));
        login->key_hash = hash;
    }
    source->used = failed_logins_used_at(logins, source, now_ns) + (source->last_key != hash);
    source->at_ns = now_ns;
    source->last_key = hash;
}

/* ---- shared by several routers ---- */

void failed_logins_share(struct failed_logins *logins, const uint8_t salt[16])
{
    memcpy(logins->salt, salt, sizeof(logins->salt));
    logins->is_shared = true;
}

uint32_t failed_logins_take(struct failed_logins *logins, struct failed_login *out, uint32_t n)
{
    n = n < logins->n_unsent ? n : logins->n_unsent;
    memcpy(out, logins->unsent, n * sizeof(*out));
    logins->n_unsent -= n;
    memmove(logins->unsent, logins->unsent + n, logins->n_unsent * sizeof(*out));
    return n;
}

void failed_logins_receive(struct failed_logins *logins, const struct failed_login *login, uint64_t age_ns,
                           uint64_t now_ns)
{
    double left = 1 - (double)age_ns * logins->per_min / (double)MINUTE_NS;
    struct login_source *source;

    if (logins->per_min == 0 || left <= 0)
        return;
    source = failed_logins_use(logins, login->address);
    if (source == NULL || source->last_key == login->key_hash)
        return;
    source->used = failed_logins_used_at(logins, source, now_ns) + left;
    source->at_ns = now_ns;
    source->last_key = login->key_hash;
}
