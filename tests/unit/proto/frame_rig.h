/* SPDX-License-Identifier: Apache-2.0 */
/* Sends control messages through packing and unpacking, for tests of their limits. */
#ifndef TESTS_PROTO_FRAME_RIG_H
#define TESTS_PROTO_FRAME_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "proto/frame.h"

/* Packs and unpacks a message.
 * Returns the result of unpacking; text_out (may be NULL) receives the fault. */
static inline int through(enum frame_type type, const void *message, char text_out[512],
                          ProtobufCMessage **out)
{
    struct buf buf = {0};
    struct frame_header header;
    struct fault fault = {0};
    ProtobufCMessage *back = NULL;
    int err;

    assert_int_equal(frame_pack(type, message, &buf), 0);
    assert_int_equal(frame_header_unpack(buf.data, NULL, &header), 0);
    assert_int_equal(header.type, type);
    assert_int_equal(header.len_bytes + FRAME_HEADER_BYTES, buf.len_bytes);
    err = frame_unpack(type, bytes_of(buf.data + FRAME_HEADER_BYTES, header.len_bytes), &fault, &back);
    buf_fini(&buf);
    if (text_out != NULL)
        memcpy(text_out, fault.text, sizeof(fault.text));
    if (out != NULL)
        *out = back;
    else
        frame_message_free(back);
    return err;
}

#define assert_refused(type, message, named)                                                                 \
    do {                                                                                                     \
        char text_[512];                                                                                     \
        assert_int_equal(through(type, message, text_, NULL), E_PROTO);                                      \
        if (strstr(text_, named) == NULL)                                                                    \
            fail_msg("'%s' does not name %s", text_, named);                                                 \
    } while (0)
#define assert_passes(type, message) assert_int_equal(through(type, message, NULL, NULL), 0)

#endif
