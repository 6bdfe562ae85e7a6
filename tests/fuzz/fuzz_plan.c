/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: user input of baton-plan.  The first byte picks the parser, the rest is its input.  Accepted
 * input can be used: shapes have counts, rows have finite predictions, constants survive being written. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "fleet/plan/builtin.h"
#include "fleet/plan/host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct plan_books books;
static struct plan_constants constants;

static void use_model(const struct plan_model *model)
{
    ASSERT(plan_model_params(model) > 0);
    ASSERT(plan_model_active_params(model) > 0);
    ASSERT(plan_model_kv_elements_at(model, 1000) >= 0);
}

static void use_rows(struct bytes text)
{
    struct plan_rows rows;

    if (plan_rows_parse(text, &books, NULL, &rows) != 0)
        return;
    for (size_t i = 0; i < rows.n && i < 100; i++) {
        struct plan_prediction p;

        plan_predict(&rows.list[i], &constants, &p);
        for (int t = 0; t < PLAN_N_TARGETS; t++)
            ASSERT(isfinite(p.ms[t]) && p.ms[t] > 0 && p.low_ms[t] <= p.high_ms[t]);
    }
    plan_rows_fini(&rows);
}

static void use_constants(struct bytes text)
{
    struct plan_constants once, twice;
    struct buf out = {0};
    struct fault fault = {0};

    if (plan_constants_parse(text, &fault, &once) != 0)
        return;
    ASSERT(plan_constants_write(&once, &out) == 0);
    ASSERT(plan_constants_parse(buf_view(&out), &fault, &twice) == 0);
    ASSERT(twice.n_factors == once.n_factors);
    plan_constants_fini(&once);
    plan_constants_fini(&twice);
    buf_fini(&out);
}

static void use_tables(struct bytes text, unsigned which)
{
    struct plan_devices devices = {0};
    struct plan_links links = {0};
    struct plan_models models = {0};

    if (which == 0)
        plan_devices_add(&devices, text, NULL);
    else if (which == 1)
        plan_links_add(&links, text, NULL);
    else
        plan_models_add(&models, text, NULL);
    for (size_t i = 0; i < models.n; i++)
        use_model(&models.list[i]);
    plan_devices_fini(&devices);
    plan_links_fini(&links);
    plan_models_fini(&models);
}

static void use_host(struct bytes text)
{
    struct plan_devices devices = {0};
    struct plan_constants own;

    if (plan_host_add(text, "host", &devices, &own, NULL) == 0)
        ASSERT(devices.n == 1 && devices.list[0].at[DEV_MEMORY_RATE] > 0);
    plan_devices_fini(&devices);
}

static void use_words(struct bytes text)
{
    char word[600];
    struct plan_device device;
    struct plan_model model;
    struct plan_link link;
    double number;

    if (text.len_bytes >= sizeof(word))
        return;
    memcpy(word, text.data, text.len_bytes);
    word[text.len_bytes] = '\0';
    if (plan_number(word, NULL, &number) == 0)
        ASSERT(isnan(number) || number >= 0);
    plan_device_inline(&books.devices, word, NULL, &device);
    if (plan_model_inline(&books.models, word, NULL, &model) == 0)
        use_model(&model);
    if (plan_links_find(&books.links, word, NULL, &link) == 0)
        ASSERT(link.rate > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plan_model model;

    if (books.devices.n == 0) {
        ASSERT(plan_books_open(NULL, &books) == 0);
        ASSERT(plan_constants_parse(plan_builtin_constants(), NULL, &constants) == 0);
    }
    if (size == 0)
        return 0;
    struct bytes rest = bytes_of(data + 1, size - 1);

    switch (data[0] % 7) {
    case 0:
    case 1:
    case 2:
        use_tables(rest, data[0] % 7);
        break;
    case 3:
        if (plan_model_from_config(rest, NULL, &model) == 0)
            use_model(&model);
        use_host(rest);
        break;
    case 4:
        use_rows(rest);
        break;
    case 5:
        use_constants(rest);
        break;
    case 6:
        use_words(rest);
        break;
    }
    return 0;
}
