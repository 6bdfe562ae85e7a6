/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of share/plan as strings; the build writes tables.inc from them. */
#include "fleet/plan/builtin.h"

#include "fleet/plan/tables.inc"

struct bytes plan_builtin_devices(void)
{
    return bytes_str(TABLE_DEVICES);
}

struct bytes plan_builtin_links(void)
{
    return bytes_str(TABLE_LINKS);
}

struct bytes plan_builtin_models(void)
{
    return bytes_str(TABLE_MODELS);
}

struct bytes plan_builtin_constants(void)
{
    return bytes_str(TABLE_CONSTANTS);
}

int plan_books_open(struct fault *fault, struct plan_books *out)
{
    struct plan_books books = {0};
    int rc = plan_devices_add(&books.devices, plan_builtin_devices(), fault);

    if (rc == 0)
        rc = plan_links_add(&books.links, plan_builtin_links(), fault);
    if (rc == 0)
        rc = plan_models_add(&books.models, plan_builtin_models(), fault);
    if (rc != 0) {
        plan_books_fini(&books);
        return rc;
    }
    *out = books;
    return 0;
}

void plan_books_fini(struct plan_books *books)
{
    plan_devices_fini(&books->devices);
    plan_links_fini(&books->links);
    plan_models_fini(&books->models);
}
