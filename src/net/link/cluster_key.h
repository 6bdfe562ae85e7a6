/* SPDX-License-Identifier: Apache-2.0 */
/* The file with the cluster's key, and the keys that are derived from it.
 *
 *     0011...ff            the current key: new links use it
 *     next 2233...ee       accepted too: new links will use it after the next step of a rotation
 *     former 4455...dd     accepted too: links used it before (a file has `next` or `former`, not both)
 *     data 0011...ff       what stored data derives from; without this line it is the current key
 *
 * Access (links, KV connections, admin and metrics tokens) follows the current key, so a rotation changes it.
 * Data (block hashes, disk and remote tiers, signatures, limits, shared weights) follows the data key, which
 * stays, so daemons that are at different steps still agree and caches stay valid.
 *
 * Any thread. */
#ifndef NET_LINK_CLUSTER_KEY_H
#define NET_LINK_CLUSTER_KEY_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/fault.h"

#define CLUSTER_KEY_BYTES      32
#define CLUSTER_KEY_FILE_BYTES 1024 /* a longer file is refused */

enum cluster_step {                     /* of a rotation */
                    CLUSTER_STEP_NONE,  /* one key */
                    CLUSTER_STEP_NEXT,  /* the second key is the next one */
                    CLUSTER_STEP_FORMER /* the second key is the former one */
};

struct cluster_keys { /* wipe it with cluster_keys_wipe() */
    enum cluster_step step;
    uint8_t current[CLUSTER_KEY_BYTES];
    uint8_t second[CLUSTER_KEY_BYTES]; /* zero without a second key */
    uint8_t data[CLUSTER_KEY_BYTES];
};

/* Parses the text of a key file; name stands in the fault. E_FORMAT. */
int cluster_keys_parse(const char *name, struct bytes text, struct fault *fault, struct cluster_keys *out);
/* Reads a key file. E_NOT_FOUND, E_IO, E_FORMAT, E_INVAL (not a regular file), E_AUTH (users other than owner and
 * group may read or write it). */
int cluster_keys_load(const char *path, struct fault *fault, struct cluster_keys *out);
/* Writes the text of a key file, without a NUL. Returns its length. */
size_t cluster_keys_print(const struct cluster_keys *keys, char out[CLUSTER_KEY_FILE_BYTES]);
/* Creates a key file, mode 0600. E_EXISTS, E_IO. */
int cluster_keys_store(const char *path, const struct cluster_keys *keys, struct fault *fault);
/* Replaces an existing key file at once, with its owner, group and mode. E_NOT_FOUND, E_IO. */
int cluster_keys_save(const char *path, const struct cluster_keys *keys, struct fault *fault);
/* Takes the next step of a rotation. From NONE: adds a random next key. From NEXT: the next key becomes the current
 * one. From FORMER: drops the former key. The data key stays. */
void cluster_keys_rotate(struct cluster_keys *keys);
void cluster_keys_wipe(struct cluster_keys *keys);

/* A public name for a key, equal on every host. */
uint32_t cluster_key_id(const uint8_t key[CLUSTER_KEY_BYTES]);

/* Reads only the current key of a file. Errors as cluster_keys_load. */
int cluster_key_load(const char *path, struct fault *fault, uint8_t key_out[CLUSTER_KEY_BYTES]);
/* Creates a file with a new random key, mode 0600. E_EXISTS, E_IO. */
int cluster_key_create(const char *path, struct fault *fault);
/* Derives 32 bytes for one purpose ("link", "prefix", "kv") by HMAC-SHA-256(key, label). E_INTERNAL. */
int cluster_key_derive(const uint8_t key[CLUSTER_KEY_BYTES], const char *label,
                       uint8_t out[CLUSTER_KEY_BYTES]);

#endif
