/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a vocabulary image from a peer.  If it opens, the target encodes text with it and decodes it
 * again.
 *
 *     u32 length of the image | image | text          (the rest is the text) */
#include "text/token/tokenizer.h"

#include "base/check.h"
#include "base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Encodes, and checks the properties of any vocabulary. */
static void encode(const struct tokenizer *tokenizer, struct bytes text, unsigned flags)
{
    struct token_ids ids = {0}, fewer = {0};
    struct buf whole = {0};
    struct detok detok;

    ASSERT(tokenizer_encode(tokenizer, text, flags, SIZE_MAX, &ids) == 0);
    detok_init(&detok, tokenizer, false);
    for (size_t i = 0; i < ids.n; i++) {
        ASSERT(ids.ids[i] < tokenizer_vocab_size(tokenizer));
        ASSERT(flags != 0 || !tokenizer_is_control(tokenizer, ids.ids[i]));
        ASSERT(detok_push(&detok, ids.ids[i], &whole) == 0);
    }
    detok_finish(&detok);
    ASSERT(utf8_valid_prefix(buf_view(&whole)) == whole.len_bytes);
    if (ids.n > 0)
        ASSERT(tokenizer_encode(tokenizer, text, flags, ids.n - 1, &fewer) < 0 && fewer.n == 0);
    buf_fini(&whole);
    token_ids_fini(&fewer);
    token_ids_fini(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct reader reader = reader_of(bytes_of(data, size));
    uint32_t len_bytes = read_u32(&reader);
    struct bytes image = read_bytes(&reader, len_bytes);
    struct bytes text = bytes_of(data + reader.at_bytes, size - reader.at_bytes);
    struct tokenizer *tokenizer = NULL;
    struct fault fault = {0};
    struct detok detok;
    struct buf out = {0};

    if (reader.is_bad)
        return 0;
    if (tokenizer_new_from_image(image, &fault, &tokenizer) != 0) {
        ASSERT(tokenizer == NULL && fault.code < 0 && fault.text[0] != '\0');
        return 0;
    }
    encode(tokenizer, text, 0);
    encode(tokenizer, text, TOKEN_PARSE_SPECIAL | TOKEN_ADD_BOS);
    detok_init(&detok, tokenizer, true);
    for (uint32_t id = 0; id <= tokenizer_vocab_size(tokenizer); id++) {
        struct bytes piece = tokenizer_piece(tokenizer, id);

        buf_append(&out, piece.data, piece.len_bytes);
        detok_push(&detok, id, &out);
        tokenizer_find(tokenizer, piece);
    }
    buf_fini(&out);
    tokenizer_unref(tokenizer);
    return 0;
}
