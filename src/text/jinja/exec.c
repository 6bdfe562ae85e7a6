/* SPDX-License-Identifier: Apache-2.0 */
/* Executes statements.
 *
 * Output goes to the text builder that jinja->out points to. This is the prompt itself, or the text of a
 * macro, a block set, a filter block or a recursive loop. break and continue set a state. Each body reads it
 * after each of its statements, and the loop around them clears it. */
#include "text/jinja/ast_priv.h"

#include "base/err.h"

struct value jinja_capture(struct jinja *jinja, const struct node *body)
{
    struct build *before = jinja->out;
    struct build build = build_begin(jinja);

    jinja->out = &build;
    jinja_exec(jinja, body);
    jinja->out = before;
    return build_end(&build);
}

static void jinja_exec_unpack(struct jinja *jinja, const struct node *target, struct value value)
{
    struct value all = value_elements(jinja, value);

    if (jinja->rc != 0)
        return;
    if (all.list->n != target->n_items) {
        jinja_fail(jinja, E_FORMAT, "%zu values for %zu names", all.list->n, target->n_items);
        return;
    }
    for (size_t i = 0; i < target->n_items; i++)
        jinja_assign(jinja, target->items[i], all.list->items[i]);
}

void jinja_assign(struct jinja *jinja, const struct node *target, struct value value)
{
    if (target->kind == NODE_NAME) {
        scope_set(jinja, jinja->scope, target->name, value);
    } else if (target->kind == NODE_TUPLE) {
        jinja_exec_unpack(jinja, target, value);
    } else {
        struct value space = jinja_eval(jinja, target->a);

        if (space.kind != VALUE_NAMESPACE)
            jinja_fail(jinja, E_FORMAT, "only a namespace's attributes can be set");
        else
            dict_set(jinja, space, value_text(jinja, target->name->text), value);
    }
}

/* ---- the statements ---- */

static void exec_if(struct jinja *jinja, const struct node *node)
{
    for (size_t i = 0; i + 1 < node->n_items; i += 2) {
        bool is_true = value_is_true(jinja_eval(jinja, node->items[i]));

        if (jinja->rc != 0)
            return;
        if (is_true) {
            jinja_exec(jinja, node->items[i + 1]);
            return;
        }
    }
    if (node->c != NULL)
        jinja_exec(jinja, node->c);
}

/* Executes the body in a scope of its own. */
static struct value capture_inside(struct jinja *jinja, const struct node *body)
{
    struct scope *before = jinja->scope;

    jinja->scope = scope_push(jinja, before);
    struct value text = jinja->rc == 0 ? jinja_capture(jinja, body) : value_undefined(NULL);
    jinja->scope = before;
    return text;
}

static void exec_set_block(struct jinja *jinja, const struct node *node)
{
    struct value value = capture_inside(jinja, node->c);

    if (node->b != NULL)
        value = eval_filters(jinja, node->b, value);
    jinja_assign(jinja, node->a, value);
}

static void exec_with(struct jinja *jinja, const struct node *node)
{
    struct scope *before = jinja->scope;
    struct scope *inner = scope_push(jinja, before);

    for (size_t i = 0; i + 1 < node->n_items && jinja->rc == 0; i += 2) {
        struct value value = jinja_eval(jinja, node->items[i + 1]);

        jinja->scope = inner;
        jinja_assign(jinja, node->items[i], value);
        jinja->scope = before;
    }
    jinja->scope = inner;
    if (jinja->rc == 0)
        jinja_exec(jinja, node->c);
    jinja->scope = before;
}

static void exec_scope(struct jinja *jinja, const struct node *node)
{
    struct scope *before = jinja->scope;

    jinja->scope = scope_push(jinja, before);
    if (jinja->rc == 0)
        jinja_exec(jinja, node->c);
    jinja->scope = before;
}

static void exec_call_block(struct jinja *jinja, const struct node *node)
{
    struct value caller = macro_new(jinja, node);

    print_str(jinja->out, eval_call(jinja, node->a, &caller));
}

static void exec_one(struct jinja *jinja, const struct node *node)
{
    jinja->line = node->line;
    switch (node->kind) {
    case NODE_DATA:
        build_text(jinja->out, *node->value.text);
        break;
    case NODE_OUTPUT:
        jinja_print(jinja, node->a);
        break;
    case NODE_IF:
        exec_if(jinja, node);
        break;
    case NODE_FOR:
        exec_for(jinja, node);
        break;
    case NODE_SET:
        jinja_assign(jinja, node->a, jinja_eval(jinja, node->b));
        break;
    case NODE_SET_BLOCK:
        exec_set_block(jinja, node);
        break;
    case NODE_MACRO:
        scope_set(jinja, jinja->scope, node->name, macro_new(jinja, node));
        break;
    case NODE_CALL_BLOCK:
        exec_call_block(jinja, node);
        break;
    case NODE_FILTER_BLOCK:
        print_str(jinja->out, eval_filters(jinja, node->b, capture_inside(jinja, node->c)));
        break;
    case NODE_WITH:
        exec_with(jinja, node);
        break;
    case NODE_SCOPE:
        exec_scope(jinja, node);
        break;
    case NODE_BREAK:
    case NODE_CONTINUE:
        jinja->jump = node->kind == NODE_BREAK ? JUMP_BREAK : JUMP_CONTINUE;
        break;
    default:
        jinja_fail(jinja, E_INTERNAL, "an expression where a statement was expected");
    }
}

void jinja_exec(struct jinja *jinja, const struct node *body)
{
    if (!jinja_enter(jinja))
        return;
    for (size_t i = 0; i < body->n_items && jinja->jump == JUMP_NONE && jinja_charge(jinja, 1); i++)
        exec_one(jinja, body->items[i]);
    jinja_leave(jinja);
}
