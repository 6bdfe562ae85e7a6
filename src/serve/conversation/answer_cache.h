/* SPDX-License-Identifier: Apache-2.0 */
/* The answer cache: recent answers of this front with the exact tokens that were sampled.  When a
 * conversation comes back, the front looks its answers up, so that the new prompt continues the earlier
 * one token for token. Without a hit, the front renders an answer from the text that the client sent.
 *
 * The cache is bounded in bytes and evicts the least recently used answer first.  It does not survive a
 * restart.  Any thread: a lock is held during a look-up; answers are immutable once put. */
#ifndef SERVE_CONVERSATION_ANSWER_CACHE_H
#define SERVE_CONVERSATION_ANSWER_CACHE_H

#include <stdatomic.h>

#include "serve/api/gen.h"
#include "base/list.h"
#include "text/token/chat.h"

struct answer_cache;

struct answer_key { /* identifies tenant, model, conversation and the answer's content */
    uint8_t bytes[32];
};

struct cached_answer {    /* all its pointers come from cached_answer_take() */
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
    bool is_keyless;         /* it lacks ids, blocks or large inputs in `sorted`: the cache cannot take it */
    struct bytes *drawn_ids; /* [n_blocks]: the model's own ids of its calls; NULL: the model gives none */

    struct answer_key key; /* the cache's own fields from here on */
    struct list node;
    struct cached_piece *pieces;
    size_t bytes;
    _Atomic uint32_t n_refs;
};

int answer_cache_new(size_t max_bytes, struct answer_cache **out);
void answer_cache_free(struct answer_cache *cache); /* NULL is fine; answers that callers hold stay valid */
/* Takes the answer and replaces an older one with this key.  An answer larger than the cache is dropped. */
void answer_cache_put(struct answer_cache *cache, const struct answer_key *key, struct cached_answer *answer);
/* Returns an answer that the caller holds until cached_answer_unref(); NULL: not found.  is_use: the
 * look-up counts as a use. */
struct cached_answer *answer_cache_get(struct answer_cache *cache, const struct answer_key *key, bool is_use);
bool answer_cache_has(struct answer_cache *cache, const struct answer_key *key); /* no use of it */
size_t answer_cache_count(struct answer_cache *cache);
size_t answer_cache_bytes(struct answer_cache *cache);

int cached_answer_new(struct cached_answer **out); /* empty, with one reference */
/* Allocates zeroed bytes for any object; they live as long as the answer.  NULL: no memory. */
void *cached_answer_take(struct cached_answer *answer, size_t len_bytes);
void cached_answer_unref(struct cached_answer *answer);

#endif
