/* SPDX-License-Identifier: Apache-2.0 */
/* Names under which cached prefixes are kept apart, and who stands behind one.
 *
 * A tenant may divide its cache by salts; each salt is a name of its own, but all of them are one tenant when
 * memory is shared out.  So a salted name ends in the tenant's number: nobody gets more by using more salts.
 *
 *     without a salt   the tenant's name
 *     with one         "~" 48 hex digits of a digest of tenant and salt "@" 12 hex digits of the tenant's
 * number
 *
 * Pure; any thread. */
#ifndef CACHE_PREFIX_TENANT_H
#define CACHE_PREFIX_TENANT_H

#include <stdint.h>

enum { TENANT_NAME_BYTES = 64, TENANT_DIGEST_BYTES = 24 };

/* 48 bits, not 0, that stand for whoever is behind this name. */
uint64_t tenant_number(const char *name);
/* The name of a tenant with a salt. */
void tenant_salted_name(const char *tenant, const uint8_t digest[TENANT_DIGEST_BYTES],
                        char out[TENANT_NAME_BYTES]);

#endif
