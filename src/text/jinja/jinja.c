/* SPDX-License-Identifier: Apache-2.0 */
/* One rendering: its limits, its failures, its variables, its output.
 *
 * A template is a program from a model file, and its input comes from a client. Neither is trusted to end. So
 * each evaluated node costs a step, as do 64 bytes of text or one comparison inside a list. Values live in an
 * arena with a limit, and a text has a maximum length. The limits grow with the conversation, because the
 * work of a template does.
 *
 * The first failure is kept with its line. After it nothing is computed: jinja_charge() returns false, which
 * ends loops, and results are undefined. */
#include "text/jinja/template.h"

#include "base/err.h"
#include "text/jinja/ast_priv.h"

#include <stdio.h>
#include <stdlib.h>

#define BASE_STEPS        UINT64_C(8000000)
#define STEPS_PER_BYTE    64
#define BASE_MEMORY_BYTES ((size_t)64 << 20)
#define MEMORY_PER_BYTE   64
#define BASE_TEXT_BYTES   ((size_t)4 << 20)
#define TEXT_PER_BYTE     16

struct template_limits template_limits_for(size_t input_bytes)
{
    if (input_bytes > (size_t)1 << 30)
        input_bytes = (size_t)1 << 30;
    return (struct template_limits){.steps = BASE_STEPS + (uint64_t)input_bytes * STEPS_PER_BYTE,
                                    .memory_bytes = BASE_MEMORY_BYTES + input_bytes * MEMORY_PER_BYTE,
                                    .text_bytes = BASE_TEXT_BYTES + input_bytes * TEXT_PER_BYTE};
}

/* ---- limits and failures ---- */

void jinja_fail(struct jinja *jinja, int rc, const char *format, ...)
{
    char text[400];
    va_list args;

    if (jinja->rc != 0)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (jinja->line == 0) /* not begun yet: the caller is still making variables */
        jinja->rc = fault_set(jinja->fault, rc, "%s", text);
    else
        jinja->rc = fault_set(jinja->fault, rc, "line %u: %s", jinja->line, text);
}

static void jinja_fail_memory(struct jinja *jinja)
{
    jinja_fail(jinja, E_LIMIT, "rendering takes more than %zu bytes of memory", jinja->arena.limit_bytes);
}

void *jinja_take(struct jinja *jinja, size_t len_bytes)
{
    if (jinja->rc != 0)
        return NULL;
    void *piece = arena_take(&jinja->arena, len_bytes);
    if (piece == NULL)
        jinja_fail_memory(jinja);
    return piece;
}

const void *jinja_keep(struct jinja *jinja, struct buf *buf)
{
    const void *kept = NULL;

    if (jinja->rc == 0 && buf->data != NULL) {
        kept = arena_keep(&jinja->arena, buf->data, buf->len_bytes);
        *buf = (struct buf){0};
        if (kept == NULL)
            jinja_fail_memory(jinja);
    }
    return kept;
}

bool jinja_charge(struct jinja *jinja, uint64_t steps)
{
    if (jinja->rc != 0)
        return false;
    if (steps > jinja->steps_left) {
        jinja->steps_left = 0;
        jinja_fail(jinja, E_LIMIT, "rendering takes too many steps");
        return false;
    }
    jinja->steps_left -= steps;
    return true;
}

bool jinja_enter(struct jinja *jinja)
{
    if (!jinja_charge(jinja, 1))
        return false;
    if (jinja->depth == JINJA_MAX_DEPTH) {
        jinja_fail(jinja, E_LIMIT, "nested deeper than %d", JINJA_MAX_DEPTH);
        return false;
    }
    jinja->depth++;
    return true;
}

void jinja_leave(struct jinja *jinja)
{
    jinja->depth--;
}

/* ---- variables ---- */

struct scope *scope_push(struct jinja *jinja, struct scope *parent)
{
    struct scope *scope = jinja_take(jinja, sizeof(*scope));

    if (scope != NULL)
        scope->parent = parent;
    return scope;
}

void scope_set(struct jinja *jinja, struct scope *scope, const struct name *name, struct value value)
{
    if (scope == NULL || jinja->rc != 0)
        return;
    for (uint32_t i = 0; i < scope->n; i++) {
        if (scope->variables[i].name == name) {
            scope->variables[i].value = value;
            return;
        }
    }
    if (scope->n == scope->cap) {
        uint32_t cap = scope->cap == 0 ? 4 : scope->cap * 2;
        struct variable *variables = jinja_take(jinja, cap * sizeof(*variables));

        if (variables == NULL)
            return;
        for (uint32_t i = 0; i < scope->n; i++)
            variables[i] = scope->variables[i];
        scope->variables = variables;
        scope->cap = cap;
    }
    scope->variables[scope->n++] = (struct variable){.name = name, .value = value};
}

struct value *scope_get(struct scope *scope, const struct name *name)
{
    for (; scope != NULL; scope = scope->parent) {
        for (uint32_t i = 0; i < scope->n; i++) {
            if (scope->variables[i].name == name)
                return &scope->variables[i].value;
        }
    }
    return NULL;
}

static const struct name *find_name(const struct jinja_template *parsed, const char *text)
{
    struct bytes bytes = bytes_str(text);
    const struct name *name = parsed->names[bytes_hash(bytes) % NAME_BUCKETS];

    while (name != NULL && !bytes_equal(text_bytes(name->text), bytes))
        name = name->next;
    return name;
}

/* A name that does not occur in the template needs no variable. */
void jinja_set(struct jinja *jinja, const char *name, struct value value)
{
    const struct name *known = find_name(jinja->parsed, name);

    if (known != NULL)
        scope_set(jinja, jinja->scope, known, value);
}

static void add_functions(struct jinja *jinja)
{
    for (const struct callable *one = jinja_functions; one->name != NULL; one++) {
        const struct name *known = find_name(jinja->parsed, one->name);

        if (known != NULL)
            scope_set(jinja, jinja->globals, known, (struct value){.kind = VALUE_FUNCTION, .callable = one});
    }
}

/* ---- the rendering ---- */

int jinja_new(const struct jinja_template *parsed, const struct template_limits *limits, int64_t now_unix_s,
              struct fault *fault, struct jinja **out)
{
    struct jinja *jinja = calloc(1, sizeof(*jinja));

    if (jinja == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    *jinja = (struct jinja){.parsed = parsed,
                            .fault = fault,
                            .steps_left = limits->steps,
                            .max_text_bytes = limits->text_bytes,
                            .now_unix_s = now_unix_s};
    arena_init(&jinja->arena, limits->memory_bytes);
    jinja->globals = scope_push(jinja, NULL);
    jinja->scope = scope_push(jinja, jinja->globals);
    add_functions(jinja);
    if (jinja->rc != 0) {
        int rc = jinja->rc;

        jinja_free(jinja);
        return rc;
    }
    *out = jinja;
    return 0;
}

void jinja_free(struct jinja *jinja)
{
    if (jinja == NULL)
        return;
    arena_fini(&jinja->arena);
    free(jinja);
}

int jinja_run(struct jinja *jinja, struct text *out)
{
    jinja->line = 1;
    struct value value = jinja_capture(jinja, jinja->parsed->body);

    if (jinja->rc != 0)
        return jinja->rc;
    *out = text_in(value);
    if (out->data == NULL)
        *out = text_str("");
    return 0;
}
