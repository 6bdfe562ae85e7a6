/* SPDX-License-Identifier: Apache-2.0 */
/* Compiling schemas and constraints only to check that it succeeds.
 *
 *     schema, path ──> rule ─┐
 *     schema, path ──> rule ─┼─ one graph, one step count ──> each can end; no endless loops
 *     schema, path ──> rule ─┘
 *
 * All schemas of a request go into one graph, as they do for its answer, so their work is limited together.
 * A fault names the schema in which it was found.  During compilation that is the current schema; afterwards
 * it is the schema that the refused node belongs to. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "text/grammar/grammar_priv.h"

/* Puts the schema's path at the beginning of the fault's text, in place of the compiler's "$". */
static int grammar_check_name(const char *path, int rc, struct fault *fault)
{
    struct fault found = *fault;
    size_t n = path == NULL ? 0 : strlen(path);

    if (rc == 0 || n == 0 || strncmp(found.text, path, n) == 0)
        return rc;
    if (found.text[0] == '$' && (found.text[1] == ':' || found.text[1] == '.'))
        return fault_set(fault, rc, "%s%.400s", path, found.text + 1);
    return fault_set(fault, rc, "%s: %.400s", path, found.text);
}

static int check_schema(struct compile_ctx *ctx, const struct grammar_schema *schema, uint32_t *rule_out)
{
    json_t *json = NULL;
    int rc = compile_load(ctx->graph, schema->text, ctx->fault, &json);

    ctx->path = schema->path;
    if (rc == 0)
        rc = compile_schema(ctx, json, schema->is_closed, rule_out);
    json_decref(json);
    return grammar_check_name(schema->path, rc, ctx->fault);
}

struct checked { /* a schema in the graph */
    uint32_t rule;
    uint32_t end; /* its nodes end before this one */
};

static int check_end(struct graph *graph, const struct grammar_schema *schemas, struct checked *checked,
                     size_t n, struct fault *fault)
{
    uint32_t pc;
    size_t i = 0;
    int rc = graph_finish(graph, fault, &pc);

    if (rc != 0) {
        while (i + 1 < n && pc >= checked[i].end)
            i++;
        return grammar_check_name(schemas[i].path, rc, fault);
    }
    for (; i < n && rc == 0; i++)
        if (graph->dist[graph->rules[checked[i].rule]] >= GRAPH_FAR)
            rc = grammar_check_name(schemas[i].path, fault_set(fault, E_FORMAT, GRAPH_NO_END), fault);
    return rc;
}

int grammar_check_schemas(const struct grammar_schema *schemas, size_t n, struct fault *fault,
                          uint64_t *steps_out)
{
    struct graph graph;
    struct compile_ctx ctx = {.graph = &graph, .fault = fault, .known = json_object()};
    struct checked *checked = calloc(n + 1, sizeof(*checked));
    int rc = graph_init(&graph);

    if (rc != 0 || checked == NULL || ctx.known == NULL)
        rc = fault_set(fault, E_NOMEM, "out of memory");
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = check_schema(&ctx, &schemas[i], &checked[i].rule);
        checked[i].end = graph.n_nodes;
    }
    if (rc == 0 && n > 0) {
        graph.start = checked[0].rule;
        rc = check_end(&graph, schemas, checked, n, fault);
    }
    if (steps_out != NULL)
        *steps_out = GRAMMAR_MAX_STEPS - graph.steps;
    json_decref(ctx.known);
    free(checked);
    graph_fini(&graph);
    return rc;
}

int grammar_check_schema(struct bytes schema, struct fault *fault)
{
    struct grammar_schema one = {.text = schema};

    return grammar_check_schemas(&one, 1, fault, NULL);
}

int grammar_check(const struct tokenizer *tokenizer, struct bytes text, struct fault *fault,
                  uint64_t *steps_out)
{
    struct graph graph;
    struct compile_ctx ctx = {.graph = &graph, .fault = fault, .tokenizer = tokenizer};
    uint32_t pc;
    int rc = graph_init(&graph);

    if (rc != 0)
        rc = fault_set(fault, rc, "out of memory");
    if (rc == 0)
        rc = compile_constraint(&ctx, text);
    if (rc == 0)
        rc = graph_finish(&graph, fault, &pc);
    if (steps_out != NULL)
        *steps_out = GRAMMAR_MAX_STEPS - graph.steps;
    graph_fini(&graph);
    return rc;
}
