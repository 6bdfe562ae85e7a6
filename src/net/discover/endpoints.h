/* SPDX-License-Identifier: Apache-2.0 */
/* A list of addresses to dial ("host:port"), without duplicates, in order of arrival. Pure. */
#ifndef NET_DISCOVER_ENDPOINTS_H
#define NET_DISCOVER_ENDPOINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

enum { ENDPOINTS_MAX = 256, ENDPOINT_BYTES = 272 /* a host name of 255 bytes, its port and the NUL */ };

struct endpoints { /* 70 KB: keep it on the heap. Zeroed: empty */
    uint32_t n;
    uint32_t n_refused; /* entries that cannot be dialled, or that did not fit into the list */
    char address[ENDPOINTS_MAX][ENDPOINT_BYTES];
};

/* Adds one address. If it cannot be dialled or the list is full, counts it in n_refused and returns false. A
 * duplicate changes nothing and returns true. */
bool endpoints_add(struct endpoints *list, struct bytes address);
bool endpoints_have(const struct endpoints *list, const char *address);
/* Adds all addresses of from, with its refused entries. */
void endpoints_merge(struct endpoints *list, const struct endpoints *from);
bool endpoints_equal(const struct endpoints *a,
                     const struct endpoints *b); /* same addresses in the same order */
/* Adds one address for each line of a file. '#' begins a comment; blank lines are skipped. */
void endpoints_read(struct endpoints *list, struct bytes text);

#endif
