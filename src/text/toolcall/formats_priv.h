/* SPDX-License-Identifier: Apache-2.0 */
/* What the rows of formats.c and formats_tags.c share. */
#ifndef TEXT_TOOLCALL_FORMATS_PRIV_H
#define TEXT_TOOLCALL_FORMATS_PRIV_H

#include "text/toolcall/calls_priv.h"

#define CALLS_DSML_MARK   CALLS_BAR "DSML" CALLS_BAR
#define CALLS_GEMMA_QUOTE "<|\"|>"
/* The end of every mark of Hunyuan 3 as it is published. */
#define CALLS_HY3_OPEN_END ":opensource>"

/* What calls_is_name() takes. */
#define CALLS_NAME_BYTES "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

/* clang-format off */
#define TEXT(text) {CALLS_PIECE_TEXT, text}
#define MARK(mark) {CALLS_PIECE_MARK, mark}
#define MISTRAL_ID {CALLS_PIECE_MISTRAL_ID, NULL}
#define INDEX      {CALLS_PIECE_INDEX, NULL}
#define NUMBER     {CALLS_PIECE_NUMBER, NULL}
#define SOLAR_ID   {CALLS_PIECE_SOLAR_ID, NULL}
#define MARKS(...) (const char *const[]){__VA_ARGS__, NULL}
#define PARSER(...) &(const struct calls_parser){__VA_ARGS__}
/* clang-format on */

/* The rows of formats whose arguments stand between tags; empty for others. */
extern const struct calls_row calls_tagged_rows[CALLS_FORMAT_COUNT];

#endif
