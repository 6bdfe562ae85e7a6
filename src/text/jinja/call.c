/* SPDX-License-Identifier: Apache-2.0 */
/* Calls: arguments, macros, and functions written in C.
 *
 * A callable in C names its parameters in one string ("width first blank"). The code here binds the arguments
 * to them, by position and by name, so no filter searches for its own arguments. A macro is a body with the
 * scope of its definition. Its variables are looked up from that scope outwards at the time of the call, as
 * in the reference. */
#include "text/jinja/ast_priv.h"

#include "base/err.h"

#include <string.h>

/* ---- arguments ---- */

static void push_keyword(struct jinja *jinja, struct call *call, struct text name, struct value value)
{
    struct keyword *more = jinja_take(jinja, (call->n_keywords + 1) * sizeof(*more));

    if (more == NULL)
        return;
    if (call->n_keywords > 0)
        memcpy(more, call->keywords, call->n_keywords * sizeof(*more));
    more[call->n_keywords++] = (struct keyword){.name = name, .value = value};
    call->keywords = more;
}

static void add_star(struct jinja *jinja, const struct node *node, struct call *out)
{
    struct value more = value_elements(jinja, jinja_eval(jinja, node));
    struct value *all =
        jinja->rc == 0 ? jinja_take(jinja, (out->n_args + more.list->n + 1) * sizeof(*all)) : NULL;

    if (all == NULL)
        return;
    if (out->n_args > 0)
        memcpy(all, out->args, out->n_args * sizeof(*all));
    for (size_t i = 0; i < more.list->n; i++)
        all[out->n_args + i] = more.list->items[i];
    out->args = all;
    out->n_args += more.list->n;
}

static void add_star_star(struct jinja *jinja, const struct node *node, struct call *out)
{
    struct value more = jinja_eval(jinja, node);

    if (more.kind != VALUE_DICT)
        jinja_fail(jinja, E_FORMAT, "** wants a dict, not a %s", value_type(more));
    for (size_t i = 0; jinja->rc == 0 && i < more.dict->n && jinja_charge(jinja, 1 + out->n_keywords); i++)
        push_keyword(jinja, out, text_in(more.dict->entries[i].key), more.dict->entries[i].value);
}

void eval_args(struct jinja *jinja, const struct node_args *args, struct call *out)
{
    *out = (struct call){0};
    if (args == NULL || jinja->rc != 0)
        return;
    if (args->n_items > 0)
        out->args = jinja_take(jinja, args->n_items * sizeof(*out->args));
    if (args->n_names > 0)
        out->keywords = jinja_take(jinja, args->n_names * sizeof(*out->keywords));
    for (size_t i = 0; i < args->n_items && jinja->rc == 0; i++)
        out->args[out->n_args++] = jinja_eval(jinja, args->items[i]);
    for (size_t i = 0; i < args->n_names && jinja->rc == 0; i++)
        out->keywords[out->n_keywords++] =
            (struct keyword){.name = args->names[i]->text, .value = jinja_eval(jinja, args->values[i])};
    if (args->star != NULL)
        add_star(jinja, args->star, out);
    if (args->star_star != NULL && jinja->rc == 0)
        add_star_star(jinja, args->star_star, out);
}

/* ---- callables written in C ---- */

static struct bytes next_word(const char **at)
{
    const char *from = *at;
    size_t len = strcspn(from, " ");

    *at = from[len] == ' ' ? from + len + 1 : from + len;
    return bytes_of(from, len);
}

static size_t count_words(const char *words)
{
    size_t n = 0;

    while (*words != '\0') {
        next_word(&words);
        n++;
    }
    return n;
}

static void bind_keyword(struct jinja *jinja, const struct callable *callable, const struct keyword *keyword,
                         struct call *call)
{
    const char *at = callable->params;

    for (size_t i = 0; *at != '\0'; i++) {
        if (bytes_equal(next_word(&at), text_bytes(keyword->name))) {
            if (call->bound[i].kind != VALUE_ABSENT)
                jinja_fail(jinja, E_FORMAT, "%s() gets an argument twice", callable->name);
            call->bound[i] = keyword->value;
            return;
        }
    }
    jinja_fail(jinja, E_FORMAT, "%s() has no argument \"%.*s\"", callable->name,
               keyword->name.len_bytes > 64 ? 64 : (int)keyword->name.len_bytes,
               (const char *)keyword->name.data);
}

struct value callable_call(struct jinja *jinja, const struct callable *callable, struct value self,
                           struct call *call)
{
    if (!jinja_charge(jinja, 1))
        return value_undefined(NULL);
    memset(call->bound, 0, sizeof(call->bound));
    if (callable->params != NULL) {
        size_t n = count_words(callable->params);

        if (call->n_args > n) {
            jinja_fail(jinja, E_FORMAT, "%s() takes at most %zu arguments", callable->name, n);
            return value_undefined(NULL);
        }
        for (size_t i = 0; i < call->n_args; i++)
            call->bound[i] = call->args[i];
        for (size_t i = 0; i < call->n_keywords; i++)
            bind_keyword(jinja, callable, &call->keywords[i], call);
    }
    for (unsigned i = 0; i < callable->n_needed && jinja->rc == 0; i++) {
        if ((callable->params == NULL ? i >= call->n_args : call->bound[i].kind == VALUE_ABSENT))
            jinja_fail(jinja, E_FORMAT, "%s() takes at least %u arguments", callable->name,
                       callable->n_needed);
    }
    return jinja->rc == 0 ? callable->fn(jinja, self, call) : value_undefined(NULL);
}

const struct callable *callable_find(const struct callable *table, struct bytes name)
{
    for (; table->name != NULL; table++) {
        if (bytes_is(name, table->name))
            return table;
    }
    return NULL;
}

/* ---- macros ---- */

struct value macro_new(struct jinja *jinja, const struct node *node)
{
    struct macro *macro = jinja_take(jinja, sizeof(*macro));

    if (macro == NULL)
        return value_undefined(NULL);
    *macro = (struct macro){.node = node, .scope = jinja->scope};
    for (struct scope *scope = jinja->scope; scope != NULL && !scope->is_kept; scope = scope->parent)
        scope->is_kept = true;
    return (struct value){.kind = VALUE_MACRO, .macro = macro};
}

/* The argument with this name, or NULL; marks it in is_used. */
static const struct value *take_keyword(const struct call *call, const struct name *name, bool *is_used)
{
    for (size_t i = 0; i < call->n_keywords; i++) {
        if (bytes_equal(text_bytes(call->keywords[i].name), text_bytes(name->text))) {
            is_used[i] = true;
            return &call->keywords[i].value;
        }
    }
    return NULL;
}

static void set_rest(struct jinja *jinja, const struct macro *macro, const struct call *call, size_t n_params,
                     const bool *is_used)
{
    const struct jinja_template *parsed = jinja->parsed;
    const char *name = macro->node->name == NULL ? "caller" : macro->node->name->str;

    if (call->n_args > n_params && !parsed->uses_varargs)
        jinja_fail(jinja, E_FORMAT, "macro %.64s() takes not more than %zu arguments", name, n_params);
    if (parsed->uses_varargs) {
        struct value rest = value_tuple(jinja, 0);

        for (size_t i = n_params; i < call->n_args && jinja->rc == 0; i++)
            list_push(jinja, rest, call->args[i]);
        scope_set(jinja, jinja->scope, parsed->varargs, rest);
    }
    struct value others = parsed->uses_kwargs ? value_dict(jinja) : value_none();
    for (size_t i = 0; i < call->n_keywords && jinja->rc == 0; i++) {
        if (is_used[i])
            continue;
        if (others.kind != VALUE_DICT)
            jinja_fail(jinja, E_FORMAT, "macro %.64s() has no argument \"%.*s\"", name,
                       call->keywords[i].name.len_bytes > 64 ? 64 : (int)call->keywords[i].name.len_bytes,
                       (const char *)call->keywords[i].name.data);
        dict_set(jinja, others, value_text(jinja, call->keywords[i].name), call->keywords[i].value);
    }
    if (others.kind == VALUE_DICT)
        scope_set(jinja, jinja->scope, parsed->kwargs, others);
}

/* Binds the arguments in the macro's own scope. */
static void bind_macro(struct jinja *jinja, const struct macro *macro, struct call *call)
{
    const struct node_args *params = macro->node->args;
    size_t n = params == NULL ? 0 : params->n_names;
    bool *is_used = jinja_take(jinja, call->n_keywords + 1);

    if (is_used == NULL)
        return;
    const struct value *caller = take_keyword(call, jinja->parsed->caller, is_used);
    scope_set(jinja, jinja->scope, jinja->parsed->caller,
              caller == NULL ? value_undefined("caller") : *caller);
    for (size_t i = 0; i < n && jinja->rc == 0; i++) {
        const struct value *given =
            i < call->n_args ? &call->args[i] : take_keyword(call, params->names[i], is_used);
        struct value value = given != NULL               ? *given
                             : params->values[i] != NULL ? jinja_eval(jinja, params->values[i])
                                                         : value_undefined(params->names[i]->str);

        scope_set(jinja, jinja->scope, params->names[i], value);
    }
    set_rest(jinja, macro, call, n, is_used);
}

struct value macro_call(struct jinja *jinja, const struct macro *macro, struct call *call)
{
    struct scope *before = jinja->scope;
    struct value text = value_undefined(NULL);

    if (!jinja_enter(jinja))
        return text;
    jinja->scope = scope_push(jinja, macro->scope);
    if (jinja->rc == 0)
        bind_macro(jinja, macro, call);
    if (jinja->rc == 0)
        text = jinja_capture(jinja, macro->node->c);
    jinja->scope = before;
    jinja_leave(jinja);
    return text;
}

/* ---- calls of any value ---- */

struct value value_call(struct jinja *jinja, struct value callee, struct call *call)
{
    switch (callee.kind) {
    case VALUE_MACRO:
        return macro_call(jinja, callee.macro, call);
    case VALUE_FUNCTION:
        return callable_call(jinja, callee.callable, value_none(), call);
    case VALUE_METHOD:
        return callable_call(jinja, callee.method->callable, callee.method->self, call);
    case VALUE_LOOP:
        return loop_call(jinja, callee.loop, call);
    case VALUE_UNDEFINED:
        jinja_fail(jinja, E_FORMAT, "'%.100s' is undefined", callee.hint == NULL ? "it" : callee.hint);
        return callee;
    default:
        jinja_fail(jinja, E_FORMAT, "a %s cannot be called", value_type(callee));
        return value_undefined(NULL);
    }
}

struct value eval_call(struct jinja *jinja, const struct node *node, const struct value *caller)
{
    struct value callee = jinja_eval(jinja, node->a);
    struct call call;

    eval_args(jinja, node->args, &call);
    if (caller != NULL)
        push_keyword(jinja, &call, jinja->parsed->caller->text, *caller);
    jinja->line = node->line;
    return jinja->rc == 0 ? value_call(jinja, callee, &call) : value_undefined(NULL);
}
