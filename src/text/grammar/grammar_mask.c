/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens that fit a state.
 *
 *     state = { config, config, ... }      mask = union of its configs' parts
 *
 *     config's part:   walk the tokens from this node alone, on top of FRAME_BOTTOM
 *         "ab     stays inside its rule            fits, for any caller
 *         "x"     ends just where the rule ends    fits, for any caller
 *         "x",    goes on after the rule's end     *escapes*: only the caller can tell
 *
 * A part depends on the node but not on the frames.  So it is computed once and cached, for any depth and
 * place of the value.  A state's mask is the tokens of its parts, plus the escapes, which are walked on from
 * the state that the return leads to.  That is some hundreds of tree nodes instead of the vocabulary.  The
 * mask is cached too: while an answer stays in one state, as in a string, the next mask is a pointer.
 *
 * Two kinds of config would still have to walk the whole vocabulary, and avoid it.  Inside strings the plain
 * tokens are known beforehand (grammar_vocab.c).  In free text only tokens with a byte that begins a mark are
 * tried.  Parts that allow few tokens are lists, others bitmaps. */
#include "text/grammar/grammar_run_priv.h"

#include "base/check.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

#define LIST_MAX 128u /* most tokens in a mask that is a list */

struct part {
    struct config key; /* need and room reduced to what one token can distinguish; frame only for free text */
    struct mask mask;  /* far: distance to the end of the rule (free text: of the answer) */
    uint32_t *escapes; /* [n_escapes] nodes of the tree */
    uint32_t n_escapes, cap_escapes;
    bool is_special; /* escapes are nodes of the tree of special tokens */
};

/* ---- masks as lists and bitmaps ---- */

static void set_ids(uint64_t *bits, const token_id *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        bits[ids[i] / 64] |= UINT64_C(1) << (ids[i] % 64);
}

static void lay_over(uint64_t *bits, const struct mask *mask, uint32_t n_words)
{
    if (mask->bits == NULL) {
        set_ids(bits, mask->ids, mask->n);
        return;
    }
    for (uint32_t i = 0; i < n_words; i++)
        bits[i] |= mask->bits[i];
}

/* Stores the set bits in mask. */
static bool keep_bits(struct grammar *grammar, const uint64_t *bits, struct mask *mask)
{
    uint32_t n_words = grammar->vocab->n_words, n = 0;

    for (uint32_t i = 0; i < n_words; i++)
        n += (uint32_t)__builtin_popcountll(bits[i]);
    mask->n = n;
    if (n > LIST_MAX) {
        mask->bits = malloc(n_words * sizeof(*bits));
        if (mask->bits == NULL)
            return false;
        memcpy(mask->bits, bits, n_words * sizeof(*bits));
        grammar->mask_bytes += n_words * sizeof(*bits);
        return true;
    }
    mask->ids = malloc((n + 1) * sizeof(*mask->ids));
    if (mask->ids == NULL)
        return false;
    n = 0;
    for (uint32_t i = 0; i < n_words; i++)
        for (uint64_t word = bits[i]; word != 0; word &= word - 1)
            mask->ids[n++] = i * 64 + (uint32_t)__builtin_ctzll(word);
    grammar->mask_bytes += (n + 1) * sizeof(*mask->ids);
    return true;
}

static void mask_fini(struct mask *mask)
{
    free(mask->bits);
    free(mask->ids);
}

const uint64_t *mask_bits(struct grammar *grammar, const struct mask *mask)
{
    if (mask->bits != NULL)
        return mask->bits;
    memset(grammar->scratch, 0, grammar->vocab->n_words * sizeof(uint64_t));
    set_ids(grammar->scratch, mask->ids, mask->n);
    return grammar->scratch;
}

/* ---- walks ---- */

struct walk {
    struct grammar *grammar;
    const struct trie *trie;
    struct part *part; /* NULL: no escapes are recorded */
    uint64_t *bits;
    uint32_t far;
    uint32_t left; /* a token counts only if at most this distance to the end is left after it */
};

static void note_escape(struct walk *walk, uint32_t node)
{
    struct part *part = walk->part;

    if (part->n_escapes == part->cap_escapes) {
        uint32_t cap = part->cap_escapes == 0 ? 16 : part->cap_escapes * 2;
        uint32_t *grown = realloc(part->escapes, cap * sizeof(*grown));
        if (grown == NULL) {
            walk->grammar->machine.is_bad = true;
            return;
        }
        walk->grammar->mask_bytes += (cap - part->cap_escapes) * sizeof(*grown);
        part->escapes = grown;
        part->cap_escapes = cap;
    }
    part->escapes[part->n_escapes++] = node;
}

/* Records the tokens that end at node; state is the state they lead to. */
static void note_tokens(struct walk *walk, uint32_t node, const struct state *state)
{
    const struct trie_node *nodes = walk->trie->nodes;
    uint32_t dist = state->dist;

    if (dist > walk->left &&
        mask_tokens_to_end(walk->grammar, (uint32_t)(state - walk->grammar->machine.states)) > walk->left)
        return;
    for (uint32_t i = nodes[node].ids; i < nodes[node + 1].ids; i++) {
        token_id id = walk->trie->ids[i];
        walk->bits[id / 64] |= UINT64_C(1) << (id % 64);
    }
    walk->far = dist > walk->far ? dist : walk->far;
}

/* Walks all tokens below node that can be read from state. */
static void walk_below(struct walk *walk, uint32_t node, uint32_t state)
{
    struct machine *machine = &walk->grammar->machine;
    const struct trie_node *nodes = walk->trie->nodes;
    uint32_t *way = walk->grammar->walk, end = nodes[node].skip, top = nodes[node].depth;

    way[0] = state;
    for (uint32_t i = node + 1; i < end && !machine->is_bad;) {
        uint32_t depth = nodes[i].depth - top;
        const uint32_t *row = machine->states[way[depth - 1]].row;
        uint32_t to = row == NULL ? STATE_NONE : row[nodes[i].byte];

        if (to == STATE_NONE) {
            to = machine_step(machine, way[depth - 1], nodes[i].byte);
            machine->is_tired = machine->n_visits > VISITS_MAX;
        }
        if (to == STATE_DEAD) {
            i = nodes[i].skip;
            continue;
        }
        const struct state *there = &machine->states[to];
        bool is_live = there->n_configs > 0, is_escaped = there->is_escaped;
        way[depth] = to;
        if (nodes[i].ids < nodes[i + 1].ids)
            note_tokens(walk, i, there);
        if (is_escaped && walk->part != NULL && nodes[i].skip > i + 1)
            note_escape(walk, i);
        i = is_live ? i + 1 : nodes[i].skip;
    }
}

/* ---- parts ---- */

static void grammar_mask_fill_string(struct walk *walk, const struct config *key)
{
    const struct grammar_vocab *vocab = walk->grammar->vocab;
    uint32_t room = key->room;

    for (uint32_t i = 0; i < vocab->n_words && room == GRAPH_UNBOUNDED; i++)
        walk->bits[i] |= vocab->plain[i];
    for (uint32_t id = 0; id < vocab->n_tokens && room != GRAPH_UNBOUNDED; id++)
        walk->bits[id / 64] |= (uint64_t)(vocab->n_chars[id] != 0 && vocab->n_chars[id] <= room) << (id % 64);
    walk->far = key->need + 1;
    walk->trie = &vocab->special;
    walk->part->is_special = true;
}

static void try_token(struct walk *walk, uint32_t state, token_id id)
{
    struct machine *machine = &walk->grammar->machine;
    struct bytes piece = tokenizer_piece(walk->grammar->vocab->tokenizer, id);

    for (size_t i = 0; i < piece.len_bytes && state != STATE_DEAD; i++)
        state = machine_next(machine, state, piece.data[i]);
    if (state == STATE_DEAD)
        return;
    set_ids(walk->bits, &id, 1);
    walk->far = machine->states[state].dist > walk->far ? machine->states[state].dist : walk->far;
}

/* Tokens that neither continue a mark nor contain a first byte of one fit without a walk. */
static void fill_free(struct walk *walk, const struct config *key, uint32_t state)
{
    const struct grammar_vocab *vocab = walk->grammar->vocab;
    const struct node *node = &walk->grammar->graph.nodes[key->pc];
    const struct free_text *text = &walk->grammar->graph.frees[node->a];
    uint64_t starts = 0;
    bool is_onward[256];

    walk->far = machine_config_dist(&walk->grammar->machine, key);
    for (unsigned byte = 0; byte < 256; byte++) {
        is_onward[byte] = text->next[key->need][byte] != 0;
        if (text->starts[byte >> 3] >> (byte & 7) & 1)
            starts |= UINT64_C(1) << (byte & 63);
    }
    for (uint32_t i = 0; i < vocab->n_words; i++) {
        walk->bits[i] |= vocab->text[i];
        for (uint64_t word = vocab->text[i]; word != 0 && text->n_places > 1; word &= word - 1) {
            token_id id = i * 64 + (uint32_t)__builtin_ctzll(word);

            if ((vocab->signatures[id] & starts) == 0 && !is_onward[vocab->first_bytes[id]])
                continue;
            walk->bits[i] &= ~(word & -word);
            try_token(walk, state, id);
        }
    }
}

static bool fill_part(struct grammar *grammar, struct part *part)
{
    struct walk walk = {grammar, &grammar->vocab->all, part, grammar->part_bits, 0, GRAPH_FAR};
    struct config from = part->key;
    bool is_free = grammar->graph.nodes[from.pc].kind == NODE_FREE;

    memset(walk.bits, 0, grammar->vocab->n_words * sizeof(*walk.bits));
    from.frame = is_free ? from.frame : FRAME_BOTTOM;
    uint32_t state = machine_start(&grammar->machine, from);
    if (is_free)
        fill_free(&walk, &part->key, state);
    else if (from.pc == 0)
        grammar_mask_fill_string(&walk, &part->key);
    if (!is_free)
        walk_below(&walk, 0, state);
    part->mask.far = walk.far;
    part->mask.is_cut = grammar->machine.is_tired;
    return keep_bits(grammar, walk.bits, &part->mask) && !grammar->machine.is_bad;
}

static struct config grammar_mask_key_of(const struct grammar *grammar, const struct config *config)
{
    uint32_t most = grammar->vocab->all.max_depth;
    struct config key = *config;

    if (grammar->graph.nodes[config->pc].kind == NODE_FREE)
        return key;
    key.frame = FRAME_BOTTOM;
    key.need = key.need > most ? most : key.need;
    key.room = key.room > most ? GRAPH_UNBOUNDED : key.room;
    return key;
}

static uint32_t grammar_mask_hash_key(const struct config *key)
{
    uint64_t hash = ((uint64_t)key->pc << 32 | key->need) * UINT64_C(0x9e3779b97f4a7c15);

    hash ^= ((uint64_t)key->room << 32 | key->frame) * UINT64_C(0xc2b2ae3d27d4eb4f);
    return (uint32_t)(hash >> 29);
}

static bool grow_parts(struct grammar *grammar)
{
    uint32_t cap = grammar->cap_parts == 0 ? 64 : grammar->cap_parts * 2;
    struct part **grown = calloc(cap, sizeof(*grown));

    if (grown == NULL)
        return false;
    for (uint32_t i = 0; i < grammar->cap_parts; i++) {
        if (grammar->parts[i] == NULL)
            continue;
        uint32_t at = grammar_mask_hash_key(&grammar->parts[i]->key) & (cap - 1);
        while (grown[at] != NULL)
            at = (at + 1) & (cap - 1);
        grown[at] = grammar->parts[i];
    }
    free(grammar->parts);
    grammar->parts = grown;
    grammar->cap_parts = cap;
    return true;
}

/* Repeats a part whose search was cut short; the steps cached since then make it go further. */
static struct part *go_on_with(struct grammar *grammar, struct part *part)
{
    if (!part->mask.is_cut || grammar->machine.is_tired)
        return part;
    mask_fini(&part->mask);
    free(part->escapes);
    *part = (struct part){.key = part->key};
    return fill_part(grammar, part) ? part : NULL;
}

/* The part of config, cached; NULL: no memory. */
static struct part *grammar_mask_part_of(struct grammar *grammar, const struct config *config)
{
    struct config key = grammar_mask_key_of(grammar, config);

    if (grammar->n_parts * 2 >= grammar->cap_parts && !grow_parts(grammar))
        return NULL;
    uint32_t at = grammar_mask_hash_key(&key) & (grammar->cap_parts - 1);
    for (; grammar->parts[at] != NULL; at = (at + 1) & (grammar->cap_parts - 1))
        if (memcmp(&grammar->parts[at]->key, &key, sizeof(key)) == 0)
            return go_on_with(grammar, grammar->parts[at]);

    struct part *part = calloc(1, sizeof(*part));
    if (part == NULL)
        return NULL;
    part->key = key;
    grammar->mask_bytes += sizeof(*part);
    grammar->parts[at] = part;
    grammar->n_parts++;
    return fill_part(grammar, part) ? part : NULL;
}

/* ---- states ---- */

/* The greatest distance to the end that the tokens of config's part leave. */
static uint32_t part_far(const struct grammar *grammar, const struct part *part, const struct config *config)
{
    if (grammar->graph.nodes[config->pc].kind == NODE_FREE)
        return part->mask.far;
    return part->mask.far + (config->need - part->key.need) + grammar->machine.frames[config->frame].dist;
}

static void add_config(struct walk *walk, const struct config *config)
{
    struct grammar *grammar = walk->grammar;
    struct machine *machine = &grammar->machine;
    const struct part *part = grammar_mask_part_of(grammar, config);

    if (part == NULL) {
        machine->is_bad = true;
        return;
    }
    uint32_t far = part_far(grammar, part, config);
    lay_over(walk->bits, &part->mask, grammar->vocab->n_words);
    walk->far = far > walk->far ? far : walk->far;
    if (part->n_escapes == 0)
        return;

    uint32_t after = machine_return(machine, config->frame);
    if (after == STATE_DEAD || machine->states[after].n_configs == 0)
        return;
    walk->trie = part->is_special ? &grammar->vocab->special : &grammar->vocab->all;
    for (uint32_t i = 0; i < part->n_escapes; i++)
        walk_below(walk, part->escapes[i], after);
}

static void add_stops(struct grammar *grammar, uint64_t *bits)
{
    size_t n;
    const token_id *stops = tokenizer_stop_ids(grammar->vocab->tokenizer, &n);

    for (size_t i = 0; i < n; i++)
        if (stops[i] < grammar->vocab->n_tokens)
            set_ids(bits, &stops[i], 1);
}

/* Adds a state's control tokens, since walks see only bytes. */
static void add_tokens(struct walk *walk, uint32_t state)
{
    struct machine *machine = &walk->grammar->machine;

    for (uint32_t i = 0; i < machine->states[state].n_configs; i++) {
        const struct node *node =
            &walk->grammar->graph.nodes[machine->configs[machine->states[state].configs + i].pc];
        if (node->kind != NODE_TOKEN)
            continue;
        uint32_t to = machine_token(machine, state, node->a), dist = machine->states[to].dist;
        if (dist > walk->left && mask_tokens_to_end(walk->grammar, to) > walk->left)
            continue;
        set_ids(walk->bits, &node->a, 1);
        walk->far = dist > walk->far ? dist : walk->far;
    }
}

/* True if every token of the parts leaves enough tokens to end.  (Escapes are checked one by one.) */
static bool parts_suffice(struct walk *walk, uint32_t state)
{
    struct grammar *grammar = walk->grammar;
    struct machine *machine = &grammar->machine;

    for (uint32_t i = 0; i < machine->states[state].n_configs; i++) {
        struct config config = machine->configs[machine->states[state].configs + i];
        if (grammar->graph.nodes[config.pc].kind == NODE_TOKEN)
            continue;
        const struct part *part = grammar_mask_part_of(grammar, &config);
        if (part == NULL || part_far(grammar, part, &config) > walk->left)
            return false;
    }
    return true;
}

static void grammar_mask_walk_state(struct walk *walk, uint32_t state)
{
    struct machine *machine = &walk->grammar->machine;

    if (machine->states[state].is_deep || !parts_suffice(walk, state)) {
        walk->trie = &walk->grammar->vocab->all;
        walk_below(walk, 0, state);
    } else {
        for (uint32_t i = 0; i < machine->states[state].n_configs; i++) {
            struct config config = machine->configs[machine->states[state].configs + i];
            if (walk->grammar->graph.nodes[config.pc].kind != NODE_TOKEN)
                add_config(walk, &config);
        }
    }
    add_tokens(walk, state);
}

/* Adds the first token of the shortest way, even where the search was cut short or few tokens are left. */
static void grammar_mask_rest(struct walk *walk, uint32_t state)
{
    struct machine *machine = &walk->grammar->machine;
    bool is_wanted = machine->is_tired || walk->left < GRAPH_FAR;
    token_id id;

    machine->is_tired = false;
    if (is_wanted && (id = mask_first_token(walk->grammar, state)) != TOKEN_NONE) {
        set_ids(walk->bits, &id, 1);
        walk->far = machine->states[state].dist > walk->far ? machine->states[state].dist : walk->far;
    }
    machine->n_visits = 0;
}

static void forget_mask(struct state *state)
{
    if (state->mask != NULL)
        mask_fini(state->mask);
    free(state->mask);
    state->mask = NULL;
}

static bool grammar_mask_is_empty(const struct grammar *grammar, const uint64_t *bits)
{
    for (uint32_t i = 0; i < grammar->vocab->n_words; i++)
        if (bits[i] != 0)
            return false;
    return true;
}

const struct mask *mask_of(struct grammar *grammar, uint32_t state)
{
    struct machine *machine = &grammar->machine;
    struct walk walk = {grammar, &grammar->vocab->all, NULL, grammar->state_bits, 0, GRAPH_FAR};

    if (machine->states[state].mask != NULL && !machine->states[state].mask->is_cut)
        return machine->states[state].mask;
    if (machine->states[state].mask != NULL)
        forget_mask(&machine->states[state]);
    machine->n_visits = 0;
    memset(walk.bits, 0, grammar->vocab->n_words * sizeof(*walk.bits));
    grammar_mask_walk_state(&walk, state);
    bool is_cut = machine->is_tired;
    grammar_mask_rest(&walk, state);
    if (machine->states[state].is_complete)
        add_stops(grammar, walk.bits);
    else if (grammar_mask_is_empty(grammar, walk.bits)) { /* the vocabulary lacks necessary bytes */
        machine->states[state].is_stuck = true;
        add_stops(grammar, walk.bits);
    }

    struct mask *mask = calloc(1, sizeof(*mask));
    if (mask == NULL || !keep_bits(grammar, walk.bits, mask) || machine->is_bad) {
        if (mask != NULL)
            mask_fini(mask);
        free(mask);
        return NULL;
    }
    mask->far = walk.far;
    mask->is_cut = is_cut;
    machine->states[state].mask = mask;
    return mask;
}

void mask_within(struct grammar *grammar, uint32_t state, uint32_t left, uint64_t *bits)
{
    struct walk walk = {grammar, &grammar->vocab->all, NULL, bits, 0, left};

    memset(bits, 0, grammar->vocab->n_words * sizeof(*bits));
    grammar->machine.n_visits = 0;
    grammar_mask_walk_state(&walk, state);
    grammar_mask_rest(&walk, state);
    if (grammar->machine.states[state].is_complete)
        add_stops(grammar, bits);
}

void masks_forget(struct grammar *grammar)
{
    for (uint32_t i = 0; i < grammar->machine.n_states; i++)
        forget_mask(&grammar->machine.states[i]);
    for (uint32_t i = 0; i < grammar->cap_parts; i++) {
        if (grammar->parts[i] == NULL)
            continue;
        mask_fini(&grammar->parts[i]->mask);
        free(grammar->parts[i]->escapes);
        free(grammar->parts[i]);
        grammar->parts[i] = NULL;
    }
    grammar->n_parts = 0;
    grammar->mask_bytes = 0;
}
