/* SPDX-License-Identifier: Apache-2.0 */
/* The answer of /v1/embeddings.
 *
 *     {"object":"list","data":[ {"object":"embedding","index":0,"embedding":[...]} , ... ],
 *      "model":"...","usage":{"prompt_tokens":5,"total_tokens":5}}
 *
 * A number has nine digits, which are enough to give the same 32-bit float back.  In base64 the floats are
 * little-endian. */
#include "serve/api/render_embeddings.h"

#include <openssl/evp.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/str.h"

#define PIECE_FLOATS API_EMBEDDING_PIECE /* a multiple of 3, so that only the last piece is padded */

static void put_base64(struct buf *out, const float *numbers, uint32_t n)
{
    uint8_t plain[PIECE_FLOATS * 4];
    unsigned char text[sizeof(plain) / 3 * 4 + 1];

    for (uint32_t at = 0, n_part; at < n; at += n_part) {
        n_part = n - at < PIECE_FLOATS ? n - at : PIECE_FLOATS;
        for (uint32_t i = 0; i < n_part; i++) {
            union {
                float number;
                uint32_t bits;
            } word = {.number = numbers[at + i]};

            put_u32(plain + 4 * (size_t)i, word.bits);
        }
        buf_append(out, text, (size_t)EVP_EncodeBlock(text, plain, (int)(4 * n_part)));
    }
}

static void put_numbers(struct buf *out, const float *numbers, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        buf_printf(out, i == 0 ? "%.9g" : ",%.9g", (double)numbers[i]);
}

int api_put_embedding(struct buf *out, const struct api_embedding *embedding, uint32_t from, uint32_t to)
{
    if (from == 0) {
        buf_append_str(out, embedding->index == 0 ? "{\"object\":\"list\",\"data\":[" : ",");
        buf_append_str(out, "{\"object\":\"embedding\",\"index\":");
        buf_append_u64(out, embedding->index);
        buf_append_str(out, embedding->is_base64 ? ",\"embedding\":\"" : ",\"embedding\":[");
    } else if (!embedding->is_base64) {
        buf_append_byte(out, ',');
    }
    if (embedding->is_base64)
        put_base64(out, embedding->numbers + from, to - from);
    else
        put_numbers(out, embedding->numbers + from, to - from);
    if (to == embedding->n_dims)
        buf_append_str(out, embedding->is_base64 ? "\"}" : "]}");
    return out->is_bad ? E_NOMEM : 0;
}

int api_put_embeddings_end(struct buf *out, struct bytes model, uint64_t n_tokens)
{
    buf_append_str(out, "],\"model\":");
    json_put_str(out, model);
    buf_append_str(out, ",\"usage\":{\"prompt_tokens\":");
    buf_append_u64(out, n_tokens);
    buf_append_str(out, ",\"total_tokens\":");
    buf_append_u64(out, n_tokens);
    buf_append_str(out, "}}");
    return out->is_bad ? E_NOMEM : 0;
}
