/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of the answer of /v1/embeddings. */
#ifndef SERVE_API_RENDER_EMBEDDINGS_H
#define SERVE_API_RENDER_EMBEDDINGS_H

#include <stdbool.h>

#include "base/bytes.h"

struct api_embedding {
    uint32_t index;       /* of the input, from 0; index 0 also begins the answer */
    const float *numbers; /* [n_dims] */
    uint32_t n_dims;
    bool is_base64;
};

/* Appends numbers [from, to) of an embedding. from 0 begins the embedding, to n_dims ends it; from is a multiple of
 * API_EMBEDDING_PIECE. Append the embeddings in order, then the end. n_tokens: of all inputs together. */
#define API_EMBEDDING_PIECE 48u
int api_put_embedding(struct buf *out, const struct api_embedding *embedding, uint32_t from, uint32_t to);
int api_put_embeddings_end(struct buf *out, struct bytes model, uint64_t n_tokens);

#endif
