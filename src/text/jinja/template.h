/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates: the part of the Jinja language that model files use, parsed once and rendered many times.
 *
 * A template is immutable; any thread may render it.  Neither parsing nor rendering reads anything but its
 * arguments, and both are bounded in depth, work, memory and output. */
#ifndef TEXT_JINJA_TEMPLATE_H
#define TEXT_JINJA_TEMPLATE_H

#include "base/bytes.h"
#include "base/fault.h"
#include "text/jinja/value.h"

struct jinja_template; /* opaque */

/* E_FORMAT or E_UNSUPPORTED: "line N: ...". */
int template_new(struct bytes source, struct fault *fault, struct jinja_template **out);
void template_free(struct jinja_template *parsed);

struct template_limits {
    uint64_t steps;
    size_t memory_bytes; /* of values */
    size_t text_bytes;   /* of the output, and of any text */
};

/* What a rendering of input_bytes of conversation may use. */
struct template_limits template_limits_for(size_t input_bytes);

/* One rendering: made, given its variables, run once, freed. */
int jinja_new(const struct jinja_template *parsed, const struct template_limits *limits, int64_t now_unix_s,
              struct fault *fault, struct jinja **out);
void jinja_free(struct jinja *jinja);
void jinja_set(struct jinja *jinja, const char *name, struct value value);
/* The text, valid until jinja_free().  A failure (also one while variables were made) is in the fault. */
int jinja_run(struct jinja *jinja, struct text *out);

#endif
