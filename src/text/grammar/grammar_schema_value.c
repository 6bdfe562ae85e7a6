/* SPDX-License-Identifier: Apache-2.0 */
/* Values without parts: strings, numbers, and any value at all.
 *
 * Numbers have a bounded number of digits: 18 before and after the point, two in an exponent.  So every
 * number ends and fits the number types of its readers. */
#include "text/grammar/grammar_auto_priv.h"
#include "text/grammar/grammar_schema_priv.h"

#include "base/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_MAX    18u
#define WHOLE_HIGHEST 1000000000000000000 /* more digits than are written */

/* ---- numbers ---- */

/* Writes up to n digits, then next. */
static uint32_t grammar_schema_value_digits(struct graph *graph, uint32_t n, uint32_t next)
{
    uint32_t pc = next;

    for (uint32_t i = 0; i < n; i++)
        pc = graph_split(graph, graph_byte(graph, '0', '9', pc), next);
    return pc;
}

static uint32_t whole_number(struct graph *graph, uint32_t next)
{
    uint32_t whole =
        graph_split(graph, graph_byte(graph, '0', '0', next),
                    graph_byte(graph, '1', '9', grammar_schema_value_digits(graph, DIGITS_MAX - 1, next)));

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
        uint32_t power = graph_byte(graph, '0', '9', grammar_schema_value_digits(graph, 1, PC_RET));
        power = graph_split(
            graph, power,
            graph_split(graph, graph_byte(graph, '-', '-', power), graph_byte(graph, '+', '+', power)));
        power = graph_split(graph, graph_byte(graph, 'e', 'e', power), graph_byte(graph, 'E', 'E', power));
        next = graph_split(graph, PC_RET, power);
        uint32_t parts =
            graph_byte(graph, '0', '9', grammar_schema_value_digits(graph, DIGITS_MAX - 2, next));
        next = graph_split(graph, next, graph_byte(graph, '.', '.', parts));
    }
    *rule = graph_rule_of(s->graph, whole_number(graph, next));
    return *rule;
}

int schema_compare(const json_t *left, const json_t *right)
{
    if (json_is_real(left) && json_is_real(right))
        return (json_real_value(left) > json_real_value(right)) -
               (json_real_value(left) < json_real_value(right));
    if (json_is_real(left))
        return -schema_compare(right, left);
    int64_t whole = json_integer_value(left), other = json_integer_value(right);
    double real = json_real_value(right), part = 0;
    if (json_is_real(right)) {
        if (real >= 0x1p63 || real < -0x1p63)
            return real > 0 ? -1 : 1;
        other = (int64_t)floor(real);
        part = real - floor(real);
    }
    return whole != other ? (whole > other) - (whole < other) : -(part > 0);
}

struct bound_words { /* the keywords of a bound */
    const char *closed, *open;
    int sense; /* 1: a lower bound, -1: an upper one */
};

struct bound {
    const json_t *number; /* NULL: there is none */
    bool is_open;         /* the number itself is excluded */
};

/* Reads the bound that a keyword or its exclusive form sets. */
static int read_bound(struct schema *s, json_t *schema, const struct bound_words *words, struct bound *out)
{
    json_t *closed = json_object_get(schema, words->closed), *open = json_object_get(schema, words->open);
    bool is_flag = json_is_boolean(open); /* a flag, as in draft 4 and OpenAPI 3.0 */

    if ((closed != NULL && !json_is_number(closed)) || (open != NULL && !is_flag && !json_is_number(open)))
        return schema_fault(s, E_FORMAT,
                            closed != NULL && !json_is_number(closed) ? words->closed : words->open,
                            "must be a number");
    *out = (struct bound){closed, is_flag && json_is_true(open)};
    if (open != NULL && !is_flag && (closed == NULL || words->sense * schema_compare(open, closed) >= 0))
        *out = (struct bound){open, true};
    return 0;
}

/* The whole number nearest to the bound, within it.  sense as above. */
static int64_t whole_of_bound(const struct bound *bound, int sense)
{
    double real = json_number_value(bound->number), whole = sense > 0 ? ceil(real) : floor(real);

    if (bound->number == NULL || fabs(real) > (double)WHOLE_HIGHEST)
        return bound->number == NULL ? -sense * WHOLE_HIGHEST : real > 0 ? WHOLE_HIGHEST : -WHOLE_HIGHEST;
    if (json_is_integer(bound->number))
        return json_integer_value(bound->number) + (bound->is_open ? sense : 0);
    return (int64_t)whole + (bound->is_open && whole == real ? sense : 0);
}

/* The bound of decimals.  An integer that is no double is moved inwards. */
static double real_of_bound(const struct bound *bound, int sense, bool *is_open)
{
    double real = json_number_value(bound->number);
    int64_t whole = json_integer_value(bound->number);
    int over = !json_is_integer(bound->number) ? 0
               : real >= 0x1p63                ? 1
                                               : ((int64_t)real > whole) - ((int64_t)real < whole);

    *is_open = bound->is_open && over * sense >= 0;
    return over * sense < 0 ? nextafter(real, sense * INFINITY) : real;
}

static int read_multiple(struct schema *s, json_t *schema, struct number_bounds *bounds)
{
    json_t *value = json_object_get(schema, "multipleOf");
    double multiple = json_number_value(value);

    if (value == NULL || (bounds->is_integer && multiple == 1))
        return 0;
    if (!json_is_number(value) || multiple <= 0)
        return schema_fault(s, E_FORMAT, "multipleOf", "must be a number above 0");
    if (!bounds->is_integer || multiple != (uint32_t)(multiple < 1e9 ? multiple : 0))
        return schema_fault(s, E_UNSUPPORTED, "multipleOf",
                            "only whole divisors of integers can be enforced");
    bounds->multiple = (uint32_t)multiple;
    return 0;
}

int schema_number(struct schema *s, json_t *schema, bool is_integer, uint32_t *pc_out)
{
    static const struct bound_words least = {"minimum", "exclusiveMinimum", 1},
                                    most = {"maximum", "exclusiveMaximum", -1};
    struct number_bounds bounds = {.is_integer = is_integer};
    struct bound lower, upper;
    const char *reason = NULL;
    int rc = read_bound(s, schema, &least, &lower);

    if (rc == 0)
        rc = read_bound(s, schema, &most, &upper);
    if (rc != 0)
        return rc;
    bounds.has_min = lower.number != NULL;
    bounds.has_max = upper.number != NULL;
    bounds.least = whole_of_bound(&lower, 1);
    bounds.most = whole_of_bound(&upper, -1);
    bounds.min = real_of_bound(&lower, 1, &bounds.is_min_open);
    bounds.max = real_of_bound(&upper, -1, &bounds.is_max_open);
    rc = read_multiple(s, schema, &bounds);
    if (rc != 0)
        return rc;
    if (!bounds.has_min && !bounds.has_max && bounds.multiple == 0) {
        *pc_out = graph_call(s->graph, number_rule(s, is_integer), PC_RET);
        return 0;
    }
    rc = digits_write(s->graph, &bounds, PC_RET, &reason, pc_out);
    if (rc == E_LIMIT)
        return schema_fault(s, rc, NULL, "too much work for one request");
    if (rc == E_UNSUPPORTED)
        return schema_fault(s, rc,
                            bounds.multiple != 0 ? "multipleOf"
                            : bounds.has_min     ? "minimum"
                                                 : "maximum",
                            "%s", reason);
    return rc;
}

/* ---- strings ---- */

static int build_texts(struct schema *s, struct bytes pattern, struct bounds chars, const char **reason,
                       uint32_t *pc)
{
    struct nfa nfa;
    struct dfa dfa;
    int rc = regex_parse(pattern, &nfa, reason);

    if (rc != 0)
        return rc;
    *reason = "too complex";
    rc = dfa_build(&nfa, &s->graph->steps, &dfa);
    nfa_fini(&nfa);
    if (rc != 0)
        return rc;
    *reason = "too long together with minLength or maxLength";
    rc = dfa_write(s->graph, &dfa, chars, PC_RET, pc);
    if (rc == E_LIMIT && s->graph->steps == 0)
        *reason = "too complex";
    dfa_fini(&dfa);
    return rc;
}

/* Writes the strings of a pattern; equal ones are written once. */
static int grammar_schema_value_patterned(struct schema *s, struct bytes pattern, const char *keyword,
                                          struct bounds chars, uint32_t *pc_out)
{
    const char *reason = NULL;
    struct buf key = {0};
    uint32_t pc, rule;

    buf_printf(&key, "pattern %u %u ", chars.min, chars.max);
    buf_append(&key, pattern.data, pattern.len_bytes);
    char *name = buf_take_str(&key);
    if (name == NULL)
        return E_NOMEM;
    bool is_name = memchr(pattern.data, 0, pattern.len_bytes) == NULL;
    json_t *known = is_name ? json_object_get(s->known, name) : NULL;
    int rc = 0;
    if (known == NULL) {
        rc = build_texts(s, pattern, chars, &reason, &pc);
        if (rc == 0) {
            rule = graph_rule_of(s->graph, pc);
            rc = is_name ? json_object_set_new_nocheck(s->known, name, json_integer(rule)) : 0;
        } else if (rc != E_NOMEM) {
            schema_fault(s, rc, keyword, "%s", reason);
        }
    } else {
        rule = (uint32_t)json_integer_value(known);
    }
    free(name);
    if (rc == 0)
        *pc_out = graph_byte(s->graph, '"', '"', graph_call(s->graph, rule, PC_RET));
    return rc;
}

int schema_string(struct schema *s, json_t *schema, uint32_t *pc_out)
{
    json_t *pattern = json_object_get(schema, "pattern"), *format = json_object_get(schema, "format");
    struct bounds chars;
    int rc = schema_count(s, schema, "minLength", 0, &chars.min);

    if (rc == 0)
        rc = schema_count(s, schema, "maxLength", GRAPH_UNBOUNDED, &chars.max);
    if (rc != 0)
        return rc;
    if ((pattern != NULL && !json_is_string(pattern)) || (format != NULL && !json_is_string(format)))
        return schema_fault(s, E_FORMAT, pattern != NULL ? "pattern" : "format", "must be a text");
    if (chars.min > GRAPH_MAX_REPEAT)
        return schema_fault(s, E_LIMIT, "minLength", "more than %u", GRAPH_MAX_REPEAT);
    if (chars.max > GRAPH_MAX_REPEAT)
        chars.max = GRAPH_UNBOUNDED;
    if (pattern != NULL && format != NULL)
        return schema_fault(s, E_UNSUPPORTED, "pattern", "cannot be enforced together with a format");
    if (pattern != NULL)
        return grammar_schema_value_patterned(
            s, bytes_of(json_string_value(pattern), json_string_length(pattern)), "pattern", chars, pc_out);
    if (format != NULL) {
        const char *text = format_pattern(json_string_value(format));
        if (text == NULL)
            return schema_fault(s, E_UNSUPPORTED, "format", "'%.40s' is not known",
                                json_string_value(format));
        return grammar_schema_value_patterned(s, bytes_str(text), "format", chars, pc_out);
    }
    *pc_out = graph_byte(s->graph, '"', '"', graph_string(s->graph, chars, PC_RET));
    return 0;
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
