/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: values of the remote tier, as a store may answer them.  A head that unpacks packs into the same
 * bytes.  A value opens only if this key sealed it, so no input does, also with right sizes and generation.  Also
 * addresses of stores: one that is accepted stays within its bounds. */
#include "cache/remote/record.h"
#include "cache/remote/store.h"
#include "net/s3/s3_url.h"

#include <stdlib.h>

#include "base/check.h"

enum { LAYERS = 2, MAX_PIECE = 32, BLOCKS = 2 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_address(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), shown[64];
    struct s3_url url;

    ASSERT(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    ASSERT((store_url_check(text, NULL) == 0) <= (store_ops_of(text) != NULL));
    if (s3_url_parse(text, NULL, &url) == 0)
        ASSERT(url.prefix[0] == '/' && url.host[0] != '\0' && strpbrk(url.base, " \r\n") == NULL);
    store_url_public(text, shown, sizeof(shown));
    free(text);
}

static void check_record(const uint8_t *data, size_t size, size_t piece_bytes)
{
    uint8_t arena[LAYERS * BLOCKS * MAX_PIECE] = {0}, image[REMOTE_HEAD_BYTES + LAYERS * MAX_PIECE] = {0};
    const struct remote_arena geometry = {arena, BLOCKS, LAYERS, piece_bytes};
    const size_t record_bytes = REMOTE_HEAD_BYTES + LAYERS * piece_bytes;
    const uint8_t key[REMOTE_KEY_BYTES] = {3};
    struct block_hash hash = {{0}};
    struct remote_opening opening = {0};
    struct remote_head head;
    struct remote_seal seal;
    struct block_cipher *cipher = block_cipher_new(piece_bytes);

    ASSERT(cipher != NULL && remote_seal_init(&seal, &geometry, key, "x") == 0);
    if (remote_head_unpack(bytes_of(data, size), &head) == 0) {
        remote_head_pack(&head, image);
        ASSERT(memcmp(image, data, REMOTE_HEAD_BYTES) == 0);
    }
    ASSERT(remote_record_open(&seal, cipher, bytes_of(data, size), &hash, 1) < 0);
    memcpy(image, data, size < record_bytes ? size : record_bytes);
    head = (struct remote_head){.payload_bytes = LAYERS * piece_bytes};
    memcpy(head.generation, seal.generation, sizeof(head.generation));
    memcpy(head.tag, image + 64, sizeof(head.tag));
    remote_head_pack(&head, image);
    ASSERT(remote_record_open(&seal, cipher, bytes_of(image, record_bytes), &hash, 1) < 0);
    for (size_t n = 0, step = size > 0 ? data[0] % 97 + 1 : 1; n <= record_bytes; n += step)
        ASSERT(remote_record_open_part(&seal, cipher, bytes_of(image, n), &hash, 1, &opening) < 0);
    block_cipher_free(cipher);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_record(data, size, 24);
    check_record(data, size, MAX_PIECE); /* the other cipher */
    check_address(data, size);
    return 0;
}
