/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates: the part of the Jinja language that model files use. A template is parsed once and rendered
 * many times.
 *
 * A template is immutable; any thread may render it. Parsing and rendering read their arguments only. Both
 * have limits on depth, work, memory and output. */
#ifndef TEXT_JINJA_TEMPLATE_H
#define TEXT_JINJA_TEMPLATE_H

#include "base/bytes.h"
#include "base/fault.h"
#include "text/jinja/value.h"

struct jinja_template; /* opaque */

/* E_FORMAT or E_UNSUPPORTED; the fault is "line N: ...". */
int template_new(struct bytes source, struct fault *fault, struct jinja_template **out);
void template_free(struct jinja_template *parsed);

struct template_limits {
    uint64_t steps;
    size_t memory_bytes; /* for values */
    size_t text_bytes;   /* of the output, and of any single text */
};

/* The limits of a rendering whose conversation has input_bytes. */
struct template_limits template_limits_for(size_t input_bytes);

/* One rendering: create it, set its variables, run it once, free it. */
int jinja_new(const struct jinja_template *parsed, const struct template_limits *limits, int64_t now_unix_s,
              struct fault *fault, struct jinja **out);
void jinja_free(struct jinja *jinja);
void jinja_set(struct jinja *jinja, const char *name, struct value value);
/* The text is valid until jinja_free(). The fault holds the first failure, also one that happened while the
 * variables were made. */
int jinja_run(struct jinja *jinja, struct text *out);

#endif
