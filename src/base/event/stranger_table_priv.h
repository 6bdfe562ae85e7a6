/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which strangers of a port stay.  A stranger is a socket that was accepted and has not
 * authenticated itself.
 *
 * Pure: it knows addresses, classes, ages and limits, no sockets.  The caller owns the entries.  Entries of
 * one class are ordered by age. */
#ifndef BASE_EVENT_STRANGER_TABLE_PRIV_H
#define BASE_EVENT_STRANGER_TABLE_PRIV_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/list.h"

struct stranger_table;
struct stranger_host;

enum stranger_class {
    STRANGER_CLASS_SILENT, /* has sent no byte yet */
    STRANGER_CLASS_BEGUN,  /* has sent bytes */
    STRANGER_N_CLASSES
};

struct stranger_entry {
    struct list by_age;         /* in the list of its class, of known or unknown addresses: oldest first */
    struct list by_host;        /* in the list of its class and address: oldest first */
    struct stranger_host *host; /* its address; NULL: in no table */
    enum stranger_class class;
    bool was_known; /* its address was known when it came */
};

struct stranger_bounds {
    uint32_t max;             /* strangers at the same time */
    uint32_t max_per_address; /* from one address */
    uint32_t max_known;       /* known addresses to remember; evicts the least recently seen */
};

enum stranger_verdict {
    STRANGER_HAS_ROOM,         /* there is room */
    STRANGER_OVER_PER_ADDRESS, /* there is room after one of its address leaves */
    STRANGER_OVER_MAX,         /* there is room after one of all leaves */
    STRANGER_NO_ROOM           /* refuse: all entries are from known addresses and this one is not */
};

struct stranger_key {
    uint8_t bytes[16];
};

int stranger_table_new(const struct stranger_bounds *bounds, struct stranger_table **out);
void stranger_table_free(struct stranger_table *table); /* the table must be empty; accepts NULL */

/* An IPv4 address is its own key, in each notation; an IPv6 /64 is one key. */
struct stranger_key stranger_key_of(const struct sockaddr *from);
/* UNIX sockets have no addresses: all processes of one user share a key. */
struct stranger_key stranger_key_of_user(uid_t uid);

/* True if one more stranger from this address may come. *leaving_out: the entry that has to leave for it;
 * NULL: none. */
enum stranger_verdict stranger_table_ask(const struct stranger_table *table, const struct stranger_key *from,
                                         struct stranger_entry **leaving_out);
/* Adds an entry as the newest of the silent ones.  E_NOMEM. */
int stranger_table_add(struct stranger_table *table, const struct stranger_key *from,
                       struct stranger_entry *entry);
void stranger_table_remove(struct stranger_table *table, struct stranger_entry *entry);
/* The entry's peer has sent bytes: moves it to that class, as the newest.  Does nothing the second time. */
void stranger_table_begin(struct stranger_table *table, struct stranger_entry *entry);
/* Marks the address as known: later strangers from there stay longer than those from other addresses. */
void stranger_table_know(struct stranger_table *table, const struct stranger_key *from);
/* The oldest entry of a class, of that address or (NULL) of all, unknown addresses first.  NULL: none. */
struct stranger_entry *stranger_table_oldest(const struct stranger_table *table, enum stranger_class class,
                                             const struct stranger_key *from);
/* The entry of the same class that comes after this one in that order, of its address (is_of_address) or of
 * all. */
struct stranger_entry *stranger_table_next(const struct stranger_table *table,
                                           const struct stranger_entry *entry, bool is_of_address);
struct stranger_key stranger_entry_key(const struct stranger_entry *entry);
uint32_t stranger_table_count(const struct stranger_table *table);
uint32_t stranger_table_known(const struct stranger_table *table);

#endif
