/* SPDX-License-Identifier: Apache-2.0 */
/* The running half of the grammar engine: vocabularies as trees, states, masks and runs. */
#ifndef TEXT_GRAMMAR_GRAMMAR_RUN_PRIV_H
#define TEXT_GRAMMAR_GRAMMAR_RUN_PRIV_H

#include <stdatomic.h>

#include "text/grammar/grammar_priv.h"

/* ---- a vocabulary (grammar_vocab.c) ---- */

struct trie_node { /* in the order of a walk, children after their parent */
    uint32_t skip; /* the first node that is not below this one */
    uint32_t ids;  /* tokens that end here: ids[this .. next node's] */
    uint16_t depth;
    uint8_t byte;
};

struct trie {
    struct trie_node *nodes; /* [n + 1]; the first is the root, the last only ends the ids */
    uint32_t n;
    token_id *ids;
    uint16_t max_depth;
};

struct grammar_vocab {
    atomic_uint refs;
    struct tokenizer *tokenizer;
    uint32_t n_tokens, n_words; /* n_words: of 64 bits in a mask */
    struct trie all;            /* of text tokens */
    struct trie special; /* of those that are not plain: quotes, escapes, controls, parts of characters */
    uint16_t *n_chars;   /* [n_tokens] of plain tokens, else 0 */
    uint32_t max_chars;
    uint64_t *plain;      /* mask: whole characters that a JSON string has as they are */
    uint64_t *text;       /* mask: all text tokens */
    uint64_t *signatures; /* [n_tokens] which bytes occur, folded to 64 bits */
    uint8_t *first_bytes; /* [n_tokens] */
};

struct grammar_vocab *grammar_vocab_hold(struct grammar_vocab *vocab);

/* ---- states (grammar_state.c) ---- */

#define STATE_NONE   UINT32_MAX /* not computed yet */
#define STATE_DEAD   0u
#define STATE_ENDED  1u /* after a stop id */
#define FRAME_ROOT   0u /* returning from it ends the answer */
#define FRAME_BOTTOM 1u /* returning from it leaves the part that is looked at (grammar_mask.c) */

#define CONFIGS_MAX    2048u /* of one state; those beyond are left out, which only forbids more */
#define VISITS_MAX     150000u
#define FRAMES_SHALLOW 40u
#define FRAMES_LOCAL   80u
#define FRAMES_MAX     120u /* readers of JSON often stop at 128 levels */

struct config {
    uint32_t pc;
    uint32_t need,
        room; /* string: characters yet to come, at least and at most; free text: place in its marks */
    uint32_t frame;
};

struct frame {
    uint32_t pc; /* to go on at; a NODE_LOOP's own */
    uint32_t count;
    uint32_t parent;
    uint32_t depth;
    uint32_t dist; /* to the end of everything, from here */
    uint32_t hash;
    bool is_local; /* ends at FRAME_BOTTOM */
};

struct mask { /* few tokens are a list, many a bitmap */
    uint64_t *bits;
    token_id *ids;
    uint32_t n;   /* tokens */
    uint32_t far; /* distance to the end after any of them, at most */
    bool is_cut;  /* the search for it was too much work: to be gone on with when asked for again */
};

struct state {
    uint32_t *row;    /* [256] next states, lazily */
    uint32_t configs; /* where they begin */
    uint32_t n_configs;
    uint32_t hash;
    uint32_t dist;   /* least bytes to the end */
    uint32_t tokens; /* least tokens along the shortest way; 0: not known yet */
    bool is_complete;
    bool is_escaped; /* has left what is looked at */
    bool is_stuck;   /* no token fits: only a stop id may come */
    bool is_free;    /* has bounded free text */
    bool is_deep;    /* has a config with more than FRAMES_SHALLOW frames */
    struct mask *mask;
};

struct table { /* open addressing over hashes */
    uint32_t *slots;
    uint32_t mask;
    uint32_t n;
};

struct machine {
    const struct graph *graph;
    struct frame *frames;
    uint32_t n_frames, cap_frames;
    struct table frame_table;
    struct config *configs;
    uint32_t n_configs, cap_configs;
    struct state *states;
    uint32_t n_states, cap_states;
    struct table state_table;
    uint32_t n_rows;
    /* scratch of a closure */
    struct config *todo, *found;
    uint32_t cap_todo, n_found, cap_found;
    struct seen {
        struct config config;
        uint32_t round;
    } * seen;
    uint32_t round, seen_mask;
    bool found_end, found_escape;
    uint32_t n_visits; /* nodes looked at since a mask was begun */
    bool is_tired;     /* they were too many: steps that are not known yet lead nowhere for now */
    bool is_bad;       /* out of memory; what was found is not all */
};

int machine_init(struct machine *machine, const struct graph *graph);
void machine_fini(struct machine *machine);
/* Building blocks of a step (grammar_state.c): begin, reach or keep some configs, settle on their state. */
void machine_begin(struct machine *machine);
void machine_reach(struct machine *machine, struct config config); /* and what follows without reading */
void machine_keep(struct machine *machine, const struct config *config);
uint32_t machine_settle(struct machine *machine);
uint32_t machine_add_state(struct machine *machine, uint32_t hash); /* without looking whether it is there */
uint32_t machine_frame(struct machine *machine, uint32_t pc, uint32_t count, uint32_t parent);
uint32_t machine_config_dist(const struct machine *machine, const struct config *config);

/* grammar_step.c.  All give a state; after a lack of memory STATE_DEAD, and is_bad. */
uint32_t machine_start(struct machine *machine, struct config config); /* as if just reached */
uint32_t machine_step(struct machine *machine, uint32_t state, uint8_t byte);
uint32_t machine_token(struct machine *machine, uint32_t state, token_id id); /* a control token */
uint32_t machine_return(struct machine *machine, uint32_t frame); /* the rule whose frame this is ended */
uint32_t machine_close(struct machine *machine, uint32_t state,
                       uint32_t n_tokens); /* free texts that are full */
/* The first step of the shortest way: a byte, or 256 + a control token's id. */
uint32_t machine_best(const struct machine *machine, uint32_t state);
/* The same state in another machine of this graph. */
uint32_t machine_move(struct machine *to, const struct machine *from, uint32_t state);

static inline uint32_t machine_next(struct machine *machine, uint32_t state, uint8_t byte)
{
    const uint32_t *row = machine->states[state].row;

    if (row != NULL && row[byte] != STATE_NONE)
        return row[byte];
    return machine_step(machine, state, byte);
}

/* ---- masks (grammar_mask.c) and runs (grammar_run.c) ---- */

struct grammar {
    uint32_t refs;
    struct grammar_vocab *vocab;
    struct graph graph;
    struct machine machine;
    struct part **parts; /* masks of single configs, by hash; see grammar_mask.c */
    uint32_t n_parts, cap_parts;
    uint32_t states_max, configs_max, frames_max; /* beyond, what no run needs is forgotten */
    size_t mask_bytes;                            /* held by all masks */
    uint64_t *scratch, *part_bits, *state_bits;   /* [n_words] */
    uint32_t *walk;                               /* [max_depth + 1] states on the way down */
    struct grammar_run *runs;                     /* all of this grammar */
};

struct grammar_step {
    uint32_t state;
    uint32_t n_free; /* tokens of free text up to here */
};

struct grammar_run {
    struct grammar *grammar;
    struct grammar_run *next, **link;
    struct grammar_step *steps; /* [n_steps], the last is now */
    uint32_t n_steps, cap_steps;
};

/* The mask of a state, kept; NULL: no memory. */
const struct mask *mask_of(struct grammar *grammar, uint32_t state);
const uint64_t *mask_bits(struct grammar *grammar, const struct mask *mask);
/* Only tokens after which at most left more are enough to end. */
void mask_within(struct grammar *grammar, uint32_t state, uint32_t left, uint64_t *bits);
void masks_forget(struct grammar *grammar);
/* grammar_short.c: tokens that are surely enough to end, and the first of them (TOKEN_NONE: there is none).
 */
uint32_t mask_tokens_to_end(struct grammar *grammar, uint32_t state);
token_id mask_first_token(struct grammar *grammar, uint32_t state);

#endif
