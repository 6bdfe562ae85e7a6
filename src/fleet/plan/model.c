/* SPDX-License-Identifier: Apache-2.0 */
/* Model shapes: the table, inline text, checks and counts.
 *
 * Layers are of three kinds: full attention, whose cache grows with the context; a sliding window, whose cache
 * stops at the window; and linear (recurrent), whose state has one size. */
#include "fleet/plan/model.h"

#include "base/err.h"
#include "base/str.h"
#include "fleet/plan/device.h"

#include <math.h>
#include <stdlib.h>

#define MODELS_MAX 4096

static const struct {
    const char *name;
    size_t offset;
} FIELDS[] = {
#define X(field, key) {#field, offsetof(struct plan_model, field)},
    PLAN_MODEL_FIELDS(X)
#undef X
};
#define N_FIELDS (sizeof(FIELDS) / sizeof(FIELDS[0]))

static double *model_at(struct plan_model *model, size_t field)
{
    return (double *)(void *)((char *)model + FIELDS[field].offset);
}

static int model_set(struct plan_model *model, size_t field, const char *value, struct fault *fault)
{
    double number;
    struct fault why = {0};

    if (plan_number(value, &why, &number) != 0)
        return fault_set(fault, why.code, "%s of %s: %s", FIELDS[field].name, model->name, why.text);
    *model_at(model, field) = isnan(number) ? 0 : number;
    return 0;
}

static int models_row(const struct plan_table *table, size_t row, struct fault *fault, struct plan_model *out)
{
    struct plan_model model = {0};
    size_t column;

    int rc = plan_table_column(table, "name", fault, &column);
    if (rc != 0)
        return rc;
    if (!str_copy(model.name, sizeof(model.name), plan_table_cell(table, row, column)))
        return fault_set(fault, E_LIMIT, "name is too long");
    rc = plan_table_column(table, "source", fault, &column);
    if (rc != 0)
        return rc;
    str_copy(model.source, sizeof(model.source), plan_table_cell(table, row, column));
    if (model.source[0] == '\0' || strcmp(model.source, "-") == 0)
        return fault_set(fault, E_FORMAT, "%s has no source", model.name);
    for (size_t i = 0; i < N_FIELDS && rc == 0; i++)
        if (plan_table_column(table, FIELDS[i].name, NULL, &column) == 0)
            rc = model_set(&model, i, plan_table_cell(table, row, column), fault);
    if (rc == 0)
        rc = plan_model_check(&model, fault);
    if (rc == 0)
        *out = model;
    return rc;
}

static int models_reserve(struct plan_models *models, size_t n, struct fault *fault)
{
    if (n > MODELS_MAX)
        return fault_set(fault, E_LIMIT, "more than %d models", MODELS_MAX);
    struct plan_model *list = realloc(models->list, n * sizeof(*list));
    if (list != NULL)
        models->list = list;
    void *aliases = realloc(models->aliases, n * sizeof(*models->aliases));
    if (aliases != NULL)
        models->aliases = aliases;
    return list == NULL || aliases == NULL ? fault_set(fault, E_NOMEM, "out of memory") : 0;
}

int plan_models_add(struct plan_models *models, struct bytes text, struct fault *fault)
{
    struct plan_table table;
    size_t aliases = 0;
    int rc = plan_table_parse(text, fault, &table);

    if (rc != 0)
        return rc;
    bool has_aliases = plan_table_column(&table, "aliases", NULL, &aliases) == 0;
    rc = models_reserve(models, models->n + table.n_rows, fault);
    for (size_t row = 1; row < table.n_rows && rc == 0; row++) {
        struct fault why = {0};

        rc = models_row(&table, row, &why, &models->list[models->n]);
        if (rc != 0)
            fault_set(fault, rc, "line %zu: %s", table.lines[row], why.text);
        else
            str_copy(models->aliases[models->n++], sizeof(*models->aliases),
                     has_aliases ? plan_table_cell(&table, row, aliases) : "");
    }
    plan_table_fini(&table);
    return rc;
}

int plan_models_push(struct plan_models *models, const struct plan_model *model, struct fault *fault)
{
    int rc = models_reserve(models, models->n + 1, fault);

    if (rc != 0)
        return rc;
    models->list[models->n] = *model;
    models->aliases[models->n++][0] = '\0';
    return 0;
}

void plan_models_fini(struct plan_models *models)
{
    free(models->list);
    free(models->aliases);
    *models = (struct plan_models){0};
}

static const struct plan_model *models_named(const struct plan_models *models, const char *name)
{
    for (size_t i = models->n; i-- > 0;)
        if (plan_name_equal(models->list[i].name, name) || plan_name_in_list(models->aliases[i], name))
            return &models->list[i];
    return NULL;
}

/* Removes the suffix of a variant with the same shape: -Instruct, -FP8, -Instruct-NVFP4. */
static bool model_name_shorten(char *name)
{
    static const char *const ENDINGS[] = {
        "-instruct",  "-chat",  "-it",      "-base",  "-hf",       "-fp8",  "-fp8-kv", "-fp4",
        "-nvfp4",     "-mxfp4", "-bf16",    "-int8",  "-int4",     "-awq",  "-gptq",   "-w8a8",
        "-w4a16",     "-v0.1",  "-v0.2",    "-v0.3",  "-0528",     "-0324", "-2507",   "-thinking",
        "-reasoning", "-0905",  "-dynamic", "-block", "-quantized"};
    size_t len = strlen(name);

    for (size_t i = 0; i < sizeof(ENDINGS) / sizeof(ENDINGS[0]); i++) {
        size_t n = strlen(ENDINGS[i]);
        if (len > n && plan_name_equal(name + len - n, ENDINGS[i])) {
            name[len - n] = '\0';
            return true;
        }
    }
    return false;
}

int plan_models_find(const struct plan_models *models, const char *name, struct fault *fault,
                     struct plan_model *out)
{
    const char *slash = strrchr(name, '/');
    char bare[96];
    const struct plan_model *found;

    if (!str_copy(bare, sizeof(bare), slash == NULL ? name : slash + 1))
        return fault_set(fault, E_NOT_FOUND, "no model of such a long name");
    do
        found = models_named(models, bare);
    while (found == NULL && model_name_shorten(bare));
    if (found != NULL) {
        *out = *found;
        return 0;
    }
    struct str_nearest near = {.text = bare, .most = 4};
    for (size_t i = 0; i < models->n; i++)
        str_nearest_try(&near, models->list[i].name);
    const char *nearest = near.name;
    return fault_set(fault, E_NOT_FOUND,
                     "no model \"%.60s\"%s%s%s; give a config.json, a GGUF file, or its shape "
                     "(layers=..,hidden=..)",
                     name, nearest ? "; did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
}

int plan_model_inline(const struct plan_models *models, const char *text, struct fault *fault,
                      struct plan_model *out)
{
    char copy[1024], *rest = copy;
    struct plan_model model = {.name = "inline", .source = "the command line"};

    if (!str_copy(copy, sizeof(copy), text))
        return fault_set(fault, E_LIMIT, "model of more than %zu bytes", sizeof(copy) - 1);
    for (bool is_first = true; rest != NULL; is_first = false) {
        char *part = strsep(&rest, ","), *value = strchr(part, '=');
        size_t i = 0;

        if (value == NULL && is_first) {
            int rc = plan_models_find(models, part, fault, &model);
            if (rc != 0)
                return rc;
            continue;
        }
        if (value == NULL)
            return fault_set(fault, E_FORMAT, "\"%.40s\": expected field=value", part);
        *value++ = '\0';
        while (i < N_FIELDS && strcmp(FIELDS[i].name, part) != 0)
            i++;
        if (i == N_FIELDS)
            return fault_set(fault, E_NOT_FOUND, "unknown field \"%.40s\" of a model", part);
        int rc = model_set(&model, i, value, fault);
        if (rc != 0)
            return rc;
    }
    int rc = plan_model_check(&model, fault);
    if (rc == 0)
        *out = model;
    return rc;
}

static int model_missing(const struct plan_model *model, const char *field, struct fault *fault)
{
    return fault_set(fault, E_NOT_FOUND, "model %s: %s is missing", model->name, field);
}

static int model_check_attention(struct plan_model *model, struct fault *fault)
{
    bool has_attention = plan_model_attention_layers(model) > 0;

    if (has_attention && model->q_heads == 0)
        return model_missing(model, "q_heads", fault);
    if (plan_model_is_mla(model)) {
        if (model->qk_nope_head_dim == 0 || model->v_head_dim == 0)
            return model_missing(model, "qk_nope_head_dim or v_head_dim", fault);
        return 0;
    }
    if (model->kv_heads == 0)
        model->kv_heads = model->q_heads;
    if (has_attention && model->head_dim == 0)
        model->head_dim = model->hidden / model->q_heads;
    if (model->kv_heads > model->q_heads)
        return fault_set(fault, E_RANGE, "model %s: more kv_heads than q_heads", model->name);
    return 0;
}

static int model_check_experts(struct plan_model *model, struct fault *fault)
{
    if (model->experts == 0) {
        model->dense_layers = model->layers;
        model->experts_per_token = model->shared_experts = model->expert_ffn = 0;
        return model->ffn == 0 && plan_model_attention_layers(model) > 0 ? model_missing(model, "ffn", fault)
                                                                         : 0;
    }
    if (model->expert_ffn == 0)
        model->expert_ffn = model->ffn;
    if (model->expert_ffn == 0)
        return model_missing(model, "expert_ffn", fault);
    if (model->experts_per_token == 0)
        return model_missing(model, "experts_per_token", fault);
    if (model->experts_per_token > model->experts || model->dense_layers > plan_model_ffn_layers(model))
        return fault_set(fault, E_RANGE,
                         "model %s: more experts_per_token than experts, or more dense_layers than layers",
                         model->name);
    return model->dense_layers > 0 && model->ffn == 0 ? model_missing(model, "ffn", fault) : 0;
}

int plan_model_check(struct plan_model *model, struct fault *fault)
{
    const double limits[] = {model->layers, model->hidden, model->vocab};
    static const char *const NAMES[] = {"layers", "hidden", "vocab"};

    for (size_t i = 0; i < 3; i++)
        if (!(limits[i] >= 1))
            return model_missing(model, NAMES[i], fault);
    for (size_t i = 0; i < N_FIELDS; i++)
        if (*model_at(model, i) < 0 || *model_at(model, i) > 1e15)
            return fault_set(fault, E_RANGE, "model %s: %s is %s", model->name, FIELDS[i].name,
                             *model_at(model, i) < 0 ? "negative" : "too large");
    if (model->ffn_matrices == 0)
        model->ffn_matrices = 3;
    if (model->linear_layers + model->sliding_layers > model->layers)
        return fault_set(fault, E_RANGE, "model %s: more sliding and linear layers than layers", model->name);
    if (model->attention_layers > model->layers || model->ffn_layers > model->layers)
        return fault_set(fault, E_RANGE, "model %s: more attention_layers or ffn_layers than layers",
                         model->name);
    if (model->sliding_layers > 0 && model->sliding_window == 0)
        return model_missing(model, "sliding_window", fault);
    if (model->linear_layers > 0 && (model->state_bytes == 0 || model->linear_params == 0))
        return model_missing(model, "state_bytes or linear_params", fault);
    int rc = model_check_attention(model, fault);
    return rc != 0 ? rc : model_check_experts(model, fault);
}

bool plan_model_is_mla(const struct plan_model *model)
{
    return model->kv_lora_rank > 0;
}

double plan_model_value_dim(const struct plan_model *model)
{
    return model->v_head_dim > 0 ? model->v_head_dim : model->head_dim;
}

/* Heads of keys of a layer with a window. */
static double model_local_kv_heads(const struct plan_model *model)
{
    return model->sliding_kv_heads > 0 ? model->sliding_kv_heads : model->kv_heads;
}

/* Heads of keys of all layers with keys, together. */
static double model_kv_heads(const struct plan_model *model)
{
    return plan_model_full_layers(model) * model->kv_heads +
           model->sliding_layers * model_local_kv_heads(model);
}

double plan_model_attention_params(const struct plan_model *m)
{
    if (!plan_model_is_mla(m)) {
        double layers = plan_model_attention_layers(m);
        double kv_heads = layers > 0 ? model_kv_heads(m) / layers : 0;

        return m->hidden * (m->head_dim + plan_model_value_dim(m)) * (m->q_heads + kv_heads);
    }

    double query = m->q_heads * (m->qk_nope_head_dim + m->qk_rope_head_dim);
    double down =
        m->q_lora_rank > 0 ? m->hidden * m->q_lora_rank + m->q_lora_rank * query : m->hidden * query;
    return down + m->hidden * (m->kv_lora_rank + m->qk_rope_head_dim) +
           m->kv_lora_rank * m->q_heads * (m->qk_nope_head_dim + m->v_head_dim) +
           m->q_heads * m->v_head_dim * m->hidden;
}

double plan_model_dense_ffn_params(const struct plan_model *model)
{
    return model->ffn_matrices * model->hidden * model->ffn;
}

double plan_model_expert_params(const struct plan_model *model)
{
    return model->experts == 0 ? 0 : model->ffn_matrices * model->hidden * model->expert_ffn;
}

double plan_model_attention_layers(const struct plan_model *model)
{
    return model->attention_layers > 0 ? model->attention_layers : model->layers - model->linear_layers;
}

double plan_model_ffn_layers(const struct plan_model *model)
{
    return model->ffn_layers > 0 ? model->ffn_layers : model->layers;
}

double plan_model_moe_layers(const struct plan_model *model)
{
    return model->experts == 0 ? 0 : plan_model_ffn_layers(model) - model->dense_layers;
}

double plan_model_full_layers(const struct plan_model *model)
{
    return plan_model_attention_layers(model) - model->sliding_layers;
}

static double model_params_with(const struct plan_model *m, double n_experts)
{
    double moe = plan_model_moe_layers(m);

    return plan_model_attention_layers(m) * plan_model_attention_params(m) +
           m->linear_layers * m->linear_params +
           (plan_model_ffn_layers(m) - moe) * plan_model_dense_ffn_params(m) +
           moe * ((n_experts + m->shared_experts) * plan_model_expert_params(m) + m->hidden * m->experts);
}

double plan_model_params(const struct plan_model *model)
{
    double embeddings = model->vocab * model->hidden;

    return model_params_with(model, model->experts) + embeddings * (model->tied_embeddings != 0 ? 1 : 2);
}

double plan_model_active_params(const struct plan_model *model)
{
    return model_params_with(model, model->experts_per_token) + model->vocab * model->hidden;
}

/* A layer with so many heads of keys. */
static double model_kv_layer(const struct plan_model *model, double kv_heads)
{
    return plan_model_is_mla(model) ? model->kv_lora_rank + model->qk_rope_head_dim
                                    : kv_heads * (model->head_dim + plan_model_value_dim(model));
}

double plan_model_kv_elements(const struct plan_model *model)
{
    return plan_model_kv_elements_at(model, 1);
}

double plan_model_kv_elements_at(const struct plan_model *model, double context_tokens)
{
    double local_tokens = fmin(context_tokens, model->sliding_window);

    return model_kv_layer(model, model->kv_heads) * plan_model_full_layers(model) * context_tokens +
           model_kv_layer(model, model_local_kv_heads(model)) * model->sliding_layers * local_tokens;
}
