/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of baton-model make share. */
#ifndef MODEL_MAKE_PRIV_H
#define MODEL_MAKE_PRIV_H

#include "base/fault.h"
#include "base/rng.h"
#include "gguf/write.h"

struct make_shape {
    const char *arch;
    uint32_t n_layers;
    uint32_t hidden;
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t ffn;
    uint32_t vocab;
    uint32_t context;
    enum dtype type; /* of matrices; vectors are F32 */
    bool is_tied;
    const char *const *optional; /* optional tensors to write: parts of their names; NULL-ended */
    uint64_t seed;
};

enum { MAKE_MIN_VOCAB = 259 }; /* 256 bytes and three control tokens */
uint32_t make_max_vocab(void);

/* Tokeniser keys of a byte-level BPE with vocab entries: the bytes, made-up merges, ChatML's control tokens,
 * and a ChatML template. */
int make_vocabulary(struct gguf_writer *writer, uint32_t vocab);

/* Writes the architecture's keys.  Those in `set` ("KEY=VALUE", NULL-ended; KEY without the architecture's
 * name) replace the defaults.  E_INVAL for a malformed one. */
int make_keys(struct gguf_writer *writer, const struct make_shape *shape, const char *const *set,
              struct fault *fault);

/* Declares the tensors that the writer's keys need and writes the file, streaming random weights.  Shows
 * progress on stderr when that is a terminal.  E_CANCELLED after Ctrl-C: no file is left under path. */
int make_weights(struct gguf_writer *writer, const struct make_shape *shape, const char *path,
                 struct fault *fault, uint64_t *bytes_out);

/* A pool of quantised blocks of normal weights.
 * Draws n_weights from it into out and returns the bytes written. */
struct qblk_pool {
    uint8_t *qblks; /* owned; free() */
    uint32_t n, weights, bytes;
};
/* True if a model can be made of the type. */
bool make_can(enum dtype type);
struct qblk_draw { /* the weights to draw */
    enum dtype type;
    double deviation;
    const double *quantiles; /* [n_quantiles] of the normal distribution */
    unsigned n_quantiles;
};
int make_qblk_pool(const struct qblk_draw *draw, struct rng *rng, struct qblk_pool *out);
size_t make_from_pool(const struct qblk_pool *pool, struct rng *rng, size_t n_weights, uint8_t *out);

#endif
