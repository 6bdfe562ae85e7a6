/* SPDX-License-Identifier: Apache-2.0 */
/* Renders templates from stdin, one JSON object a line:
 *
 *     {"template": "Hello {{ name }}", "context": {"name": "you"}}   ->   {"text": "Hello you"}
 *                                                                    or   {"error": "line 1: ..."}
 *
 * test_jinja.py passes the same lines to the reference and compares. */
#include "text/jinja/jinja_priv.h"
#include "text/jinja/template.h"

#include "base/check.h"
#include "base/err.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>

#define NOW 1735734896 /* 2025-01-01 12:34:56 */

static void print_result(const char *name, struct bytes text)
{
    struct buf line = {0};

    buf_printf(&line, "{\"%s\": ", name);
    json_put_str(&line, text);
    buf_append_str(&line, "}\n");
    fwrite(line.data, 1, line.len_bytes, stdout);
    buf_fini(&line);
}

/* Sets the members of the context as variables. */
static void set_variables(struct jinja *jinja, struct jinja *line, struct bytes json)
{
    struct value all = value_of_json(line, json, MARK_CLIENT, "line");
    const struct value *context = dict_get_str(line, all, "context");

    for (size_t i = 0; context != NULL && i < context->dict->n; i++) {
        char name[256];

        snprintf(name, sizeof(name), "%.*s", (int)text_in(context->dict->entries[i].key).len_bytes,
                 (const char *)text_in(context->dict->entries[i].key).data);
        jinja_set(jinja, name, context->dict->entries[i].value);
    }
}

static int render(const struct jinja_template *template, struct jinja *line, struct bytes json,
                  struct fault *fault)
{
    struct template_limits limits = template_limits_for(json.len_bytes);
    struct jinja *jinja = NULL;
    struct text text;
    int rc = jinja_new(template, &limits, NOW, fault, &jinja);

    if (rc == 0) {
        set_variables(jinja, line, json);
        rc = jinja_run(jinja, &text);
    }
    if (rc == 0)
        print_result("text", text_bytes(text));
    jinja_free(jinja);
    return rc;
}

static void run_line(struct bytes json)
{
    struct template_limits limits = template_limits_for(json.len_bytes);
    struct jinja_template *empty = NULL, *template = NULL;
    struct jinja *line = NULL;
    struct fault fault = {0};

    ASSERT(template_new(bytes_str(""), &fault, &empty) == 0);
    ASSERT(jinja_new(empty, &limits, 0, &fault, &line) == 0);
    struct value all = value_of_json(line, json, MARK_OWN, "line");
    const struct value *source = dict_get_str(line, all, "template");
    ASSERT(source != NULL);
    int rc = template_new(text_bytes(text_in(*source)), &fault, &template);
    if (rc == 0)
        rc = render(template, line, json, &fault);
    if (rc != 0)
        print_result("error", bytes_str(fault.text));
    template_free(template);
    jinja_free(line);
    template_free(empty);
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;

    while ((len = getline(&line, &cap, stdin)) > 0)
        run_line(bytes_of(line, (size_t)len));
    free(line);
    return 0;
}
