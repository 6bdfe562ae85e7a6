/* SPDX-License-Identifier: Apache-2.0 */
/* Which stranger is evicted when a new one arrives:
 *
 *   its address is at its bound   one of that address              (a flood from one host costs that host)
 *   the table is full             one of the unknown addresses
 *                                 one of the known addresses, if the new one's is known too
 *                                 none: the new stranger is refused
 *
 * Among these the larger class loses its oldest: those that have sent bytes, or those that are still silent.
 * The new stranger counts as silent.  So silent sockets never push out a peer in mid-handshake, and peers
 * that stop in mid-handshake never push out a new one that has yet to speak.
 *
 * So a new stranger is the last of its class to be evicted.  An honest peer needs only the time of one
 * handshake.  To push it out, a flood must bring half of `max` newer sockets of its class within that time.
 * An address that authenticated once is known, and a flood from elsewhere never evicts strangers from it.
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

struct class_list { /* strangers of one class, oldest first */
    struct list entries;
    uint32_t n;
};

struct stranger_host { /* one address */
    struct stranger_key key;
    struct class_list strangers[STRANGER_N_CLASSES];
    struct list lately; /* in table->lately, if known */
    bool is_known;
};

struct stranger_table {
    struct stranger_bounds bounds;
    struct hashmap *hosts;
    struct class_list by_age[2][STRANGER_N_CLASSES]; /* of unknown addresses, and of known ones */
    struct list lately;                              /* known hosts, least recently seen first */
    uint32_t n, n_known;
};

static void classes_init(struct class_list classes[STRANGER_N_CLASSES])
{
    for (unsigned i = 0; i < STRANGER_N_CLASSES; i++)
        list_init(&classes[i].entries);
}

static uint32_t classes_count(const struct class_list classes[STRANGER_N_CLASSES])
{
    return classes[STRANGER_CLASS_SILENT].n + classes[STRANGER_CLASS_BEGUN].n;
}

int stranger_table_new(const struct stranger_bounds *bounds, struct stranger_table **out)
{
    struct stranger_table *table;

    if (bounds->max == 0 || bounds->max_per_address == 0)
        return E_INVAL;
    table = calloc(1, sizeof(*table));
    if (table == NULL)
        return E_NOMEM;
    table->bounds = *bounds;
    classes_init(table->by_age[false]);
    classes_init(table->by_age[true]);
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
    classes_init(host->strangers);
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
    if (classes_count(host->strangers) == 0)
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

static struct stranger_entry *first_by_age(const struct class_list *list)
{
    return list->n == 0 ? NULL : container_of(list->entries.next, struct stranger_entry, by_age);
}

static struct stranger_entry *first_by_host(const struct class_list *list)
{
    return list->n == 0 ? NULL : container_of(list->entries.next, struct stranger_entry, by_host);
}

/* The class that loses one: the larger, with the new stranger among the silent. */
static enum stranger_class larger_class(const struct class_list classes[STRANGER_N_CLASSES])
{
    return classes[STRANGER_CLASS_BEGUN].n > classes[STRANGER_CLASS_SILENT].n ? STRANGER_CLASS_BEGUN
                                                                              : STRANGER_CLASS_SILENT;
}

struct stranger_entry *stranger_table_oldest(const struct stranger_table *table, enum stranger_class class,
                                             const struct stranger_key *from)
{
    struct stranger_entry *unknown = first_by_age(&table->by_age[false][class]);

    if (from != NULL) {
        const struct stranger_host *host = hashmap_get(table->hosts, from);

        return host != NULL ? first_by_host(&host->strangers[class]) : NULL;
    }
    return unknown != NULL ? unknown : first_by_age(&table->by_age[true][class]);
}

struct stranger_entry *stranger_table_next(const struct stranger_table *table,
                                           const struct stranger_entry *entry, bool is_of_address)
{
    const struct list *head = is_of_address ? &entry->host->strangers[entry->class].entries
                                            : &table->by_age[entry->was_known][entry->class].entries;
    struct list *next = is_of_address ? entry->by_host.next : entry->by_age.next;

    if (next != head)
        return is_of_address ? container_of(next, struct stranger_entry, by_host)
                             : container_of(next, struct stranger_entry, by_age);
    return is_of_address || entry->was_known ? NULL : first_by_age(&table->by_age[true][entry->class]);
}

enum stranger_verdict stranger_table_ask(const struct stranger_table *table, const struct stranger_key *from,
                                         struct stranger_entry **leaving_out)
{
    const struct stranger_host *host = hashmap_get(table->hosts, from);
    const struct class_list *classes;
    bool from_known;

    *leaving_out = NULL;
    if (host != NULL && classes_count(host->strangers) >= table->bounds.max_per_address) {
        *leaving_out = first_by_host(&host->strangers[larger_class(host->strangers)]);
        return STRANGER_OVER_PER_ADDRESS;
    }
    if (table->n < table->bounds.max)
        return STRANGER_HAS_ROOM;
    from_known = classes_count(table->by_age[false]) == 0;
    if (from_known && (host == NULL || !host->is_known))
        return STRANGER_NO_ROOM;
    classes = table->by_age[from_known];
    *leaving_out = first_by_age(&classes[larger_class(classes)]);
    return STRANGER_OVER_MAX;
}

static void entry_link(struct stranger_table *table, struct stranger_entry *entry)
{
    struct class_list *by_age = &table->by_age[entry->was_known][entry->class];
    struct class_list *by_host = &entry->host->strangers[entry->class];

    list_push_back(&by_age->entries, &entry->by_age);
    by_age->n++;
    list_push_back(&by_host->entries, &entry->by_host);
    by_host->n++;
}

static void entry_unlink(struct stranger_table *table, struct stranger_entry *entry)
{
    list_remove(&entry->by_age);
    table->by_age[entry->was_known][entry->class].n--;
    list_remove(&entry->by_host);
    entry->host->strangers[entry->class].n--;
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
    entry->class = STRANGER_CLASS_SILENT;
    entry->was_known = host->is_known;
    entry_link(table, entry);
    table->n++;
    return 0;
}

void stranger_table_begin(struct stranger_table *table, struct stranger_entry *entry)
{
    if (entry->class == STRANGER_CLASS_BEGUN)
        return;
    entry_unlink(table, entry);
    entry->class = STRANGER_CLASS_BEGUN;
    entry_link(table, entry);
}

void stranger_table_remove(struct stranger_table *table, struct stranger_entry *entry)
{
    struct stranger_host *host = entry->host;

    entry_unlink(table, entry);
    entry->host = NULL;
    table->n--;
    if (classes_count(host->strangers) == 0 && !host->is_known)
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
