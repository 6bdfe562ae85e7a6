/* SPDX-License-Identifier: Apache-2.0 */
/* What this front answered lately, with the very tokens drawn: looked up when a conversation comes back, so
 * that its prompt continues the one before token for token.
 *
 * Bounded in bytes, the least recently used goes first, and nothing is kept over a restart: an answer that is
 * not found is rendered from what the client sent.  Any thread: it has a lock, held for the time of a
 * look-up; answers that were put are immutable. */
#ifndef SERVE_CONVERSATION_MEMORY_H
#define SERVE_CONVERSATION_MEMORY_H

#include <stdatomic.h>

#include "serve/api/gen.h"
#include "base/list.h"
#include "text/token/chat.h"

struct memory;

struct memory_key { /* whose answer, by which model, in which conversation, and what it said */
    uint8_t bytes[32];
};

struct memory_answer {    /* what it points to is from memory_answer_take() */
    uint32_t base_tokens; /* of the prompt it answered: see struct chat_drawn */
    uint64_t base_sum;
    token_id *ids; /* what opened the turn, then what was drawn */
    uint32_t n_opening, n_ids;
    struct bytes rest;
    bool has_thinking;
    struct bytes thinking;    /* empty: hidden from the client */
    struct gen_block *blocks; /* TEXT and TOOL_USE, as the client got them */
    size_t n_blocks;
    struct bytes *sorted;    /* [n_blocks]: inputs of TOOL_USE as api_json_sort() writes them */
    struct bytes *drawn_ids; /* [n_blocks]: what the model called them, where it does; NULL: it does not */

    struct memory_key key; /* from here on the memory's own */
    struct list node;
    struct memory_piece *pieces;
    size_t bytes;
    _Atomic uint32_t n_refs;
};

int memory_new(size_t max_bytes, struct memory **out);
void memory_free(struct memory *memory); /* NULL is fine; answers held stay */
/* Takes the answer; an older one with this key goes.  One that is too large for the memory is dropped. */
void memory_put(struct memory *memory, const struct memory_key *key, struct memory_answer *answer);
/* Held until memory_answer_unref(); NULL: none such.  is_use: it counts as used now. */
struct memory_answer *memory_get(struct memory *memory, const struct memory_key *key, bool is_use);
size_t memory_count(struct memory *memory);
size_t memory_bytes(struct memory *memory);

int memory_answer_new(struct memory_answer **out); /* empty, held once */
/* Zeroed, lives as long as the answer, for any object.  NULL: no memory. */
void *memory_answer_take(struct memory_answer *answer, size_t len_bytes);
void memory_answer_unref(struct memory_answer *answer);

#endif
