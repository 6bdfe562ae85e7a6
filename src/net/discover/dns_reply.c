/* SPDX-License-Identifier: Apache-2.0 */
/* Times to live of a DNS answer (RFC 1035, section 4.1), which c-ares does not give for SRV records. */
#include "net/discover/discover_priv.h"

enum { DNS_HEADER_BYTES = 12, DNS_QUESTION_BYTES = 4, DNS_RECORD_BYTES = 10 };

/* The bytes of an encoded name at `at`; 0: malformed. A name ends with a zero byte or with a pointer. */
static size_t dns_name_bytes(struct bytes message, size_t at)
{
    size_t start = at;

    while (at < message.len_bytes) {
        uint8_t length = message.data[at];

        if (length == 0)
            return at + 1 - start;
        if ((length & 0xc0) == 0xc0)
            return at + 2 - start;
        if ((length & 0xc0) != 0)
            return 0;
        at += 1u + length;
    }
    return 0;
}

static unsigned dns_u16(struct bytes message, size_t at)
{
    return (unsigned)message.data[at] << 8 | message.data[at + 1];
}

uint32_t dns_reply_ttl(struct bytes message, uint32_t fallback)
{
    uint32_t least = UINT32_MAX;
    size_t at = DNS_HEADER_BYTES, n_name;
    unsigned n_questions, n_answers;

    if (message.len_bytes < DNS_HEADER_BYTES)
        return fallback;
    n_questions = dns_u16(message, 4);
    n_answers = dns_u16(message, 6);
    for (; n_questions > 0; n_questions--) {
        n_name = dns_name_bytes(message, at);
        at += n_name + DNS_QUESTION_BYTES;
        if (n_name == 0 || at > message.len_bytes)
            return fallback;
    }
    for (; n_answers > 0; n_answers--) {
        uint32_t ttl;

        n_name = dns_name_bytes(message, at);
        at += n_name;
        if (n_name == 0 || at + DNS_RECORD_BYTES > message.len_bytes)
            return fallback;
        ttl = (uint32_t)dns_u16(message, at + 4) << 16 | dns_u16(message, at + 6);
        if (ttl < least)
            least = ttl;
        at += DNS_RECORD_BYTES + dns_u16(message, at + 8);
    }
    return least == UINT32_MAX ? fallback : least;
}
