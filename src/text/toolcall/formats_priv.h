/* SPDX-License-Identifier: Apache-2.0 */
/* Tags, for the rows: formats_tags.c. */
#ifndef TEXT_TOOLCALL_FORMATS_PRIV_H
#define TEXT_TOOLCALL_FORMATS_PRIV_H

#include "text/toolcall/calls_priv.h"

#define CALLS_DSML_MARK   CALLS_BAR "DSML" CALLS_BAR
#define CALLS_GEMMA_QUOTE "<|\"|>"
/* The end of every mark of Hunyuan 3 as it is published. */
#define CALLS_HY3_OPEN_END ":opensource>"

extern const struct calls_tags calls_xml_tags;
extern const struct calls_tags calls_glm_tags;
extern const struct calls_tags calls_glm_tight_tags;
extern const struct calls_tags calls_hy3_tags;
extern const struct calls_tags calls_hy3_open_tags;
extern const struct calls_tags calls_minimax_tags;
extern const struct calls_tags calls_seed_tags;
extern const struct calls_tags calls_dsml_tags;
extern const struct calls_tags calls_gemma_tags;
extern const struct calls_tags calls_function_gemma_tags;

#endif
