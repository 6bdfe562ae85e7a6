/* SPDX-License-Identifier: Apache-2.0 */
/* Plain forms (grammar_plain.h).  They are made by the same steps as a rule of the graph (schema_value()), but no graph is
 * written; its count of steps bounds the work. */
#include "text/grammar/grammar_plain.h"

#include "base/err.h"
#include "text/grammar/grammar_schema_priv.h"

#include <stdlib.h>
#include <string.h>

struct grammar_plain {
    struct graph graph; /* only its steps */
    struct schema schema;
    uint64_t *steps_left; /* borrowed */
};

int grammar_plain_new(const json_t *root, uint64_t *steps_left, struct grammar_plain **out)
{
    struct grammar_plain *plain = calloc(1, sizeof(*plain));

    if (plain == NULL)
        return E_NOMEM;
    plain->schema = (struct schema){.graph = &plain->graph, .root = (json_t *)root, .made = json_array()};
    if (plain->schema.made == NULL) {
        grammar_plain_free(plain);
        return E_NOMEM;
    }
    plain->steps_left = steps_left;
    *out = plain;
    return 0;
}

void grammar_plain_free(struct grammar_plain *plain)
{
    if (plain == NULL)
        return;
    json_decref(plain->schema.made);
    buf_fini(&plain->schema.path);
    free(plain);
}

static int plain_keep(struct schema *s, json_t *made, json_t **out)
{
    *out = made;
    return schema_keep(s, made);
}

static int plain_all_of(struct schema *s, json_t *schema, json_t **out)
{
    json_t *all = json_object_get(schema, "allOf");

    if (json_array_size(all) != 1 || !schema_is_lone(schema, "allOf"))
        return schema_all_of(s, schema, out);
    *out = json_array_get(all, 0);
    return 0;
}

static int plain_choice(struct schema *s, json_t *schema, const char *keyword, json_t **out)
{
    json_t *list;
    int rc = schema_branches(s, schema, keyword, &list);

    *out = schema;
    return rc != 0 || schema_is_lone(schema, keyword) ? rc
                                                      : plain_keep(s, json_pack("{s:O}", "anyOf", list), out);
}

static int plain_values(struct schema *s, json_t *schema, json_t **out)
{
    json_t *list;
    int rc = schema_values(s, schema, &list);

    return rc != 0 ? rc : plain_keep(s, json_pack("{s:O}", "enum", list), out);
}

/* Names the kinds that the keywords imply, or that nullable adds. */
static int plain_kinds(struct schema *s, json_t *schema, json_t **out)
{
    static const char *const names[N_KINDS] = {"object",  "array",   "string", "number",
                                               "integer", "boolean", "null"};
    bool is_nullable = json_is_true(json_object_get(schema, "nullable"));
    json_t *types;
    unsigned kinds = schema_kinds(schema);
    int rc;

    *out = schema;
    if (json_object_get(schema, "type") != NULL ? !is_nullable : kinds == schema_kinds(NULL))
        return 0;
    rc = schema_copy(s, schema, out);
    if (rc == 0)
        rc = plain_keep(s, json_array(), &types);
    for (unsigned i = 0; i < N_KINDS && rc == 0; i++)
        if ((kinds >> i & 1) != 0 && json_array_append_new(types, json_string(names[i])) != 0)
            rc = E_NOMEM;
    if (rc == 0 && json_array_size(types) == 1)
        types = json_array_get(types, 0);
    if (rc == 0 && json_object_set(*out, "type", types) != 0)
        rc = E_NOMEM;
    if (rc == 0 && is_nullable)
        json_object_del(*out, "nullable");
    return rc;
}

static int plain_form(struct schema *s, json_t *schema, json_t **out)
{
    for (unsigned n = 0; json_is_object(schema); n++) {
        bool has_all = json_object_get(schema, "allOf") != NULL;
        int rc = schema_check_keywords(s, schema);

        if (rc == 0 && n > SCHEMA_MAX_NESTING)
            rc = schema_fault(s, E_UNSUPPORTED, "$ref", "refers to itself with nothing before it");
        if (rc != 0)
            return rc;
        if (!has_all && json_object_get(schema, "$ref") == NULL)
            break;
        rc = has_all ? plain_all_of(s, schema, &schema) : schema_behind_ref(s, schema, &schema);
        if (rc != 0)
            return rc;
    }
    *out = schema;
    if (json_is_boolean(schema))
        return 0;
    if (!json_is_object(schema))
        return schema_fault(s, E_FORMAT, NULL, "a schema is an object, true or false");
    if (json_object_get(schema, "anyOf") != NULL)
        return plain_choice(s, schema, "anyOf", out);
    if (json_object_get(schema, "oneOf") != NULL)
        return plain_choice(s, schema, "oneOf", out);
    if (json_object_get(schema, "enum") != NULL || json_object_get(schema, "const") != NULL)
        return plain_values(s, schema, out);
    return plain_kinds(s, schema, out);
}

int grammar_plain_of(struct grammar_plain *plain, const char *path, const json_t *schema, struct fault *fault,
                     const json_t **out)
{
    struct schema *s = &plain->schema;
    json_t *form;
    int rc;

    s->root_path = path;
    s->fault = fault;
    s->depth = 0;
    buf_clear(&s->path);
    buf_append_str(&s->path, path);
    plain->graph.steps = *plain->steps_left;
    rc = s->path.is_bad ? E_NOMEM : plain_form(s, (json_t *)schema, &form);
    *plain->steps_left = plain->graph.steps;
    if (rc == 0)
        *out = form;
    return rc;
}
