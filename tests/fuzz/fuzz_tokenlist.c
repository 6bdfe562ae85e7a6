/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: token ids as SUBMIT carries them.  The first byte is the width, the others are the ids.  A list
 * that can be counted unpacks to the value of its bytes.  It packs to the same bytes in that width, and to the
 * same ids in the smallest width. */
#include "proto/token_list.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_ids(struct bytes packed, uint32_t width, size_t n, const uint32_t *ids)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t id = 0;

        for (uint32_t k = 0; k < width; k++)
            id |= (uint32_t)packed.data[i * width + k] << 8 * k;
        ASSERT(ids[i] == id);
    }
}

static void check_again(struct bytes packed, uint32_t width, size_t n, const uint32_t *ids)
{
    unsigned least = token_list_width(ids, n);
    uint8_t *image = malloc(n * width + 1);
    uint32_t *back = malloc(n * sizeof(*back) + 1);
    size_t n_back = 0;

    ASSERT(image != NULL && back != NULL && least <= width);
    token_list_pack(ids, n, width, image);
    ASSERT(n == 0 || memcmp(image, packed.data, n * width) == 0);
    token_list_pack(ids, n, least, image);
    ASSERT(token_list_count(bytes_of(image, n * least), least, &n_back) == 0 && n_back == n);
    token_list_unpack(bytes_of(image, n * least), least, n, back);
    ASSERT(n == 0 || memcmp(back, ids, n * sizeof(*back)) == 0);
    free(image);
    free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes packed;
    uint32_t *ids;
    size_t n = 0;

    if (size == 0)
        return 0;
    packed = bytes_of(data + 1, size - 1);
    if (token_list_count(packed, data[0], &n) < 0) {
        ASSERT(data[0] < TOKEN_LIST_MIN_BYTES || data[0] > TOKEN_LIST_MAX_BYTES || (size - 1) % data[0] != 0);
        return 0;
    }
    ASSERT(n * data[0] == size - 1);
    ids = malloc(n * sizeof(*ids) + 1);
    ASSERT(ids != NULL);
    token_list_unpack(packed, data[0], n, ids);
    check_ids(packed, data[0], n, ids);
    check_again(packed, data[0], n, ids);
    free(ids);
    return 0;
}
