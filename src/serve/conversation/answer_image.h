/* SPDX-License-Identifier: Apache-2.0 */
/* A remembered answer as bytes, for the store that several routers share.
 *
 *     version 1 | base_tokens 4 | base_sum 8 | n_opening 4 | n_ids 4 | n_blocks 4 | flags 1
 *     ids 4 each | rest | thinking | blocks: kind 1, text, id, name, input, sorted, drawn id        texts: length 4, bytes
 *
 * Numbers are little endian.  Pure; any thread. */
#ifndef SERVE_CONVERSATION_ANSWER_IMAGE_H
#define SERVE_CONVERSATION_ANSWER_IMAGE_H

#include "serve/conversation/answer_cache.h"

/* Appends the image.  E_NOMEM. */
int answer_image_pack(const struct cached_answer *answer, struct buf *out);
/* Makes the answer, with one reference.  vocab_size: of its model.  E_VERSION, E_TRUNCATED, E_FORMAT, E_NOMEM. */
int answer_image_parse(struct bytes image, uint32_t vocab_size, struct cached_answer **out);

#endif
