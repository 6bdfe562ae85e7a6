/* SPDX-License-Identifier: Apache-2.0 */
/* A schema's string between tags.  Its length, pattern and format apply to the text as it is read there.
 *
 *     pattern or format --regex--> automaton --dfa_tag--> less forbidden texts --dfa_write_raw--> graph
 *
 * A string with no keyword but forbidden texts is free text up to the closing tag. */
#include "text/grammar/grammar_auto_priv.h"
#include "text/grammar/grammar_schema_priv.h"

#include "base/err.h"

#include <string.h>

#define MAX_LENGTH 4000u /* longer limits are cut to this, so only shorter texts pass */

struct wanted {
    struct bytes pattern;
    const char *keyword; /* the keyword that gave the pattern */
    struct bounds chars;
    struct bytes until, banned; /* banned empty: none */
    bool is_inner;
};

static struct bytes grammar_compile_tagged_text_of(const json_t *json)
{
    return bytes_of(json_string_value(json), json_string_length(json));
}

static int grammar_compile_tagged_fail(struct compile_ctx *ctx, int code, const char *keyword,
                                       const char *reason)
{
    return code == E_NOMEM ? code
                           : fault_set(ctx->fault, code, "%s.%s: %s", ctx->path != NULL ? ctx->path : "$",
                                       keyword, reason);
}

static int read_length(struct compile_ctx *ctx, json_t *schema, const char *keyword, uint32_t *out)
{
    json_t *value = json_object_get(schema, keyword);

    if (value == NULL)
        return 0;
    if (!json_is_number(value) || json_number_value(value) < 0 ||
        json_number_value(value) !=
            (double)(uint64_t)(json_number_value(value) < 1e15 ? json_number_value(value) : 0))
        return grammar_compile_tagged_fail(ctx, E_FORMAT, keyword, "must be a whole number from 0");
    *out = json_number_value(value) < MAX_LENGTH ? (uint32_t)json_number_value(value) : MAX_LENGTH;
    return 0;
}

static int read_wanted(struct compile_ctx *ctx, json_t *constraint, struct wanted *wanted)
{
    json_t *schema = json_object_get(constraint, "tagged"), *until = json_object_get(constraint, "until");
    json_t *pattern = json_object_get(schema, "pattern"), *format = json_object_get(schema, "format");
    int rc;

    if (!json_is_object(schema) || !json_is_string(until) || json_string_length(until) < 2 ||
        memchr(json_string_value(until) + 1, json_string_value(until)[0], json_string_length(until) - 1) !=
            NULL)
        return fault_set(ctx->fault, E_FORMAT,
                         "constraint: tagged has a schema, and until: a text of letters after one");
    *wanted = (struct wanted){.keyword = "maxLength",
                              .chars = {0, GRAPH_UNBOUNDED},
                              .until = grammar_compile_tagged_text_of(until),
                              .banned = grammar_compile_tagged_text_of(json_object_get(constraint, "not")),
                              .is_inner = json_is_true(json_object_get(constraint, "inner"))};
    for (size_t i = 0; i < wanted->until.len_bytes; i++)
        if (wanted->until.data[i] >= 0x80)
            return fault_set(ctx->fault, E_FORMAT, "constraint: until is not ASCII");
    rc = read_length(ctx, schema, "minLength", &wanted->chars.min);
    if (rc == 0)
        rc = read_length(ctx, schema, "maxLength", &wanted->chars.max);
    if (rc != 0)
        return rc;
    if (wanted->chars.min == MAX_LENGTH)
        return grammar_compile_tagged_fail(ctx, E_LIMIT, "minLength",
                                           "so large a bound cannot be enforced between tags");
    if ((pattern != NULL && !json_is_string(pattern)) || (format != NULL && !json_is_string(format)))
        return grammar_compile_tagged_fail(ctx, E_FORMAT, pattern != NULL ? "pattern" : "format",
                                           "must be a text");
    if (pattern != NULL && format != NULL)
        return grammar_compile_tagged_fail(ctx, E_UNSUPPORTED, "pattern",
                                           "cannot be enforced together with a format");
    wanted->keyword = pattern != NULL ? "pattern" : format != NULL ? "format" : wanted->keyword;
    if (format != NULL && format_pattern(json_string_value(format)) == NULL)
        return grammar_compile_tagged_fail(ctx, E_UNSUPPORTED, "format", "is not known");
    wanted->pattern = format != NULL ? bytes_str(format_pattern(json_string_value(format)))
                                     : grammar_compile_tagged_text_of(pattern);
    return 0;
}

static int grammar_compile_tagged_automaton(struct bytes pattern, uint64_t *budget, const char **reason,
                                            struct dfa *out)
{
    struct nfa nfa;
    int rc = regex_parse(pattern, &nfa, reason);

    if (rc != 0)
        return rc;
    *reason = "too complex";
    rc = dfa_build(&nfa, budget, out);
    nfa_fini(&nfa);
    return rc;
}

static int write_text(struct compile_ctx *ctx, const struct wanted *wanted, const struct dfa *text,
                      const struct dfa *banned, uint32_t *pc)
{
    bool has_end = wanted->chars.max != GRAPH_UNBOUNDED;
    const struct tagged tagged = {.until = wanted->until,
                                  .is_inner = wanted->is_inner,
                                  .banned = banned,
                                  .budget = &ctx->graph->steps,
                                  .n_counts = 1 + (has_end ? wanted->chars.max : wanted->chars.min)};
    struct dfa between;
    int rc = dfa_tag(text, &tagged, &between);

    if (rc == 0) {
        rc = dfa_write_raw(ctx->graph, &between, wanted->chars, PC_RET, pc);
        dfa_fini(&between);
    }
    return rc;
}

static int write_wanted(struct compile_ctx *ctx, const struct wanted *wanted, uint32_t *pc)
{
    uint64_t *budget = &ctx->graph->steps;
    const char *reason = "";
    struct dfa text, banned;
    int rc = grammar_compile_tagged_automaton(wanted->pattern, budget, &reason, &text);

    if (rc != 0)
        return grammar_compile_tagged_fail(ctx, rc, wanted->keyword, reason);
    if (wanted->banned.len_bytes > 0) {
        rc = grammar_compile_tagged_automaton(wanted->banned, budget, &reason, &banned);
        if (rc != 0) {
            dfa_fini(&text);
            return grammar_compile_tagged_fail(ctx, rc, "not", reason);
        }
    }
    rc = write_text(ctx, wanted, &text, wanted->banned.len_bytes > 0 ? &banned : NULL, pc);
    if (wanted->banned.len_bytes > 0)
        dfa_fini(&banned);
    dfa_fini(&text);
    return rc == 0 ? 0
                   : grammar_compile_tagged_fail(ctx, rc, wanted->keyword,
                                                 "too long or too complex between tags");
}

/* Compiles the text into a rule of its own. */
static int tagged_build(struct compile_ctx *ctx, json_t *constraint, uint32_t *pc_out)
{
    struct wanted wanted;
    uint32_t index;
    int rc = read_wanted(ctx, constraint, &wanted);

    if (rc != 0)
        return rc;
    if (wanted.pattern.data != NULL || wanted.chars.min > 0 || wanted.chars.max != GRAPH_UNBOUNDED ||
        wanted.banned.len_bytes > 0)
        return write_wanted(ctx, &wanted, pc_out);
    rc = graph_free(ctx->graph, &wanted.until, 1, GRAPH_UNBOUNDED, &index);
    if (rc != 0)
        return fault_set(ctx->fault, rc, "constraint: too much free text");
    *pc_out = graph_node(ctx->graph, (struct node){.kind = NODE_FREE, .a = index, .next = PC_RET});
    return 0;
}

int compile_tagged(struct compile_ctx *ctx, json_t *constraint, uint32_t next, uint32_t *pc_out)
{
    uint32_t pc, rule;
    struct known_key key;

    if (known_find(ctx, "tagged", constraint, &key, &rule)) {
        *pc_out = graph_call(ctx->graph, rule, next);
        return 0;
    }
    ctx->path = json_string_value(json_object_get(constraint, "path"));
    int rc = tagged_build(ctx, constraint, &pc);
    ctx->path = NULL;
    if (rc == 0) {
        rule = graph_rule_of(ctx->graph, pc);
        *pc_out = graph_call(ctx->graph, rule, next);
        return known_keep(ctx, &key, rule);
    }
    return rc;
}
