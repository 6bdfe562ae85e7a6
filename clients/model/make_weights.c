/* SPDX-License-Identifier: Apache-2.0 */
/* Random weights, streamed to a file at the file's speed.
 *
 * The loader itself lists the tensors that a file must hold for its keys (model_tensors).  So a new
 * architecture can be made as soon as it can be loaded.  Values are normal: 12 random bits choose one of 4096
 * quantiles, so a type's bits are looked up, not computed.  Deviations are like a trained model's.  Matrices
 * keep their input's scale.  Matrices that write to the residual stream are smaller by the number of layers.
 * The head gives logits of deviation 3.  So neither attention nor the distribution of tokens is flat.  The
 * same seed gives the same file. */
#include "clients/model/make_priv.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/progress.h"
#include "base/rng.h"
#include "clients/model/rig.h"
#include "compute/model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_QUANTILES = 4096, CHUNK_WEIGHTS = 1 << 18 };

struct tensor_plan {
    struct model_tensor tensor;
    uint64_t n_weights;
    double mean, deviation;
    enum dtype type;
};

struct making {
    const struct make_shape *shape;
    struct tensor_plan *plans;
    uint64_t n_plans, max_plans;
    double quantiles[N_QUANTILES];
    uint64_t done_bytes, total_bytes;
    struct fault *fault;
    struct progress progress;
};

/* ---- which tensors ---- */

static bool is_asked_for(const struct make_shape *shape, const char *word)
{
    for (size_t i = 0; shape->optional[i]; i++)
        if (strstr(shape->optional[i], word))
            return true;
    return false;
}

/* True for a tensor that an option asks for as a part of another one. */
static bool is_within_another(const struct make_shape *shape, const char *name)
{
    static const struct {
        const char *whole, *part;
    } FUSED[] = {{"attn_qkv", ".attn_q."},
                 {"attn_qkv", ".attn_k."},
                 {"attn_qkv", ".attn_v."},
                 {"ffn_gate_up_exps", ".ffn_gate_exps.weight"},
                 {"ffn_gate_up_exps", ".ffn_up_exps.weight"},
                 {"ffn_gate_up_exps.bias", ".ffn_gate_exps.bias"},
                 {"ffn_gate_up_exps.bias", ".ffn_up_exps.bias"}};

    for (size_t i = 0; i < ARRAY_LEN(FUSED); i++)
        if (strstr(name, FUSED[i].part) && is_asked_for(shape, FUSED[i].whole))
            return true;
    return false;
}

static bool is_left_out(const struct make_shape *shape, const struct model_tensor *tensor)
{
    if (is_within_another(shape, tensor->name))
        return true;
    if (!tensor->is_optional)
        return false;
    if (tensor->role == MODEL_HEAD)
        return shape->is_tied;
    if (strstr(tensor->name, "attn_qkv.bias")) /* "bias" alone asks for those of q, k and v */
        return !is_asked_for(shape, "attn_qkv");
    if (strstr(tensor->name, "ffn_gate_up_exps.bias")) /* so it does for those of gate and up */
        return !is_asked_for(shape, "ffn_gate_up_exps.bias");
    for (size_t i = 0; shape->optional[i]; i++)
        if (strstr(tensor->name, shape->optional[i]))
            return false;
    return true;
}

static void choose_values(const struct make_shape *shape, struct tensor_plan *plan)
{
    double into = 1 / sqrt((double)plan->tensor.dims[0]), head = 3 / sqrt(shape->hidden);

    switch (plan->tensor.role) {
    case MODEL_NORM:
        plan->mean = 1;
        plan->deviation = 0.1;
        break;
    case MODEL_DECAY: /* negative: the quantiles end before four deviations */
        plan->mean = -1;
        plan->deviation = 0.2;
        break;
    case MODEL_BIAS:
        plan->deviation = 0.1;
        break;
    case MODEL_MATRIX:
        plan->deviation = into;
        break;
    case MODEL_WRITER:
        plan->deviation = into / sqrt(2.0 * shape->n_layers);
        break;
    case MODEL_EMBEDDING:
        plan->deviation = shape->is_tied ? head : 1;
        break;
    case MODEL_HEAD:
        plan->deviation = head;
        break;
    case MODEL_ROPE_FACTORS: /* positive: the quantiles end before four deviations */
        plan->mean = 4;
        plan->deviation = 0.75;
        break;
    }
}

static int make_weights_plan(void *arg, const struct model_tensor *tensor)
{
    struct making *making = arg;
    const struct dtype_info *info;
    struct tensor_plan *at;

    if (is_left_out(making->shape, tensor))
        return 0;
    if (making->n_plans == making->max_plans) {
        uint64_t more = making->max_plans ? 2 * making->max_plans : 64;
        struct tensor_plan *grown = realloc(making->plans, more * sizeof(*grown));

        if (grown == NULL)
            return E_NOMEM;
        making->plans = grown;
        making->max_plans = more;
    }
    at = &making->plans[making->n_plans++];
    *at = (struct tensor_plan){.tensor = *tensor,
                               .n_weights = 1,
                               .type = tensor->n_dims == 1 || tensor->role == MODEL_BIAS ||
                                               tensor->role == MODEL_NORM || tensor->role == MODEL_DECAY
                                           ? DTYPE_F32
                                           : making->shape->type};
    for (uint32_t i = 0; i < tensor->n_dims; i++)
        at->n_weights *= tensor->dims[i];
    choose_values(making->shape, at);
    info = dtype_info(at->type);
    if (tensor->dims[0] % info->qblk_weights != 0)
        return fault_set(making->fault, E_INVAL, "%s has rows of %llu; %s needs multiples of %u",
                         tensor->name, (unsigned long long)tensor->dims[0], info->name, info->qblk_weights);
    making->total_bytes += at->n_weights / info->qblk_weights * info->qblk_bytes;
    return 0;
}

/* The loader says what a file with these keys must hold. */
static int plan_all(struct making *making, const struct gguf_writer *writer)
{
    struct buf image = {0};
    struct gguf *keys = NULL;
    int rc = gguf_writer_header(writer, &image);

    if (rc == 0)
        rc = gguf_open_memory(buf_view(&image), making->fault, &keys);
    if (rc == 0)
        rc = model_tensors(keys, making->fault, make_weights_plan, making);
    gguf_close(keys);
    buf_fini(&image);
    return rc;
}

/* ---- which values ---- */

/* The value that a share p of a standard normal lies below, by halving. */
static double normal_quantile(double p)
{
    double low = -6, high = 6;

    for (int i = 0; i < 50; i++) {
        double middle = (low + high) / 2;

        if (erfc(-middle / sqrt(2)) / 2 < p)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

/* Twelve fresh bits at a time. */
struct draws {
    struct rng rng;
    uint64_t bits;
    unsigned n_left;
};

static unsigned make_weights_draw(struct draws *draws)
{
    unsigned value;

    if (draws->n_left == 0) {
        draws->bits = rng_u64(&draws->rng);
        draws->n_left = 5;
    }
    value = draws->bits & (N_QUANTILES - 1);
    draws->bits >>= 12;
    draws->n_left--;
    return value;
}

/* ---- one type after another: n weights of the tensor into out ---- */

struct table { /* quantiles times deviation in the tensor's type */
    uint32_t words[N_QUANTILES];
    uint16_t scale; /* Q8_0: of every qblk */
};

static void fill_table(const struct making *making, const struct tensor_plan *at, struct table *out)
{
    double largest = making->quantiles[N_QUANTILES - 1];

    out->scale = f32_to_f16((float)(largest * at->deviation / 127));
    for (unsigned i = 0; i < N_QUANTILES; i++) {
        float value = (float)(at->mean + making->quantiles[i] * at->deviation);

        if (at->type == DTYPE_F32)
            memcpy(&out->words[i], &value, sizeof(value));
        else if (at->type == DTYPE_F16)
            out->words[i] = f32_to_f16(value);
        else if (at->type == DTYPE_BF16)
            out->words[i] = f32_to_bf16(value);
        else
            out->words[i] = (uint32_t)lrint(making->quantiles[i] / largest * 127);
    }
}

static size_t fill_plain(enum dtype type, const struct table *table, struct draws *draws, size_t n,
                         uint8_t *out)
{
    if (type == DTYPE_F32) {
        for (size_t i = 0; i < n; i++)
            put_u32(out + 4 * i, table->words[make_weights_draw(draws)]);
        return 4 * n;
    }
    for (size_t i = 0; i < n; i++)
        put_u16(out + 2 * i, (uint16_t)table->words[make_weights_draw(draws)]);
    return 2 * n;
}

static size_t fill_q8_0(const struct table *table, struct draws *draws, size_t n, uint8_t *out)
{
    uint8_t *at = out;

    for (size_t i = 0; i < n; i += 32) {
        put_u16(at, table->scale);
        for (unsigned j = 0; j < 32; j++)
            at[2 + j] = (uint8_t)table->words[make_weights_draw(draws)];
        at += 34;
    }
    return (size_t)(at - out);
}

static void make_weights_show(struct making *making, size_t wrote_bytes)
{
    making->done_bytes += wrote_bytes;
    progress_show(&making->progress, making->done_bytes);
}

static int make_weights_fill(void *arg, uint64_t index, struct gguf_writer *writer)
{
    struct making *making = arg;
    const struct tensor_plan *at = &making->plans[index];
    uint64_t left = at->n_weights;
    struct table *table = malloc(sizeof(*table));
    uint8_t *chunk = malloc((size_t)CHUNK_WEIGHTS * 4);
    struct draws draws = {0};
    struct qblk_pool pool = {0};
    int rc = table && chunk ? 0 : E_NOMEM;

    rng_init(&draws.rng, making->shape->seed * 1000003 + index);
    if (rc == 0)
        fill_table(making, at, table);
    if (rc == 0 && at->type != DTYPE_Q8_0 && dtype_info(at->type)->qblk_weights > 1)
        rc = make_qblk_pool(&(struct qblk_draw){at->type, at->deviation, making->quantiles, N_QUANTILES},
                            &draws.rng, &pool);
    while (rc == 0 && left > 0) {
        size_t n = left < CHUNK_WEIGHTS ? (size_t)left : CHUNK_WEIGHTS;
        size_t len_bytes = pool.qblks               ? make_from_pool(&pool, &draws.rng, n, chunk)
                           : at->type == DTYPE_Q8_0 ? fill_q8_0(table, &draws, n, chunk)
                                                    : fill_plain(at->type, table, &draws, n, chunk);

        rc = rig_is_interrupted() ? E_CANCELLED : gguf_writer_data(writer, chunk, len_bytes);
        make_weights_show(making, len_bytes);
        left -= n;
    }
    free(pool.qblks);
    free(chunk);
    free(table);
    return rc;
}

int make_weights(struct gguf_writer *writer, const struct make_shape *shape, const char *path,
                 struct fault *fault, uint64_t *bytes_out)
{
    struct making *making = calloc(1, sizeof(*making));
    int rc = E_NOMEM;

    if (making) {
        making->shape = shape;
        making->fault = fault;
        rc = plan_all(making, writer);
    }
    for (unsigned i = 0; rc == 0 && i < N_QUANTILES; i++)
        making->quantiles[i] = normal_quantile((i + 0.5) / N_QUANTILES);
    for (uint64_t i = 0; rc == 0 && i < making->n_plans; i++) {
        const struct tensor_plan *at = &making->plans[i];

        rc = gguf_declare_tensor(writer, at->tensor.name, at->type, at->tensor.n_dims, at->tensor.dims);
    }
    if (rc == 0) {
        progress_begin(&making->progress, "writing", making->total_bytes);
        rc = gguf_writer_save(writer, path, make_weights_fill, making, fault);
        progress_end(&making->progress);
        *bytes_out = making->total_bytes;
    } else if (fault->code == 0) {
        fault_set(fault, rc, "%s", err_text(rc));
    }
    if (making)
        free(making->plans);
    free(making);
    return rc;
}
