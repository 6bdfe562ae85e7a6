/* SPDX-License-Identifier: Apache-2.0 */
/* What a processor does better one way or the other, with the same bits: by the field, which ways there are
 * and which one goes.  tune.h finds the best ones. */
#ifndef COMPUTE_TENSOR_CHOICE_H
#define COMPUTE_TENSOR_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

enum kern_field {
    KERN_WIDE,   /* wide tiles: which numbers of tokens and which types go by them */
    KERN_PANELS, /* one tile alone reads several panels together, or one after the other */
    KERN_SLICES, /* columns that several tiles go past, of weights that are used as they are */
    KERN_FETCH,  /* how far ahead quantised weights are fetched, and to which cache */
    KERN_PLAIN,  /* to which cache plain weights are fetched that are only loaded */
    KERN_KEYS,   /* to which cache attention fetches a tile where two fill the first-level one */
    KERN_N_FIELDS
};

enum kern_wide { WIDE_SIX, WIDE_ALL };
enum kern_panels { PANELS_SEVERAL, PANELS_ONE };
enum kern_slices { SLICES_SHORT, SLICES_LONG };
enum kern_fetch { FETCH_NEAR, FETCH_FAR, FETCH_SPREAD };
enum kern_cache { CACHE_FIRST, CACHE_SECOND }; /* KERN_PLAIN and KERN_KEYS */

struct kern_choice { /* of each field a way; zeroed: the default */
    uint8_t at[KERN_N_FIELDS];
};

uint32_t kern_choice_n_ways(enum kern_field field);
const char *kern_choice_field_name(enum kern_field field);
const char *kern_choice_way_name(enum kern_field field, uint32_t way);

/* Of the process.  Set between products and before threads compute: it is read without a lock. */
const struct kern_choice *kern_choice_get(void);
void kern_choice_set(const struct kern_choice *choice); /* all ways below kern_choice_n_ways() */

#endif
