/* SPDX-License-Identifier: Apache-2.0 */
/* baton-plan devices, links and models: the tables, with the source of each number. */
#include "clients/plan/plan_cli.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

static json_t *json_number(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

static void devices_json(const struct plan_devices *devices)
{
    json_t *root = json_array();

    for (size_t i = 0; i < devices->n; i++) {
        const struct plan_device *d = &devices->list[i];
        json_t *one = json_pack("{s:s, s:s, s:s, s:s}", "device", d->id, "name", d->name, "class", d->kind,
                                "confidence", d->confidence);
        for (int f = 0; f < DEV_N_FIELDS; f++)
            json_object_set_new(one, plan_device_field_name((enum plan_device_field)f),
                                json_pack("{s:o, s:s}", "value", json_number(d->at[f]), "source",
                                          d->sources[f] == NULL ? "not in the table" : d->sources[f]));
        json_array_append_new(root, one);
    }
    json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(root);
}

static void devices_table(const struct plan_devices *devices)
{
    static const enum plan_device_field FIELDS[] = {DEV_MEMORY, DEV_MEMORY_RATE, DEV_SRAM, DEV_SRAM_RATE,
                                                    DEV_BF16,   DEV_FP8,         DEV_FP4,  DEV_SCALEUP_RATE};
    printf("%-20s %-11s %9s %10s %9s %10s %9s %9s %9s %10s\n", "device", "class", "memory", "rate/s", "sram",
           "rate/s", "BF16", "FP8", "FP4", "scale-up/s");
    for (size_t i = 0; i < devices->n; i++) {
        const struct plan_device *d = &devices->list[i];
        char text[8][16];

        for (size_t f = 0; f < 8; f++)
            plan_cli_si(d->at[FIELDS[f]], f < 4 || f == 7 ? "B" : "F", text[f], sizeof(text[f]));
        printf("%-20s %-11s %9s %10s %9s %10s %9s %9s %9s %10s\n", d->id, d->kind, text[0], text[1], text[2],
               text[3], text[4], text[5], text[6], text[7]);
    }
}

static void device_show(const struct plan_device *d)
{
    printf("%s: %s (%s, confidence: %s)\n", d->id, d->name, d->kind, d->confidence);
    for (int f = 0; f < DEV_N_FIELDS; f++) {
        char text[24];

        plan_cli_si(d->at[f], "", text, sizeof(text));
        printf("  %-18s %10s  %s\n", plan_device_field_name((enum plan_device_field)f),
               isnan(d->at[f]) ? "unknown" : text, d->sources[f] == NULL ? "" : d->sources[f]);
    }
    if (d->note[0] != '\0')
        printf("  note: %s\n", d->note);
}

int cmd_devices(int argc, char **argv)
{
    struct plan_books books;
    struct fault fault = {0};
    const struct plan_device *device;
    int status = EXIT_FAILED;

    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        puts("Usage: baton-plan devices [--json | NAME]\nLists the devices, or one with the source of each "
             "number.");
        return finish_output(PLAN_NAME);
    }
    if (!plan_cli_books(NULL, NULL, &books))
        return status;
    if (argc > 1 && strcmp(argv[1], "--json") == 0)
        devices_json(&books.devices);
    else if (argc == 1)
        devices_table(&books.devices);
    else if (plan_devices_find(&books.devices, argv[1], &fault, &device) == 0)
        device_show(device);
    if (fault.code == 0)
        status = finish_output(PLAN_NAME);
    else
        complain(PLAN_NAME, "%s", fault.text);
    plan_books_fini(&books);
    return status;
}

int cmd_links(int argc, char **argv)
{
    struct plan_books books;

    if (argc > 1) {
        puts("Usage: baton-plan links\nLists the links: rate of one direction, measured part, start-up time, "
             "source.");
        return finish_output(PLAN_NAME);
    }
    if (!plan_cli_books(NULL, NULL, &books))
        return EXIT_FAILED;
    for (size_t i = 0; i < books.links.n; i++) {
        const struct plan_link *link = &books.links.list[i];
        char rate[24];

        plan_cli_si(link->rate, "B/s", rate, sizeof(rate));
        printf("%-18s %11s  part %-6.3g startup %-8.2g %s\n", link->id, rate, link->measured_part,
               link->startup_s, link->source);
    }
    plan_books_fini(&books);
    return finish_output(PLAN_NAME);
}

int cmd_models(int argc, char **argv)
{
    struct plan_books books;

    if (argc > 1) {
        puts("Usage: baton-plan models\nLists the models with parameters and bytes of a token's KV in BF16.");
        return finish_output(PLAN_NAME);
    }
    if (!plan_cli_books(NULL, NULL, &books))
        return EXIT_FAILED;
    printf("%-18s %6s %16s %16s %14s  %s\n", "model", "layers", "parameters", "active", "KV bytes/token",
           "source");
    for (size_t i = 0; i < books.models.n; i++) {
        const struct plan_model *m = &books.models.list[i];
        printf("%-18s %6g %16.0f %16.0f %14.0f  %s\n", m->name, m->layers, plan_model_params(m),
               plan_model_active_params(m), 2 * plan_model_kv_elements(m), m->source);
    }
    plan_books_fini(&books);
    return finish_output(PLAN_NAME);
}
