/* SPDX-License-Identifier: Apache-2.0 */
/* Keys as short text, for listings.
 *
 *     12      0.5      true      "a string, cut after a while" (4210 bytes)
 *     [151936 strings]      [1, 2, 3]      [64 f32]
 *
 * Strings are quoted as in JSON, so that no value can move the cursor or forge a line of the listing.
 * Numbers have enough digits to read back as the same value. */
#include "gguf/gguf_priv.h"

#include "base/err.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_STRING_BYTES 120
#define SHOWN_ITEMS        8

static void show_string(struct bytes text, struct buf *out)
{
    size_t cut = text.len_bytes;

    if (cut > SHOWN_STRING_BYTES) {
        cut = SHOWN_STRING_BYTES;
        while (cut > 0 && (text.data[cut] & 0xc0) == 0x80)
            cut--;
    }
    json_put_str(out, bytes_of(text.data, cut));
    if (cut < text.len_bytes)
        buf_printf(out, " (%zu bytes)", text.len_bytes);
}

static void show_float(double value, bool is_single, struct buf *out)
{
    char digits[32];

    for (int precision = is_single ? 6 : 15; precision <= 17; precision++) {
        snprintf(digits, sizeof(digits), "%.*g", precision, value);
        double again = strtod(digits, NULL);
        if (is_single ? (float)again == (float)value : again == value)
            break;
    }
    buf_append_str(out, digits);
}

static void show_scalar(const uint8_t *at, enum gguf_kind kind, struct buf *out)
{
    uint32_t bits;
    uint64_t wide;
    float single;
    double value;

    switch (kind) {
    case GGUF_U8:
        buf_printf(out, "%u", *at);
        break;
    case GGUF_I8:
        buf_printf(out, "%d", (int8_t)*at);
        break;
    case GGUF_U16:
        buf_printf(out, "%u", get_u16(at));
        break;
    case GGUF_I16:
        buf_printf(out, "%d", (int16_t)get_u16(at));
        break;
    case GGUF_U32:
        buf_printf(out, "%" PRIu32, get_u32(at));
        break;
    case GGUF_I32:
        buf_printf(out, "%" PRId32, (int32_t)get_u32(at));
        break;
    case GGUF_U64:
        buf_printf(out, "%" PRIu64, get_u64(at));
        break;
    case GGUF_I64:
        buf_printf(out, "%" PRId64, (int64_t)get_u64(at));
        break;
    case GGUF_BOOL:
        buf_append_str(out, *at ? "true" : "false");
        break;
    case GGUF_F32:
        bits = get_u32(at);
        memcpy(&single, &bits, sizeof(single));
        show_float((double)single, true, out);
        break;
    case GGUF_F64:
        wide = get_u64(at);
        memcpy(&value, &wide, sizeof(value));
        show_float(value, false, out);
        break;
    case GGUF_STRING:
    case GGUF_ARRAY:
        break;
    }
}

static void show_array(const struct gguf_key *key, struct buf *out)
{
    size_t item_bytes = gguf_kind_bytes(key->item_kind);

    if (item_bytes == 0 || key->n_items > SHOWN_ITEMS) {
        buf_printf(out, "[%" PRIu64 " %s%s]", key->n_items, gguf_kind_name(key->item_kind),
                   item_bytes == 0 && key->n_items != 1 ? "s" : "");
        return;
    }
    buf_append_byte(out, '[');
    for (uint64_t i = 0; i < key->n_items; i++) {
        buf_append_str(out, i == 0 ? "" : ", ");
        show_scalar(key->value.data + i * item_bytes, key->item_kind, out);
    }
    buf_append_byte(out, ']');
}

uint64_t gguf_key_count(const struct gguf *gguf)
{
    return gguf->n_keys;
}

int gguf_key_at(const struct gguf *gguf, uint64_t index, struct bytes *name_out, enum gguf_kind *kind_out)
{
    if (index >= gguf->n_keys)
        return E_RANGE;
    *name_out = gguf->keys[index].name;
    *kind_out = gguf->keys[index].kind;
    return 0;
}

int gguf_key_text(const struct gguf *gguf, uint64_t index, struct buf *text_out)
{
    if (index >= gguf->n_keys)
        return E_RANGE;

    const struct gguf_key *key = &gguf->keys[index];
    if (key->kind == GGUF_STRING)
        show_string(key->value, text_out);
    else if (key->kind == GGUF_ARRAY)
        show_array(key, text_out);
    else
        show_scalar(key->value.data, key->kind, text_out);
    return text_out->is_bad ? E_NOMEM : 0;
}
