/* SPDX-License-Identifier: Apache-2.0 */
/* Messages over a connection, and dialling. */
#include <ctype.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "clients/ctl/join.h"

int join_send(struct wire *wire, const struct join_message *message, struct fault *fault)
{
    struct buf text = {0};
    int rc = buf_reserve(&text, JOIN_MAX_TEXT + message->pad_bytes); /* the buffer never moves, so one wipe is
                                                                      * enough */

    if (rc == 0)
        rc = join_message_print(message, &text);
    for (uint32_t i = 0; rc == 0 && i < message->pad_bytes; i++)
        rc = buf_append_byte(&text, 'x');
    if (rc != 0)
        rc = fault_set(fault, rc, "%s", err_text(rc));
    else
        rc = wire_write(wire, buf_view(&text), clock_now_ns() + JOIN_STEP_NS, fault);
    if (text.data != NULL)
        OPENSSL_cleanse(text.data, text.len_bytes);
    buf_fini(&text);
    return rc;
}

int join_receive(struct wire *wire, enum join_kind kind, struct fault *fault, struct join_message *out)
{
    uint64_t until_ns = clock_now_ns() + JOIN_STEP_NS;
    struct buf text = {0};
    size_t end;
    int rc = buf_reserve(&text, JOIN_MAX_TEXT + JOIN_MAX_PAD + 8192); /* as above, with room for bytes read
                                                                       * beyond the message */

    if (rc != 0)
        return fault_set(fault, rc, "%s", err_text(rc));
    while (rc == 0 && (end = join_message_end(buf_view(&text))) == 0) {
        if (text.len_bytes > JOIN_MAX_TEXT)
            rc = fault_set(fault, E_LIMIT, "the message has no end within %d bytes", JOIN_MAX_TEXT);
        else
            rc = wire_read(wire, 0, until_ns, fault, &text);
    }
    if (rc == 0)
        rc = join_message_parse(bytes_of(text.data, end), fault, out);
    if (rc == 0 && out->kind != kind)
        rc = fault_set(fault, E_PROTO, "the other side sent another kind of message");
    if (rc == 0)
        rc = wire_read(wire, end + out->pad_bytes, until_ns, fault, &text);
    if (text.data != NULL)
        OPENSSL_cleanse(text.data, text.len_bytes);
    buf_fini(&text);
    return rc;
}

void join_host_name(char out[64])
{
    if (gethostname(out, 63) != 0)
        str_copy(out, 64, "unknown");
    out[63] = '\0';
    for (char *at = out; *at != '\0'; at++)
        if (!isalnum((unsigned char)*at) && strchr("._-", *at) == NULL)
            *at = '-';
}

void reach_dial(const char *address, SSL_CTX *ctx, struct reach *out)
{
    uint64_t until_ns = clock_now_ns() + JOIN_REACH_NS;
    struct wire wire = {.fd = -1};
    struct fault fault = {0};
    int rc = wire_dial(address, until_ns, &fault, &wire);

    *out = (struct reach){.is_reached = false};
    if (rc == 0)
        out->mtu = wire_mtu(&wire);
    if (rc == 0 && ctx != NULL)
        rc = wire_shake(&wire, ctx, until_ns, &fault);
    out->is_reached = rc == 0;
    str_copy(out->text, sizeof(out->text), rc == 0 ? "ok" : fault.text);
    wire_close(&wire);
}
