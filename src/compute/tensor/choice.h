/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel choice: variants of kernels with equal bits that differ in speed between processors. Each field
 * lists its variants and the chosen one. tune.h finds the best ones. */
#ifndef COMPUTE_TENSOR_CHOICE_H
#define COMPUTE_TENSOR_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

enum kern_field {
    KERN_WIDE,   /* wide tiles: for which numbers of tokens and which types */
    KERN_PANELS, /* a single tile reads several panels together, or one after another */
    KERN_SLICES, /* columns per slice for several tiles, of weights used without expansion */
    KERN_FETCH,  /* prefetch distance and target cache of quantised weights */
    KERN_PLAIN,  /* target cache for plain weights that are only loaded */
    KERN_KEYS,   /* target cache of attention's tiles, where two of them fill the first-level cache */
    KERN_N_FIELDS
};

enum kern_wide { WIDE_SIX, WIDE_ALL };
enum kern_panels { PANELS_SEVERAL, PANELS_ONE };
enum kern_slices { SLICES_SHORT, SLICES_LONG };
enum kern_fetch { FETCH_NEAR, FETCH_FAR, FETCH_SPREAD };
enum kern_cache { CACHE_FIRST, CACHE_SECOND }; /* KERN_PLAIN and KERN_KEYS */

struct kern_choice { /* a variant for each field; zeroed: the defaults */
    uint8_t at[KERN_N_FIELDS];
};

uint32_t kern_choice_n_variants(enum kern_field field);
const char *kern_choice_field_name(enum kern_field field);
const char *kern_choice_variant_name(enum kern_field field, uint32_t variant);

/* The choice of the process. Set it between products and before threads compute: readers take no lock. */
const struct kern_choice *kern_choice_get(void);
void kern_choice_set(const struct kern_choice *choice); /* all values below kern_choice_n_variants() */

#endif
