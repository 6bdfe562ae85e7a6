/* SPDX-License-Identifier: Apache-2.0 */
/* Names that keep the cached prefixes of tenants apart, and the tenant behind each name.
 *
 * A tenant may divide its cache by salts.  Each salt gives a name of its own, but all of them count as one
 * tenant when memory is divided.  So a salted name ends in the tenant's number: more salts give no more
 * memory.
 *
 *     without a salt   the tenant's name
 *     with a salt      "~", 48 hex digits (digest of tenant and salt), "@", the tenant's number, 12 digits
 *
 * Pure; any thread. */
#ifndef CACHE_PREFIX_TENANT_H
#define CACHE_PREFIX_TENANT_H

#include <stdint.h>

enum { TENANT_NAME_BYTES = 64, TENANT_DIGEST_BYTES = 24 };

/* 48 bits, not 0, that stand for the tenant behind this name. */
uint64_t tenant_number(const char *name);
/* The name of a tenant with a salt. */
void tenant_salted_name(const char *tenant, const uint8_t digest[TENANT_DIGEST_BYTES],
                        char out[TENANT_NAME_BYTES]);

#endif
