/* SPDX-License-Identifier: Apache-2.0 */
/* The answer cache: recent answers of this front with the exact tokens that were sampled.  When a
 * conversation comes back, the front looks its answers up, so that the new prompt continues the earlier
 * one token for token. Without a hit, the front renders an answer from the text that the client sent.
 *
 * The cache is bounded in bytes and evicts the least recently used answer first.  It does not survive a
 * restart.  Any thread: a lock is held during a look-up; answers are immutable once put. */
#ifndef SERVE_CONVERSATION_MEMORY_H
#define SERVE_CONVERSATION_MEMORY_H

#include <stdatomic.h>

#include "serve/api/gen.h"
#include "base/list.h"
#include "text/token/chat.h"

struct memory;

struct memory_key { /* identifies tenant, model, conversation and the answer's content */
    uint8_t bytes[32];
};

struct memory_answer {    /* all its pointers come from memory_answer_take() */
    uint32_t base_tokens; /* of the prompt that it answered: see struct chat_drawn */
    uint64_t base_sum;
    token_id *ids; /* the ids that opened the turn, then the sampled ids */
    uint32_t n_opening, n_ids;
    struct bytes rest;
    bool has_thinking;
    struct bytes thinking;    /* empty: hidden from the client */
    struct gen_block *blocks; /* TEXT and TOOL_USE, as the client got them */
    size_t n_blocks;
    struct bytes *sorted;    /* [n_blocks]: inputs of TOOL_USE as api_json_sort() writes them */
    struct bytes *drawn_ids; /* [n_blocks]: the model's own ids of its calls; NULL: the model gives none */

    struct memory_key key; /* the cache's own fields from here on */
    struct list node;
    struct memory_piece *pieces;
    size_t bytes;
    _Atomic uint32_t n_refs;
};

int memory_new(size_t max_bytes, struct memory **out);
void memory_free(struct memory *memory); /* NULL is fine; answers that callers hold stay valid */
/* Takes the answer and replaces an older one with this key.  An answer larger than the cache is dropped. */
void memory_put(struct memory *memory, const struct memory_key *key, struct memory_answer *answer);
/* Returns an answer that the caller holds until memory_answer_unref(); NULL: not found.  is_use: the
 * look-up counts as a use. */
struct memory_answer *memory_get(struct memory *memory, const struct memory_key *key, bool is_use);
size_t memory_count(struct memory *memory);
size_t memory_bytes(struct memory *memory);

int memory_answer_new(struct memory_answer **out); /* empty, with one reference */
/* Allocates zeroed bytes for any object; they live as long as the answer.  NULL: no memory. */
void *memory_answer_take(struct memory_answer *answer, size_t len_bytes);
void memory_answer_unref(struct memory_answer *answer);

#endif
