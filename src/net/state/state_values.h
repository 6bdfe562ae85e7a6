/* SPDX-License-Identifier: Apache-2.0 */
/* Values by name that several routers have in common, wherever they are kept: in a store (state.h), or by the workers
 * (fleet/router/kept.c).  The types and the rules of the calls are those of state.h.
 *
 * All functions: loop thread, with any values, also none. */
#ifndef NET_STATE_STATE_VALUES_H
#define NET_STATE_STATE_VALUES_H

#include "net/state/state.h"

struct state_values_ops {
    bool (*is_up)(const void *self);
    int (*name)(const void *self, const char *kind, struct bytes owner, struct bytes id,
                struct state_name *out);
    int (*put)(void *self, const struct state_name *name, uint64_t life_s, struct buf *value);
    int (*put_copy)(void *self, const struct state_name *name, uint64_t life_s, struct bytes value);
    int (*remove)(void *self, const struct state_name *name);
    int (*expire)(void *self, const struct state_name *name, uint64_t life_s);
    int (*forget)(void *self, const struct state_name *name);
    int (*ask)(void *self, const struct state_question *question, void **out);
    void (*cancel)(void *ask);
    size_t max_bytes; /* of one value */
};

struct state_values { /* copied by value; zeroed: none */
    const struct state_values_ops *ops;
    void *self;
};

/* The values in a store; none for NULL.  The store outlives them. */
struct state_values state_values_of(struct state *state);

bool state_values_exist(const struct state_values *values); /* not zeroed */
bool state_values_are_up(const struct state_values *values);
size_t state_values_max_bytes(const struct state_values *values); /* 0: none */
/* As the functions of net/state/state.h; without values E_CLOSED. */
int state_values_name(const struct state_values *values, const char *kind, struct bytes owner,
                      struct bytes id, struct state_name *out);
int state_values_put(const struct state_values *values, const struct state_name *name, uint64_t life_s,
                     struct buf *value);
/* The same with a borrowed value, which is copied only where it has to wait. */
int state_values_put_copy(const struct state_values *values, const struct state_name *name, uint64_t life_s,
                          struct bytes value);
int state_values_remove(const struct state_values *values, const struct state_name *name);
/* Where workers keep the values, they end at once. */
int state_values_expire(const struct state_values *values, const struct state_name *name, uint64_t life_s);
int state_values_forget(const struct state_values *values, const struct state_name *name);
/* out: for state_values_cancel() until the question's done is called. */
int state_values_ask(const struct state_values *values, const struct state_question *question, void **out);
void state_values_cancel(const struct state_values *values, void *ask); /* accepts NULL for ask */

#endif
