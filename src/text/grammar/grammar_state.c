/* SPDX-License-Identifier: Apache-2.0 */
/* An answer's possible positions in its graph, computed on demand.
 *
 *     state 7 --'['--> state 9 = { (digit,      frames: item, array, end),      frames hang together:
 *                                  ("]",        frames: array, end), ... }       item -> array -> end
 *
 * The text so far may have several readings, so a state is a set of configs: a node that reads, with the
 * frames to return to.  Reading a byte moves every config that accepts it.  Then each follows all nodes that
 * read nothing (the closure) to the next nodes that read.  Frames, states and rows of next states are cached
 * and found by hash, so a path that was walked before costs one look-up a byte.
 *
 * Configs that cannot reach the end are never made, so every state but the dead one can be completed.  Calls
 * nest without bound in the graph but not here: beyond FRAMES_MAX only the shortest way on is kept, which
 * always leads back up. */
#include "text/grammar/grammar_run_priv.h"

#include "base/check.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

static uint32_t grammar_state_mix(uint32_t hash, uint32_t value)
{
    hash = (hash ^ value) * 0x9e3779b1u;
    return hash ^ (hash >> 15);
}

/* ---- tables: slots hold index + 1 ---- */

static bool table_grow(struct table *table, uint32_t hash_of(const void *arg, uint32_t index),
                       const void *arg)
{
    uint32_t size = table->slots == NULL ? 256 : (table->mask + 1) * 2;
    uint32_t *slots = calloc(size, sizeof(*slots));

    if (slots == NULL)
        return false;
    for (uint32_t i = 0; table->slots != NULL && i <= table->mask; i++) {
        if (table->slots[i] == 0)
            continue;
        uint32_t at = hash_of(arg, table->slots[i] - 1) & (size - 1);
        while (slots[at] != 0)
            at = (at + 1) & (size - 1);
        slots[at] = table->slots[i];
    }
    free(table->slots);
    table->slots = slots;
    table->mask = size - 1;
    return true;
}

static uint32_t frame_hash(const void *arg, uint32_t index)
{
    return ((const struct machine *)arg)->frames[index].hash;
}

static uint32_t state_hash(const void *arg, uint32_t index)
{
    return ((const struct machine *)arg)->states[index].hash;
}

/* ---- frames ---- */

static uint32_t loop_dist(const struct graph *graph, const struct node *node, uint32_t count)
{
    uint32_t min = graph->bounds[node->b].min;
    uint64_t left = min > count ? min - count : 0;
    uint64_t dist = left * graph->dist[graph->rules[node->a]] + graph->dist[node->next];

    return dist < GRAPH_FAR ? (uint32_t)dist : GRAPH_FAR;
}

static uint32_t add_far(uint32_t a, uint32_t b)
{
    return a + b < GRAPH_FAR ? a + b : GRAPH_FAR;
}

/* Finds or makes the frame (pc, count) on parent.  After a failure: FRAME_ROOT and is_bad. */
uint32_t machine_frame(struct machine *machine, uint32_t pc, uint32_t count, uint32_t parent)
{
    const struct node *node = &machine->graph->nodes[pc];
    uint32_t hash = grammar_state_mix(grammar_state_mix(grammar_state_mix(0, pc), count), parent);
    struct table *table = &machine->frame_table;

    if (table->n * 2 >= table->mask && !table_grow(table, frame_hash, machine)) {
        machine->is_bad = true;
        return FRAME_ROOT;
    }
    uint32_t at = hash & table->mask;
    for (; table->slots[at] != 0; at = (at + 1) & table->mask) {
        const struct frame *frame = &machine->frames[table->slots[at] - 1];
        if (frame->hash == hash && frame->pc == pc && frame->count == count && frame->parent == parent)
            return table->slots[at] - 1;
    }
    if (!graph_grow(&machine->frames, &machine->cap_frames, machine->n_frames + 1, sizeof(struct frame))) {
        machine->is_bad = true;
        return FRAME_ROOT;
    }
    const struct frame *below = &machine->frames[parent];
    uint32_t own =
        node->kind == NODE_LOOP ? loop_dist(machine->graph, node, count) : machine->graph->dist[pc];
    machine->frames[machine->n_frames] = (struct frame){.pc = pc,
                                                        .count = count,
                                                        .parent = parent,
                                                        .depth = below->depth + 1,
                                                        .dist = add_far(own, below->dist),
                                                        .is_local = below->is_local,
                                                        .hash = hash};
    table->slots[at] = ++machine->n_frames;
    table->n++;
    return machine->n_frames - 1;
}

uint32_t machine_config_dist(const struct machine *machine, const struct config *config)
{
    uint32_t own = config->pc < STR_N_PLACES ? string_dist((uint8_t)config->pc) + config->need + 1
                                             : machine->graph->dist[config->pc];

    return add_far(own, machine->frames[config->frame].dist);
}

/* ---- closures ---- */

static bool grammar_state_is_same(const struct config *a, const struct config *b)
{
    return a->pc == b->pc && a->frame == b->frame && a->need == b->need && a->room == b->room;
}

/* True the first time that config is seen in this round. */
static bool is_new(struct machine *machine, const struct config *config)
{
    uint32_t at = grammar_state_mix(
        grammar_state_mix(grammar_state_mix(grammar_state_mix(1, config->pc), config->need), config->room),
        config->frame);

    for (uint32_t tries = 0; tries < 64; tries++) {
        struct seen *seen = &machine->seen[(at + tries) & machine->seen_mask];
        if (seen->round != machine->round) {
            *seen = (struct seen){*config, machine->round};
            return true;
        }
        if (grammar_state_is_same(&seen->config, config))
            return false;
    }
    return false; /* table too full: left out, like configs beyond CONFIGS_MAX */
}

static void grammar_state_push(struct machine *machine, uint32_t *n, struct config config)
{
    if (!graph_grow(&machine->todo, &machine->cap_todo, *n + 1, sizeof(config)))
        machine->is_bad = true;
    else
        machine->todo[(*n)++] = config;
}

void machine_keep(struct machine *machine, const struct config *config)
{
    if (machine->n_found >= CONFIGS_MAX)
        return;
    if (!graph_grow(&machine->found, &machine->cap_found, machine->n_found + 1, sizeof(*config)))
        machine->is_bad = true;
    else
        machine->found[machine->n_found++] = *config;
}

static void enter_loop(struct machine *machine, uint32_t *n, const struct config *config)
{
    const struct graph *graph = machine->graph;
    const struct node *node = &graph->nodes[config->pc];
    struct bounds bounds = graph->bounds[node->b];
    uint32_t count = config->need;

    if (count >= bounds.min)
        grammar_state_push(machine, n, (struct config){.pc = node->next, .frame = config->frame});
    if (count < bounds.max && graph->dist[graph->rules[node->a]] < GRAPH_FAR) {
        /* without a maximum, all counts beyond the minimum are equal */
        uint32_t after = bounds.max == GRAPH_UNBOUNDED && count >= bounds.min ? bounds.min : count + 1;
        uint32_t frame = machine_frame(machine, config->pc, after, config->frame);
        grammar_state_push(machine, n, (struct config){.pc = graph->rules[node->a], .frame = frame});
    }
}

static void enter_call(struct machine *machine, uint32_t *n, const struct config *config)
{
    const struct graph *graph = machine->graph;
    const struct node *node = &graph->nodes[config->pc];
    struct config called = {.pc = graph->rules[node->a], .frame = config->frame};

    if (graph->dist[called.pc] >= GRAPH_FAR)
        return;
    if (node->next != PC_RET)
        called.frame = machine_frame(machine, node->next, 0, config->frame);
    if (node->a == RULE_STR) {
        called.need = graph->bounds[node->b].min;
        called.room = graph->bounds[node->b].max;
    }
    grammar_state_push(machine, n, called);
}

static void leave_rule(struct machine *machine, uint32_t *n, uint32_t index)
{
    const struct frame *frame = &machine->frames[index];

    if (index == FRAME_ROOT)
        machine->found_end = true;
    else if (index == FRAME_BOTTOM)
        machine->found_escape = true;
    else /* a loop gets the count back as its need */
        grammar_state_push(machine, n,
                           (struct config){.pc = frame->pc, .need = frame->count, .frame = frame->parent});
}

static void grammar_state_visit(struct machine *machine, uint32_t *n, const struct config *config)
{
    const struct graph *graph = machine->graph;
    const struct node *node = &graph->nodes[config->pc];

    if (config->pc >= STR_N_PLACES && graph->dist[config->pc] >= GRAPH_FAR)
        return;
    switch ((enum node_kind)node->kind) {
    case NODE_STR:
    case NODE_BYTE:
    case NODE_TOKEN:
        machine_keep(machine, config);
        break;
    case NODE_FREE:
        machine_keep(machine, config);
        grammar_state_push(machine, n, (struct config){.pc = node->next, .frame = config->frame});
        break;
    case NODE_RET:
        leave_rule(machine, n, config->frame);
        break;
    case NODE_SPLIT:
        grammar_state_push(machine, n, (struct config){.pc = node->a, .frame = config->frame});
        grammar_state_push(machine, n, (struct config){.pc = node->next, .frame = config->frame});
        break;
    case NODE_CALL:
        enter_call(machine, n, config);
        break;
    case NODE_LOOP:
        enter_loop(machine, n, config);
        break;
    case NODE_DEAD:
        break;
    }
}

void machine_begin(struct machine *machine)
{
    machine->round++;
    if (machine->round == 0) {
        memset(machine->seen, 0, (machine->seen_mask + 1) * sizeof(*machine->seen));
        machine->round = 1;
    }
    machine->n_found = 0;
    machine->found_end = machine->found_escape = false;
}

void machine_reach(struct machine *machine, struct config config)
{
    uint32_t n = 0;

    grammar_state_push(machine, &n, config);
    while (n > 0 && !machine->is_bad) {
        struct config now = machine->todo[--n];
        machine->n_visits++;
        if (is_new(machine, &now))
            grammar_state_visit(machine, &n, &now);
    }
}

/* Too deep: keeps only the configs nearest to the end. */
static void grammar_state_prune(struct machine *machine)
{
    uint32_t n = 0, nearest = GRAPH_FAR;
    bool is_deep = false;

    for (uint32_t i = 0; i < machine->n_found; i++) {
        const struct frame *frame = &machine->frames[machine->found[i].frame];
        uint32_t dist = machine_config_dist(machine, &machine->found[i]);

        is_deep |= frame->depth > (frame->is_local ? FRAMES_LOCAL : FRAMES_MAX);
        nearest = dist < nearest ? dist : nearest;
    }
    for (uint32_t i = 0; is_deep && i < machine->n_found; i++) {
        const struct frame *frame = &machine->frames[machine->found[i].frame];

        if (!frame->is_local ? machine_config_dist(machine, &machine->found[i]) == nearest
                             : frame->depth <= FRAMES_LOCAL)
            machine->found[n++] = machine->found[i];
    }
    if (is_deep)
        machine->n_found = n;
}

static int by_config(const void *left, const void *right)
{
    const struct config *a = left, *b = right;

    if (a->pc != b->pc)
        return a->pc < b->pc ? -1 : 1;
    if (a->frame != b->frame)
        return a->frame < b->frame ? -1 : 1;
    if (a->need != b->need)
        return a->need < b->need ? -1 : 1;
    return (a->room > b->room) - (a->room < b->room);
}

static void sort_found(struct machine *machine)
{
    if (machine->n_found > 8) {
        qsort(machine->found, machine->n_found, sizeof(struct config), by_config);
        return;
    }
    for (uint32_t i = 1; i < machine->n_found; i++) {
        struct config moved = machine->found[i];
        uint32_t j = i;
        for (; j > 0 && by_config(&machine->found[j - 1], &moved) > 0; j--)
            machine->found[j] = machine->found[j - 1];
        machine->found[j] = moved;
    }
}

static bool is_found(const struct machine *machine, const struct state *state, uint32_t hash)
{
    return state->hash == hash && state->n_configs == machine->n_found &&
           state->is_complete == machine->found_end && state->is_escaped == machine->found_escape &&
           (machine->n_found == 0 || memcmp(machine->configs + state->configs, machine->found,
                                            machine->n_found * sizeof(struct config)) == 0);
}

/* Appends the found configs as a new state. */
uint32_t machine_add_state(struct machine *machine, uint32_t hash)
{
    const struct graph *graph = machine->graph;
    struct state state = {.configs = machine->n_configs,
                          .n_configs = machine->n_found,
                          .hash = hash,
                          .is_complete = machine->found_end,
                          .is_escaped = machine->found_escape,
                          .dist = machine->found_end || machine->found_escape ? 0 : GRAPH_FAR};

    if (!graph_grow(&machine->states, &machine->cap_states, machine->n_states + 1, sizeof(state)) ||
        !graph_grow(&machine->configs, &machine->cap_configs, machine->n_configs + machine->n_found,
                    sizeof(struct config))) {
        machine->is_bad = true;
        return STATE_DEAD;
    }
    for (uint32_t i = 0; i < machine->n_found; i++) {
        const struct config *config = &machine->found[i];
        const struct node *node = &graph->nodes[config->pc];
        uint32_t dist = machine_config_dist(machine, config);

        machine->configs[machine->n_configs++] = *config;
        state.dist = dist < state.dist ? dist : state.dist;
        state.is_free |= node->kind == NODE_FREE && graph->frees[node->a].max_tokens != GRAPH_UNBOUNDED;
        state.is_deep |= machine->frames[config->frame].depth > FRAMES_SHALLOW;
    }
    machine->states[machine->n_states] = state;
    return machine->n_states++;
}

/* Finds or makes the state of the found configs. */
uint32_t machine_intern(struct machine *machine)
{
    struct table *table = &machine->state_table;
    uint32_t hash = grammar_state_mix(machine->found_end, machine->found_escape);

    grammar_state_prune(machine);
    if (machine->is_bad || (machine->n_found == 0 && !machine->found_end && !machine->found_escape))
        return STATE_DEAD;
    sort_found(machine);
    for (uint32_t i = 0; i < machine->n_found; i++) {
        const struct config *config = &machine->found[i];
        hash = grammar_state_mix(
            grammar_state_mix(grammar_state_mix(grammar_state_mix(hash, config->pc), config->frame),
                              config->need),
            config->room);
    }
    if (table->n * 2 >= table->mask && !table_grow(table, state_hash, machine)) {
        machine->is_bad = true;
        return STATE_DEAD;
    }
    uint32_t at = hash & table->mask;
    for (; table->slots[at] != 0; at = (at + 1) & table->mask)
        if (is_found(machine, &machine->states[table->slots[at] - 1], hash))
            return table->slots[at] - 1;

    uint32_t state = machine_add_state(machine, hash);
    if (machine->is_bad)
        return STATE_DEAD;
    table->slots[at] = state + 1;
    table->n++;
    return state;
}
