/* SPDX-License-Identifier: Apache-2.0 */
/* Reads an importance matrix (baton-model imatrix, llama-imatrix): a GGUF file with two tensors for a matrix
 * NAME of a model,
 *
 *     NAME.in_sum2   [experts][cols]   sums of the squares of the inputs
 *     NAME.counts    [experts]         number of inputs
 *
 * An input that was never or hardly ever used still counts a little, because the text covers only a part of the
 * model's uses. */
#include "clients/model/quantize_priv.h"

#include "base/bytes.h"
#include "base/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const float LEAST = 0.01F; /* factor of an input that is always zero */

struct imatrix {
    struct gguf *gguf;
};

int imatrix_open(const char *path, struct fault *fault, struct imatrix **out)
{
    struct imatrix *imatrix = calloc(1, sizeof(*imatrix));
    struct bytes type;
    int rc;

    if (imatrix == NULL)
        return fault_set(fault, E_NOMEM, "%s", err_text(E_NOMEM));
    rc = gguf_open(path, fault, &imatrix->gguf);
    if (rc == 0 &&
        (gguf_get_str(imatrix->gguf, "general.type", NULL, &type) != 0 || !bytes_is(type, "imatrix")))
        rc = fault_set(fault, E_FORMAT, "key general.type is not \"imatrix\"");
    if (rc < 0) {
        imatrix_close(imatrix);
        return rc;
    }
    *out = imatrix;
    return 0;
}

void imatrix_close(struct imatrix *imatrix)
{
    if (imatrix == NULL)
        return;
    gguf_close(imatrix->gguf);
    free(imatrix);
}

static const struct gguf_tensor *imatrix_part(const struct imatrix *imatrix, const struct gguf_tensor *tensor,
                                              const char *part)
{
    char name[1032];

    snprintf(name, sizeof(name), "%.*s.%s", (int)tensor->name.len_bytes, (const char *)tensor->name.data,
             part);
    return gguf_tensor_find(imatrix->gguf, name);
}

static float imatrix_number(const struct gguf_tensor *tensor, uint64_t index)
{
    uint32_t word = get_u32((const uint8_t *)tensor->data + 4 * index);
    float value;

    memcpy(&value, &word, sizeof(value));
    return value;
}

/* Factors of one matrix from its sums. Without inputs all are 1. */
static void imatrix_row(const struct gguf_tensor *sums, uint64_t from, uint64_t n, double count, float *out)
{
    double total = 0;

    for (uint64_t i = 0; i < n; i++) {
        float sum = imatrix_number(sums, from + i);

        out[i] = isfinite(sum) && sum > 0 ? sum : 0;
        total += (double)out[i];
    }
    for (uint64_t i = 0; i < n; i++)
        out[i] = count > 0 && total > 0 && isfinite(total)
                     ? LEAST + (1 - LEAST) * (float)((double)out[i] * (double)n / total)
                     : 1;
}

int imatrix_check(const struct imatrix *imatrix, const struct gguf_tensor *tensor, struct fault *fault)
{
    const struct gguf_tensor *sums = imatrix_part(imatrix, tensor, "in_sum2");
    const struct gguf_tensor *counts = imatrix_part(imatrix, tensor, "counts");
    uint64_t cols = tensor->dims[0], n = tensor->dims[2];

    if (sums == NULL || counts == NULL)
        return 0;
    if (sums->type != DTYPE_F32 || counts->type != DTYPE_F32 || sums->len_bytes != n * cols * sizeof(float) ||
        counts->len_bytes != n * sizeof(float))
        return fault_set(fault, E_FORMAT, "the importance of tensor %.*s has another shape",
                         (int)tensor->name.len_bytes, (const char *)tensor->name.data);
    return 1;
}

int imatrix_factors(const struct imatrix *imatrix, const struct gguf_tensor *tensor, float **out)
{
    const struct gguf_tensor *sums = imatrix_part(imatrix, tensor, "in_sum2");
    const struct gguf_tensor *counts = imatrix_part(imatrix, tensor, "counts");
    uint64_t cols = tensor->dims[0], n = tensor->dims[2];

    *out = NULL;
    if (imatrix_check(imatrix, tensor, NULL) <= 0)
        return 0;
    *out = malloc(n * cols * sizeof(**out));
    if (*out == NULL)
        return E_NOMEM;
    for (uint64_t e = 0; e < n; e++)
        imatrix_row(sums, e * cols, cols, (double)imatrix_number(counts, e), *out + e * cols);
    return 0;
}
