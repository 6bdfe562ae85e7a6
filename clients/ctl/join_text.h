/* SPDX-License-Identifier: Apache-2.0 */
/* The messages between a joining host and `batonctl token`, as text, and the token itself.  Pure.
 *
 *     baton-join 1 KIND
 *     host NAME                       the sender's host
 *     clock NANOSECONDS               its time since 1970
 *     key LINE                        welcome: a line of the cluster's key file (net/link/cluster_key.h)
 *     certificates                    welcome: links use certificates, not the key
 *     model FINGERPRINT NAME          welcome: what the cluster serves
 *     place NAME HOST:PORT [RESULT]   welcome: daemons; probe: what to dial; probed: with the result
 *     pad BYTES                       so many bytes follow the message, to find out whether large packets pass
 *     end
 *
 * Both sides skip lines that begin with an unknown word.  The text travels over TLS 1.3 with a key from the token. */
#ifndef CLIENTS_CTL_JOIN_TEXT_H
#define CLIENTS_CTL_JOIN_TEXT_H

#include "base/bytes.h"
#include "base/fault.h"
#include "net/link/cluster_key.h"

enum {
    JOIN_TOKEN_BYTES = 4 + 64 + 8 + 1, /* "bj1-", secret, check, NUL */
    JOIN_MAX_TEXT = 32 << 10,
    JOIN_MAX_PLACES = 72,
    JOIN_MAX_MODELS = 8,
    JOIN_MAX_PAD = 64 << 10
};

/* Writes the token's text: the secret and four bytes of its SHA-256, which find a mistyped token before it travels. */
int join_token_print(const uint8_t secret[32], char out[JOIN_TOKEN_BYTES]);
/* E_FORMAT; the fault describes the error without quoting the text. */
int join_token_parse(const char *text, struct fault *fault, uint8_t secret_out[32]);
/* The key of the TLS connection. A token's key differs from every key that is derived from the cluster's. */
int join_token_key(const uint8_t secret[32], uint8_t key_out[32]);

enum join_kind { JOIN_HELLO, JOIN_WELCOME, JOIN_PROBE, JOIN_PROBED, JOIN_N_KINDS };

struct join_place {
    char name[64];
    char address[128];
    char result[160]; /* "" none */
};

struct join_model {
    char fingerprint[33];
    char name[128];
};

struct join_message {
    enum join_kind kind;
    char host[64];
    uint64_t clock_ns; /* 0: none */
    bool has_keys;
    struct cluster_keys keys;
    bool has_certificates;
    struct join_place places[JOIN_MAX_PLACES];
    unsigned n_places;
    struct join_model models[JOIN_MAX_MODELS];
    unsigned n_models;
    uint32_t pad_bytes;
};

/* Length of the message at the beginning of text, or 0: its end has not arrived. */
size_t join_message_end(struct bytes text);
/* Parses a whole message. E_FORMAT, E_LIMIT, E_VERSION, with the line's number. */
int join_message_parse(struct bytes text, struct fault *fault, struct join_message *out);
/* Appends the message. E_NOMEM. */
int join_message_print(const struct join_message *message, struct buf *out);
/* True if the text is a valid name of a host or place: letters, digits, '.', '_', '-'. */
bool join_is_name(struct bytes text);
/* Adds a place; false: there is no room, or a part is too long. */
bool join_message_place(struct join_message *message, const char *name, const char *address);

#endif
