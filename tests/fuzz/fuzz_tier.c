/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: heads, entries and names of the disk tier's files.  A valid one is within bounds, its offsets
 * do not overflow, and it packs into the same bytes.  Random heads rarely have right checksums, so the target
 * also tries each input with its checksums corrected. */
#include "cache/kv/tier_record_priv.h"

#include <string.h>
#include <xxhash.h>

#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_entries(struct bytes rest, const struct tier_head *head)
{
    for (uint32_t slot = 0; rest.len_bytes >= TIER_ENTRY_BYTES; slot++) {
        uint8_t image[TIER_ENTRY_BYTES];
        struct tier_entry entry;

        if (tier_entry_unpack(rest, slot, head->salt, &entry) == 0) {
            ASSERT(entry.slot == slot);
            tier_entry_pack(&entry, head->salt, image);
            ASSERT(memcmp(image, rest.data, sizeof(image)) == 0);
        }
        rest = bytes_of(rest.data + TIER_ENTRY_BYTES, rest.len_bytes - TIER_ENTRY_BYTES);
    }
}

static void check_name(struct bytes data)
{
    char name[40], again[24];
    uint64_t number;

    if (data.len_bytes >= sizeof(name))
        return;
    memcpy(name, data.data, data.len_bytes);
    name[data.len_bytes] = '\0';
    if (tier_name_parse(name, &number) == 0) {
        tier_name_print(number, again);
        ASSERT(strcmp(name, again) == 0);
    }
}

static void check_head(struct bytes data, struct tier_head *head)
{
    uint8_t image[TIER_HEAD_BYTES];

    if (tier_head_unpack(data, head) < 0)
        return;
    ASSERT(head->n_slots >= 1 && head->n_slots <= TIER_MAX_SLOTS);
    ASSERT(head->payload_bytes >= 1 && head->payload_bytes <= TIER_MAX_PAYLOAD);
    ASSERT(tier_segment_bytes(head, head->n_slots) > tier_payload_at(head, head->n_slots - 1));
    ASSERT(tier_payload_at(head, 0) >= tier_entry_at(head->n_slots));
    ASSERT(head->retention >= TIER_PLAIN && head->retention < TIER_N_RETENTIONS);
    tier_head_pack(head, image);
    ASSERT(memcmp(image, data.data, 120) == 0); /* the rest of the head is not read */
}

static void check_forged(struct bytes data)
{
    struct tier_head head = {.n_slots = 1};
    uint8_t image[TIER_HEAD_BYTES];

    if (data.len_bytes < sizeof(image))
        return;
    memcpy(image, data.data, sizeof(image));
    put_u64(image + 88, XXH3_64bits(image, 88));
    put_u64(image + 112, XXH3_64bits(image, 112));
    check_head(bytes_of(image, sizeof(image)), &head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tier_head head = {.n_slots = 1};

    check_name(bytes_of(data, size));
    check_head(bytes_of(data, size), &head);
    check_forged(bytes_of(data, size));
    if (size > TIER_HEAD_BYTES)
        check_entries(bytes_of(data + TIER_HEAD_BYTES, size - TIER_HEAD_BYTES), &head);
    return 0;
}
