/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: values of the remote tier, as a store may answer them.  A head that unpacks packs into the same
 * bytes.  A value opens only if this key sealed it, so no input does, also with right sizes and generation. */
#include "cache/remote/record.h"

#include <stdlib.h>

#include "base/check.h"

enum { LAYERS = 2, PIECE = 24, BLOCKS = 2 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t arena[LAYERS * BLOCKS * PIECE] = {0}, image[REMOTE_HEAD_BYTES + LAYERS * PIECE] = {0};
    const struct remote_arena geometry = {arena, BLOCKS, LAYERS, PIECE};
    const uint8_t key[REMOTE_KEY_BYTES] = {3};
    struct block_hash hash = {{0}};
    struct remote_head head;
    struct remote_seal seal;
    void *cipher = remote_cipher_new();

    ASSERT(cipher != NULL && remote_seal_init(&seal, &geometry, key, "x") == 0);
    if (remote_head_unpack(bytes_of(data, size), &head) == 0) {
        remote_head_pack(&head, image);
        ASSERT(memcmp(image, data, REMOTE_HEAD_BYTES) == 0);
    }
    ASSERT(remote_record_open(&seal, cipher, bytes_of(data, size), &hash, 1) < 0);
    memcpy(image, data, size < sizeof(image) ? size : sizeof(image));
    head = (struct remote_head){.payload_bytes = LAYERS * PIECE};
    memcpy(head.generation, seal.generation, sizeof(head.generation));
    memcpy(head.tag, image + 64, sizeof(head.tag));
    remote_head_pack(&head, image);
    ASSERT(remote_record_open(&seal, cipher, bytes_of(image, sizeof(image)), &hash, 1) < 0);
    remote_cipher_free(cipher);
    return 0;
}
