/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2's alphabet: 256 printable characters that stand for the 256 bytes. With it a text file can hold a
 * vocabulary of byte strings.
 *
 *     21..7E, A1..AC, AE..FF   stand for themselves (the printable part of Latin-1)
 *     the other 68 bytes       U+0100, U+0101, ... in order: 00 is U+0100, blank (20) is U+0120 "Ġ" */
#include "text/token/tokenizer_priv.h"

static bool stands_for_itself(uint32_t code)
{
    return (code >= 0x21 && code <= 0x7e) || (code >= 0xa1 && code <= 0xac) || (code >= 0xae && code <= 0xff);
}

/* How many bytes below this one do not stand for themselves. */
static uint32_t rank_among_others(uint8_t byte)
{
    if (byte <= 0x20)
        return byte;
    return byte <= 0xa0 ? 33u + byte - 0x7f : 67;
}

uint32_t alphabet_code(uint8_t byte)
{
    return stands_for_itself(byte) ? byte : 0x100 + rank_among_others(byte);
}

int alphabet_byte(uint32_t code)
{
    if (code < 0x100)
        return stands_for_itself(code) ? (int)code : -1;
    if (code > 0x100 + 67)
        return -1;

    int rank = (int)code - 0x100;
    if (rank <= 0x20)
        return rank;
    return rank == 67 ? 0xad : 0x7f + rank - 33;
}
