/* SPDX-License-Identifier: Apache-2.0 */
/* The running half of the grammar engine: vocabularies as trees, states, masks and runs. */
#ifndef TEXT_GRAMMAR_GRAMMAR_RUN_PRIV_H
#define TEXT_GRAMMAR_GRAMMAR_RUN_PRIV_H

#include <stdatomic.h>

#include "text/grammar/grammar_priv.h"

/* ---- a vocabulary (grammar_vocab.c) ---- */

struct trie_node { /* nodes in the order of a walk, children after their parent */
    uint32_t skip; /* the first node outside this subtree */
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
    struct trie all;            /* all text tokens */
    struct trie special; /* text tokens that are not plain: quotes, escapes, controls, parts of characters */
    uint16_t *n_chars;   /* [n_tokens] characters of plain tokens, else 0 */
    uint32_t max_chars;
    uint64_t *plain;      /* mask of plain tokens: whole characters that need no escape in a JSON string */
    uint64_t *text;       /* mask: all text tokens */
    uint64_t *signatures; /* [n_tokens] the set of bytes in the token, folded to 64 bits */
    uint8_t *first_bytes; /* [n_tokens] */
};

struct grammar_vocab *grammar_vocab_hold(struct grammar_vocab *vocab);

/* ---- states (grammar_state.c) ---- */

#define STATE_NONE   UINT32_MAX /* not computed yet */
#define STATE_DEAD   0u
#define STATE_ENDED  1u /* after a stop id */
#define FRAME_ROOT   0u /* a return from it ends the answer */
#define FRAME_BOTTOM 1u /* a return from it leaves the part being computed (grammar_mask.c) */

#define CONFIGS_MAX    2048u /* of one state; further configs are left out, which only forbids more */
#define VISITS_MAX     150000u
#define FRAMES_SHALLOW 40u
#define FRAMES_LOCAL   80u
#define FRAMES_MAX     120u /* JSON parsers often stop at 128 levels */

struct config {
    uint32_t pc;
    uint32_t need, room; /* string: least and most characters still to come; free text: place in its marks */
    uint32_t frame;
};

struct frame {
    uint32_t pc; /* where to continue; a NODE_LOOP's own pc */
    uint32_t count;
    uint32_t parent;
    uint32_t depth;
    uint32_t dist; /* from here to the end of the answer */
    uint32_t hash;
    bool is_local; /* its chain ends at FRAME_BOTTOM */
};

struct mask { /* few tokens: a list; many: a bitmap */
    uint64_t *bits;
    token_id *ids;
    uint32_t n;   /* tokens */
    uint32_t far; /* greatest distance to the end after any of them */
    bool is_cut;  /* the search was cut short as too much work; the next request continues it */
};

struct state {
    uint32_t *row;    /* [256] next states, filled lazily */
    uint32_t configs; /* index of the first config */
    uint32_t n_configs;
    uint32_t hash;
    uint32_t dist;   /* least bytes to the end */
    uint32_t tokens; /* least tokens along the shortest way; 0: not computed yet */
    bool is_complete;
    bool is_escaped; /* a config has left the part being computed */
    bool is_stuck;   /* no token fits: only a stop id is allowed */
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
    uint32_t n_visits; /* nodes visited since the current mask began */
    bool is_tired;     /* too many visits: uncached steps lead nowhere for now */
    bool is_bad;       /* out of memory; the found configs are incomplete */
};

int machine_init(struct machine *machine, const struct graph *graph);
void machine_fini(struct machine *machine);
/* Parts of a step (grammar_state.c): begin, reach or keep some configs, find their state. */
void machine_begin(struct machine *machine);
void machine_reach(struct machine *machine, struct config config); /* adds it and its closure */
void machine_keep(struct machine *machine, const struct config *config);
uint32_t machine_intern(struct machine *machine);
uint32_t machine_add_state(struct machine *machine, uint32_t hash); /* without a look-up of equal states */
uint32_t machine_frame(struct machine *machine, uint32_t pc, uint32_t count, uint32_t parent);
uint32_t machine_config_dist(const struct machine *machine, const struct config *config);

/* grammar_step.c.  All return a state; without memory they return STATE_DEAD and set is_bad. */
uint32_t machine_start(struct machine *machine, struct config config); /* the state of this config */
uint32_t machine_step(struct machine *machine, uint32_t state, uint8_t byte);
uint32_t machine_token(struct machine *machine, uint32_t state, token_id id); /* reads a control token */
uint32_t machine_return(struct machine *machine, uint32_t frame); /* the rule of this frame ended */
uint32_t machine_close(struct machine *machine, uint32_t state,
                       uint32_t n_tokens); /* ends free texts that have all their tokens */
/* The first step of the shortest way to the end: a byte, or 256 + a control token's id. */
uint32_t machine_best(const struct machine *machine, uint32_t state);
/* The equal state in another machine of the same graph. */
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
    struct part **parts; /* masks of single configs, by hash (grammar_mask.c) */
    uint32_t n_parts, cap_parts;
    uint32_t states_max, configs_max, frames_max; /* beyond, states that no run needs are dropped */
    size_t mask_bytes;                            /* memory of all masks */
    uint64_t *scratch, *part_bits, *state_bits;   /* [n_words] */
    uint32_t *walk;                               /* [max_depth + 1] states on the way down */
    struct grammar_run *runs;                     /* list of all runs of this grammar */
};

struct grammar_step {
    uint32_t state;
    uint32_t n_free; /* tokens of the current free text so far */
};

struct grammar_run {
    struct grammar *grammar;
    struct grammar_run *next, **link;
    struct grammar_step *steps; /* [n_steps]; the last is the current one */
    uint32_t n_steps, cap_steps;
};

/* The mask of a state, cached; NULL: no memory. */
const struct mask *mask_of(struct grammar *grammar, uint32_t state);
const uint64_t *mask_bits(struct grammar *grammar, const struct mask *mask);
/* Sets the bits of tokens after which at most `left` more tokens suffice to end. */
void mask_within(struct grammar *grammar, uint32_t state, uint32_t left, uint64_t *bits);
void masks_forget(struct grammar *grammar);
/* grammar_short.c: a number of tokens that suffices to end, and the first of them (TOKEN_NONE: there is
 * none). */
uint32_t mask_tokens_to_end(struct grammar *grammar, uint32_t state);
token_id mask_first_token(struct grammar *grammar, uint32_t state);

#endif
