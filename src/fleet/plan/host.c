/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the output of baton-model bench --json.
 *
 * The output has the machine's limits (bytes read and operations per second).  For each run it has the part of
 * the limit that the run reached.  Prefill runs ("pp512") give eta_c, decode runs ("tg64") eta_b.  The CPU
 * engine starts no kernels from a host, so its fixed times are small. */
#include "fleet/plan/host.h"

#include "base/err.h"
#include "base/str.h"
#include "text/json/json.h"

#include <math.h>

#define HOST_TAU_LAYER 2e-6
#define HOST_TAU_STEP  5e-5
#define HOST_ERROR     0.3 /* half-width of the interval, in logarithms: one host, one model */

/* The median of limit_fraction over the runs with this prefix; 0: none. */
static double host_fraction(const json_t *runs, const char *beginning)
{
    double best[64], sum = 0;
    const json_t *run;
    size_t i, n = 0;

    json_array_foreach(runs, i, run)
    {
        const char *name = json_string_value(json_object_get(run, "test"));
        double fraction = json_number_value(json_object_get(run, "limit_fraction"));

        if (name != NULL && strncmp(name, beginning, strlen(beginning)) == 0 && fraction > 0 && n < 64)
            best[n++] = fraction;
    }
    for (size_t j = 0; j < n; j++)
        sum += log(best[j]);
    return n == 0 ? 0 : exp(sum / (double)n);
}

static void host_row(struct buf *table, const char *id, const char *field, double value, double unit)
{
    if (value > 0)
        buf_printf(table, "%s\t%s\t%.6g\tbaton-model bench on the host\n", id, field, value * unit);
}

static int host_device(const json_t *limits, const char *id, struct plan_devices *devices,
                       struct fault *fault)
{
    struct buf table = {0};
    double bf16 = fmax(json_number_value(json_object_get(limits, "bf16_tflops")),
                       json_number_value(json_object_get(limits, "bf16_tiles_tflops")));
    double read = json_number_value(json_object_get(limits, "read_gbs"));

    if (!(read > 0 && read < 1e6))
        return fault_set(fault, E_NOT_FOUND,
                         "limits.read_gbs is missing: not the output of baton-model bench --json");
    buf_printf(&table,
               "device\tfield\tvalue\tsource\n%s\tname\tthis "
               "host\t-\n%s\tclass\tcpu\t-\n%s\tconfidence\tmeasured\t-\n",
               id, id, id);
    host_row(&table, id, "memory_rate", read, 1e9);
    host_row(&table, id, "flops_fp32", json_number_value(json_object_get(limits, "fp32_tflops")), 1e12);
    host_row(&table, id, "flops_bf16", bf16, 1e12);
    host_row(&table, id, "flops_int8", json_number_value(json_object_get(limits, "int8_tops")), 1e12);
    int rc = plan_devices_add(devices, buf_view(&table), fault);
    buf_fini(&table);
    return rc;
}

static int host_constants(const json_t *runs, struct fault *fault, struct plan_constants *out)
{
    struct plan_constants c;
    double prefill = host_fraction(runs, "pp"), decode = host_fraction(runs, "tg");

    if (prefill == 0 || decode == 0)
        return fault_set(fault, E_NOT_FOUND, "runs: a prefill (pp) and a decode (tg) run are needed");
    plan_constants_init(&c);
    str_copy(c.name, sizeof(c.name), "host");
    str_copy(c.source, sizeof(c.source), "baton-model bench --json on the host");
    c.at[PC_ETA_C] = c.at[PC_ETA_CM] = fmin(fmax(prefill, plan_constant_low(PC_ETA_C)), 1);
    c.at[PC_ETA_B] = c.at[PC_ETA_BM] = c.at[PC_ETA_KV] = fmin(fmax(decode, plan_constant_low(PC_ETA_B)), 1);
    c.at[PC_ETA_A] = c.at[PC_ETA_C] / 2;
    c.at[PC_TAU_LAYER] = HOST_TAU_LAYER;
    c.at[PC_TAU_MOE] = HOST_TAU_LAYER;
    c.at[PC_TAU_STEP] = HOST_TAU_STEP;
    c.at[PC_M_H] = 1;
    c.at[PC_MIX] = 1;
    c.at[PC_T0] = 0.005;
    c.at[PC_TTFT_X] = 1;
    for (int t = 0; t < PLAN_N_TARGETS; t++)
        for (int k = 0; k < KNOWN_N; k++) {
            c.band[t][k][0] = -HOST_ERROR;
            c.band[t][k][1] = HOST_ERROR;
        }
    *out = c;
    return 0;
}

int plan_host_add(struct bytes bench, const char *id, struct plan_devices *devices,
                  struct plan_constants *constants, struct fault *fault)
{
    const struct plan_device *there;
    json_t *root;
    int rc = api_json_load(bench, fault, &root);

    if (rc != 0)
        return rc;
    const json_t *runs = json_object_get(root, "runs"), *limits = json_object_get(root, "limits");
    if (plan_devices_find(devices, id, NULL, &there) == 0 && plan_name_equal(there->id, id))
        rc = fault_set(fault, E_EXISTS, "a device \"%.40s\" is known already: rename the file", id);
    else if (strpbrk(id, "\t\n,#") != NULL)
        rc = fault_set(fault, E_INVAL, "the file's name cannot be a device's name");
    else
        rc = host_constants(runs, fault, constants);
    if (rc == 0)
        rc = host_device(limits, id, devices, fault);
    json_decref(root);
    return rc;
}
