/* SPDX-License-Identifier: Apache-2.0 */
/* The table of fields and variants. matmul_choice.c and attention.c explain each one.
 *
 * Hot path: no allocation, no log, no system call. */
#include "compute/tensor/choice.h"

#include "base/check.h"

enum { MAX_VARIANTS = 3 };

static const struct {
    const char *name;
    uint32_t n_variants;
    const char *variants[MAX_VARIANTS];
} fields[KERN_N_FIELDS] = {
    [KERN_WIDE] = {"wide", 2, {"six", "all"}},        [KERN_PANELS] = {"panels", 2, {"several", "one"}},
    [KERN_SLICES] = {"slices", 2, {"short", "long"}}, [KERN_FETCH] = {"fetch", 3, {"near", "far", "spread"}},
    [KERN_PLAIN] = {"plain", 2, {"first", "second"}}, [KERN_KEYS] = {"keys", 2, {"first", "second"}},
};

static struct kern_choice current;

uint32_t kern_choice_n_variants(enum kern_field field)
{
    return fields[field].n_variants;
}

const char *kern_choice_field_name(enum kern_field field)
{
    return fields[field].name;
}

const char *kern_choice_variant_name(enum kern_field field, uint32_t variant)
{
    return variant < fields[field].n_variants ? fields[field].variants[variant] : NULL;
}

const struct kern_choice *kern_choice_get(void)
{
    return &current;
}

void kern_choice_set(const struct kern_choice *choice)
{
    for (int field = 0; field < KERN_N_FIELDS; field++)
        ASSERT(choice->at[field] < fields[field].n_variants);
    current = *choice;
}
