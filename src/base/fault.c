/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a fault.
 *
 * Faults quote outside input (a key of a model file, a line of a configuration), so the finished text is
 * cleaned.  A terminal or a log always sees one line of printable bytes.  Bytes above 127 pass, because
 * names may be UTF-8.  A character that is cut in two at the end of the buffer is removed. */
#include "base/fault.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

int fault_set(struct fault *fault, int code, const char *format, ...)
{
    if (fault == NULL)
        return code;

    char text[sizeof(fault->text)]; /* a separate buffer, so that a fault may quote its own old text */
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);

    size_t len_bytes = n < 0 ? 0 : (size_t)n;
    if (len_bytes >= sizeof(text)) {
        struct bytes kept = bytes_of(text, sizeof(text) - 1);
        size_t whole_bytes = utf8_valid_prefix(kept);

        /* Removes only a character cut by the end of the buffer.  Text that is not UTF-8 stays as it is. */
        len_bytes = kept.len_bytes - whole_bytes < 4 ? whole_bytes : kept.len_bytes;
    }

    for (size_t i = 0; i < len_bytes; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            text[i] = '?';
    memcpy(fault->text, text, len_bytes);
    fault->text[len_bytes] = '\0';
    fault->code = code;
    return code;
}
