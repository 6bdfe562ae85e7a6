/* SPDX-License-Identifier: Apache-2.0 */
/* The table of links. */
#include "fleet/plan/device.h"

#include "base/err.h"
#include "base/str.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

static int link_row(const struct plan_table *table, size_t row, const size_t column[5], struct fault *fault,
                    struct plan_link *out)
{
    double *numbers[] = {&out->rate, &out->measured_part, &out->startup_s};

    *out = (struct plan_link){0};
    if (!str_copy(out->id, sizeof(out->id), plan_table_cell(table, row, column[0])) || out->id[0] == '\0')
        return fault_set(fault, E_FORMAT, "link name is empty or too long");
    for (size_t i = 0; i < 3; i++) {
        int rc = plan_number(plan_table_cell(table, row, column[i + 1]), fault, numbers[i]);
        if (rc != 0)
            return rc;
    }
    str_copy(out->source, sizeof(out->source), plan_table_cell(table, row, column[4]));
    if (out->source[0] == '\0' || strcmp(out->source, "-") == 0)
        return fault_set(fault, E_FORMAT, "link %s has no source", out->id);
    if (!(out->rate > 0) || out->measured_part > 1)
        return fault_set(fault, E_RANGE, "link %s: rate is unknown, or measured_part is above 1", out->id);
    return 0;
}

int plan_links_add(struct plan_links *links, struct bytes text, struct fault *fault)
{
    static const char *const NAMES[] = {"link", "rate", "measured_part", "startup_s", "source"};
    struct plan_table table;
    size_t column[5];
    int rc = plan_table_parse(text, fault, &table);

    if (rc != 0)
        return rc;
    for (size_t i = 0; i < 5 && rc == 0; i++)
        rc = plan_table_column(&table, NAMES[i], fault, &column[i]);
    struct plan_link *list = rc == 0 ? realloc(links->list, (links->n + table.n_rows) * sizeof(*list)) : NULL;
    if (rc == 0 && list == NULL)
        rc = fault_set(fault, E_NOMEM, "out of memory");
    if (list != NULL)
        links->list = list;
    for (size_t row = 1; row < table.n_rows && rc == 0; row++) {
        struct fault why = {0};

        rc = link_row(&table, row, column, &why, &links->list[links->n]);
        if (rc == 0)
            links->n++;
        else
            fault_set(fault, rc, "line %zu: %s", table.lines[row], why.text);
    }
    plan_table_fini(&table);
    return rc;
}

void plan_links_fini(struct plan_links *links)
{
    free(links->list);
    *links = (struct plan_links){0};
}

int plan_links_find(const struct plan_links *links, const char *name, struct fault *fault,
                    struct plan_link *out)
{
    for (size_t i = 0; i < links->n; i++)
        if (plan_name_equal(links->list[i].id, name)) {
            *out = links->list[i];
            return 0;
        }
    if (!isdigit((unsigned char)name[0]))
        return fault_set(fault, E_NOT_FOUND, "no link \"%.60s\": give a name of baton-plan links, or a rate",
                         name);

    struct plan_link link = {.measured_part = NAN, .startup_s = NAN, .source = "the command line"};
    int rc = plan_number(name, fault, &link.rate);
    if (rc != 0)
        return rc;
    if (!(link.rate > 0))
        return fault_set(fault, E_RANGE, "link rate \"%.40s\" is not above 0", name);
    str_copy(link.id, sizeof(link.id), name);
    *out = link;
    return 0;
}
