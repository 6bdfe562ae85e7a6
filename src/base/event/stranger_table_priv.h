/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a port's strangers stay: sockets that were accepted and have not authenticated themselves.
 *
 * Pure: knows addresses, ages and bounds, no sockets.  Entries belong to the caller and are in order of age.
 */
#ifndef BASE_EVENT_STRANGER_TABLE_PRIV_H
#define BASE_EVENT_STRANGER_TABLE_PRIV_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/list.h"

struct stranger_table;
struct stranger_host;

struct stranger_entry {
    struct list by_age;         /* among those of known, or of unknown, addresses: oldest first */
    struct list by_host;        /* among those of its address: oldest first */
    struct stranger_host *host; /* NULL: in no table */
};

struct stranger_bounds {
    uint32_t max;             /* strangers at once */
    uint32_t max_per_address; /* of one address */
    uint32_t max_known;       /* known addresses that are remembered; the one that came least lately goes */
};

enum stranger_verdict {
    STRANGER_HAS_ROOM,         /* it may come */
    STRANGER_OVER_PER_ADDRESS, /* it may come when the oldest of its address leaves */
    STRANGER_OVER_MAX,         /* it may come when the oldest of all leaves */
    STRANGER_NO_ROOM           /* only known addresses are there, and its own is not known */
};

struct stranger_key {
    uint8_t bytes[16];
};

int stranger_table_new(const struct stranger_bounds *bounds, struct stranger_table **out);
void stranger_table_free(struct stranger_table *table); /* it holds no entry; NULL is fine */

/* An IPv6 /64 counts as one address, an IPv4 address as itself, however it is written. */
struct stranger_key stranger_key_of(const struct sockaddr *from);
/* UNIX sockets have no addresses: processes of one user count as one. */
struct stranger_key stranger_key_of_user(uid_t uid);

/* May one more come from there?  *leaving_out: whose place it takes, NULL: nobody's. */
enum stranger_verdict stranger_table_ask(const struct stranger_table *table, const struct stranger_key *from,
                                         struct stranger_entry **leaving_out);
/* Adds the newest.  E_NOMEM. */
int stranger_table_add(struct stranger_table *table, const struct stranger_key *from,
                       struct stranger_entry *entry);
void stranger_table_remove(struct stranger_table *table, struct stranger_entry *entry);
/* Strangers that come from there from now on stay longer than those of other addresses. */
void stranger_table_know(struct stranger_table *table, const struct stranger_key *from);
/* Who leaves first: of that address, or (NULL) of all.  NULL: there is none. */
struct stranger_entry *stranger_table_oldest(const struct stranger_table *table,
                                             const struct stranger_key *from);
/* Who leaves after that one: of its address (is_of_address), or of all. */
struct stranger_entry *stranger_table_next(const struct stranger_table *table,
                                           const struct stranger_entry *entry, bool is_of_address);
struct stranger_key stranger_entry_key(const struct stranger_entry *entry);
uint32_t stranger_table_count(const struct stranger_table *table);
uint32_t stranger_table_known(const struct stranger_table *table);

#endif
