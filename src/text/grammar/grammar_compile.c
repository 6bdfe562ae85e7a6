/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints (grammar.h) -> graph.
 *
 *     {"seq": [{"mark": "<tool_call>"}, {"text": "\n"}, {"json": {...}}]}
 *
 *         o--<tool_call>-->o--\n-->o--call schema's rule-->(end)
 *
 * A constraint is written from its end to its beginning.  Constraints come from this project's own formats,
 * but their schemas come from clients, so the whole text is untrusted.  Its size, depth and number of values
 * are checked before it is parsed. */
#include "text/grammar/grammar_priv.h"

#include "base/err.h"
#include "text/json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH  200u
#define MAX_VALUES 400000u
#define MAX_MARKS  64u

/* Bounds depth and number of values by the brackets and commas outside strings, a cheap upper bound. */
static int grammar_compile_measure(struct graph *graph, struct bytes text, struct fault *fault)
{
    size_t depth = 0, n_values = 1;
    bool is_string = false;

    for (size_t i = 0; i < text.len_bytes; i++) {
        uint8_t byte = text.data[i];

        if (is_string) {
            i += byte == '\\';
            is_string = byte != '"';
        } else if (byte == '"') {
            is_string = true;
        } else if (byte == '{' || byte == '[') {
            depth++;
            n_values++;
        } else if (byte == '}' || byte == ']') {
            depth -= depth > 0;
        } else if (byte == ',') {
            n_values++;
        }
        if (depth > MAX_DEPTH)
            return fault_set(fault, E_LIMIT, "$: nested deeper than %u", MAX_DEPTH);
    }
    if (graph_spend(graph, STEPS_OF_READ * (uint64_t)n_values + text.len_bytes / 2) != 0)
        return fault_set(fault, E_LIMIT, "$: too much work for one request");
    return n_values > MAX_VALUES ? fault_set(fault, E_LIMIT, "$: more than %u values", MAX_VALUES) : 0;
}

int compile_load(struct graph *graph, struct bytes text, struct fault *fault, json_t **out)
{
    static const char prefix[] = "not valid JSON: ";
    struct fault why = {0};

    if (text.len_bytes > GRAPH_MAX_TEXT_BYTES)
        return fault_set(fault, E_LIMIT, "$: more than %u bytes", GRAPH_MAX_TEXT_BYTES);
    int rc = grammar_compile_measure(graph, text, fault);
    if (rc != 0)
        return rc;
    rc = api_json_load(text, &why, out);
    if (rc == E_FORMAT)
        fault_set(fault, rc, "$: not JSON: %s",
                  why.text + (strncmp(why.text, prefix, sizeof(prefix) - 1) == 0 ? sizeof(prefix) - 1 : 0));
    else if (rc < 0)
        fault_set(fault, rc, "$: %s", why.text);
    return rc;
}

/* Arguments are an object; it has no properties if the schema does not mention any. */
static int close_object(json_t *schema)
{
    static const char *const says[] = {"properties",    "additionalProperties",
                                       "required",      "patternProperties",
                                       "minProperties", "maxProperties",
                                       "$ref",          "allOf",
                                       "anyOf",         "oneOf",
                                       "enum",          "const",
                                       "not",           "if",
                                       "propertyNames", "unevaluatedProperties"};
    json_t *type = json_object_get(schema, "type");

    if (!json_is_object(schema) ||
        (type != NULL && (!json_is_string(type) || strcmp(json_string_value(type), "object") != 0)))
        return 0;
    for (size_t i = 0; i < sizeof(says) / sizeof(says[0]); i++)
        if (json_object_get(schema, says[i]) != NULL)
            return 0;
    return json_object_set_new(schema, "type", json_string("object")) == 0 &&
                   json_object_set_new(schema, "properties", json_object()) == 0
               ? 0
               : E_NOMEM;
}

int compile_schema(struct compile_ctx *ctx, json_t *schema, bool is_closed, uint32_t *rule_out)
{
    struct known_key key;
    const char *name = is_closed ? "arguments" : "schema";
    char kind[24];
    int rc = is_closed ? close_object(schema) : 0;

    if (ctx->root != NULL && api_json_mentions(schema, "$ref"))
        snprintf(kind, sizeof(kind), "%s %u", name, ctx->root->number);
    else
        snprintf(kind, sizeof(kind), "%s", name);
    if (rc != 0 || known_find(ctx, kind, schema, &key, rule_out))
        return rc;
    rc = schema_compile(ctx, schema, is_closed, rule_out);
    return rc == 0 ? known_keep(ctx, &key, *rule_out) : rc;
}

static int grammar_compile_compile(struct compile_ctx *ctx, json_t *constraint, uint32_t next,
                                   uint32_t *pc_out);

static int grammar_compile_refuse(struct compile_ctx *ctx, const char *what)
{
    return fault_set(ctx->fault, E_FORMAT, "constraint: %s", what);
}

static struct bytes grammar_compile_text_of(const json_t *json)
{
    return bytes_of(json_string_value(json), json_string_length(json));
}

/* The control token with this spelling, or TOKEN_NONE. */
static token_id mark_id(const struct compile_ctx *ctx, struct bytes spelling)
{
    token_id id = ctx->tokenizer == NULL ? TOKEN_NONE : tokenizer_find(ctx->tokenizer, spelling);

    return id == TOKEN_NONE || tokenizer_is_text(ctx->tokenizer, id) ? TOKEN_NONE : id;
}

static int compile_mark(struct compile_ctx *ctx, json_t *text, uint32_t next, uint32_t *pc_out)
{
    if (!json_is_string(text) || json_string_length(text) == 0)
        return grammar_compile_refuse(ctx, "a mark is a text");

    token_id id = mark_id(ctx, grammar_compile_text_of(text));
    *pc_out = id == TOKEN_NONE
                  ? graph_text(ctx->graph, grammar_compile_text_of(text), next)
                  : graph_node(ctx->graph, (struct node){.kind = NODE_TOKEN, .a = id, .next = next});
    return 0;
}

static int grammar_compile_free(struct compile_ctx *ctx, json_t *free_text, uint32_t next, uint32_t *pc_out)
{
    json_t *until = json_object_get(free_text, "until"), *most = json_object_get(free_text, "max_tokens");
    struct bytes marks[MAX_MARKS];
    size_t n = 0;
    uint32_t index, max_tokens = GRAPH_UNBOUNDED;
    struct known_key key;

    if (!json_is_object(free_text) || (until != NULL && !json_is_array(until)) ||
        json_array_size(until) > MAX_MARKS || (most != NULL && !json_is_integer(most)))
        return grammar_compile_refuse(ctx, "free text has until: [text, ...] and max_tokens: number");
    for (size_t i = 0; i < json_array_size(until); i++) {
        json_t *mark = json_array_get(until, i);
        if (!json_is_string(mark) || json_string_length(mark) == 0)
            return grammar_compile_refuse(ctx, "a mark is a text");
        if (mark_id(ctx, grammar_compile_text_of(mark)) ==
            TOKEN_NONE) /* free text has no control tokens anyway */
            marks[n++] = grammar_compile_text_of(mark);
    }
    if (most != NULL) {
        if (json_integer_value(most) < 0 || json_integer_value(most) >= GRAPH_UNBOUNDED)
            return grammar_compile_refuse(ctx, "max_tokens out of range");
        max_tokens = (uint32_t)json_integer_value(most);
    }
    if (!known_find(ctx, "free", free_text, &key, &index)) {
        int rc = graph_free(ctx->graph, marks, n, max_tokens, &index);
        if (rc == 0)
            rc = known_keep(ctx, &key, index);
        if (rc != 0)
            return fault_set(ctx->fault, rc, "constraint: too much free text, or marks too long");
    }
    *pc_out = graph_node(ctx->graph, (struct node){.kind = NODE_FREE, .a = index, .next = next});
    return 0;
}

static int compile_rep(struct compile_ctx *ctx, json_t *constraint, uint32_t next, uint32_t *pc_out)
{
    json_t *body = json_object_get(constraint, "rep"), *min = json_object_get(constraint, "min");
    json_t *max = json_object_get(constraint, "max");
    struct bounds times = {0, GRAPH_UNBOUNDED};
    uint32_t rule = graph_rule(ctx->graph), pc;

    if ((min != NULL && (!json_is_integer(min) || json_integer_value(min) < 0)) ||
        (max != NULL && (!json_is_integer(max) || json_integer_value(max) < 0)))
        return grammar_compile_refuse(ctx, "min and max are numbers");
    if (json_integer_value(min) > GRAPH_MAX_REPEAT || json_integer_value(max) > GRAPH_MAX_REPEAT)
        return fault_set(ctx->fault, E_LIMIT, "constraint: repeated more than %u times", GRAPH_MAX_REPEAT);
    times.min = (uint32_t)json_integer_value(min);
    if (max != NULL)
        times.max = (uint32_t)json_integer_value(max);
    if (times.min > times.max)
        return grammar_compile_refuse(ctx, "min is more than max");
    int rc = grammar_compile_compile(ctx, body, PC_RET, &pc);
    if (rc != 0)
        return rc;
    if (!ctx->graph->is_full)
        ctx->graph->rules[rule] = pc;
    *pc_out = graph_loop(ctx->graph, rule, times, next);
    return 0;
}

static bool are_texts(json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_string(json_object_get(json_array_get(list, i), "text")))
            return false;
    return true;
}

/* One of many texts, such as the names of tools. */
static int compile_texts(struct compile_ctx *ctx, json_t *list, uint32_t next, uint32_t *pc_out)
{
    size_t n = json_array_size(list);
    struct bytes *texts;

    if (graph_spend(ctx->graph, STEPS_OF_VALUE * (uint64_t)n) != 0)
        return fault_set(ctx->fault, E_LIMIT, "$: too much work for one request");
    texts = calloc(n, sizeof(*texts));
    if (texts == NULL)
        return E_NOMEM;
    for (size_t i = 0; i < n; i++)
        texts[i] = grammar_compile_text_of(json_object_get(json_array_get(list, i), "text"));
    *pc_out = graph_texts(ctx->graph, texts, n, next);
    free(texts);
    return 0;
}

static int compile_list(struct compile_ctx *ctx, json_t *list, bool is_seq, uint32_t next, uint32_t *pc_out)
{
    uint32_t ways = PC_DEAD, pc;

    if (!json_is_array(list) || (!is_seq && json_array_size(list) == 0))
        return grammar_compile_refuse(ctx, "seq and any hold a list of constraints");
    if (!is_seq && are_texts(list))
        return compile_texts(ctx, list, next, pc_out);
    for (size_t i = json_array_size(list); i > 0; i--) {
        int rc = grammar_compile_compile(ctx, json_array_get(list, i - 1), next, &pc);
        if (rc != 0)
            return rc;
        if (is_seq)
            next = pc;
        else
            ways = graph_split(ctx->graph, pc, ways);
    }
    *pc_out = is_seq ? next : ways;
    return 0;
}

/* Compiles a sequence whose schemas are parts of one: its root. */
static int compile_rooted(struct compile_ctx *ctx, json_t *constraint, uint32_t next, uint32_t *pc_out)
{
    struct schema_root root, *outer = ctx->root;
    struct known_key key;
    uint32_t number;
    int rc = schema_root_init(&root, json_object_get(constraint, "root"),
                              json_string_value(json_object_get(constraint, "path")));

    if (rc != 0)
        return fault_set(ctx->fault, rc, "out of memory");
    if (!known_find(ctx, "root", root.schema, &key, &number)) {
        number = ++ctx->n_roots;
        rc = known_keep(ctx, &key, number);
    }
    root.number = number;
    ctx->root = &root;
    if (rc == 0)
        rc = compile_list(ctx, json_object_get(constraint, "seq"), true, next, pc_out);
    ctx->root = outer;
    schema_root_fini(&root);
    return rc;
}

/* Recursion is safe: constraints nest no deeper than the text, whose depth was checked. */
static int grammar_compile_compile(struct compile_ctx *ctx, json_t *constraint, uint32_t next,
                                   uint32_t *pc_out)
{
    json_t *part;
    uint32_t rule;

    if ((part = json_object_get(constraint, "text")) != NULL) {
        if (!json_is_string(part))
            return grammar_compile_refuse(ctx, "a text is a text");
        *pc_out = graph_text(ctx->graph, grammar_compile_text_of(part), next);
        return 0;
    }
    if ((part = json_object_get(constraint, "mark")) != NULL)
        return compile_mark(ctx, part, next, pc_out);
    if ((part = json_object_get(constraint, "free")) != NULL)
        return grammar_compile_free(ctx, part, next, pc_out);
    if (json_object_get(constraint, "root") != NULL)
        return compile_rooted(ctx, constraint, next, pc_out);
    if ((part = json_object_get(constraint, "seq")) != NULL)
        return compile_list(ctx, part, true, next, pc_out);
    if ((part = json_object_get(constraint, "any")) != NULL)
        return compile_list(ctx, part, false, next, pc_out);
    if (json_object_get(constraint, "rep") != NULL)
        return compile_rep(ctx, constraint, next, pc_out);
    if ((part = json_object_get(constraint, "json")) != NULL) {
        ctx->path = json_string_value(json_object_get(constraint, "path"));
        int rc = compile_schema(ctx, part, json_is_true(json_object_get(constraint, "closed")), &rule);
        ctx->path = NULL;
        if (rc == 0)
            *pc_out = graph_call(ctx->graph, rule, next);
        return rc;
    }
    if (json_object_get(constraint, "tagged") != NULL)
        return compile_tagged(ctx, constraint, next, pc_out);
    return grammar_compile_refuse(ctx, "none of text, mark, json, tagged, free, seq, any, rep");
}

int compile_constraint(struct compile_ctx *ctx, struct bytes text)
{
    uint32_t rule = graph_rule(ctx->graph), pc;
    json_t *constraint = NULL;
    int rc = compile_load(ctx->graph, text, ctx->fault, &constraint);

    ctx->known = json_object();
    if (rc == 0)
        rc = ctx->known == NULL ? E_NOMEM : grammar_compile_compile(ctx, constraint, PC_RET, &pc);
    json_decref(constraint);
    json_decref(ctx->known);
    ctx->known = NULL;
    if (rc != 0)
        return rc;
    if (!ctx->graph->is_full)
        ctx->graph->rules[rule] = pc;
    ctx->graph->start = rule;
    return 0;
}
