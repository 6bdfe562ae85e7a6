/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of struct gguf, shared by the files of this folder. */
#ifndef GGUF_GGUF_PRIV_H
#define GGUF_GGUF_PRIV_H

#include "gguf/gguf.h"

#define GGUF_VERSION_OLDEST 2
#define GGUF_VERSION        3
#define GGUF_ALIGN_DEFAULT  32
#define GGUF_ALIGN_MAX      (1u << 20)
#define GGUF_MAX_KEYS       (1u << 16)
#define GGUF_MAX_TENSORS    (1u << 20)
#define GGUF_MAX_NAME_BYTES 1024

/* How much of a name or value a message shows: "%.*s" with SHOWN(view). */
#define GGUF_SHOWN_BYTES 96
#define SHOWN(view)                                                                                          \
    (int)((view).len_bytes < GGUF_SHOWN_BYTES ? (view).len_bytes : GGUF_SHOWN_BYTES),                        \
        (const char *)(view).data

struct gguf_key {
    struct bytes name;
    enum gguf_kind kind;
    enum gguf_kind item_kind; /* of an array's items */
    uint64_t n_items;         /* of an array */
    struct bytes value;       /* scalar's bytes; string's text; all items of an array, as in the file */
    size_t *item_at;          /* string arrays: [n_items] where in value each string's length field stands */
    struct bytes entry;       /* the whole entry, name length to last value byte: what a copy copies */
};

/* Names -> their index, open addressing over a seeded hash. */
struct gguf_index {
    uint32_t *slots; /* [n_slots] index + 1; 0: free */
    uint32_t n_slots;
    uint64_t seed;
};

struct gguf {
    struct bytes image;
    void *map; /* what to unmap; NULL when the memory is the caller's */
    struct gguf_key *keys;
    uint32_t n_keys;
    struct gguf_index key_index;
    struct gguf_tensor *tensors;
    uint32_t n_tensors;
    struct gguf_index tensor_index;
    uint32_t version;
    uint32_t align_bytes;       /* of tensor data, from the start of the file */
    size_t directory_len_bytes; /* header, keys and tensor declarations */
};

/* What one key or tensor costs in the directory at least, so that a count can be checked before it is
 * believed. */
#define GGUF_KEY_MIN_BYTES    (8 + 1 + 4 + 1)
#define GGUF_TENSOR_MIN_BYTES (8 + 1 + 4 + 4 + 8)

/* Read count keys (tensors) at the reader's place into gguf; fault names what is wrong and where. */
int gguf_read_keys(struct gguf *gguf, struct reader *reader, uint64_t count, struct fault *fault);
int gguf_read_tensors(struct gguf *gguf, struct reader *reader, uint64_t count, struct fault *fault);
/* A name: length, then that many bytes, 1..GGUF_MAX_NAME_BYTES and without NUL.  what: "key", "tensor". */
int gguf_read_name(struct reader *reader, const char *what, uint64_t number, struct fault *fault,
                   struct bytes *out);

/* Bytes of one item of a kind with a fixed width; 0: string, array or unknown. */
size_t gguf_kind_bytes(uint32_t kind);
const char *gguf_kind_name(enum gguf_kind kind); /* "u32" */

const struct gguf_key *gguf_find_key(const struct gguf *gguf, struct bytes name); /* NULL: absent */
struct bytes gguf_item_str(const struct gguf_key *key, uint64_t index);           /* of a string array */

typedef struct bytes (*gguf_name_of)(const struct gguf *gguf, uint32_t number);
int gguf_index_init(struct gguf_index *index, uint64_t n_names);
void gguf_index_fini(struct gguf_index *index);
/* Adds name as number; E_EXISTS when it is in already. */
int gguf_index_add(struct gguf_index *index, const struct gguf *gguf, gguf_name_of name_of, uint32_t number);
/* The number, or UINT32_MAX. */
uint32_t gguf_index_find(const struct gguf_index *index, const struct gguf *gguf, gguf_name_of name_of,
                         struct bytes name);

#endif
