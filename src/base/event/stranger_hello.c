/* SPDX-License-Identifier: Apache-2.0 */
/* TLS records.  A handshake message lies in their fragments, which may cut it anywhere:
 *
 *    22 3 v | length, 2 bytes | fragment ...        a record
 *    1 | length, 3 bytes | body ...                 the message, over the fragments */
#include "base/event/stranger_hello_priv.h"

#define RECORD_HEAD_BYTES  5
#define MESSAGE_HEAD_BYTES 4
#define HANDSHAKE          22
#define CLIENT_HELLO       1

size_t hello_bytes(const uint8_t *data, size_t n)
{
    uint8_t head[MESSAGE_HEAD_BYTES] = {0};
    size_t at = 0, have = 0, message = MESSAGE_HEAD_BYTES;

    while (have < message) {
        size_t fragment;

        if (n > at && data[at] != HANDSHAKE)
            return 0;
        if (n < at + RECORD_HEAD_BYTES)
            return at + RECORD_HEAD_BYTES;
        fragment = (size_t)data[at + 3] << 8 | data[at + 4];
        at += RECORD_HEAD_BYTES;
        if (fragment == 0 || at + fragment > HELLO_MAX_BYTES)
            return 0;
        if (n < at + fragment)
            return at + fragment;
        for (size_t i = 0; have + i < MESSAGE_HEAD_BYTES && i < fragment; i++)
            head[have + i] = data[at + i];
        at += fragment;
        have += fragment;
        if (have < MESSAGE_HEAD_BYTES)
            continue;
        message = MESSAGE_HEAD_BYTES + ((size_t)head[1] << 16 | (size_t)head[2] << 8 | head[3]);
        if (head[0] != CLIENT_HELLO || message > HELLO_MAX_BYTES)
            return 0;
    }
    return at;
}
