/* SPDX-License-Identifier: Apache-2.0 */
/* Token ids -> text, one token at a time.
 *
 * A token is bytes, and a character may take several tokens: an emoji is often two or three. The output holds
 * whole characters only. The first bytes of a character are held back until the character is complete or can
 * no longer become valid.
 *
 * An invalid beginning becomes one U+FFFD for all the bytes that belonged together. So the result does not
 * depend on how tokens split the bytes:
 *
 *     held F0 9F      + 98 81        -> U+1F601
 *     held F0 9F      + 41           -> U+FFFD "A"
 *
 * Encoding puts a blank before a SentencePiece text. Decoding removes it, once, unless the text continues an
 * earlier one. */
#include "text/token/tokenizer_priv.h"

#include "base/check.h"
#include "base/err.h"
#include "base/str.h"

#include <string.h>

static const uint8_t replacement[] = {0xef, 0xbf, 0xbd};

void detok_init(struct detok *detok, const struct tokenizer *tokenizer, bool is_continuation)
{
    *detok = (struct detok){
        .tokenizer = tokenizer,
        .keeps_first_blank = is_continuation || !tokenizer->adds_space_prefix,
    };
}

/* Takes one more byte. Appends to text the character that the byte completes, or U+FFFD for one that it makes
 * impossible. */
static void push_byte(struct detok *detok, uint8_t byte, struct buf *text)
{
    ASSERT(detok->n_held < 4);
    detok->held[detok->n_held++] = byte;

    struct bytes held = bytes_of(detok->held, detok->n_held);
    if (utf8_valid_prefix(held) == held.len_bytes) {
        buf_append(text, held.data, held.len_bytes);
        detok->n_held = 0;
        return;
    }
    bool goes_on = detok->n_held == 1 || (byte & 0xc0) == 0x80; /* false: the byte leads another character */
    if (goes_on && utf8_missing(held) > 0)
        return;
    /* No character begins with these bytes. An unfinished character ends here, and the byte is tried again as
     * a first byte. */
    buf_append(text, replacement, sizeof(replacement));
    bool was_begun = detok->n_held > 1;
    detok->n_held = 0;
    if (was_begun)
        push_byte(detok, byte, text);
}

static void push_piece(struct detok *detok, struct bytes piece, struct buf *text)
{
    size_t at = 0;

    while (at < piece.len_bytes) {
        if (detok->n_held == 0) {
            size_t whole = utf8_valid_prefix(bytes_of(piece.data + at, piece.len_bytes - at));
            buf_append(text, piece.data + at, whole);
            at += whole;
            if (at == piece.len_bytes)
                return;
        }
        push_byte(detok, piece.data[at++], text);
    }
}

int detok_push(struct detok *detok, token_id id, struct buf *text)
{
    const struct tokenizer *tokenizer = detok->tokenizer;

    if (id >= tokenizer->n_tokens)
        return E_RANGE;
    if (tokenizer->types[id] == TOKEN_CONTROL)
        return 0;

    struct bytes piece = tokenizer->types[id] == TOKEN_UNKNOWN ? bytes_of(replacement, sizeof(replacement))
                                                               : pool_get(&tokenizer->pieces, id);
    if (!detok->is_begun && piece.len_bytes > 0) {
        detok->is_begun = true;
        if (!detok->keeps_first_blank && piece.data[0] == ' ')
            piece = bytes_of(piece.data + 1, piece.len_bytes - 1);
    }
    push_piece(detok, piece, text);
    return text->is_bad ? E_NOMEM : 0;
}

void detok_break(struct detok *detok, struct buf *text)
{
    if (detok->n_held > 0)
        buf_append(text, replacement, sizeof(replacement));
    detok->n_held = 0;
}

bool detok_is_half(const struct detok *detok)
{
    return detok->n_held > 0;
}

void detok_finish(struct detok *detok)
{
    detok->n_held = 0;
}
