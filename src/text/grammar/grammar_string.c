/* SPDX-License-Identifier: Apache-2.0 */
/* The automaton over bytes inside a JSON string, which every grammar shares.
 *
 *                  80-bf                       "  closes
 *     U1 U2 U3 ----------------> PLAIN <-------+
 *      ^ lead byte of UTF-8      |  ^          |
 *      +-------------------------+  |  n t " \ / ...
 *                                \  |
 *                                v  |
 *                              ESCAPE --u--> H1 H2 H3 H4 --> PLAIN
 *                                             | d8..db: first half of a pair
 *                                             +--> S3 S4 \ u d c..f H3 H4
 *
 * Only well-formed UTF-8 passes (no surrogates, no overlong forms), even when a character's bytes span
 * several tokens.  Escaped surrogates pass only in pairs.  \u0000 never passes, because many JSON parsers
 * refuse it.  A pair is one character, as in JSON Schema's lengths. */
#include "text/grammar/grammar_priv.h"

#include <string.h>

enum place {
    PLAIN, /* between characters */
    U1,    /* one more byte of a character, */
    U2,    /* two more, */
    U3,    /* three more */
    UE0,   /* after e0, ed, f0, f4, which narrow the next byte */
    UED,
    UF0,
    UF4,
    ESCAPE,
    H1, /* first of four hexadecimal digits */
    H2,
    H3,
    H4,
    HD, /* second digit, after a d */
    S3, /* third and fourth digit of a first half */
    S4,
    SBACK, /* then the escape of the second half */
    SU,
    SD,
    SC,
    Z2, /* after one, two, three zeros */
    Z3,
    Z4
};

static const uint8_t dists[] = {
    [PLAIN] = 0,  [U1] = 1, [U2] = 2, [U3] = 3, [UE0] = 2, [UED] = 2, [UF0] = 3, [UF4] = 3,
    [ESCAPE] = 1, [H1] = 4, [H2] = 3, [H3] = 2, [H4] = 1,  [HD] = 3,  [S3] = 8,  [S4] = 7,
    [SBACK] = 6,  [SU] = 5, [SD] = 4, [SC] = 3, [Z2] = 3,  [Z3] = 2,  [Z4] = 1};

static uint8_t after_plain(uint8_t byte)
{
    if (byte == '"')
        return STR_CLOSE;
    if (byte == '\\')
        return ESCAPE;
    if (byte < 0x20)
        return STR_DEAD;
    if (byte < 0x80)
        return PLAIN;
    if (byte < 0xc2 || byte > 0xf4)
        return STR_DEAD;
    if (byte < 0xe0)
        return U1;
    if (byte < 0xf0)
        return byte == 0xe0 ? UE0 : byte == 0xed ? UED : U2;
    return byte == 0xf0 ? UF0 : byte == 0xf4 ? UF4 : U3;
}

static uint8_t grammar_string_within(uint8_t byte, uint8_t lo, uint8_t hi, uint8_t place)
{
    return byte >= lo && byte <= hi ? place : STR_DEAD;
}

static int hex_value(uint8_t byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

static uint8_t after_hex(uint8_t place, int digit)
{
    if (digit < 0)
        return STR_DEAD;
    switch (place) {
    case H1:
        return digit == 0 ? Z2 : digit == 13 ? HD : H2;
    case H2:
        return H3;
    case H3:
        return H4;
    case H4:
        return PLAIN;
    case HD:
        return digit < 8 ? H3 : digit < 12 ? S3 : STR_DEAD;
    case S3:
        return S4;
    case S4:
        return SBACK;
    case SD:
        return digit == 13 ? SC : STR_DEAD;
    case SC:
        return digit >= 12 ? H3 : STR_DEAD;
    case Z2:
        return digit == 0 ? Z3 : H3;
    case Z3:
        return digit == 0 ? Z4 : H4;
    case Z4:
        return digit == 0 ? STR_DEAD : PLAIN;
    }
    return STR_DEAD;
}

uint8_t string_next(uint8_t place, uint8_t byte, bool *is_char_out)
{
    uint8_t to;

    *is_char_out = false;
    switch (place) {
    case PLAIN:
        to = after_plain(byte);
        *is_char_out = to < STR_CLOSE;
        return to;
    case U1:
        return grammar_string_within(byte, 0x80, 0xbf, PLAIN);
    case U2:
        return grammar_string_within(byte, 0x80, 0xbf, U1);
    case U3:
        return grammar_string_within(byte, 0x80, 0xbf, U2);
    case UE0:
        return grammar_string_within(byte, 0xa0, 0xbf, U1);
    case UED:
        return grammar_string_within(byte, 0x80, 0x9f, U1);
    case UF0:
        return grammar_string_within(byte, 0x90, 0xbf, U2);
    case UF4:
        return grammar_string_within(byte, 0x80, 0x8f, U2);
    case ESCAPE:
        if (byte == 'u')
            return H1;
        return byte != 0 && strchr("\"\\/bfnrt", byte) != NULL ? PLAIN : STR_DEAD;
    case SBACK:
        return byte == '\\' ? SU : STR_DEAD;
    case SU:
        return byte == 'u' ? SD : STR_DEAD;
    }
    return after_hex(place, hex_value(byte));
}

uint32_t string_dist(uint8_t place)
{
    return place < sizeof(dists) ? dists[place] : GRAPH_FAR;
}

void string_spell(struct buf *out, struct bytes text)
{
    static const char named[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";

    for (size_t i = 0; i < text.len_bytes; i++) {
        uint8_t byte = text.data[i];
        const char *name = byte == 0 ? NULL : strchr(named, byte);

        if (name != NULL)
            buf_printf(out, "\\%c", names[name - named]);
        else if (byte < 0x20)
            buf_printf(out, "\\u%04x", byte);
        else
            buf_append_byte(out, byte);
    }
}
