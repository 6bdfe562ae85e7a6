/* SPDX-License-Identifier: Apache-2.0 */
/* The for statement, and its variable "loop".
 *
 * Each iteration has its own scope, so a variable set in one is gone in the next, as in the reference. The
 * memory of the scope is reused unless a macro still refers to it. The filter of a loop is applied to all
 * elements first, so loop.length and loop.last count the remaining elements. */
#include "text/jinja/ast_priv.h"

#include "base/check.h"
#include "base/err.h"

struct loop {
    const struct node *node;
    struct value items;
    size_t index;
    size_t depth;
    struct scope *scope;  /* the scope around the loop */
    struct value changed; /* the arguments of the last loop.changed() */
};

static void loop_run(struct jinja *jinja, const struct node *node, struct value items, size_t depth);

/* ---- the loop variable ---- */

static struct value loop_neighbour(const struct loop *loop, bool is_next)
{
    size_t n = loop->items.list->n;

    if (is_next ? loop->index + 1 >= n : loop->index == 0)
        return value_undefined(is_next ? "nextitem" : "previtem");
    return loop->items.list->items[is_next ? loop->index + 1 : loop->index - 1];
}

struct value loop_attribute(struct jinja *jinja, struct loop *loop, struct text name)
{
    static const struct callable methods[] = {{"cycle", NULL, loop_cycle, 1, false},
                                              {"changed", NULL, loop_changed, 0, false},
                                              {NULL, NULL, NULL, 0, false}};
    int64_t n = (int64_t)loop->items.list->n, at = (int64_t)loop->index;
    const struct {
        const char *name;
        struct value value;
    } all[] = {
        {"index", value_int(at + 1)},
        {"index0", value_int(at)},
        {"revindex", value_int(n - at)},
        {"revindex0", value_int(n - at - 1)},
        {"first", value_bool(at == 0)},
        {"last", value_bool(at + 1 == n)},
        {"length", value_int(n)},
        {"depth", value_int((int64_t)loop->depth + 1)},
        {"depth0", value_int((int64_t)loop->depth)},
        {"previtem", loop_neighbour(loop, false)},
        {"nextitem", loop_neighbour(loop, true)},
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (text_is(name, all[i].name))
            return all[i].value;
    }
    const struct callable *callable = callable_find(methods, text_bytes(name));
    struct method *method = callable == NULL ? NULL : jinja_take(jinja, sizeof(*method));
    if (method == NULL)
        return value_undefined(NULL);
    *method = (struct method){.self = {.kind = VALUE_LOOP, .loop = loop}, .callable = callable};
    return (struct value){.kind = VALUE_METHOD, .method = method};
}

struct value loop_cycle(struct jinja *jinja, struct value self, struct call *call)
{
    (void)jinja;
    return call->args[self.loop->index % call->n_args];
}

struct value loop_changed(struct jinja *jinja, struct value self, struct call *call)
{
    struct value now = value_tuple(jinja, call->n_args);

    for (size_t i = 0; i < call->n_args && jinja->rc == 0; i++)
        list_push(jinja, now, call->args[i]);
    bool is_changed = self.loop->changed.kind == VALUE_ABSENT || !value_equal(jinja, self.loop->changed, now);
    self.loop->changed = now;
    return value_bool(is_changed);
}

/* {{ loop(children) }} in a loop marked "recursive". */
struct value loop_call(struct jinja *jinja, struct loop *loop, struct call *call)
{
    struct build *out = jinja->out;
    struct scope *scope = jinja->scope;
    struct build build = build_begin(jinja);

    if (!loop->node->is_recursive || call->n_args != 1) {
        jinja_fail(jinja, E_FORMAT, "only a recursive loop can be called, with what to go through");
        return value_undefined(NULL);
    }
    if (!jinja_enter(jinja))
        return value_undefined(NULL);
    jinja->out = &build;
    jinja->scope = loop->scope;
    loop_run(jinja, loop->node, call->args[0], loop->depth + 1);
    jinja->scope = scope;
    jinja->out = out;
    jinja_leave(jinja);
    return build_end(&build);
}

/* ---- the statement ---- */

/* The scope of an iteration: the scope of the one before, emptied, unless a macro refers to it. */
static struct scope *turn_scope(struct jinja *jinja, struct scope *before, struct scope *outer)
{
    if (before == NULL || before->is_kept)
        return scope_push(jinja, outer);
    before->n = 0;
    return before;
}

static struct value loop_filtered(struct jinja *jinja, const struct node *node, struct value items)
{
    struct scope *outer = jinja->scope;
    struct value kept = value_list(jinja, 0);
    struct scope *turn = NULL;

    for (size_t i = 0; jinja->rc == 0 && i < items.list->n; i++) {
        jinja->scope = turn = turn_scope(jinja, turn, outer);
        jinja_assign(jinja, node->a, items.list->items[i]);
        if (value_is_true(jinja_eval(jinja, node->c)))
            list_push(jinja, kept, items.list->items[i]);
    }
    jinja->scope = outer;
    return kept;
}

static void run_turns(struct jinja *jinja, struct loop *loop)
{
    const struct node *node = loop->node;
    struct value self = {.kind = VALUE_LOOP, .loop = loop};
    struct scope *turn = NULL;

    for (size_t i = 0; i < loop->items.list->n && jinja_charge(jinja, 1); i++) {
        loop->index = i;
        jinja->scope = turn = turn_scope(jinja, turn, loop->scope);
        scope_set(jinja, turn, jinja->parsed->loop, self);
        jinja_assign(jinja, node->a, loop->items.list->items[i]);
        if (jinja->rc != 0)
            break;
        jinja_exec(jinja, node->items[0]);
        bool is_over = jinja->jump == JUMP_BREAK;
        jinja->jump = JUMP_NONE;
        if (is_over)
            break;
    }
    jinja->scope = loop->scope;
}

static void loop_run(struct jinja *jinja, const struct node *node, struct value items, size_t depth)
{
    struct loop *loop = jinja_take(jinja, sizeof(*loop));

    items = value_elements(jinja, items);
    if (node->c != NULL && jinja->rc == 0)
        items = loop_filtered(jinja, node, items);
    if (jinja->rc != 0)
        return;
    *loop = (struct loop){.node = node, .items = items, .depth = depth, .scope = jinja->scope};
    run_turns(jinja, loop);
    if (items.list->n == 0 && node->d != NULL && jinja->rc == 0)
        jinja_exec(jinja, node->d);
}

void exec_for(struct jinja *jinja, const struct node *node)
{
    struct value items = jinja_eval(jinja, node->b);

    if (jinja->rc == 0)
        loop_run(jinja, node, items, 0);
}
