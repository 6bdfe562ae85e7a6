/* SPDX-License-Identifier: Apache-2.0 */
/* Order of eviction when a new stranger arrives:
 *
 *   its address is at its bound   the oldest of that address       (a flood from one host costs that host)
 *   the table is full             the oldest of unknown addresses
 *                                 the oldest of known addresses, if the new one's is known too
 *                                 none: the new stranger is refused
 *
 * So a new stranger is the last of its kind to be evicted.  An honest peer needs only the time of one
 * handshake.  To push it out, a flood must bring `max` newer sockets within that time.  An address that
 * authenticated once is known, and a flood from elsewhere never evicts strangers from it.
 *
 * The table has an entry for a host while the host has strangers or is known.  Known hosts are ordered by
 * their last arrival. */
#include "base/event/stranger_table_priv.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/hashmap.h"

struct stranger_host { /* one address */
    struct stranger_key key;
    struct list strangers; /* oldest first */
    struct list lately;    /* in table->known, if known */
    uint32_t n;
    bool is_known;
};

struct stranger_table {
    struct stranger_bounds bounds;
    struct hashmap *hosts;
    struct list unknown, known; /* strangers, oldest first */
    struct list lately;         /* known hosts, least recently seen first */
    uint32_t n, n_known;
};

int stranger_table_new(const struct stranger_bounds *bounds, struct stranger_table **out)
{
    struct stranger_table *table;

    if (bounds->max == 0 || bounds->max_per_address == 0)
        return E_INVAL;
    table = calloc(1, sizeof(*table));
    if (table == NULL)
        return E_NOMEM;
    table->bounds = *bounds;
    list_init(&table->unknown);
    list_init(&table->known);
    list_init(&table->lately);
    if (hashmap_new(sizeof(struct stranger_key), &table->hosts) < 0) {
        free(table);
        return E_NOMEM;
    }
    *out = table;
    return 0;
}

static void host_free(struct stranger_table *table, struct stranger_host *host)
{
    hashmap_remove(table->hosts, &host->key);
    list_remove(&host->lately);
    free(host);
}

void stranger_table_free(struct stranger_table *table)
{
    if (table == NULL)
        return;
    ASSERT(table->n == 0);
    list_for_each_safe (node, spare, &table->lately)
        host_free(table, container_of(node, struct stranger_host, lately));
    hashmap_free(table->hosts);
    free(table);
}

/* ---- addresses ---- */

struct stranger_key stranger_key_of(const struct sockaddr *from)
{
    struct stranger_key key = {{0}};

    if (from->sa_family == AF_INET) {
        key.bytes[10] = key.bytes[11] = 0xff;
        memcpy(key.bytes + 12, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
    } else if (from->sa_family == AF_INET6) {
        const struct in6_addr *a = &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr;

        memcpy(key.bytes, a, IN6_IS_ADDR_V4MAPPED(a) ? 16 : 8);
    }
    return key;
}

struct stranger_key stranger_key_of_user(uid_t uid)
{
    struct stranger_key key = {{0xff, 'u', 's', 'e', 'r'}}; /* a multicast address belongs to no host */

    memcpy(key.bytes + 8, &uid, sizeof(uid));
    return key;
}

/* NULL only when memory runs out. */
static struct stranger_host *host_get(struct stranger_table *table, const struct stranger_key *from)
{
    struct stranger_host *host = hashmap_get(table->hosts, from);

    if (host != NULL)
        return host;
    host = calloc(1, sizeof(*host));
    if (host == NULL)
        return NULL;
    host->key = *from;
    list_init(&host->strangers);
    list_init(&host->lately);
    if (hashmap_put(table->hosts, from, host, NULL) < 0) {
        free(host);
        return NULL;
    }
    return host;
}

static void host_came(struct stranger_table *table, struct stranger_host *host)
{
    list_remove(&host->lately);
    list_push_back(&table->lately, &host->lately);
}

static void host_forget(struct stranger_table *table, struct stranger_host *host)
{
    host->is_known = false;
    list_remove(&host->lately);
    table->n_known--;
    if (host->n == 0)
        host_free(table, host);
}

void stranger_table_know(struct stranger_table *table, const struct stranger_key *from)
{
    struct stranger_host *host;

    if (table->bounds.max_known == 0)
        return;
    host = host_get(table, from);
    if (host == NULL)
        return; /* then it counts as unknown */
    if (!host->is_known) {
        host->is_known = true;
        table->n_known++;
    }
    host_came(table, host);
    if (table->n_known > table->bounds.max_known)
        host_forget(table, container_of(table->lately.next, struct stranger_host, lately));
}

/* ---- strangers ---- */

static struct stranger_entry *first_by_age(const struct list *list)
{
    return list_is_empty(list) ? NULL : container_of(list->next, struct stranger_entry, by_age);
}

static struct stranger_entry *first_by_host(const struct stranger_host *host)
{
    return host == NULL || host->n == 0 ? NULL
                                        : container_of(host->strangers.next, struct stranger_entry, by_host);
}

struct stranger_entry *stranger_table_oldest(const struct stranger_table *table,
                                             const struct stranger_key *from)
{
    if (from != NULL)
        return first_by_host(hashmap_get(table->hosts, from));
    return !list_is_empty(&table->unknown) ? first_by_age(&table->unknown) : first_by_age(&table->known);
}

struct stranger_entry *stranger_table_next(const struct stranger_table *table,
                                           const struct stranger_entry *entry, bool is_of_address)
{
    if (is_of_address)
        return entry->by_host.next == &entry->host->strangers
                   ? NULL
                   : container_of(entry->by_host.next, struct stranger_entry, by_host);
    if (entry->by_age.next == &table->unknown)
        return first_by_age(&table->known);
    return entry->by_age.next == &table->known
               ? NULL
               : container_of(entry->by_age.next, struct stranger_entry, by_age);
}

enum stranger_verdict stranger_table_ask(const struct stranger_table *table, const struct stranger_key *from,
                                         struct stranger_entry **leaving_out)
{
    const struct stranger_host *host = hashmap_get(table->hosts, from);

    *leaving_out = NULL;
    if (host != NULL && host->n >= table->bounds.max_per_address) {
        *leaving_out = first_by_host(host);
        return STRANGER_OVER_PER_ADDRESS;
    }
    if (table->n < table->bounds.max)
        return STRANGER_HAS_ROOM;
    if (list_is_empty(&table->unknown) && (host == NULL || !host->is_known))
        return STRANGER_NO_ROOM;
    *leaving_out = stranger_table_oldest(table, NULL);
    return STRANGER_OVER_MAX;
}

int stranger_table_add(struct stranger_table *table, const struct stranger_key *from,
                       struct stranger_entry *entry)
{
    struct stranger_host *host = host_get(table, from);

    if (host == NULL)
        return E_NOMEM;
    if (host->is_known)
        host_came(table, host);
    entry->host = host;
    list_push_back(host->is_known ? &table->known : &table->unknown, &entry->by_age);
    list_push_back(&host->strangers, &entry->by_host);
    host->n++;
    table->n++;
    return 0;
}

void stranger_table_remove(struct stranger_table *table, struct stranger_entry *entry)
{
    struct stranger_host *host = entry->host;

    list_remove(&entry->by_age);
    list_remove(&entry->by_host);
    entry->host = NULL;
    table->n--;
    if (--host->n == 0 && !host->is_known)
        host_free(table, host);
}

struct stranger_key stranger_entry_key(const struct stranger_entry *entry)
{
    return entry->host->key;
}

uint32_t stranger_table_count(const struct stranger_table *table)
{
    return table->n;
}

uint32_t stranger_table_known(const struct stranger_table *table)
{
    return table->n_known;
}
