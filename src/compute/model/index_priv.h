/* SPDX-License-Identifier: Apache-2.0 */
/* Sparse attention: the parts of struct model_state that its indexer needs (forward_index.c). */
#ifndef COMPUTE_MODEL_INDEX_PRIV_H
#define COMPUTE_MODEL_INDEX_PRIV_H

#include <stddef.h>
#include <stdint.h>

#include "compute/kernels/index.h"

enum { INDEX_MOST_HEADS = 256, INDEX_MOST_CHOSEN = 1 << 16 };

/* How a layer chooses the keys that a query attends to. */
enum index_kind {
    INDEX_NONE,  /* all keys */
    INDEX_OWN,   /* by an indexer of its own */
    INDEX_SHARED /* those of the last layer with an indexer */
};

struct index_choice { /* a key of a query */
    float score;
    uint32_t position;
};

struct index_state {
    float *low;                  /* [max_tokens] indexer's key, weights of its heads */
    float *q;                    /* [max_tokens][index_heads][index_dim] */
    struct index_choice *chosen; /* [max_tokens][index_top] by position, of queries with more keys */
    struct index_choice *parts;  /* [n_ranks][index_top] the best keys of a part of a query's keys ... */
    uint32_t *part_lengths;      /* [n_ranks] ... and how many there are */
    uint32_t n_parts;            /* of each query */
    float *gathered;             /* [INDEX_ROWS] chosen keys of a query, in blocks as in the arena, F32 */
    uint32_t *blocks;            /* numbers of those blocks */
    struct attn_item *items;     /* [max_items, or INDEX_ROWS] */
    uint32_t *rows;              /* [max_tokens] rows with more keys than they attend to ... */
    uint32_t *row_items;         /* ... and their items */
    uint32_t n_rows, first_row;  /* of all; of the group being gathered */
};

struct forward;
struct model;
struct model_state;
struct carving;

/* Before the layer's keys are complete: stores the indexer's keys beside them. */
void index_store(struct forward *f);
/* Chooses keys for each query that has more than index_top; in a layer with INDEX_OWN. */
void index_choose(struct forward *f);
/* Attention of all queries, each to its chosen keys. */
void index_attend(struct forward *f);
void index_lay_out(const struct model *model, struct model_state *state, struct carving *carving);

#endif
