/* SPDX-License-Identifier: Apache-2.0 */
/* Checks whether a request's constraints can be enforced.
 *
 *     schemas of tools and answer ──> known? ──no──> compiled together, with one request's steps ──> verdict
 *     the resulting constraint ─────> known? ──no──> compiled, as a worker will do it            ──> verdict
 *
 * The first check tells the client which schema and which keyword is at fault.  The second gives the
 * worker's own verdict ahead of time: families that write arguments as tags restrict strings more than
 * JSON does, and the whole constraint has a size limit of its own.  So a request is refused here, with
 * the name of its fault, or not at all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "serve/prompt/constraint_priv.h"
#include "serve/prompt/verdicts.h"
#include "text/grammar/grammar.h"

#define PATH_BYTES 64

bool constraint_is_forced(const struct gen_request *request)
{
    return request->n_tools > 0 &&
           (request->tool_choice == GEN_TOOLS_ANY || request->tool_choice == GEN_TOOLS_ONE);
}

bool constraint_has_schemas(const struct gen_request *request)
{
    bool has_strict = false;

    for (size_t i = 0; i < request->n_tools && !has_strict; i++)
        has_strict = request->tools[i].is_strict;
    return has_strict || constraint_is_forced(request) || request->format == GEN_FORMAT_JSON_SCHEMA;
}

static bool constraint_check_is_openai(const struct gen_request *request)
{
    return request->call_prefix != NULL || request->n_prompts > 0;
}

void constraint_tool_path(const struct gen_request *request, size_t tool, char *out, size_t out_bytes)
{
    snprintf(out, out_bytes,
             request->response != NULL             ? "tools.%zu.parameters"
             : constraint_check_is_openai(request) ? "tools.%zu.function.parameters"
                                                   : "tools.%zu.input_schema",
             tool);
}

static const char *format_path(const struct gen_request *request)
{
    if (request->response != NULL)
        return "text.format.schema";
    return constraint_check_is_openai(request) ? "response_format.json_schema.schema"
                                               : "output_config.format.schema";
}

static int constraint_check_refuse(struct api_error *error, int rc, const struct fault *fault)
{
    if (rc == E_NOMEM) {
        api_fail(error, 503, "out of memory");
        return rc;
    }
    api_fail(error, 400, "%s", fault->text);
    return E_FORMAT;
}

struct checks { /* the schemas of a request that must be enforced */
    struct grammar_schema *list;
    char (*paths)[PATH_BYTES];
    size_t n;
};

static int constraint_check_collect(const struct constraint *constraint, struct checks *checks)
{
    const struct gen_request *request = constraint->request;

    checks->list = calloc(request->n_tools + 1, sizeof(*checks->list));
    checks->paths = calloc(request->n_tools + 1, sizeof(*checks->paths));
    if (checks->list == NULL || checks->paths == NULL)
        return E_NOMEM;
    for (size_t i = 0; i < request->n_tools; i++) {
        const struct gen_tool *tool = &request->tools[i];
        char *path = checks->paths[checks->n];

        if (!tool->is_strict && !(constraint_is_forced(request) && constraint_may_call(constraint, tool)))
            continue;
        constraint_tool_path(request, i, path, PATH_BYTES);
        checks->list[checks->n++] = (struct grammar_schema){tool->input_schema, path, true};
    }
    if (request->format == GEN_FORMAT_JSON_SCHEMA)
        checks->list[checks->n++] = (struct grammar_schema){request->schema, format_path(request), false};
    return 0;
}

static void put_question(const struct checks *checks, struct buf *out)
{
    for (size_t i = 0; i < checks->n; i++) {
        buf_printf(out, "%s %zu ", checks->list[i].path, checks->list[i].text.len_bytes);
        buf_append(out, checks->list[i].text.data, checks->list[i].text.len_bytes);
    }
}

static int check_all(const struct checks *checks, struct verdicts *verdicts, struct fault *fault)
{
    struct verdict_key key;
    struct buf question = {0};
    int rc;

    put_question(checks, &question);
    rc = question.is_bad ? E_NOMEM : verdicts_key(buf_view(&question), &key);
    buf_fini(&question);
    if (rc < 0 || verdicts_find(verdicts, &key, &rc, fault))
        return rc;
    rc = grammar_check_schemas(checks->list, checks->n, fault, NULL);
    verdicts_keep(verdicts, &key, rc, fault);
    return rc;
}

int constraint_check_schemas(const struct constraint *constraint, struct verdicts *verdicts,
                             struct api_error *error)
{
    struct checks checks = {0};
    struct fault fault = {0};
    int rc;

    if (!constraint_has_schemas(constraint->request))
        return 0;
    rc = constraint_check_collect(constraint, &checks);
    if (rc == 0 && checks.n > 0)
        rc = check_all(&checks, verdicts, &fault);
    free(checks.list);
    free(checks.paths);
    return rc == 0 ? 0 : constraint_check_refuse(error, rc, &fault);
}

/* An error in a property between tags has its path; an error of the whole gets the tools' path, or the
 * answer's. */
static void name_whole(const struct gen_request *request, int rc, struct fault *fault)
{
    struct fault found = *fault;
    const char *path = request->n_tools > 0 ? "tools" : format_path(request);
    const char *text = found.text[0] == '$' ? found.text + strspn(found.text, "$: ") : found.text;

    if (strncmp(found.text, "tools.", 6) != 0)
        fault_set(fault, rc, "%s: together: %.400s", path, text);
}

int constraint_check_whole(const struct constraint *constraint, const struct gen_model *model,
                           struct api_error *error)
{
    struct verdict_key key;
    struct fault fault = {0};
    int rc = verdicts_key(buf_view(constraint->out), &key);

    if (rc == 0 && !verdicts_find(model->verdicts, &key, &rc, &fault)) {
        rc = grammar_check(model->tokenizer, buf_view(constraint->out), &fault, NULL);
        verdicts_keep(model->verdicts, &key, rc, &fault);
    }
    if (rc < 0 &&
        rc != E_NOMEM) /* requests of several APIs share the verdict, and name the place as their API does */
        name_whole(constraint->request, rc, &fault);
    return rc == 0 ? 0 : constraint_check_refuse(error, rc, &fault);
}
