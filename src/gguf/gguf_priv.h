/* SPDX-License-Identifier: Apache-2.0 */
/* The definition of struct gguf, shared by the files of this folder. */
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

/* How much of a name or value a message shows: use "%.*s" with SHOWN(view). */
#define GGUF_SHOWN_BYTES 96
#define SHOWN(view)                                                                                          \
    (int)((view).len_bytes < GGUF_SHOWN_BYTES ? (view).len_bytes : GGUF_SHOWN_BYTES),                        \
        (const char *)(view).data

struct gguf_key {
    struct bytes name;
    enum gguf_kind kind;
    enum gguf_kind item_kind; /* type of an array's items */
    uint64_t n_items;         /* number of items of an array */
    struct bytes value; /* bytes of a scalar, text of a string, or all items of an array as in the file */
    size_t *item_at;    /* string arrays: [n_items] where in value each string's length field stands */
    struct bytes entry; /* the whole entry, from name length to last value byte, for copying */
};

/* Maps names to indexes: open addressing over a seeded hash. */
struct gguf_index {
    uint32_t *slots; /* [n_slots] index + 1; 0: free */
    uint32_t n_slots;
    uint64_t seed;
};

struct gguf {
    struct bytes image;
    void *map; /* map to release; NULL when the caller owns the memory */
    struct gguf_key *keys;
    uint32_t n_keys;
    struct gguf_index key_index;
    struct gguf_tensor *tensors;
    uint32_t n_tensors;
    struct gguf_index tensor_index;
    uint32_t version;
    uint32_t align_bytes;       /* alignment of tensor data, from the start of the file */
    size_t directory_len_bytes; /* length of header, keys and tensor declarations */
    struct gguf **parts;        /* of a split model, in its first part: [n_parts], parts[0] is this object */
    uint32_t n_parts;           /* 0: not split, or not the first part */
};

#define GGUF_MAX_PARTS 4096

struct gguf_split {     /* a file's keys about the model that it is a part of */
    uint64_t number;    /* from 0 */
    uint64_t count;     /* 1: not split */
    uint64_t n_tensors; /* of all parts */
};
int gguf_split_read(const struct gguf *gguf, struct gguf_split *out, struct fault *fault);
/* Makes parts[0] the whole model. On success it owns the array and the other parts. On failure the caller keeps the
 * parts, may only close parts[0], and the fault names a part by its number. */
int gguf_join(struct gguf **parts, uint32_t n, struct fault *fault);
/* Says what a file is that is not GGUF, as the end of "not a GGUF file"; "" if that is not known. */
const char *gguf_foreign(struct bytes image);
/* Opens one file, without the other parts of a split model. */
int gguf_open_file(const char *path, struct fault *fault, struct gguf **out);

/* The least size of a key or tensor in the directory.  It bounds a count before the count is trusted. */
#define GGUF_KEY_MIN_BYTES    (8 + 1 + 4 + 1)
#define GGUF_TENSOR_MIN_BYTES (8 + 1 + 4 + 4 + 8)

/* Read count keys (tensors) at the reader's position into gguf.  The fault names the error and its place. */
int gguf_read_keys(struct gguf *gguf, struct reader *reader, uint64_t count, struct fault *fault);
int gguf_read_tensors(struct gguf *gguf, struct reader *reader, uint64_t count, struct fault *fault);
/* Reads a name: a length, then that many bytes, 1..GGUF_MAX_NAME_BYTES, without NUL. what, for the fault:
 * "key" or "tensor". */
int gguf_read_name(struct reader *reader, const char *what, uint64_t number, struct fault *fault,
                   struct bytes *out);

/* Bytes of one item of a fixed-width type; 0: string, array or unknown. */
size_t gguf_kind_bytes(uint32_t kind);
const char *gguf_kind_name(enum gguf_kind kind); /* "u32" */

const struct gguf_key *gguf_find_key(const struct gguf *gguf, struct bytes name); /* NULL: absent */
struct bytes gguf_item_str(const struct gguf_key *key, uint64_t index); /* an item of a string array */

typedef struct bytes (*gguf_name_of)(const struct gguf *gguf, uint32_t number);
int gguf_index_init(struct gguf_index *index, uint64_t n_names);
void gguf_index_fini(struct gguf_index *index);
/* Adds the name of entry `number`.  E_EXISTS: the name is in the index already. */
int gguf_index_add(struct gguf_index *index, const struct gguf *gguf, gguf_name_of name_of, uint32_t number);
/* Returns the entry's number, or UINT32_MAX. */
uint32_t gguf_index_find(const struct gguf_index *index, const struct gguf *gguf, gguf_name_of name_of,
                         struct bytes name);

#endif
