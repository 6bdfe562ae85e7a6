/* SPDX-License-Identifier: Apache-2.0 */
/* API keys, known by their hashes only.
 *
 * The file has one key per line: SHA-256 of the key as 64 hex digits, the tenant's name, and (optional) a
 * name for the key, which appears in logs; blank lines and lines that begin with '#' are skipped.  Names are
 * [A-Za-z0-9._-]{1,63}.
 *
 *     5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5  team-a  laptop
 */
#ifndef FRONT_AUTH_H
#define FRONT_AUTH_H

#include "base/bytes.h"
#include "base/fault.h"

struct auth_keys; /* immutable */

struct auth_key { /* who is asking */
    char tenant[64];
    char name[64]; /* of the key; may be empty */
};

/* E_IO, E_FORMAT (the fault names file and line), E_AUTH when the file can be read by others, E_NOMEM. */
int auth_keys_load(const char *path, struct fault *fault, struct auth_keys **out);
/* The same from text; name stands for the file in messages. */
int auth_keys_parse(const char *name, struct bytes text, struct fault *fault, struct auth_keys **out);
void auth_keys_free(struct auth_keys *keys);
size_t auth_keys_count(const struct auth_keys *keys);

/* Whose key is it?  Takes the same time for every key, known or not.  0 or E_AUTH. */
int auth_check(const struct auth_keys *keys, struct bytes key, struct auth_key *out);
/* The line's first word for a key: 64 hex digits and NUL. */
void auth_key_hash(struct bytes key, char out[65]);

#endif
