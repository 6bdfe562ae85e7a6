/* SPDX-License-Identifier: Apache-2.0 */
/* Steps from state to state: by a byte, by a control token, by the end of free text; and the shortest way to
 * the end.
 *
 *     state --byte--> every config that accepts it, advanced     (row of next states, filled on demand)
 *
 * A step collects the configs that it leads to, and grammar_state.c finds or makes their state. */
#include "text/grammar/grammar_run_priv.h"

#include "base/check.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

uint32_t machine_start(struct machine *machine, struct config config)
{
    machine_begin(machine);
    machine_reach(machine, config);
    return machine_intern(machine);
}

uint32_t machine_return(struct machine *machine, uint32_t frame)
{
    return machine_start(machine, (struct config){.pc = PC_RET, .frame = frame});
}

/* ---- steps ---- */

static void read_byte(struct machine *machine, const struct config *config, uint8_t byte)
{
    const struct node *node = &machine->graph->nodes[config->pc];
    struct config to = {.frame = config->frame};

    if (node->kind == NODE_BYTE) {
        if (byte < node->lo || byte > node->hi)
            return;
        to.pc = node->next;
    } else if (node->kind == NODE_STR) {
        bool is_char;
        uint8_t place = string_next((uint8_t)config->pc, byte, &is_char);

        if (place == STR_DEAD || (place == STR_CLOSE && config->need > 0) || (is_char && config->room == 0))
            return;
        to.pc = place == STR_CLOSE ? PC_RET : place;
        if (place != STR_CLOSE) {
            to.need = config->need - (is_char && config->need > 0);
            to.room = config->room - (is_char && config->room != GRAPH_UNBOUNDED);
        }
    } else if (node->kind == NODE_FREE) {
        const struct free_text *text = &machine->graph->frees[node->a];

        to.need = text->next[config->need][byte];
        if (text->is_hit[to.need])
            return;
        to.pc = config->pc;
    } else {
        return;
    }
    machine_reach(machine, to);
}

uint32_t machine_step(struct machine *machine, uint32_t state, uint8_t byte)
{
    if (machine->is_tired)
        return STATE_DEAD;
    if (machine->states[state].row == NULL) {
        uint32_t *row = malloc(256 * sizeof(*row));
        if (row == NULL) {
            machine->is_bad = true;
            return STATE_DEAD;
        }
        memset(row, 0xff, 256 * sizeof(*row));
        machine->states[state].row = row;
        machine->n_rows++;
    }
    machine_begin(machine);
    for (uint32_t i = 0; i < machine->states[state].n_configs; i++) {
        struct config config = machine->configs[machine->states[state].configs + i];
        read_byte(machine, &config, byte);
    }
    uint32_t to = machine_intern(machine);
    if (!machine->is_bad)
        machine->states[state].row[byte] = to;
    return to;
}

uint32_t machine_token(struct machine *machine, uint32_t state, token_id id)
{
    machine_begin(machine);
    for (uint32_t i = 0; i < machine->states[state].n_configs; i++) {
        struct config config = machine->configs[machine->states[state].configs + i];
        const struct node *node = &machine->graph->nodes[config.pc];
        if (node->kind == NODE_TOKEN && node->a == id)
            machine_reach(machine, (struct config){.pc = node->next, .frame = config.frame});
    }
    return machine_intern(machine);
}

uint32_t machine_close(struct machine *machine, uint32_t state, uint32_t n_tokens)
{
    const struct graph *graph = machine->graph;

    machine_begin(machine);
    machine->found_end = machine->states[state].is_complete;
    machine->found_escape = machine->states[state].is_escaped;
    for (uint32_t i = 0; i < machine->states[state].n_configs; i++) {
        struct config config = machine->configs[machine->states[state].configs + i];
        const struct node *node = &graph->nodes[config.pc];
        if (node->kind != NODE_FREE || graph->frees[node->a].max_tokens > n_tokens)
            machine_keep(machine, &config);
    }
    return machine_intern(machine);
}

uint32_t machine_best(const struct machine *machine, uint32_t index)
{
    const struct state *state = &machine->states[index];
    const struct config *best = NULL;
    uint32_t nearest = GRAPH_FAR;

    for (uint32_t i = 0; i < state->n_configs; i++) {
        const struct config *config = &machine->configs[state->configs + i];
        uint32_t dist = machine_config_dist(machine, config);
        /* free text is as far from the end as the part after it, which is another config */
        if (dist < nearest && machine->graph->nodes[config->pc].kind != NODE_FREE) {
            nearest = dist;
            best = config;
        }
    }
    ASSERT(best != NULL);

    const struct node *node = &machine->graph->nodes[best->pc];
    if (node->kind == NODE_BYTE)
        return node->lo;
    if (node->kind == NODE_TOKEN)
        return 256 + node->a;
    if (best->pc == 0)
        return best->need > 0 ? 'a' : '"';
    for (uint32_t byte = 0x20; byte < 256; byte++) {
        bool is_char;
        uint8_t to = string_next((uint8_t)best->pc, (uint8_t)byte, &is_char);
        if (to < STR_CLOSE && string_dist(to) < string_dist((uint8_t)best->pc))
            return byte;
    }
    return '"';
}

/* ---- the whole ---- */

int machine_init(struct machine *machine, const struct graph *graph)
{
    *machine = (struct machine){.graph = graph, .seen_mask = 4 * CONFIGS_MAX - 1};
    machine->seen = calloc(machine->seen_mask + 1, sizeof(*machine->seen));
    machine->frames = calloc(64, sizeof(struct frame));
    machine->cap_frames = 64;
    if (machine->seen == NULL || machine->frames == NULL)
        return E_NOMEM;
    machine->n_frames = 2;
    machine->frames[FRAME_ROOT] = (struct frame){.pc = PC_RET};
    machine->frames[FRAME_BOTTOM] = (struct frame){.pc = PC_RET, .is_local = true};

    machine_begin(machine);
    uint32_t dead =
        machine_add_state(machine, 0); /* not in the hash table, so no look-up returns these two */
    machine->found_end = true;
    uint32_t ended = machine_add_state(machine, 0);
    return machine->is_bad || dead != STATE_DEAD || ended != STATE_ENDED ? E_NOMEM : 0;
}

void machine_fini(struct machine *machine)
{
    for (uint32_t i = 0; i < machine->n_states; i++)
        free(machine->states[i].row);
    free(machine->states);
    free(machine->configs);
    free(machine->frames);
    free(machine->frame_table.slots);
    free(machine->state_table.slots);
    free(machine->todo);
    free(machine->found);
    free(machine->seen);
    *machine = (struct machine){0};
}

static uint32_t move_frame(struct machine *to, const struct machine *from, uint32_t index)
{
    const struct frame *frame = &from->frames[index];

    if (index == FRAME_ROOT || index == FRAME_BOTTOM)
        return index;
    return machine_frame(to, frame->pc, frame->count, move_frame(to, from, frame->parent));
}

uint32_t machine_move(struct machine *to, const struct machine *from, uint32_t index)
{
    const struct state *state = &from->states[index];

    if (index == STATE_DEAD || index == STATE_ENDED)
        return index;
    machine_begin(to);
    to->found_end = state->is_complete;
    to->found_escape = state->is_escaped;
    for (uint32_t i = 0; i < state->n_configs; i++) {
        struct config config = from->configs[state->configs + i];
        config.frame = move_frame(to, from, config.frame);
        machine_keep(to, &config);
    }
    return machine_intern(to);
}
