/* SPDX-License-Identifier: Apache-2.0 */
/* Packing and unpacking the records of a segment (tier_record_priv.h has the drawing).
 *
 * Files are untrusted input: a disk may have lost or mixed up data, and others may have had access.  So
 * unpacking checks the bounds that all later arithmetic relies on: slots and payloads have a greatest size,
 * and no offset overflows. */
#include "cache/kv/tier_record_priv.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/err.h"

#define HEAD_MAGIC     "batonkv1"
#define ENTRY_MAGIC    "slot"
#define HEAD_CHECK_AT  88 /* covers the fields of all versions */
#define TENANT_AT      96
#define ALL_CHECK_AT   112 /* covers all fields of this version */
#define ENTRY_CHECK_AT 56
#define ALIGN          UINT64_C(4096)

_Static_assert(TIER_TABLE_AT >= TIER_HEAD_BYTES, "the table follows the head");

/* ---- head ---- */

void tier_head_pack(const struct tier_head *head, uint8_t out[TIER_HEAD_BYTES])
{
    memset(out, 0, TIER_HEAD_BYTES);
    memcpy(out, HEAD_MAGIC, 8);
    put_u32(out + 8, TIER_VERSION);
    put_u32(out + 12, head->n_slots);
    put_u64(out + 16, head->payload_bytes);
    memcpy(out + 24, head->generation, TIER_GENERATION_BYTES);
    memcpy(out + 40, head->salt, TIER_SALT_BYTES);
    put_u64(out + 72, head->made_unix_ns);
    put_u32(out + 80, (uint32_t)head->retention);
    put_u64(out + HEAD_CHECK_AT, XXH3_64bits(out, HEAD_CHECK_AT));
    memcpy(out + TENANT_AT, head->tenant, TIER_TENANT_BYTES);
    put_u64(out + ALL_CHECK_AT, XXH3_64bits(out, ALL_CHECK_AT));
}

int tier_head_unpack(struct bytes image, struct tier_head *out)
{
    struct tier_head head;

    if (image.len_bytes < TIER_HEAD_BYTES)
        return E_TRUNCATED;
    if (memcmp(image.data, HEAD_MAGIC, 8) != 0 || get_u32(image.data + 84) != 0 ||
        get_u64(image.data + HEAD_CHECK_AT) != XXH3_64bits(image.data, HEAD_CHECK_AT))
        return E_FORMAT;
    if (get_u32(image.data + 8) != TIER_VERSION)
        return E_VERSION;
    if (get_u64(image.data + ALL_CHECK_AT) != XXH3_64bits(image.data, ALL_CHECK_AT))
        return E_FORMAT;
    head.n_slots = get_u32(image.data + 12);
    head.payload_bytes = get_u64(image.data + 16);
    memcpy(head.generation, image.data + 24, TIER_GENERATION_BYTES);
    memcpy(head.salt, image.data + 40, TIER_SALT_BYTES);
    memcpy(head.tenant, image.data + TENANT_AT, TIER_TENANT_BYTES);
    head.made_unix_ns = get_u64(image.data + 72);
    if (head.n_slots == 0 || head.n_slots > TIER_MAX_SLOTS || head.payload_bytes == 0 ||
        head.payload_bytes > TIER_MAX_PAYLOAD || get_u32(image.data + 80) >= TIER_N_RETENTIONS)
        return E_LIMIT;
    head.retention = (enum tier_retention)get_u32(image.data + 80);
    *out = head;
    return 0;
}

/* ---- entries ---- */

static uint64_t tier_entry_check(const uint8_t *image, const uint8_t salt[TIER_SALT_BYTES])
{
    return XXH3_64bits_withSeed(image, ENTRY_CHECK_AT, get_u64(salt));
}

void tier_entry_pack(const struct tier_entry *entry, const uint8_t salt[TIER_SALT_BYTES],
                     uint8_t out[TIER_ENTRY_BYTES])
{
    memcpy(out, ENTRY_MAGIC, 4);
    put_u32(out + 4, entry->slot);
    memcpy(out + 8, entry->hash.bytes, sizeof(entry->hash.bytes));
    put_u64(out + 24, entry->written_unix_ns);
    put_u64(out + 32, entry->pin_end_unix_ns);
    memcpy(out + TIER_ENTRY_AAD_BYTES, entry->tag, TIER_TAG_BYTES);
    put_u64(out + ENTRY_CHECK_AT, tier_entry_check(out, salt));
}

int tier_entry_unpack(struct bytes image, uint32_t slot, const uint8_t salt[TIER_SALT_BYTES],
                      struct tier_entry *out)
{
    static const uint8_t nothing[TIER_ENTRY_BYTES];
    struct tier_entry entry = {.slot = slot};

    if (image.len_bytes < TIER_ENTRY_BYTES)
        return E_TRUNCATED;
    if (memcmp(image.data, nothing, TIER_ENTRY_BYTES) == 0)
        return E_NOT_FOUND;
    if (memcmp(image.data, ENTRY_MAGIC, 4) != 0 || get_u32(image.data + 4) != slot ||
        get_u64(image.data + ENTRY_CHECK_AT) != tier_entry_check(image.data, salt))
        return E_FORMAT;
    memcpy(entry.hash.bytes, image.data + 8, sizeof(entry.hash.bytes));
    entry.written_unix_ns = get_u64(image.data + 24);
    entry.pin_end_unix_ns = get_u64(image.data + 32);
    memcpy(entry.tag, image.data + TIER_ENTRY_AAD_BYTES, TIER_TAG_BYTES);
    *out = entry;
    return 0;
}

/* ---- places ---- */

static uint64_t tier_payloads_at(const struct tier_head *head)
{
    return (tier_entry_at(head->n_slots) + ALIGN - 1) / ALIGN * ALIGN;
}

uint64_t tier_entry_at(uint32_t slot)
{
    return TIER_TABLE_AT + (uint64_t)slot * TIER_ENTRY_BYTES;
}

uint64_t tier_payload_at(const struct tier_head *head, uint32_t slot)
{
    return tier_payloads_at(head) + slot * head->payload_bytes;
}

uint64_t tier_segment_bytes(const struct tier_head *head, uint32_t n_used)
{
    return tier_payload_at(head, n_used);
}

/* ---- names ---- */

int tier_name_parse(const char *name, uint64_t *number_out)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t number = 0;

    if (strlen(name) != 20 || strncmp(name, "seg-", 4) != 0)
        return E_FORMAT;
    for (const char *at = name + 4; *at != '\0'; at++) {
        const char *digit = strchr(digits, *at);

        if (digit == NULL)
            return E_FORMAT;
        number = number << 4 | (uint64_t)(digit - digits);
    }
    *number_out = number;
    return 0;
}

void tier_name_print(uint64_t number, char out[24])
{
    int len = snprintf(out, 24, "seg-%016llx", (unsigned long long)number);

    ASSERT(len == 20);
}
