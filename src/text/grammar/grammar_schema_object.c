/* SPDX-License-Identifier: Apache-2.0 */
/* Objects and arrays of a schema.
 *
 *     first 0 --"a":--> rest 1 --,"b":--> rest 2 --> }          every property once, in its order;
 *        \_____________ first 1 --"b":-----^   ^                optional ones may be skipped
 *                          \___________________/ ...
 *
 * Each property has two places: before any other property was written, and after one, when a comma comes
 * first.  Values are calls, so both places share them.  Undeclared properties come after the declared ones,
 * with names that are not declared.  White space is bounded and looks like that of models: a blank, or a line
 * break with an indent.
 *
 * An object that declares properties (even none) and does not mention others gets no others.  The schema
 * allows others but does not ask for them, and the answer still satisfies it. */
#include "text/grammar/grammar_schema_priv.h"

#include "base/err.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

#define INDENT_MAX     40u
#define NAME_MAX_BYTES 512u

/* Writes nothing, a blank, or a line break and an indent. */
uint32_t schema_blank(struct schema *s, uint32_t next)
{
    struct graph *graph = s->graph;

    if (s->blank == 0) {
        uint32_t blanks = PC_RET, tabs = PC_RET;

        for (uint32_t i = 0; i < INDENT_MAX; i++)
            blanks = graph_split(graph, graph_byte(graph, ' ', ' ', blanks), PC_RET);
        for (uint32_t i = 0; i < INDENT_MAX / 4; i++)
            tabs = graph_split(graph, graph_byte(graph, '\t', '\t', tabs), PC_RET);
        uint32_t line = graph_byte(graph, '\n', '\n', graph_split(graph, blanks, tabs));
        uint32_t rule = graph_rule(graph);
        if (graph->is_full)
            return PC_DEAD;
        graph->rules[rule] =
            graph_split(graph, PC_RET, graph_split(graph, graph_byte(graph, ' ', ' ', PC_RET), line));
        s->blank = rule;
    }
    return graph_call(graph, s->blank, next);
}

/* Writes ':' or ': ' and a value. */
static uint32_t colon_value(struct schema *s, uint32_t rule, uint32_t next)
{
    uint32_t value = graph_call(s->graph, rule, next);

    return graph_byte(s->graph, ':', ':',
                      graph_split(s->graph, value, graph_byte(s->graph, ' ', ' ', value)));
}

static uint32_t grammar_schema_object_comma(struct schema *s, uint32_t next)
{
    return graph_byte(s->graph, ',', ',', schema_blank(s, next));
}

static uint32_t grammar_schema_object_closing(struct schema *s, uint8_t bracket)
{
    return schema_blank(s, graph_byte(s->graph, bracket, bracket, PC_RET));
}

/* ---- names that are not declared ---- */

/* Writes the characters whose first byte is in lo..hi, except those that begin a declared name here. */
static uint32_t others_between(struct graph *graph, unsigned lo, unsigned hi, const bool *is_taken,
                               uint32_t next)
{
    uint32_t ways = PC_DEAD;

    for (unsigned from = lo, to; from <= hi; from = to + 1) {
        to = from;
        if (is_taken[from])
            continue;
        while (to + 1 <= hi && !is_taken[to + 1])
            to++;
        ways = graph_split(graph, ways, graph_byte(graph, (uint8_t)from, (uint8_t)to, next));
    }
    return ways;
}

/* names: sorted, with a common beginning of depth bytes.  Goes to rest after the first character that differs
 * from all of them. */
static uint32_t other_names(struct graph *graph, const struct bytes *names, size_t n, size_t depth,
                            uint32_t end)
{
    uint32_t rest = graph_string(graph, (struct bounds){0, GRAPH_UNBOUNDED}, end), ways = PC_DEAD;
    uint32_t one = graph_byte(graph, 0x80, 0xbf, rest), two = graph_byte(graph, 0x80, 0xbf, one);
    bool is_taken[256] = {['"'] = true, ['\\'] = true};
    bool is_declared = false;

    for (size_t from = 0, to; from < n && !graph->is_full; from = to) {
        to = from + 1;
        if (names[from].len_bytes == depth) {
            is_declared = true;
            continue;
        }
        uint8_t byte = names[from].data[depth];
        while (to < n && names[to].data[depth] == byte)
            to++;
        is_taken[byte] = true;
        uint32_t below = other_names(graph, names + from, to - from, depth + 1, end);
        ways = graph_split(graph, ways, graph_byte(graph, byte, byte, below));
    }
    static const struct {
        uint8_t lo, hi, then_lo, then_hi, n;
    } wide[] = {{0xe0, 0xe0, 0xa0, 0xbf, 1}, {0xe1, 0xec, 0x80, 0xbf, 1}, {0xed, 0xed, 0x80, 0x9f, 1},
                {0xee, 0xef, 0x80, 0xbf, 1}, {0xf0, 0xf0, 0x90, 0xbf, 2}, {0xf1, 0xf3, 0x80, 0xbf, 2},
                {0xf4, 0xf4, 0x80, 0x8f, 2}};
    struct bytes begun = bytes_of(n > 0 ? names[0].data : NULL, depth);
    if (utf8_missing(begun) > 0 || (depth > 0 && memchr(begun.data, '\\', depth) != NULL))
        return ways; /* inside a character or an escape, which must continue as in the name */
    ways = graph_split(graph, ways, others_between(graph, 0x20, 0x7f, is_taken, rest));
    ways = graph_split(graph, ways, others_between(graph, 0xc2, 0xdf, is_taken, one));
    for (size_t i = 0; i < sizeof(wide) / sizeof(wide[0]); i++) {
        uint32_t then = graph_byte(graph, wide[i].then_lo, wide[i].then_hi, wide[i].n == 1 ? one : two);
        ways = graph_split(graph, ways, others_between(graph, wide[i].lo, wide[i].hi, is_taken, then));
    }
    if (!is_declared)
        ways = graph_split(graph, ways, graph_byte(graph, '"', '"', end));
    return ways;
}

/* Writes "name": value, for any name but the declared ones. */
static int other_property(struct schema *s, json_t *properties, uint32_t value_rule, uint32_t *rule_out)
{
    size_t n = json_object_size(properties), i = 0;
    struct bytes *names = calloc(n + 1, sizeof(*names));
    struct buf spelt = {0};
    const char *name;
    json_t *value;

    if (names == NULL)
        return E_NOMEM;
    json_object_foreach(properties, name, value)
    {
        names[i].len_bytes = spelt.len_bytes;
        if (strlen(name) > NAME_MAX_BYTES) {
            free(names);
            buf_fini(&spelt);
            return schema_fault(s, E_LIMIT, "properties", "a name of more than %u bytes", NAME_MAX_BYTES);
        }
        string_spell(&spelt, bytes_str(name));
        names[i].len_bytes = spelt.len_bytes - names[i].len_bytes;
        i++;
    }
    size_t at = 0;
    for (i = 0; i < n && !spelt.is_bad; at += names[i++].len_bytes)
        names[i].data = spelt.data + at;
    qsort(names, n, sizeof(*names), graph_by_bytes);
    uint32_t end = colon_value(s, value_rule, PC_RET);
    uint32_t pc = n == 0 ? graph_string(s->graph, (struct bounds){0, GRAPH_UNBOUNDED}, end)
                         : other_names(s->graph, names, n, 0, end);
    *rule_out = graph_rule_of(s->graph, graph_byte(s->graph, '"', '"', pc));
    free(names);
    int rc = spelt.is_bad ? E_NOMEM : 0;
    buf_fini(&spelt);
    return rc;
}

/* ---- objects ---- */

struct object { /* an object while it is written, from its end */
    json_t *properties, *required;
    json_t *names;  /* object with the required names as keys */
    json_t *others; /* schema of undeclared properties; NULL: none are allowed */
    uint32_t first, rest;
    struct bounds n_others;
};

/* Required names that are not declared become properties with the schema of undeclared ones. */
static int declare_required(struct schema *s, struct object *object)
{
    json_t *all = NULL, *item;
    size_t i;

    json_array_foreach(object->required, i, item)
    {
        if (!json_is_string(item))
            return schema_fault(s, E_FORMAT, "required", "must be a list of names");
        if (json_object_get(object->properties, json_string_value(item)) != NULL)
            continue;
        if (all == NULL) {
            int rc = 0;
            if (object->properties != NULL)
                rc = schema_copy(s, object->properties, &all);
            else
                rc = schema_keep(s, all = json_object());
            if (rc != 0)
                return rc;
            object->properties = all;
        }
        if (schema_spend(s, STEPS_OF_VALUE + json_string_length(item) / STEPS_PER_BYTES) != 0)
            return E_LIMIT;
        json_object_set_new(all, json_string_value(item),
                            object->others == NULL ? json_false() : json_incref(object->others));
    }
    return 0;
}

static int count_properties(struct schema *s, json_t *schema, struct object *object)
{
    size_t n_required = json_object_size(object->names), n = json_object_size(object->properties);
    uint32_t min, max;
    int rc = schema_count(s, schema, "minProperties", 0, &min);

    if (rc == 0)
        rc = schema_count(s, schema, "maxProperties", GRAPH_UNBOUNDED, &max);
    if (rc != 0)
        return rc;
    object->n_others = (struct bounds){0, GRAPH_UNBOUNDED};
    if (min > n_required)
        return schema_fault(s, E_UNSUPPORTED, "minProperties",
                            "only the number of required properties can be enforced");
    if (max == GRAPH_UNBOUNDED || (object->others == NULL && max >= n))
        return 0;
    if (max < n)
        return schema_fault(s, E_UNSUPPORTED, "maxProperties",
                            "a bound below the declared properties cannot be enforced");
    object->n_others.max = max - (uint32_t)n;
    return 0;
}

static int write_properties(struct schema *s, struct object *object)
{
    size_t n = json_object_size(object->properties);
    const char **names = calloc(n + 1, sizeof(*names)), *name;
    int rc = names == NULL ? E_NOMEM : 0;
    size_t i = 0;
    json_t *value;

    json_object_foreach(object->properties, name, value) if (rc == 0) names[i++] = name;
    for (i = n; i > 0 && rc == 0; i--) {
        struct buf text = {0};
        uint32_t rule, pc;
        bool is_optional = json_object_get(object->names, names[i - 1]) == NULL;

        buf_append_byte(&text, '"');
        string_spell(&text, bytes_str(names[i - 1]));
        buf_append_byte(&text, '"');
        value = json_object_get(object->properties, names[i - 1]);
        rc = schema_rule(s, value, names[i - 1], &rule);
        if (rc == 0 && text.is_bad)
            rc = E_NOMEM;
        if (rc == 0 && json_is_false(value)) { /* the property must be absent */
            if (!is_optional)
                object->first = object->rest = PC_DEAD;
        } else if (rc == 0) {
            uint32_t pair =
                graph_rule_of(s->graph, graph_text(s->graph, buf_view(&text), colon_value(s, rule, PC_RET)));
            pc = graph_call(s->graph, pair, object->rest);
            object->first = is_optional ? graph_split(s->graph, pc, object->first) : pc;
            pc = grammar_schema_object_comma(s, pc);
            object->rest = is_optional ? graph_split(s->graph, pc, object->rest) : pc;
        }
        buf_fini(&text);
    }
    free(names);
    return rc;
}

static int write_others(struct schema *s, struct object *object)
{
    uint32_t value, pair = RULE_STR;

    object->rest = grammar_schema_object_closing(s, '}');
    object->first = graph_byte(s->graph, '}', '}', PC_RET);
    if (object->others == NULL || object->n_others.max == 0)
        return 0;
    int rc = json_is_true(object->others) ? schema_any(s, &value)
                                          : schema_rule(s, object->others, "additionalProperties", &value);
    if (rc == 0)
        rc = other_property(s, object->properties, value, &pair);
    if (rc != 0)
        return rc;
    uint32_t more =
        graph_rule_of(s->graph, grammar_schema_object_comma(s, graph_call(s->graph, pair, PC_RET)));
    struct bounds times = {0, object->n_others.max};
    uint32_t whole = graph_loop(s->graph, more, times, object->rest);
    if (times.max != GRAPH_UNBOUNDED)
        times.max--;
    uint32_t begun = graph_loop(s->graph, more, times, object->rest);
    object->first = graph_split(s->graph, graph_call(s->graph, pair, begun), object->first);
    object->rest = whole;
    return 0;
}

int schema_object(struct schema *s, json_t *schema, uint32_t *pc_out)
{
    json_t *others = json_object_get(schema, "additionalProperties");
    struct object object = {.properties = json_object_get(schema, "properties"),
                            .required = json_object_get(schema, "required")};

    if (object.properties != NULL && !json_is_object(object.properties))
        return schema_fault(s, E_FORMAT, "properties", "must be an object");
    if (object.required != NULL && !json_is_array(object.required))
        return schema_fault(s, E_FORMAT, "required", "must be a list of names");
    object.others = others != NULL ? others : json_true();
    if (json_is_false(object.others))
        object.others = NULL;
    int rc = declare_required(s, &object);
    if (rc == 0)
        rc = schema_names(s, object.required, &object.names);
    if (others == NULL && object.properties != NULL)
        object.others = NULL;
    if (rc == 0)
        rc = count_properties(s, schema, &object);
    if (rc == 0)
        rc = write_others(s, &object);
    if (rc == 0 && json_object_size(object.properties) > 0) {
        buf_append_str(&s->path, ".properties");
        rc = write_properties(s, &object);
        s->path.len_bytes -= strlen(".properties");
    }
    *pc_out = graph_byte(s->graph, '{', '{', schema_blank(s, object.first));
    return rc;
}

/* ---- arrays ---- */

/* Writes the items that each have a schema of their own. */
static int write_prefix(struct schema *s, json_t *prefix, struct bounds n, uint32_t rest, uint32_t *pc_out)
{
    uint32_t tail = grammar_schema_object_closing(s, ']'), rule;

    for (size_t i = json_array_size(prefix); i > 0; i--) {
        char step[48];

        snprintf(step, sizeof(step), "prefixItems.%zu", i - 1);
        int rc = schema_rule(s, json_array_get(prefix, i - 1), step, &rule);
        if (rc != 0)
            return rc;
        rest = i - 1 < n.max ? graph_call(s->graph, rule, rest) : PC_DEAD;
        if (i > 1)
            rest = grammar_schema_object_comma(s, rest);
        if (i > 1 && i - 1 >= n.min)
            rest = graph_split(s->graph, rest, tail);
    }
    *pc_out = rest;
    return 0;
}

int schema_array(struct schema *s, json_t *schema, uint32_t *pc_out)
{
    json_t *prefix = json_object_get(schema, "prefixItems"), *items = json_object_get(schema, "items");
    uint32_t n_prefix = (uint32_t)json_array_size(prefix), rule = RULE_STR, pc = PC_DEAD;
    struct bounds n;
    int rc = schema_count(s, schema, "minItems", 0, &n.min);

    if (rc == 0)
        rc = schema_count(s, schema, "maxItems", GRAPH_UNBOUNDED, &n.max);
    if (rc != 0)
        return rc;
    if (prefix != NULL && !json_is_array(prefix))
        return schema_fault(s, E_FORMAT, "prefixItems", "must be a list of schemas");
    if (n.min > GRAPH_MAX_REPEAT || (n.max > GRAPH_MAX_REPEAT && n.max != GRAPH_UNBOUNDED))
        return schema_fault(s, E_LIMIT, n.min > GRAPH_MAX_REPEAT ? "minItems" : "maxItems", "more than %u",
                            GRAPH_MAX_REPEAT);
    if (items == NULL && n_prefix > 0 && n.min <= n_prefix)
        items = json_false(); /* allowed, but not asked for */
    rc = items == NULL || json_is_true(items) ? schema_any(s, &rule) : schema_rule(s, items, "items", &rule);
    if (rc != 0)
        return rc;

    /* after the prefix, or after the first item where there is no prefix */
    uint32_t n_before = n_prefix == 0 ? 1 : n_prefix;
    struct bounds more = {n.min > n_before ? n.min - n_before : 0, n.max == GRAPH_UNBOUNDED ? n.max
                                                                   : n.max > n_before       ? n.max - n_before
                                                                                            : 0};
    bool has_more = !json_is_false(items) && more.max > 0;
    uint32_t tail = grammar_schema_object_closing(s, ']'), rest = has_more || more.min == 0 ? tail : PC_DEAD;
    if (has_more)
        rest = graph_loop(
            s->graph,
            graph_rule_of(s->graph, grammar_schema_object_comma(s, graph_call(s->graph, rule, PC_RET))), more,
            tail);
    if (n_prefix > 0)
        rc = write_prefix(s, prefix, n, rest, &pc);
    else if (n.max > 0 && !json_is_false(items))
        pc = graph_call(s->graph, rule, rest);
    if (n.min == 0)
        pc = graph_split(s->graph, pc, graph_byte(s->graph, ']', ']', PC_RET));
    *pc_out = graph_byte(s->graph, '[', '[', schema_blank(s, pc));
    return rc;
}
