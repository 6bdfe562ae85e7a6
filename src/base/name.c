/* SPDX-License-Identifier: Apache-2.0 */
/* The letters are those of ASCII in every locale. */
#include "base/name.h"

static bool is_name_letter(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

bool name_is_valid(struct bytes text, size_t max_bytes)
{
    if (text.len_bytes == 0 || text.len_bytes > max_bytes)
        return false;
    for (size_t i = 0; i < text.len_bytes; i++)
        if (!is_name_letter(text.data[i]))
            return false;
    return true;
}

bool name_fits(const char *text)
{
    return name_is_valid(bytes_str(text), NAME_MOST_BYTES);
}
