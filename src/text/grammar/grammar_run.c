/* SPDX-License-Identifier: Apache-2.0 */
/* A compiled constraint, and an answer's way through it.
 *
 *     steps:  [ state | state | state ]      accept adds one, rewind drops some, commit keeps the last
 *
 * A run is only its list of states, so taking tokens back is free.  States and masks belong to the grammar,
 * which all runs of one constraint share.  When the grammar holds too much, it drops all states but the
 * current ones of its runs, and recomputes the others on demand. */
#include "text/grammar/grammar_run_priv.h"

#include "base/check.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

#define MASK_BYTES_MAX   (32u << 20)
#define STATES_MAX       30000u
#define ROWS_MAX         12000u
#define KEPT_CONFIGS_MAX (4u << 20) /* 64 MiB */
#define KEPT_FRAMES_MAX  (2u << 20)

static int grammar_run_compile(struct grammar *grammar, struct bytes text, struct fault *fault)
{
    const struct grammar_vocab *vocab = grammar->vocab;
    struct compile_ctx ctx = {.graph = &grammar->graph, .fault = fault, .tokenizer = vocab->tokenizer};
    uint32_t pc;
    int rc = graph_init(&grammar->graph);

    if (rc != 0)
        return fault_set(fault, rc, "out of memory");
    rc = compile_constraint(&ctx, text);
    if (rc == 0)
        rc = graph_finish(&grammar->graph, fault, &pc);
    if (rc != 0)
        return rc;
    grammar->scratch = calloc(vocab->n_words + 1, sizeof(uint64_t));
    grammar->part_bits = calloc(vocab->n_words + 1, sizeof(uint64_t));
    grammar->state_bits = calloc(vocab->n_words + 1, sizeof(uint64_t));
    grammar->walk = calloc((size_t)vocab->all.max_depth + 1, sizeof(uint32_t));
    grammar->states_max = STATES_MAX;
    grammar->configs_max = KEPT_CONFIGS_MAX;
    grammar->frames_max = KEPT_FRAMES_MAX;
    if (grammar->scratch == NULL || grammar->part_bits == NULL || grammar->state_bits == NULL ||
        grammar->walk == NULL || machine_init(&grammar->machine, &grammar->graph) != 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    return 0;
}

int grammar_new(struct grammar_vocab *vocab, struct bytes text, struct fault *fault, struct grammar **out)
{
    struct grammar *grammar = calloc(1, sizeof(*grammar));

    if (grammar == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    grammar->refs = 1;
    grammar->vocab = grammar_vocab_hold(vocab);
    int rc = grammar_run_compile(grammar, text, fault);
    if (rc != 0) {
        grammar_unref(grammar);
        return rc;
    }
    *out = grammar;
    return 0;
}

struct grammar *grammar_ref(struct grammar *grammar)
{
    grammar->refs++;
    return grammar;
}

void grammar_unref(struct grammar *grammar)
{
    if (grammar == NULL || --grammar->refs > 0)
        return;
    masks_forget(grammar);
    machine_fini(&grammar->machine);
    graph_fini(&grammar->graph);
    free(grammar->parts);
    free(grammar->walk);
    free(grammar->state_bits);
    free(grammar->part_bits);
    free(grammar->scratch);
    grammar_vocab_unref(grammar->vocab);
    free(grammar);
}

uint32_t grammar_vocab_size(const struct grammar *grammar)
{
    return grammar->vocab->n_tokens;
}

/* ---- forgetting ---- */

static int grammar_run_rebuild(struct grammar *grammar)
{
    struct machine fresh;
    int rc = machine_init(&fresh, &grammar->graph);

    for (struct grammar_run *run = grammar->runs; run != NULL && rc == 0; run = run->next)
        for (uint32_t i = 0; i < run->n_steps; i++)
            machine_move(&fresh, &grammar->machine, run->steps[i].state);
    if (rc != 0 || fresh.is_bad) {
        machine_fini(&fresh);
        return E_NOMEM;
    }
    /* all states exist now, so this cannot fail half way */
    for (struct grammar_run *run = grammar->runs; run != NULL; run = run->next)
        for (uint32_t i = 0; i < run->n_steps; i++)
            run->steps[i].state = machine_move(&fresh, &grammar->machine, run->steps[i].state);
    masks_forget(grammar);
    machine_fini(&grammar->machine);
    grammar->machine = fresh;
    grammar->states_max = fresh.n_states > STATES_MAX / 4 ? fresh.n_states * 4 : STATES_MAX;
    grammar->configs_max = fresh.n_configs > KEPT_CONFIGS_MAX / 4 ? fresh.n_configs * 4 : KEPT_CONFIGS_MAX;
    grammar->frames_max = fresh.n_frames > KEPT_FRAMES_MAX / 4 ? fresh.n_frames * 4 : KEPT_FRAMES_MAX;
    return 0;
}

static void grammar_run_tidy(struct grammar *grammar)
{
    struct machine *machine = &grammar->machine;

    machine->is_bad = false;
    if (machine->n_states > grammar->states_max || machine->n_rows > ROWS_MAX ||
        machine->n_configs > grammar->configs_max || machine->n_frames > grammar->frames_max)
        grammar_run_rebuild(grammar); /* without memory, nothing changes */
    if (grammar->mask_bytes > MASK_BYTES_MAX)
        masks_forget(grammar);
}

/* ---- runs ---- */

static int push_step(struct grammar_run *run, struct grammar_step step)
{
    if (run->n_steps == run->cap_steps) {
        uint32_t cap = run->cap_steps == 0 ? 64 : run->cap_steps * 2;
        struct grammar_step *grown = realloc(run->steps, cap * sizeof(*grown));
        if (grown == NULL)
            return E_NOMEM;
        run->steps = grown;
        run->cap_steps = cap;
    }
    run->steps[run->n_steps++] = step;
    return 0;
}

/* Ends free text that has all its tokens. */
static struct grammar_step count_free(struct grammar *grammar, struct grammar_step step)
{
    if (!grammar->machine.states[step.state].is_free) {
        step.n_free = 0;
        return step;
    }
    for (uint32_t i = 0; i < grammar->graph.n_frees; i++)
        if (grammar->graph.frees[i].max_tokens <= step.n_free) {
            step.state = machine_close(&grammar->machine, step.state, step.n_free);
            break;
        }
    return step;
}

int grammar_run_new(struct grammar *grammar, struct grammar_run **out)
{
    struct grammar_run *run = calloc(1, sizeof(*run));

    if (run == NULL)
        return E_NOMEM;
    grammar_run_tidy(grammar);
    uint32_t pc = grammar->graph.rules[grammar->graph.start];
    struct grammar_step first = {.state = machine_start(&grammar->machine, (struct config){.pc = pc})};
    first = count_free(grammar, first);
    if (grammar->machine.is_bad || push_step(run, first) != 0) {
        free(run->steps);
        free(run);
        return E_NOMEM;
    }
    run->grammar = grammar_ref(grammar);
    run->next = grammar->runs;
    run->link = &grammar->runs;
    if (run->next != NULL)
        run->next->link = &run->next;
    grammar->runs = run;
    *out = run;
    return 0;
}

void grammar_run_free(struct grammar_run *run)
{
    if (run == NULL)
        return;
    *run->link = run->next;
    if (run->next != NULL)
        run->next->link = run->link;
    grammar_unref(run->grammar);
    free(run->steps);
    free(run);
}

static bool grammar_run_is_stop(const struct grammar_vocab *vocab, token_id id)
{
    size_t n;
    const token_id *stops = tokenizer_stop_ids(vocab->tokenizer, &n);

    for (size_t i = 0; i < n; i++)
        if (stops[i] == id)
            return true;
    return false;
}

/* The step after id; STATE_DEAD: id is not allowed. */
static struct grammar_step step_after(struct grammar *grammar, struct grammar_step step, token_id id)
{
    const struct grammar_vocab *vocab = grammar->vocab;
    struct machine *machine = &grammar->machine;

    if (id >= vocab->n_tokens)
        return (struct grammar_step){STATE_DEAD, 0};
    if (grammar_run_is_stop(vocab, id) &&
        (machine->states[step.state].is_complete || machine->states[step.state].is_stuck))
        return (struct grammar_step){STATE_ENDED, 0};
    if (vocab->text[id / 64] >> (id % 64) & 1) {
        struct bytes piece = tokenizer_piece(vocab->tokenizer, id);
        for (size_t i = 0; i < piece.len_bytes && step.state != STATE_DEAD; i++)
            step.state = machine_next(machine, step.state, piece.data[i]);
    } else {
        step.state = machine_token(machine, step.state, id);
    }
    step.n_free++;
    return count_free(grammar, step);
}

int grammar_accept(struct grammar_run *run, token_id id)
{
    grammar_run_tidy(run->grammar);

    struct grammar_step after = step_after(run->grammar, run->steps[run->n_steps - 1], id);
    if (run->grammar->machine.is_bad)
        return E_NOMEM;
    if (after.state == STATE_DEAD)
        return E_INVAL;
    return push_step(run, after);
}

void grammar_rewind(struct grammar_run *run, uint32_t n)
{
    ASSERT(n < run->n_steps);
    run->n_steps -= n;
}

void grammar_commit(struct grammar_run *run)
{
    run->steps[0] = run->steps[run->n_steps - 1];
    run->n_steps = 1;
}

bool grammar_is_complete(const struct grammar_run *run)
{
    return run->grammar->machine.states[run->steps[run->n_steps - 1].state].is_complete;
}

const uint64_t *grammar_mask(struct grammar_run *run, uint32_t tokens_left)
{
    struct grammar *grammar = run->grammar;

    grammar_run_tidy(grammar);
    uint32_t state = run->steps[run->n_steps - 1].state;
    const struct mask *mask = mask_of(grammar, state);
    if (mask == NULL) { /* no memory: no token is allowed, so the answer ends */
        memset(grammar->scratch, 0, grammar->vocab->n_words * sizeof(uint64_t));
        return grammar->scratch;
    }
    if (tokens_left > 0 && mask->far >= tokens_left && state != STATE_ENDED &&
        mask_tokens_to_end(grammar, state) <= tokens_left) {
        mask_within(grammar, state, tokens_left - 1, grammar->scratch);
        return grammar->scratch;
    }
    return mask_bits(grammar, mask);
}

uint32_t grammar_forced(struct grammar_run *run, token_id *ids_out, uint32_t max)
{
    struct grammar *grammar = run->grammar;
    uint32_t n = 0;

    grammar_run_tidy(grammar);
    for (struct grammar_step step = run->steps[run->n_steps - 1]; n < max; n++) {
        const struct mask *mask = mask_of(grammar, step.state);
        if (mask == NULL || mask->n != 1 || grammar_run_is_stop(grammar->vocab, mask->ids[0]))
            break;
        step = step_after(grammar, step, mask->ids[0]);
        if (step.state == STATE_DEAD || grammar->machine.is_bad)
            break;
        ids_out[n] = mask->ids[0];
    }
    return n;
}
