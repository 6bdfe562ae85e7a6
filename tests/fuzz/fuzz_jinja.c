/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as a template, rendered with any JSON object as variables:
 *
 *     template
 *     =====
 *     {"name": value, ...}
 *
 * All texts of the object count as a client's.  If one of them has the mark below, and the template has not,
 * then every mark in the output must include bytes of the client. */
#include "base/check.h"
#include "text/jinja/jinja_priv.h"
#include "text/jinja/template.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char mark[] = "<|Zq7#|>";

static void check_marks(struct text text)
{
    struct bytes view = text_bytes(text);

    for (size_t at = 0; (at = bytes_find(view, bytes_str(mark), at)) != SIZE_MAX; at++)
        ASSERT((text_marks(text_part(text, at, at + strlen(mark))) & MARK_CLIENT) != 0);
}

static void set_variables(struct jinja *jinja, struct bytes json)
{
    struct value all = value_of_json(jinja, json, MARK_CLIENT, "variables");

    for (size_t i = 0; all.kind == VALUE_DICT && i < all.dict->n; i++) {
        struct value key = all.dict->entries[i].key;
        char name[64] = {0};

        if (key.text->len_bytes >= sizeof(name))
            continue;
        if (key.text->len_bytes > 0)
            memcpy(name, key.text->data, key.text->len_bytes);
        jinja_set(jinja, name, all.dict->entries[i].value);
    }
}

static void render(const struct jinja_template *parsed, struct bytes json, bool is_markless)
{
    const struct template_limits limits = {
        .steps = 200000, .memory_bytes = (size_t)8 << 20, .text_bytes = (size_t)1 << 20};
    struct jinja *jinja = NULL;
    struct fault fault = {0};
    struct text text = {0};

    ASSERT(jinja_new(parsed, &limits, 1735734896, &fault, &jinja) == 0);
    set_variables(jinja, json);
    int rc = jinja_run(jinja, &text);
    if (rc != 0)
        ASSERT(fault.code == rc && fault.text[0] != '\0');
    else if (is_markless)
        check_marks(text);
    jinja_free(jinja);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char border[] = "\n=====\n";
    struct bytes input = bytes_of(data, size), json = bytes_str("{}");
    size_t at = bytes_find(input, bytes_str(border), 0);
    struct jinja_template *parsed = NULL;
    struct fault fault = {0};

    if (at != SIZE_MAX) {
        json = bytes_of(data + at + strlen(border), size - at - strlen(border));
        input.len_bytes = at;
    }
    int rc = template_new(input, &fault, &parsed);
    if (rc != 0) {
        ASSERT(parsed == NULL && fault.text[0] != '\0');
        return 0;
    }
    render(parsed, json, bytes_find(input, bytes_str("Zq7"), 0) == SIZE_MAX);
    template_free(parsed);
    return 0;
}
