/* SPDX-License-Identifier: Apache-2.0 */
/* Values without parts: strings, numbers, enumerations, and any value at all.
 *
 * Numbers have a bounded number of digits, so that none goes on for ever and all fit the number types of
 * those who read them: 18 before and after the point, an exponent of two.
 */
#include "sample/grammar_schema_priv.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

#define DIGITS_MAX 18u

static uint32_t new_rule(struct schema *s, uint32_t pc)
{
    uint32_t rule = graph_rule(s->graph);

    if (!s->graph->is_full)
        s->graph->rules[rule] = pc;
    return rule;
}

/* ---- numbers ---- */

/* Up to n digits, then next. */
static uint32_t digits(struct graph *graph, uint32_t n, uint32_t next)
{
    uint32_t pc = next;

    for (uint32_t i = 0; i < n; i++)
        pc = graph_split(graph, graph_byte(graph, '0', '9', pc), next);
    return pc;
}

static uint32_t whole_number(struct graph *graph, uint32_t next)
{
    uint32_t whole = graph_split(graph, graph_byte(graph, '0', '0', next),
                                 graph_byte(graph, '1', '9', digits(graph, DIGITS_MAX - 1, next)));

    return graph_split(graph, whole, graph_byte(graph, '-', '-', whole));
}

static uint32_t number_rule(struct schema *s, bool is_integer)
{
    struct graph *graph = s->graph;
    uint32_t *rule = is_integer ? &s->integer : &s->number;

    if (*rule != 0)
        return *rule;
    uint32_t next = PC_RET;
    if (!is_integer) {
        uint32_t power = graph_byte(graph, '0', '9', digits(graph, 1, PC_RET));
        power = graph_split(
            graph, power,
            graph_split(graph, graph_byte(graph, '-', '-', power), graph_byte(graph, '+', '+', power)));
        power = graph_split(graph, graph_byte(graph, 'e', 'e', power), graph_byte(graph, 'E', 'E', power));
        next = graph_split(graph, PC_RET, power);
        uint32_t parts = graph_byte(graph, '0', '9', digits(graph, DIGITS_MAX - 2, next));
        next = graph_split(graph, next, graph_byte(graph, '.', '.', parts));
    }
    *rule = new_rule(s, whole_number(graph, next));
    return *rule;
}

int schema_number(struct schema *s, json_t *schema, bool is_integer, uint32_t *pc_out)
{
    static const char *const names[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                                        "multipleOf"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (json_object_get(schema, names[i]) != NULL)
            return schema_fault(s, E_UNSUPPORTED, names[i], "cannot be held to");
    *pc_out = graph_call(s->graph, number_rule(s, is_integer), PC_RET);
    return 0;
}

/* ---- strings ---- */

int schema_string(struct schema *s, json_t *schema, uint32_t *pc_out)
{
    struct bounds chars;
    int rc = schema_count(s, schema, "minLength", 0, &chars.min);

    if (rc == 0)
        rc = schema_count(s, schema, "maxLength", GRAPH_UNBOUNDED, &chars.max);
    if (rc != 0)
        return rc;
    if (json_object_get(schema, "pattern") != NULL)
        return schema_fault(s, E_UNSUPPORTED, "pattern", "cannot be held to");
    if (json_object_get(schema, "format") != NULL)
        return schema_fault(s, E_UNSUPPORTED, "format", "cannot be held to");
    if (chars.min > GRAPH_MAX_REPEAT)
        return schema_fault(s, E_LIMIT, "minLength", "more than %u", GRAPH_MAX_REPEAT);
    if (chars.max > GRAPH_MAX_REPEAT)
        chars.max = GRAPH_UNBOUNDED;
    *pc_out = graph_byte(s->graph, '"', '"', graph_string(s->graph, chars, PC_RET));
    return 0;
}

/* ---- enumerations ---- */

static unsigned kind_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return 1u << KIND_OBJECT;
    case JSON_ARRAY:
        return 1u << KIND_ARRAY;
    case JSON_STRING:
        return 1u << KIND_STRING;
    case JSON_INTEGER:
        return 1u << KIND_INTEGER | 1u << KIND_NUMBER;
    case JSON_REAL:
        return 1u << KIND_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE:
        return 1u << KIND_BOOLEAN;
    case JSON_NULL:
        return 1u << KIND_NULL;
    }
    return 0;
}

int schema_enum(struct schema *s, json_t *schema, uint32_t *pc_out)
{
    json_t *values = json_object_get(schema, "enum"), *one = json_object_get(schema, "const"), *value;
    unsigned kinds = json_object_get(schema, "type") != NULL ? schema_kinds(schema) : (1u << N_KINDS) - 1;
    size_t n = 0, i;
    int rc = 0;

    if (values != NULL && !json_is_array(values))
        return schema_fault(s, E_FORMAT, "enum", "must be a list of values");
    struct bytes *texts = calloc(json_array_size(values) + 1, sizeof(*texts));
    if (texts == NULL)
        return E_NOMEM;
    for (i = 0; i < (values == NULL ? 1 : json_array_size(values)); i++) {
        value = values == NULL ? one : json_array_get(values, i);
        if ((kind_of(value) & kinds) == 0 || (values != NULL && one != NULL && !json_equal(value, one)))
            continue;
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        if (text == NULL) {
            rc = E_NOMEM;
            break;
        }
        texts[n++] = bytes_str(text);
    }
    if (rc == 0)
        *pc_out = graph_texts(s->graph, texts, n, PC_RET);
    while (n > 0)
        free((void *)(uintptr_t)texts[--n].data);
    free(texts);
    return rc;
}

/* ---- any value ---- */

int schema_any(struct schema *s, uint32_t *rule_out)
{
    struct graph *graph = s->graph;
    json_t *open = NULL;
    uint32_t pc, ways;

    if (s->any != 0) {
        *rule_out = s->any;
        return 0;
    }
    uint32_t rule = graph_rule(graph);
    if (graph->is_full)
        return graph_status(graph, s->fault);
    s->any = *rule_out = rule;
    open = json_object();
    int rc = schema_keep(s, open);
    if (rc == 0)
        rc = schema_object(s, open, &ways);
    if (rc == 0)
        rc = schema_array(s, open, &pc);
    if (rc != 0)
        return rc;
    ways = graph_split(graph, ways, pc);
    static const char *const names[] = {"true", "false", "null"};
    for (size_t i = 0; i < 3; i++)
        ways = graph_split(graph, ways, graph_text(graph, bytes_str(names[i]), PC_RET));
    ways = graph_split(graph, ways, graph_call(graph, number_rule(s, false), PC_RET));
    pc = graph_byte(graph, '"', '"', graph_string(graph, (struct bounds){0, GRAPH_UNBOUNDED}, PC_RET));
    if (!graph->is_full)
        graph->rules[rule] = graph_split(graph, ways, pc);
    return graph_status(graph, s->fault);
}
