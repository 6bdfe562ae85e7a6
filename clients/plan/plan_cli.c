/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands of baton-plan share: files, tables and numbers. */
#include "clients/plan/plan_cli.h"

#include "base/err.h"
#include "base/file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

bool plan_cli_read(const char *path, struct buf *out)
{
    const char *why = NULL;
    FILE *file = strcmp(path, "-") == 0 ? stdin : file_open(path, &why);
    int rc;

    if (file == NULL) {
        complain(PLAN_NAME, "%s: %s", path, why);
        return false;
    }
    rc = file_read_rest(file, PLAN_TABLE_BYTES, out);
    if (rc == E_LIMIT)
        complain(PLAN_NAME, "%s: more than %zu bytes", path, PLAN_TABLE_BYTES);
    else if (rc != 0)
        complain(PLAN_NAME, "%s: %s", path, rc == E_IO ? strerror(errno) : err_text(rc));
    if (file != stdin)
        fclose(file);
    return rc == 0;
}

bool plan_cli_constants(const char *path, struct plan_constants *out)
{
    struct buf text = {0};
    struct fault fault = {0};
    int rc = E_IO;

    if (path == NULL)
        rc = plan_constants_parse(plan_builtin_constants(), &fault, out);
    else if (plan_cli_read(path, &text))
        rc = plan_constants_parse(buf_view(&text), &fault, out);
    if (rc != 0 && fault.code != 0)
        complain(PLAN_NAME, "%s: %s", path == NULL ? "built-in constants" : path, fault.text);
    buf_fini(&text);
    return rc == 0;
}

bool plan_cli_books(const char *more_devices, const char *more_models, struct plan_books *out)
{
    struct fault fault = {0};
    struct buf text = {0};
    const char *at = "built-in tables";
    int rc = plan_books_open(&fault, out);

    if (rc == 0 && more_devices != NULL) {
        at = more_devices;
        rc = plan_cli_read(at, &text) ? plan_devices_add(&out->devices, buf_view(&text), &fault) : E_IO;
    }
    buf_clear(&text);
    if (rc == 0 && more_models != NULL) {
        at = more_models;
        rc = plan_cli_read(at, &text) ? plan_models_add(&out->models, buf_view(&text), &fault) : E_IO;
    }
    buf_fini(&text);
    if (rc != 0 && fault.code != 0)
        complain(PLAN_NAME, "%s: %s", at, fault.text);
    if (rc != 0)
        plan_books_fini(out);
    return rc == 0;
}

bool plan_cli_rows(const char *path, const struct plan_books *books, struct plan_rows *out)
{
    struct buf text = {0};
    struct fault fault = {0};
    bool is_good = plan_cli_read(path, &text);

    if (is_good && plan_rows_parse(buf_view(&text), books, &fault, out) != 0) {
        complain(PLAN_NAME, "%s: %s", path, fault.text);
        is_good = false;
    }
    buf_fini(&text);
    if (is_good && out->n_refused > 0)
        complain(PLAN_NAME, "%s: %zu rows are left out; the first: %s", path, out->n_refused,
                 out->refusal.text);
    return is_good;
}

bool plan_cli_model(const char *text, const struct plan_books *books, struct plan_model *out)
{
    struct fault fault = {0};
    struct buf config = {0};
    int rc;

    if (bytes_ends_with(bytes_str(text), ".gguf"))
        rc = plan_model_from_gguf(text, &fault, out);
    else if (bytes_ends_with(bytes_str(text), ".json")) {
        if (!plan_cli_read(text, &config))
            return false;
        rc = plan_model_from_config(buf_view(&config), &fault, out);
        buf_fini(&config);
    } else
        rc = plan_model_inline(&books->models, text, &fault, out);
    if (rc != 0)
        complain(PLAN_NAME, "--model %s: %s", text, fault.text);
    return rc == 0;
}

bool plan_cli_add_model(const char *text, struct plan_books *books, struct plan_model *out)
{
    struct fault fault = {0};

    if (!plan_cli_model(text, books, out))
        return false;
    for (char *c = out->name; *c != '\0'; c++)
        if (strchr(" \t,#*/", *c) != NULL)
            *c = '-';
    if (plan_models_push(&books->models, out, &fault) == 0)
        return true;
    complain(PLAN_NAME, "%s", fault.text);
    return false;
}

void plan_cli_si(double value, const char *unit, char *out, size_t cap)
{
    static const char *const PREFIXES[] = {"", "k", "M", "G", "T", "P", "E"};
    size_t i = 0;

    if (isnan(value)) {
        snprintf(out, cap, "-");
        return;
    }
    while (value >= 999.5 && i + 1 < sizeof(PREFIXES) / sizeof(PREFIXES[0])) {
        value /= 1000;
        i++;
    }
    snprintf(out, cap, "%.4g %s%s", value, PREFIXES[i], unit);
}
