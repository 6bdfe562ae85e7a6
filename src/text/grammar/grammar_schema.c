/* SPDX-License-Identifier: Apache-2.0 */
/* JSON Schema -> graph: references, unions, and the kinds of a value.
 *
 *     {"$ref": "#/$defs/node"} ---> the rule of that schema, compiled once, also from within itself
 *     {"anyOf": [A, B], ...}   ---> A and the rest, or B and the rest
 *     {"allOf": [A, B], ...}   ---> one schema that requires all of it (grammar_schema_merge.c)
 *     {"enum": [...]}          ---> these texts
 *     {"type": [...], ...}     ---> for each kind, the values that its keywords allow
 *
 * Every answer satisfies its schema.  So every keyword about values is either enforced or refused by name and
 * place.  The grammar may be stricter than the schema, but never laxer.  It is stricter about the order of
 * properties, the spelling of strings with a pattern, the number of digits, and the further members that an
 * object or array leaves open. */
#include "text/grammar/grammar_schema_priv.h"

#include "base/err.h"
#include "text/json/json.h"

#include <stdlib.h>
#include <string.h>

int schema_fault(struct schema *s, int code, const char *keyword, const char *format, ...)
{
    char text[256];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return fault_set(s->fault, code, "%.*s%s%s: %s", (int)(s->path.len_bytes > 200 ? 200 : s->path.len_bytes),
                     (const char *)s->path.data, keyword == NULL ? "" : ".", keyword == NULL ? "" : keyword,
                     text);
}

int schema_spend(struct schema *s, uint64_t steps)
{
    if (graph_spend(s->graph, steps) == 0)
        return 0;
    return schema_fault(s, E_LIMIT, NULL, "too much to merge and to look through for one request");
}

static uint64_t steps_of_name(const char *name)
{
    return STEPS_OF_VALUE + strlen(name) / STEPS_PER_BYTES;
}

int schema_copy(struct schema *s, json_t *value, json_t **out)
{
    uint64_t steps = STEPS_OF_VALUE * (1 + (uint64_t)json_array_size(value));
    const char *name;
    json_t *member;

    json_object_foreach(value, name, member) steps += steps_of_name(name);
    int rc = schema_spend(s, steps);
    if (rc == 0) {
        *out = json_copy(value);
        rc = schema_keep(s, *out);
    }
    return rc;
}

/* Recursion is safe: the parser bounded the depth. */
static uint64_t grammar_schema_weight(const json_t *value)
{
    uint64_t steps = STEPS_OF_VALUE + json_string_length(value) / STEPS_PER_BYTES;
    const char *name;
    json_t *member;
    size_t i;

    json_array_foreach(value, i, member) steps += grammar_schema_weight(member);
    json_object_foreach((json_t *)value, name, member) steps +=
        steps_of_name(name) + grammar_schema_weight(member);
    return steps;
}

int schema_weigh(struct schema *s, const json_t *value)
{
    return schema_spend(s, grammar_schema_weight(value));
}

bool schema_equal(struct schema *s, json_t *left, json_t *right)
{
    bool is_alike = json_typeof(left) == json_typeof(right);

    if (schema_spend(s, STEPS_OF_VALUE) != 0 || left == right)
        return true;
    if (!is_alike || (json_is_string(left) && json_string_length(left) != json_string_length(right)))
        return false;
    if ((json_is_string(left) || json_is_array(left) || json_is_object(left)) && schema_weigh(s, left) != 0)
        return true;
    return json_equal(left, right) != 0;
}

int schema_names(struct schema *s, json_t *list, json_t **set_out)
{
    json_t *set = json_object(), *item;
    size_t i;
    int rc = schema_keep(s, set);

    json_array_foreach(list, i, item)
    {
        if (rc == 0)
            rc = schema_spend(s, STEPS_OF_VALUE + json_string_length(item) / STEPS_PER_BYTES);
        if (rc == 0 && json_is_string(item) &&
            json_object_set(set, json_string_value(item), json_true()) != 0)
            rc = E_NOMEM;
        if (rc != 0)
            break;
    }
    *set_out = set;
    return rc;
}

int schema_keep(struct schema *s, json_t *made)
{
    if (made == NULL || json_array_append_new(s->made, made) != 0)
        return E_NOMEM;
    if (++s->n_made > SCHEMA_MAX_WORK)
        return schema_fault(s, E_LIMIT, NULL, "too much to merge");
    return schema_spend(s, STEPS_OF_VALUE * (1 + (uint64_t)(json_object_size(made) + json_array_size(made))));
}

static int wait_for(struct schema *s, json_t *schema, uint32_t rule, char *path, uint32_t depth)
{
    if (s->n_waiting == s->cap_waiting) {
        uint32_t cap = s->cap_waiting == 0 ? 32 : s->cap_waiting * 2;
        struct waiting *grown = realloc(s->waiting, cap * sizeof(*grown));
        if (grown == NULL) {
            free(path);
            return E_NOMEM;
        }
        s->waiting = grown;
        s->cap_waiting = cap;
    }
    s->waiting[s->n_waiting++] = (struct waiting){schema, rule, depth, path};
    return 0;
}

/* Takes path. */
static int rule_at(struct schema *s, json_t *schema, char *path, uint32_t depth, uint32_t *rule_out)
{
    bool is_shared = json_is_object(schema); /* jansson has only one true and one false */
    uintptr_t known = is_shared ? (uintptr_t)hashmap_get(s->rules, &schema) : 0;

    if (known != 0) {
        free(path);
        *rule_out = (uint32_t)known - 1;
        return 0;
    }
    if (path == NULL)
        return E_NOMEM;
    if (schema_spend(s, STEPS_OF_VALUE + strlen(path) / STEPS_PER_BYTES) != 0) {
        free(path);
        return E_LIMIT;
    }
    if (depth > SCHEMA_MAX_NESTING || strlen(path) > SCHEMA_MAX_PATH) {
        free(path);
        return schema_fault(s, E_LIMIT, NULL, "nested deeper than %u", SCHEMA_MAX_NESTING);
    }
    uint32_t rule = graph_rule(s->graph);
    if (s->graph->is_full) {
        free(path);
        return graph_status(s->graph, s->fault);
    }
    if (is_shared && hashmap_put(s->rules, &schema, (void *)((uintptr_t)rule + 1), NULL) != 0) {
        free(path);
        return E_NOMEM;
    }
    *rule_out = rule;
    return wait_for(s, schema, rule, path, depth);
}

int schema_rule(struct schema *s, json_t *schema, const char *step, uint32_t *rule_out)
{
    struct buf path = {0};

    buf_append(&path, s->path.data, s->path.len_bytes);
    if (step != NULL)
        buf_printf(&path, ".%s", step);
    return rule_at(s, schema, buf_take_str(&path), s->depth + 1, rule_out);
}

/* ---- references ---- */

/* Follows one $ref, "#" or "#/a/b". */
static int grammar_schema_follow(struct schema *s, json_t *schema, json_t **out)
{
    json_t *ref = json_object_get(schema, "$ref"), *at;
    const char *text = json_string_value(ref);

    if (text == NULL || strlen(text) != json_string_length(ref))
        return schema_fault(s, E_FORMAT, "$ref", "must be a text");
    if (schema_spend(s, STEPS_OF_VALUE * (1 + (uint64_t)strlen(text) / STEPS_PER_BYTES)) != 0)
        return E_LIMIT;
    if (text[0] != '#' || (text[1] != '\0' && text[1] != '/'))
        return schema_fault(s, E_UNSUPPORTED, "$ref", "'%.60s' is not within this schema (#/...)", text);
    at = api_json_follow(s->root, bytes_str(text));
    if (at == NULL || !(json_is_object(at) || json_is_boolean(at)))
        return schema_fault(s, E_FORMAT, "$ref", "'%.60s' leads nowhere", text);
    *out = at;
    return 0;
}

bool schema_asserts(json_t *schema)
{
    const char *keyword;
    json_t *value;

    json_object_foreach(schema, keyword, value) if (schema_is_assertion(keyword)) return true;
    return json_is_false(schema);
}

bool schema_is_lone(json_t *schema, const char *only)
{
    const char *keyword;
    json_t *value;

    json_object_foreach(schema, keyword,
                        value) if (strcmp(keyword, only) != 0 && schema_is_assertion(keyword)) return false;
    return true;
}

/* Follows references that have no keywords beside them. */
int schema_deref(struct schema *s, json_t *schema, json_t **out)
{
    for (uint32_t n = 0; json_object_get(schema, "$ref") != NULL; n++) {
        if (schema_spend(s, STEPS_OF_VALUE * (uint64_t)json_object_size(schema)) != 0)
            return E_LIMIT;
        if (!schema_is_lone(schema, "$ref"))
            break;
        if (n > SCHEMA_MAX_NESTING)
            return schema_fault(s, E_UNSUPPORTED, "$ref", "refers to itself with nothing before it");
        int rc = grammar_schema_follow(s, schema, &schema);
        if (rc != 0)
            return rc;
    }
    *out = schema;
    return 0;
}

int schema_behind_ref(struct schema *s, json_t *schema, json_t **out)
{
    json_t *target, *rest;
    int rc = grammar_schema_follow(s, schema, &target);

    *out = target;
    if (rc != 0 || schema_is_lone(schema, "$ref"))
        return rc;
    rc = schema_copy(s, schema, &rest);
    if (rc != 0)
        return rc;
    json_object_del(rest, "$ref");
    rc = schema_merge_inner(s, rest, target, out);
    if (rc == 0 && ++s->depth > SCHEMA_MAX_NESTING) /* counts as a nested schema */
        return schema_fault(s, E_LIMIT, "$ref", "nested deeper than %u", SCHEMA_MAX_NESTING);
    return rc;
}

/* Compiles a schema with a $ref: a call when no keyword is beside it, otherwise both merged. */
static int value_of_ref(struct schema *s, json_t *schema, uint32_t *pc_out)
{
    json_t *target;
    uint32_t rule;
    int rc = schema_behind_ref(s, schema, &target);

    if (rc != 0)
        return rc;
    if (!schema_is_lone(schema, "$ref"))
        return schema_value(s, target, pc_out);
    struct buf path = {0};
    const char *text = json_string_value(json_object_get(schema, "$ref"));
    buf_append_str(&path, s->root_path);
    for (size_t i = 1; text[i] != '\0'; i++)
        buf_append_byte(&path, text[i] == '/' ? '.' : (uint8_t)text[i]);
    rc = rule_at(s, target, buf_take_str(&path), 1, &rule);
    *pc_out = graph_call(s->graph, rule, PC_RET);
    return rc;
}

/* ---- unions ---- */

/* Merges a branch with the keywords beside it.  A branch of other types than these allow becomes false. */
static int merge_branch(struct schema *s, json_t *rest, json_t **branch)
{
    json_t *target;

    if (schema_deref(s, *branch, &target) == 0 && schema_are_apart(s, rest, target)) {
        int rc = schema_check_keywords(s, target);
        *branch = json_false();
        return rc;
    }
    return schema_merge_inner(s, rest, *branch, branch); /* a $ref that leads nowhere is refused later */
}

int schema_branches(struct schema *s, json_t *schema, const char *keyword, json_t **out)
{
    json_t *branches = json_object_get(schema, keyword), *rest, *branch;
    size_t i;
    int rc;

    if (!json_is_array(branches) || json_array_size(branches) == 0)
        return schema_fault(s, E_FORMAT, keyword, "must be a list of schemas");
    if (json_array_size(branches) > SCHEMA_MAX_BRANCHES)
        return schema_fault(s, E_LIMIT, keyword, "more than %u branches", SCHEMA_MAX_BRANCHES);
    *out = branches;
    if (schema_is_lone(schema, keyword))
        return 0;
    rc = schema_copy(s, schema, &rest);
    if (rc != 0)
        return rc;
    json_object_del(rest, keyword);
    *out = json_array();
    rc = schema_keep(s, *out);
    json_array_foreach(branches, i, branch)
    {
        if (rc == 0)
            rc = merge_branch(s, rest, &branch);
        if (rc == 0)
            rc = json_array_append(*out, branch) == 0 ? 0 : E_NOMEM;
    }
    return rc;
}

static int value_of_branches(struct schema *s, json_t *schema, const char *keyword, uint32_t *pc_out)
{
    json_t *branches;
    uint32_t ways = PC_DEAD, rule;
    int rc = schema_branches(s, schema, keyword, &branches);

    if (rc == 0 && strcmp(keyword, "oneOf") == 0)
        rc = schema_one_of(s, json_object_get(schema, keyword));
    if (rc != 0)
        return rc;
    for (size_t i = json_array_size(branches); i > 0 && rc == 0; i--) {
        char step[48];

        snprintf(step, sizeof(step), "%s.%zu", keyword, i - 1);
        rc = schema_rule(s, json_array_get(branches, i - 1), step, &rule);
        if (rc == 0)
            ways = graph_split(s->graph, graph_call(s->graph, rule, PC_RET), ways);
    }
    *pc_out = ways;
    return rc;
}

static int value_of_kind(struct schema *s, json_t *schema, enum json_kind kind, uint32_t *pc_out)
{
    switch (kind) {
    case KIND_OBJECT:
        return schema_object(s, schema, pc_out);
    case KIND_ARRAY:
        return schema_array(s, schema, pc_out);
    case KIND_STRING:
        return schema_string(s, schema, pc_out);
    case KIND_NUMBER:
        return schema_number(s, schema, false, pc_out);
    case KIND_INTEGER:
        return schema_number(s, schema, true, pc_out);
    case KIND_BOOLEAN:
        *pc_out = graph_split(s->graph, graph_text(s->graph, bytes_str("true"), PC_RET),
                              graph_text(s->graph, bytes_str("false"), PC_RET));
        return 0;
    case KIND_NULL:
        *pc_out = graph_text(s->graph, bytes_str("null"), PC_RET);
        return 0;
    case N_KINDS:
        break;
    }
    return E_INTERNAL;
}

int schema_value(struct schema *s, json_t *schema, uint32_t *pc_out)
{
    uint32_t rule, ways = PC_DEAD;
    int rc = 0;

    *pc_out = PC_DEAD;
    if (json_is_false(schema))
        return 0;
    if (!json_is_true(schema) && !json_is_object(schema))
        return schema_fault(s, E_FORMAT, NULL, "a schema is an object, true or false");
    rc = schema_check_keywords(s, schema);
    if (rc != 0)
        return rc;
    if (json_object_get(schema, "allOf") != NULL) {
        rc = schema_all_of(s, schema, &schema);
        return rc != 0 ? rc : schema_value(s, schema, pc_out);
    }
    if (json_object_get(schema, "$ref") != NULL)
        return value_of_ref(s, schema, pc_out);
    if (json_object_get(schema, "anyOf") != NULL)
        return value_of_branches(s, schema, "anyOf", pc_out);
    if (json_object_get(schema, "oneOf") != NULL)
        return value_of_branches(s, schema, "oneOf", pc_out);
    if (json_object_get(schema, "enum") != NULL || json_object_get(schema, "const") != NULL)
        return schema_enum(s, schema, pc_out);
    if (!schema_asserts(schema)) {
        rc = schema_any(s, &rule);
        *pc_out = graph_call(s->graph, rule, PC_RET);
        return rc;
    }
    unsigned kinds = schema_kinds(schema);
    for (int kind = N_KINDS - 1; kind >= 0 && rc == 0; kind--) {
        uint32_t pc;
        if ((kinds >> kind & 1) == 0)
            continue;
        rc = value_of_kind(s, schema, (enum json_kind)kind, &pc);
        if (rc == 0)
            ways = graph_split(s->graph, pc, ways);
    }
    *pc_out = ways;
    return rc;
}

/* ---- the whole ---- */

static int compile_waiting(struct schema *s)
{
    while (s->n_waiting > 0) {
        struct waiting now = s->waiting[--s->n_waiting];
        uint32_t pc;

        buf_clear(&s->path);
        buf_append_str(&s->path, now.path);
        free(now.path);
        s->depth = now.depth;
        int rc = s->path.is_bad ? E_NOMEM : schema_value(s, now.schema, &pc);
        if (rc == 0)
            rc = graph_status(s->graph, s->fault);
        if (rc != 0)
            return rc;
        s->graph->rules[now.rule] = pc;
    }
    return 0;
}

/* The schema of those values that are objects.  Most schemas of arguments allow no others. */
static int only_objects(struct schema *s, json_t *schema, json_t **out)
{
    json_t *target, *object;
    int rc = schema_deref(s, schema, &target);

    if (rc != 0)
        return rc;
    *out = schema;
    if (json_object_get(target, "type") != NULL) {
        unsigned kinds = schema_kinds(target);
        if (kinds == 0 || kinds == 1u << KIND_OBJECT) /* 0: refused where it is compiled */
            return 0;
        if ((kinds & 1u << KIND_OBJECT) == 0)
            return schema_fault(s, E_FORMAT, "type", "arguments are an object");
    }
    object = json_pack("{s:s}", "type", "object");
    rc = schema_keep(s, object);
    return rc == 0 ? schema_merge(s, schema, object, out) : rc;
}

int schema_root_init(struct schema_root *root, json_t *schema, const char *path)
{
    *root = (struct schema_root){.schema = schema, .path = path, .made = json_array()};
    if (root->made == NULL)
        return E_NOMEM;
    int rc = hashmap_new(sizeof(json_t *), &root->rules);
    if (rc != 0)
        json_decref(root->made);
    return rc;
}

void schema_root_fini(struct schema_root *root)
{
    hashmap_free(root->rules);
    json_decref(root->made);
}

static int compile_below(struct compile_ctx *ctx, const struct schema_root *root, json_t *schema,
                         bool is_object, uint32_t *rule_out)
{
    struct schema s = {.graph = ctx->graph,
                       .fault = ctx->fault,
                       .root_path = root->path != NULL ? root->path : "$",
                       .root = root->schema,
                       .made = root->made,
                       .rules = root->rules,
                       .known = ctx->known};

    buf_append_str(&s.path, ctx->path != NULL ? ctx->path : "$");
    int rc = is_object ? only_objects(&s, schema, &schema) : 0;
    if (rc == 0)
        rc = schema_rule(&s, schema, NULL, rule_out);
    if (rc == 0)
        rc = compile_waiting(&s);
    if (rc == E_NOMEM)
        fault_set(ctx->fault, rc, "out of memory");
    while (s.n_waiting > 0)
        free(s.waiting[--s.n_waiting].path);
    free(s.waiting);
    buf_fini(&s.path);
    return rc;
}

int schema_compile(struct compile_ctx *ctx, json_t *schema, bool is_object, uint32_t *rule_out)
{
    struct schema_root own;

    if (ctx->root != NULL)
        return compile_below(ctx, ctx->root, schema, is_object, rule_out);
    int rc = schema_root_init(&own, schema, ctx->path);
    if (rc != 0)
        return fault_set(ctx->fault, rc, "out of memory");
    rc = compile_below(ctx, &own, schema, is_object, rule_out);
    schema_root_fini(&own);
    return rc;
}
