/* SPDX-License-Identifier: Apache-2.0 */
/* Device and link tables.
 *
 * A device is a column of numbers; a sentence beside each number names its source.  Published figures are
 * often wrong in two ways: a rate counts structured sparsity, or adds up a link's two directions.  Both give
 * twice the true rate.  So a changed rate of 1.6 times the known one or more is refused by name. */
#include "fleet/plan/device.h"

#include "base/err.h"
#include "base/str.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

#define DEVICE_DOUBLED 1.6
#define DEVICES_MAX    4096

static char COMMAND_LINE[] = "the command line";

static const struct {
    const char *name, *text;
} FIELDS[] = {
#define X(id, name, text) {name, text},
    PLAN_DEVICE_FIELDS(X)
#undef X
};

const char *plan_device_field_name(enum plan_device_field field)
{
    return FIELDS[field].name;
}

const char *plan_device_field_text(enum plan_device_field field)
{
    return FIELDS[field].text;
}

static int name_fold(char c)
{
    return c == '_' ? '-' : tolower((unsigned char)c);
}

bool plan_name_begins(const char *name, const char *beginning)
{
    for (; *beginning != '\0'; name++, beginning++)
        if (name_fold(*name) != name_fold(*beginning))
            return false;
    return true;
}

bool plan_name_equal(const char *a, const char *b)
{
    return strlen(a) == strlen(b) && plan_name_begins(a, b);
}

bool plan_name_in_list(const char *list, const char *name)
{
    size_t len = strlen(name);

    while (*list != '\0') {
        size_t n = strcspn(list, ",");
        if (n == len && plan_name_begins(list, name))
            return true;
        list += n + (list[n] == ',');
    }
    return false;
}

static int device_field_find(const char *name)
{
    for (int i = 0; i < DEV_N_FIELDS; i++)
        if (strcmp(FIELDS[i].name, name) == 0)
            return i;
    return -1;
}

static struct plan_device *devices_at(const struct plan_devices *devices, const char *id)
{
    for (size_t i = 0; i < devices->n; i++)
        if (plan_name_equal(devices->list[i].id, id))
            return &devices->list[i];
    return NULL;
}

static int devices_take(struct plan_devices *devices, const char *id, struct fault *fault,
                        struct plan_device **out)
{
    *out = devices_at(devices, id);
    if (*out != NULL)
        return 0;
    if (devices->n == DEVICES_MAX)
        return fault_set(fault, E_LIMIT, "more than %d devices", DEVICES_MAX);

    struct plan_device *list = realloc(devices->list, (devices->n + 1) * sizeof(*list));
    if (list == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    devices->list = list;
    *out = &list[devices->n];
    **out = (struct plan_device){0};
    if (*id == '\0' || !str_copy((*out)->id, sizeof((*out)->id), id))
        return fault_set(fault, E_FORMAT, "device name \"%.40s\" is empty or too long", id);
    for (int i = 0; i < DEV_N_FIELDS; i++)
        (*out)->at[i] = NAN;
    devices->n++;
    return 0;
}

/* Rates that vendors quote doubled. */
static bool device_may_be_doubled(int field)
{
    return (field >= DEV_FP32 && field <= DEV_SCALEUP_PEER) || field == DEV_NIC_RATE ||
           field == DEV_HOST_RATE;
}

static int device_set(struct plan_device *device, int field, const char *value, struct fault *fault)
{
    double number, known = device->at[field];
    struct fault why = {0};

    if (plan_number(value, &why, &number) != 0)
        return fault_set(fault, why.code, "%s of %s: %s", FIELDS[field].name, device->id, why.text);
    if (number == 0)
        return fault_set(fault, E_RANGE, "%s of %s is 0: write null for unknown", FIELDS[field].name,
                         device->id);
    if (device_may_be_doubled(field) && number >= known * DEVICE_DOUBLED)
        return fault_set(fault, E_RANGE,
                         "%s of %s: %s is %.2f times the known %.4g: a figure with sparsity, or both "
                         "directions added up",
                         FIELDS[field].name, device->id, value, number / known, known);
    device->at[field] = number;
    return 0;
}

static int device_row(struct plan_device *device, const char *field, const char *value, const char *source,
                      struct fault *fault)
{
    static const struct {
        const char *name;
        size_t offset, cap;
    } TEXTS[] = {
        {"name", offsetof(struct plan_device, name), sizeof(device->name)},
        {"class", offsetof(struct plan_device, kind), sizeof(device->kind)},
        {"confidence", offsetof(struct plan_device, confidence), sizeof(device->confidence)},
        {"aliases", offsetof(struct plan_device, aliases), sizeof(device->aliases)},
        {"note", offsetof(struct plan_device, note), sizeof(device->note)},
    };
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++)
        if (strcmp(TEXTS[i].name, field) == 0) {
            if (!str_copy((char *)device + TEXTS[i].offset, TEXTS[i].cap, value))
                return fault_set(fault, E_LIMIT, "%s of %s is too long", field, device->id);
            return 0;
        }

    int index = device_field_find(field);
    if (index < 0)
        return fault_set(fault, E_NOT_FOUND, "unknown field \"%.40s\" of %s", field, device->id);
    if (*source == '\0' || strcmp(source, "-") == 0)
        return fault_set(fault, E_FORMAT, "%s of %s has no source", field, device->id);
    int rc = device_set(device, index, value, fault);
    if (rc != 0)
        return rc;
    free(device->sources[index]);
    device->sources[index] = strdup(source);
    return device->sources[index] == NULL ? fault_set(fault, E_NOMEM, "out of memory") : 0;
}

int plan_devices_add(struct plan_devices *devices, struct bytes text, struct fault *fault)
{
    static const char *const NAMES[] = {"device", "field", "value", "source"};
    struct plan_table table;
    size_t column[4];
    int rc = plan_table_parse(text, fault, &table);

    if (rc != 0)
        return rc;
    for (size_t i = 0; i < 4 && rc == 0; i++)
        rc = plan_table_column(&table, NAMES[i], fault, &column[i]);
    for (size_t row = 1; row < table.n_rows && rc == 0; row++) {
        struct plan_device *device;
        struct fault why = {0};

        rc = devices_take(devices, plan_table_cell(&table, row, column[0]), &why, &device);
        if (rc == 0)
            rc = device_row(device, plan_table_cell(&table, row, column[1]),
                            plan_table_cell(&table, row, column[2]), plan_table_cell(&table, row, column[3]),
                            &why);
        if (rc != 0)
            fault_set(fault, rc, "line %zu: %s", table.lines[row], why.text);
    }
    plan_table_fini(&table);
    return rc;
}

void plan_devices_fini(struct plan_devices *devices)
{
    for (size_t i = 0; i < devices->n; i++)
        for (int field = 0; field < DEV_N_FIELDS; field++)
            free(devices->list[i].sources[field]);
    free(devices->list);
    *devices = (struct plan_devices){0};
}

static int devices_miss(const struct plan_devices *devices, const char *name, struct fault *fault)
{
    struct str_nearest near = {.text = name, .most = 4};
    const char *nearest;

    for (size_t i = 0; i < devices->n; i++)
        str_nearest_try(&near, devices->list[i].id);
    nearest = near.name;
    return fault_set(fault, E_NOT_FOUND, "no device \"%.60s\"%s%s%s; baton-plan devices lists them", name,
                     nearest ? "; did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
}

int plan_devices_find(const struct plan_devices *devices, const char *name, struct fault *fault,
                      const struct plan_device **out)
{
    const struct plan_device *found = NULL, *second = NULL;

    for (size_t i = 0; i < devices->n; i++) {
        const struct plan_device *device = &devices->list[i];

        if (plan_name_equal(device->id, name) || plan_name_in_list(device->aliases, name)) {
            *out = device;
            return 0;
        }
        if (*name != '\0' && plan_name_begins(device->id, name)) {
            second = found;
            found = device;
        }
    }
    if (found == NULL)
        return devices_miss(devices, name, fault);
    if (second != NULL)
        return fault_set(fault, E_INVAL, "\"%.60s\" may be %s or %s", name, second->id, found->id);
    *out = found;
    return 0;
}

int plan_device_inline(const struct plan_devices *devices, const char *text, struct fault *fault,
                       struct plan_device *out)
{
    char copy[512], *rest = copy, *part;
    const struct plan_device *base = NULL;
    struct plan_device device = {0};

    if (!str_copy(copy, sizeof(copy), text))
        return fault_set(fault, E_LIMIT, "device of more than %zu bytes", sizeof(copy) - 1);
    part = strsep(&rest, ",");
    if (strcmp(part, "new") == 0) {
        str_copy(device.id, sizeof(device.id), "new");
        str_copy(device.name, sizeof(device.name), "device of the command line");
        str_copy(device.kind, sizeof(device.kind), "inline");
        for (int i = 0; i < DEV_N_FIELDS; i++)
            device.at[i] = NAN;
    } else {
        int rc = plan_devices_find(devices, part, fault, &base);
        if (rc != 0)
            return rc;
        device = *base;
    }
    while (rest != NULL) {
        part = strsep(&rest, ",");
        char *value = strchr(part, '=');
        if (value == NULL)
            return fault_set(fault, E_FORMAT, "\"%.40s\": expected field=value", part);
        *value++ = '\0';
        int field = device_field_find(part);
        if (field < 0)
            return fault_set(fault, E_NOT_FOUND, "unknown field \"%.40s\" of a device", part);
        int rc = device_set(&device, field, value, fault);
        if (rc != 0)
            return rc;
        device.sources[field] = COMMAND_LINE;
    }
    *out = device;
    return 0;
}
