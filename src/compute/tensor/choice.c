/* SPDX-License-Identifier: Apache-2.0 */
/* The table of fields and variants. matmul_ways.c and attention.c explain each one.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/tensor/choice.h"

#include "base/check.h"

enum { MAX_WAYS = 3 };

static const struct {
    const char *name;
    uint32_t n_ways;
    const char *ways[MAX_WAYS];
} fields[KERN_N_FIELDS] = {
    [KERN_WIDE] = {"wide", 2, {"six", "all"}},        [KERN_PANELS] = {"panels", 2, {"several", "one"}},
    [KERN_SLICES] = {"slices", 2, {"short", "long"}}, [KERN_FETCH] = {"fetch", 3, {"near", "far", "spread"}},
    [KERN_PLAIN] = {"plain", 2, {"first", "second"}}, [KERN_KEYS] = {"keys", 2, {"first", "second"}},
};

static struct kern_choice current;

uint32_t kern_choice_n_ways(enum kern_field field)
{
    return fields[field].n_ways;
}

const char *kern_choice_field_name(enum kern_field field)
{
    return fields[field].name;
}

const char *kern_choice_way_name(enum kern_field field, uint32_t way)
{
    return way < fields[field].n_ways ? fields[field].ways[way] : NULL;
}

const struct kern_choice *kern_choice_get(void)
{
    return &current;
}

void kern_choice_set(const struct kern_choice *choice)
{
    for (int field = 0; field < KERN_N_FIELDS; field++)
        ASSERT(choice->at[field] < fields[field].n_ways);
    current = *choice;
}
