/* SPDX-License-Identifier: Apache-2.0 */
/* Constants: their names, their files, and the factors of known engines, models and devices. */
#include "fleet/plan/constants.h"

#include "base/err.h"
#include "base/str.h"
#include "fleet/plan/device.h"

#include <math.h>
#include <stdlib.h>

#define FACTORS_MAX 100000

static const struct {
    const char *name, *text;
    double low, high;
} CONSTANTS[] = {
#define X(id, name, low, high, text) {name, text, low, high},
    PLAN_CONSTANTS(X)
#undef X
};

static const char *const TARGETS[PLAN_N_TARGETS] = {"tpot", "ttft"};
static const char *const KNOWN[KNOWN_N] = {"all", "parts", "little"};

const char *plan_constant_name(enum plan_constant constant)
{
    return CONSTANTS[constant].name;
}

const char *plan_constant_text(enum plan_constant constant)
{
    return CONSTANTS[constant].text;
}

double plan_constant_low(enum plan_constant constant)
{
    return CONSTANTS[constant].low;
}

double plan_constant_high(enum plan_constant constant)
{
    return CONSTANTS[constant].high;
}

void plan_constants_init(struct plan_constants *constants)
{
    static const double START[PC_N] = {
        [PC_ETA_C] = 0.75,     [PC_ETA_B] = 0.8,      [PC_ETA_KV] = 0.7,     [PC_ETA_A] = 0.3,
        [PC_ETA_CM] = 0.4,     [PC_ETA_BM] = 0.7,     [PC_TAU_LAYER] = 5e-5, [PC_TAU_MOE] = 1e-5,
        [PC_TAU_STEP] = 3e-4,  [PC_TAU_TOKEN] = 1e-6, [PC_ALPHA] = 8e-6,     [PC_ETA_N] = 0.4,
        [PC_M_H] = 35,         [PC_SKEW] = 1.2,       [PC_FP4] = 0.7,        [PC_MIX] = 1,
        [PC_SAME_HOST] = 0.05, [PC_T0] = 0.03,        [PC_TTFT_X] = 1.5,     [PC_TTFT_Y] = 0.1,
    };

    *constants = (struct plan_constants){.name = "start", .source = "values to begin a fit with"};
    memcpy(constants->at, START, sizeof(START));
    for (int t = 0; t < PLAN_N_TARGETS; t++) {
        constants->held_out[t] = NAN;
        for (int k = 0; k < KNOWN_N; k++) {
            constants->band[t][k][0] = t == PLAN_TPOT ? -0.5 : -0.9;
            constants->band[t][k][1] = t == PLAN_TPOT ? 0.5 : 0.9;
        }
    }
}

void plan_constants_fini(struct plan_constants *constants)
{
    free(constants->factors);
    constants->factors = NULL;
    constants->n_factors = 0;
}

int plan_constants_copy(const struct plan_constants *constants, struct plan_constants *out)
{
    struct plan_constants copy = *constants;

    copy.factors = NULL;
    if (constants->n_factors > 0) {
        copy.factors = malloc(constants->n_factors * sizeof(*copy.factors));
        if (copy.factors == NULL)
            return E_NOMEM;
        memcpy(copy.factors, constants->factors, constants->n_factors * sizeof(*copy.factors));
    }
    *out = copy;
    return 0;
}

int plan_constants_add_factor(struct plan_constants *constants, const struct plan_factor *factor)
{
    if (constants->n_factors == FACTORS_MAX)
        return E_LIMIT;
    struct plan_factor *list = realloc(constants->factors, (constants->n_factors + 1) * sizeof(*list));
    if (list == NULL)
        return E_NOMEM;
    constants->factors = list;
    list[constants->n_factors++] = *factor;
    return 0;
}

static bool factor_part_fits(const char *part, const char *name)
{
    return part[0] == '*' || (name != NULL && plan_name_equal(part, name));
}

double plan_constants_factor(const struct plan_constants *constants, const struct plan_kind *kind,
                             enum plan_target target, enum plan_known *known_out)
{
    double sum = 0;
    bool is_all = false, has_engine = false, has_model = false, has_device = false;

    for (size_t i = 0; i < constants->n_factors; i++) {
        const struct plan_factor *f = &constants->factors[i];

        bool fits_engine = factor_part_fits(f->engine, kind->engine);
        bool fits_model = factor_part_fits(f->model, kind->model);
        bool fits_device = factor_part_fits(f->device, kind->device);
        has_engine |= fits_engine && f->engine[0] != '*';
        has_model |= fits_model && f->model[0] != '*';
        has_device |= fits_device && f->device[0] != '*';
        if (!fits_engine || !fits_model || !fits_device)
            continue;
        sum += f->log_ratio[target];
        is_all |= f->engine[0] != '*' && f->model[0] != '*' && f->device[0] != '*';
    }
    if (known_out != NULL)
        *known_out = is_all ? KNOWN_ALL : has_engine && has_model && has_device ? KNOWN_PARTS : KNOWN_LITTLE;
    return exp(sum);
}

/* ---- files ---- */

static int file_number(const char *word, double low, double high, struct fault *fault, double *out)
{
    double value;

    if (word == NULL || str_to_f64(bytes_str(word), &value) != 0)
        return fault_set(fault, E_FORMAT, "\"%.40s\" is not a number", word == NULL ? "" : word);
    if (!(value >= low && value <= high))
        return fault_set(fault, E_RANGE, "%.40s is outside %g to %g", word, low, high);
    *out = value;
    return 0;
}

static int file_name(const char *const *names, int n, const char *word, struct fault *fault)
{
    for (int i = 0; i < n; i++)
        if (word != NULL && strcmp(names[i], word) == 0)
            return i;
    return fault_set(fault, E_FORMAT, "unknown word \"%.40s\"", word == NULL ? "" : word);
}

static int file_factor(struct plan_constants *c, char **rest, struct fault *fault)
{
    struct plan_factor factor = {.n = 0};
    char *parts[] = {factor.engine, factor.model, factor.device};
    const size_t caps[] = {sizeof(factor.engine), sizeof(factor.model), sizeof(factor.device)};

    for (size_t i = 0; i < 3; i++) {
        const char *word = strsep(rest, " \t");
        if (word == NULL || *word == '\0' || !str_copy(parts[i], caps[i], word))
            return fault_set(fault, E_FORMAT, "factor: expected engine, model and device");
    }
    int rc = 0;
    for (int t = 0; t < PLAN_N_TARGETS && rc == 0; t++)
        rc = file_number(strsep(rest, " \t"), -5, 5, fault, &factor.log_ratio[t]);
    if (rc == 0)
        rc = file_number(strsep(rest, " \t"), 0, 1e9, fault, &factor.n);
    if (rc == 0)
        rc = plan_constants_add_factor(c, &factor);
    return rc;
}

static int file_band(struct plan_constants *c, char **rest, struct fault *fault)
{
    int target = file_name(TARGETS, PLAN_N_TARGETS, strsep(rest, " \t"), fault);
    int known = target < 0 ? target : file_name(KNOWN, KNOWN_N, strsep(rest, " \t"), fault);

    if (known < 0)
        return known;
    int rc = file_number(strsep(rest, " \t"), -5, 5, fault, &c->band[target][known][0]);
    if (rc == 0)
        rc = file_number(strsep(rest, " \t"), -5, 5, fault, &c->band[target][known][1]);
    return rc;
}

static int file_line(struct plan_constants *c, char *line, struct fault *fault)
{
    char *rest = line;
    const char *word = strsep(&rest, " \t");

    if (rest == NULL)
        return fault_set(fault, E_FORMAT, "\"%.40s\" has no value", word);
    rest += strspn(rest, " \t");
    if (strcmp(word, "name") == 0)
        return str_copy(c->name, sizeof(c->name), rest) ? 0 : fault_set(fault, E_LIMIT, "name is too long");
    if (strcmp(word, "date") == 0)
        return str_copy(c->date, sizeof(c->date), rest) ? 0 : fault_set(fault, E_LIMIT, "date is too long");
    if (strcmp(word, "source") == 0)
        return str_copy(c->source, sizeof(c->source), rest) ? 0
                                                            : fault_set(fault, E_LIMIT, "source is too long");
    if (strcmp(word, "factor") == 0)
        return file_factor(c, &rest, fault);
    if (strcmp(word, "band") == 0)
        return file_band(c, &rest, fault);
    if (strcmp(word, "held_out") == 0) {
        int target = file_name(TARGETS, PLAN_N_TARGETS, strsep(&rest, " \t"), fault);
        return target < 0 ? target : file_number(rest, 0, 100, fault, &c->held_out[target]);
    }
    for (int i = 0; i < PC_N; i++)
        if (strcmp(word, CONSTANTS[i].name) == 0)
            return file_number(rest, CONSTANTS[i].low, CONSTANTS[i].high, fault, &c->at[i]);
    return fault_set(fault, E_NOT_FOUND, "unknown constant \"%.40s\"", word);
}

int plan_constants_parse(struct bytes text, struct fault *fault, struct plan_constants *out)
{
    struct plan_constants constants;
    size_t n_line = 1;
    int rc = 0;

    if (text.len_bytes > PLAN_TABLE_BYTES)
        return fault_set(fault, E_LIMIT, "more than %zu bytes", PLAN_TABLE_BYTES);
    plan_constants_init(&constants);
    for (size_t at = 0; at < text.len_bytes && rc == 0; n_line++) {
        const uint8_t *end = memchr(text.data + at, '\n', text.len_bytes - at);
        size_t len = end == NULL ? text.len_bytes - at : (size_t)(end - text.data) - at;
        char line[512];
        struct fault why = {0};

        if (len >= sizeof(line))
            rc = fault_set(&why, E_LIMIT, "line of more than %zu bytes", sizeof(line) - 1);
        memcpy(line, text.data + at, rc == 0 ? len : 0);
        line[rc == 0 ? len : 0] = '\0';
        line[strcspn(line, "\r")] = '\0';
        if (rc == 0 && line[0] != '#' && line[strspn(line, " \t")] != '\0')
            rc = file_line(&constants, line, &why);
        if (rc != 0)
            fault_set(fault, rc, "line %zu: %s", n_line, why.text);
        at += len + 1;
    }
    if (rc != 0) {
        plan_constants_fini(&constants);
        return rc;
    }
    *out = constants;
    return 0;
}

int plan_constants_write(const struct plan_constants *c, struct buf *out)
{
    buf_printf(out, "# Constants of baton-plan.  Effective values: they hold together, not one by one.\n");
    buf_printf(out, "name %s\ndate %s\nsource %s\n", c->name, c->date, c->source);
    for (int t = 0; t < PLAN_N_TARGETS; t++)
        if (!isnan(c->held_out[t]))
            buf_printf(out, "held_out %s %.4f\n", TARGETS[t], c->held_out[t]);
    for (int i = 0; i < PC_N; i++)
        buf_printf(out, "# %s\n%s %.4g\n", CONSTANTS[i].text, CONSTANTS[i].name, c->at[i]);
    buf_printf(out, "# band: 5 %% and 95 %% points of ln(measured / predicted) of held-out rows\n");
    for (int t = 0; t < PLAN_N_TARGETS; t++)
        for (int k = 0; k < KNOWN_N; k++)
            buf_printf(out, "band %s %s %.4f %.4f\n", TARGETS[t], KNOWN[k], c->band[t][k][0],
                       c->band[t][k][1]);
    if (c->n_factors > 0)
        buf_printf(out, "# factor engine model device ln(tpot) ln(ttft) measurements\n");
    for (size_t i = 0; i < c->n_factors; i++) {
        const struct plan_factor *f = &c->factors[i];
        buf_printf(out, "factor %s %s %s %.4f %.4f %g\n", f->engine, f->model, f->device,
                   f->log_ratio[PLAN_TPOT], f->log_ratio[PLAN_TTFT], f->n);
    }
    return out->is_bad ? E_NOMEM : 0;
}
