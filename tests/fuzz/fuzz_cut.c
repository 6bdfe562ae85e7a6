/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes cut into words by every rule.  The words follow each other without gaps, end with the
 * text, and never split a character. */
#include "text/token/tokenizer_priv.h"

#include "base/check.h"
#include "base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_valid(struct bytes text)
{
    return utf8_valid_prefix(text) == text.len_bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes text = bytes_of(data, size);

    for (int rule = 0; rule < PRETOK_N_RULES; rule++) {
        struct pretok_cursor words;

        pretok_begin(&words, (enum pretok)rule, text);
        for (size_t at = 0, end; at < size; at = end) {
            end = pretok_next(&words);
            ASSERT(end > at && end <= size);
            ASSERT(!is_valid(text) || end == size || (data[end] & 0xc0) != 0x80);
        }
    }
    return 0;
}
