/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: input before a request is parsed, gzip bodies from clients and the operator's key file.
 *
 * The first byte chooses.  gzip: the output of any input stays within its bounds.  Keys: the file is
 * read, or refused with a fault that names its line; a valid file can be loaded as limits, and a reload of the
 * same file changes nothing. */
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "serve/access/limits.h"
#include "serve/access/unzip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_gzip(struct bytes in)
{
    struct buf out = {0};
    struct buf again = {0};
    int rc = unzip_body(in, 1 << 22, &out);

    ASSERT(rc == 0 || rc == E_FORMAT || rc == E_RANGE);
    ASSERT(out.len_bytes <= 1 << 22);
    ASSERT(out.len_bytes <= UNZIP_FREE_BYTES || out.len_bytes <= in.len_bytes * UNZIP_MAX_RATIO);
    if (rc == 0 && out.len_bytes > 0)
        ASSERT(unzip_body(in, out.len_bytes - 1, &again) == E_RANGE);
    buf_fini(&out);
    buf_fini(&again);
}

/* A load while the request runs: both count in one usage. */
static void spend(const struct limits *limits, const struct auth_keys *keys, size_t index)
{
    struct auth_key who = {.index = index};
    struct limit_refusal refusal;
    struct limit_lease lease;
    struct limits *fresh;

    limits_find(limits, &who);
    ASSERT(who.account != NULL);
    (void)limits_expired(who.account, 1800000000);
    (void)limits_allow_model(who.account, "model");
    if (limits_begin(&lease, who.account, NS_PER_S, &refusal) == 0 &&
        limits_reserve(&lease, 100, 1000, NS_PER_S, &refusal) < 0)
        ASSERT(refusal.retry_after_s >= 1 && refusal.retry_after_s <= 60);
    ASSERT(limits_make(keys, limits, &fresh) == 0);
    ASSERT(!limits_are_idle(limits) && limits_are_idle(fresh));
    limits_settle(&lease, 90, 10, 2 * NS_PER_S);
    ASSERT(limits_are_idle(limits));
    limits_free(fresh);
}

static void try_keys(struct bytes text)
{
    struct auth_keys *keys;
    struct auth_entry entry;
    struct limits *limits;
    struct fault fault = {0};
    int rc = auth_keys_parse("f", text, &fault, &keys);

    if (rc < 0) {
        ASSERT(strncmp(fault.text, "f:", 2) == 0);
        return;
    }
    ASSERT(limits_make(keys, NULL, &limits) == 0);
    for (size_t i = 0; i < 4 && auth_key_at(keys, i, &entry); i++)
        spend(limits, keys, i);
    limits_free(limits);
    auth_keys_free(keys);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] == 'g')
        try_gzip(bytes_of(data + 1, size - 1));
    else
        try_keys(bytes_of(data + 1, size - 1));
    return 0;
}
