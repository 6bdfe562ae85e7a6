/* SPDX-License-Identifier: Apache-2.0 */
/* Filters that apply another filter or a test to each element: map, select, reject and similar ones.
 *
 *     messages | selectattr("role", "equalto", "user")        list | map(attribute="name") | map("upper")
 *
 * They return lists, where the reference returns an iterator. */
#include "text/jinja/jinja_priv.h"

#include "base/err.h"

enum { IS_REJECT = 1, BY_ATTRIBUTE = 2 };

const struct callable *filter_find(struct bytes name)
{
    const struct callable *const tables[] = {text_filters, list_filters, pick_filters};
    const struct callable *found = NULL;

    for (size_t i = 0; i < 3 && found == NULL; i++)
        found = callable_find(tables[i], name);
    return found;
}

/* The call without its first n arguments. */
static struct call filters_pick_without(const struct call *call, size_t n)
{
    struct call rest = *call;

    if (n > 0)
        rest.args += n;
    rest.n_args -= n;
    return rest;
}

/* A false value has no elements, even if it is not iterable (none, 0). */
static struct value filters_pick_elements(struct jinja *jinja, struct value self)
{
    return value_is_true(self) ? value_elements(jinja, self) : value_list(jinja, 0);
}

static bool filters_pick_is_picked(struct jinja *jinja, const struct callable *test, struct value value,
                                   const struct call *rest, int how)
{
    struct call call = *rest;
    bool is_true = value_is_true(test == NULL ? value : callable_call(jinja, test, value, &call));

    return is_true != ((how & IS_REJECT) != 0);
}

static struct value filters_pick(struct jinja *jinja, struct value self, struct call *call, int how)
{
    struct value all = filters_pick_elements(jinja, self), list = value_list(jinja, 0);
    size_t n_used = (how & BY_ATTRIBUTE) != 0;
    const struct callable *test = NULL;
    struct call rest = filters_pick_without(call, n_used);

    if (rest.n_args > 0) {
        struct text name = text_in(rest.args[0]);

        test = test_find(text_bytes(name));
        if (test == NULL)
            jinja_fail(jinja, E_UNSUPPORTED, "unknown test \"%.*s\"",
                       name.len_bytes > 64 ? 64 : (int)name.len_bytes,
                       name.len_bytes == 0 ? "" : (const char *)name.data);
        rest = filters_pick_without(&rest, 1);
    }
    for (size_t i = 0; jinja->rc == 0 && i < all.list->n; i++) {
        struct value one = all.list->items[i];

        if (n_used > 0)
            one = value_path(jinja, one, call->args[0]);
        if (filters_pick_is_picked(jinja, test, one, &rest, how))
            list_push(jinja, list, all.list->items[i]);
    }
    return list;
}

static struct value filter_select(struct jinja *jinja, struct value self, struct call *call)
{
    return filters_pick(jinja, self, call, 0);
}

static struct value filter_reject(struct jinja *jinja, struct value self, struct call *call)
{
    return filters_pick(jinja, self, call, IS_REJECT);
}

static struct value filter_selectattr(struct jinja *jinja, struct value self, struct call *call)
{
    return filters_pick(jinja, self, call, BY_ATTRIBUTE);
}

static struct value filter_rejectattr(struct jinja *jinja, struct value self, struct call *call)
{
    return filters_pick(jinja, self, call, BY_ATTRIBUTE | IS_REJECT);
}

static struct value keyword_of(const struct call *call, const char *name)
{
    for (size_t i = 0; i < call->n_keywords; i++) {
        if (text_is(call->keywords[i].name, name))
            return call->keywords[i].value;
    }
    return (struct value){.kind = VALUE_ABSENT};
}

/* map(attribute="x", default=y) */
static struct value map_attribute(struct jinja *jinja, struct value all, struct value path,
                                  struct value otherwise)
{
    struct value list = value_list(jinja, 0);

    for (size_t i = 0; jinja->rc == 0 && i < all.list->n; i++) {
        struct value one = value_path(jinja, all.list->items[i], path);

        list_push(jinja, list,
                  one.kind == VALUE_UNDEFINED && otherwise.kind != VALUE_ABSENT ? otherwise : one);
    }
    return list;
}

static struct value filter_map(struct jinja *jinja, struct value self, struct call *call)
{
    struct value all = filters_pick_elements(jinja, self), list = value_list(jinja, 0);
    struct value path = keyword_of(call, "attribute");

    if (jinja->rc != 0)
        return list;
    if (call->n_args == 0 && path.kind != VALUE_ABSENT)
        return map_attribute(jinja, all, path, keyword_of(call, "default"));
    struct text name = call->n_args == 0 ? (struct text){0} : text_in(call->args[0]);
    const struct callable *filter = filter_find(text_bytes(name));
    if (filter == NULL) {
        jinja_fail(jinja, E_UNSUPPORTED, "unknown filter \"%.*s\"",
                   name.len_bytes > 64 ? 64 : (int)name.len_bytes,
                   name.len_bytes == 0 ? "" : (const char *)name.data);
        return list;
    }
    for (size_t i = 0; jinja->rc == 0 && i < all.list->n; i++) {
        struct call rest = filters_pick_without(call, 1);

        list_push(jinja, list, callable_call(jinja, filter, all.list->items[i], &rest));
    }
    return list;
}

/* attr: only the attribute, never the item */
static struct value filter_attr(struct jinja *jinja, struct value self, struct call *call)
{
    struct text name = text_in(call->bound[0]);

    return self.kind == VALUE_DICT && method_find(jinja, self, text_bytes(name)) == NULL
               ? value_undefined("attr")
               : value_attribute(jinja, self, name);
}

const struct callable pick_filters[] = {
    {"map", NULL, filter_map, 0, false},
    {"select", NULL, filter_select, 0, false},
    {"reject", NULL, filter_reject, 0, false},
    {"selectattr", NULL, filter_selectattr, 1, false},
    {"rejectattr", NULL, filter_rejectattr, 1, false},
    {"attr", "name", filter_attr, 1, false},
    {NULL, NULL, NULL, 0, false},
};
