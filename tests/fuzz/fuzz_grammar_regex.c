/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as a pattern.  It is refused with a reason, or gives an automaton whose edges are
 * disjoint, ascending and valid, and which can be written into a graph. */
#include "text/grammar/grammar_auto_priv.h"

#include "base/check.h"
#include "base/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_dfa(const struct dfa *dfa)
{
    for (uint32_t state = 0; state < dfa->n_states; state++) {
        const struct dfa_edge *edges = dfa->edges + dfa->states[state].edges;

        for (uint32_t i = 0; i < dfa->states[state].n_edges; i++) {
            ASSERT(edges[i].lo <= edges[i].hi && edges[i].to < dfa->n_states);
            ASSERT(i == 0 || edges[i - 1].hi < edges[i].lo);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t budget = 300000;
    const char *reason = NULL;
    struct graph graph;
    struct nfa nfa;
    struct dfa dfa;
    uint32_t pc;

    if (regex_parse(bytes_of(data, size), &nfa, &reason) != 0) {
        ASSERT(reason != NULL);
        return 0;
    }
    int rc = dfa_build(&nfa, &budget, &dfa);
    nfa_fini(&nfa);
    if (rc != 0) {
        ASSERT(rc == E_LIMIT);
        return 0;
    }
    check_dfa(&dfa);
    ASSERT(graph_init(&graph) == 0);
    rc = dfa_write(&graph, &dfa, (struct bounds){0, size % 5 == 0 ? 3 : GRAPH_UNBOUNDED}, PC_RET, &pc);
    ASSERT(rc == 0 || rc == E_LIMIT);
    graph_fini(&graph);
    dfa_fini(&dfa);
    return 0;
}
