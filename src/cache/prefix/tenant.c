/* SPDX-License-Identifier: Apache-2.0 */
/* Tenant names with and without salts (tenant.h).
 *
 * Names come from the operator's key file or from a router's message.  So a name that only looks salted was
 * chosen by one of them, and harms only the tenant that it counts for. */
#include "cache/prefix/tenant.h"

#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define AT_NUMBER     (1 + 2 * TENANT_DIGEST_BYTES) /* position of the "@" */
#define NUMBER_DIGITS 12
#define NUMBER_MASK   ((UINT64_C(1) << 48) - 1)

static bool tenant_is_salted(const char *name)
{
    size_t len = strlen(name);

    if (len != AT_NUMBER + 1 + NUMBER_DIGITS || name[0] != '~' || name[AT_NUMBER] != '@')
        return false;
    for (size_t i = AT_NUMBER + 1; i < len; i++)
        if (!((name[i] >= '0' && name[i] <= '9') || (name[i] >= 'a' && name[i] <= 'f')))
            return false;
    return true;
}

uint64_t tenant_number(const char *name)
{
    uint8_t digest[EVP_MAX_MD_SIZE] = {0};
    uint64_t number;

    if (tenant_is_salted(name))
        number = strtoull(name + AT_NUMBER + 1, NULL, 16);
    else
        number = EVP_Digest(name, strlen(name), digest, NULL, EVP_sha256(), NULL) == 1 ? get_u64(digest) : 0;
    number &= NUMBER_MASK;
    return number != 0 ? number : 1;
}

void tenant_salted_name(const char *tenant, const uint8_t digest[TENANT_DIGEST_BYTES],
                        char out[TENANT_NAME_BYTES])
{
    out[0] = '~';
    for (unsigned i = 0; i < TENANT_DIGEST_BYTES; i++)
        snprintf(out + 1 + (size_t)2 * i, 3, "%02x", digest[i]);
    snprintf(out + AT_NUMBER, 2 + NUMBER_DIGITS, "@%012llx", (unsigned long long)tenant_number(tenant));
}
