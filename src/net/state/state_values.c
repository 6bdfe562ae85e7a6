/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of state_values.h, and the store's side of them. */
#include "net/state/state_values.h"

#include "base/err.h"

/* ---- a store ---- */

static bool values_store_is_up(const void *self)
{
    return state_is_up(self);
}

static int values_store_name(const void *self, const char *kind, struct bytes owner, struct bytes id,
                             struct state_name *out)
{
    return state_name(self, kind, owner, id, out);
}

static int values_store_put(void *self, const struct state_name *name, uint64_t life_s, struct buf *value)
{
    return state_put(self, name, life_s, value);
}

static int values_store_put_copy(void *self, const struct state_name *name, uint64_t life_s,
                                 struct bytes value)
{
    struct buf copy = {0};

    buf_append(&copy, value.data, value.len_bytes);
    return state_put(self, name, life_s, &copy);
}

static int values_store_remove(void *self, const struct state_name *name)
{
    return state_remove(self, name);
}

static int values_store_expire(void *self, const struct state_name *name, uint64_t life_s)
{
    return state_expire(self, name, life_s);
}

static int values_store_forget(void *self, const struct state_name *name)
{
    return state_forget(self, name);
}

static int values_store_ask(void *self, const struct state_question *question, void **out)
{
    struct state_ask *ask;
    int rc = state_ask(self, question, &ask);

    if (rc == 0)
        *out = ask;
    return rc;
}

static void values_store_cancel(void *ask)
{
    state_ask_cancel(ask);
}

struct state_values state_values_of(struct state *state)
{
    static const struct state_values_ops store_ops = {.is_up = values_store_is_up,
                                                      .name = values_store_name,
                                                      .put = values_store_put,
                                                      .put_copy = values_store_put_copy,
                                                      .remove = values_store_remove,
                                                      .expire = values_store_expire,
                                                      .forget = values_store_forget,
                                                      .ask = values_store_ask,
                                                      .cancel = values_store_cancel,
                                                      .max_bytes = STATE_MAX_VALUE};

    return state == NULL ? (struct state_values){0} : (struct state_values){.ops = &store_ops, .self = state};
}

/* ---- calls ---- */

bool state_values_exist(const struct state_values *values)
{
    return values->ops != NULL;
}

bool state_values_are_up(const struct state_values *values)
{
    return values->ops != NULL && values->ops->is_up(values->self);
}

size_t state_values_max_bytes(const struct state_values *values)
{
    return values->ops == NULL ? 0 : values->ops->max_bytes;
}

int state_values_name(const struct state_values *values, const char *kind, struct bytes owner,
                      struct bytes id, struct state_name *out)
{
    return values->ops == NULL ? E_CLOSED : values->ops->name(values->self, kind, owner, id, out);
}

int state_values_put(const struct state_values *values, const struct state_name *name, uint64_t life_s,
                     struct buf *value)
{
    if (values->ops != NULL)
        return values->ops->put(values->self, name, life_s, value);
    buf_fini(value);
    return E_CLOSED;
}

int state_values_put_copy(const struct state_values *values, const struct state_name *name, uint64_t life_s,
                          struct bytes value)
{
    return values->ops == NULL ? E_CLOSED : values->ops->put_copy(values->self, name, life_s, value);
}

int state_values_remove(const struct state_values *values, const struct state_name *name)
{
    return values->ops == NULL ? E_CLOSED : values->ops->remove(values->self, name);
}

int state_values_expire(const struct state_values *values, const struct state_name *name, uint64_t life_s)
{
    return values->ops == NULL ? E_CLOSED : values->ops->expire(values->self, name, life_s);
}

int state_values_forget(const struct state_values *values, const struct state_name *name)
{
    return values->ops == NULL ? E_CLOSED : values->ops->forget(values->self, name);
}

int state_values_ask(const struct state_values *values, const struct state_question *question, void **out)
{
    return values->ops == NULL ? E_CLOSED : values->ops->ask(values->self, question, out);
}

void state_values_cancel(const struct state_values *values, void *ask)
{
    if (values->ops != NULL && ask != NULL)
        values->ops->cancel(ask);
}
