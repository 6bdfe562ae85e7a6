/* SPDX-License-Identifier: Apache-2.0 */
/* Reads an importance matrix (baton-model imatrix, llama-imatrix): a GGUF file with two tensors for a matrix
 * NAME of a model,
 *
 *     NAME.in_sum2   [experts][cols]   sums of the squares of the inputs
 *     NAME.counts    [experts]         number of inputs
 *
 * or the older form (imatrix_dat.h), which has sums and one count for all experts of NAME.
 *
 * An input that was never or hardly ever used still counts a little, because the text covers only a part of the
 * model's uses. */
#include "clients/model/imatrix_dat.h"
#include "clients/model/model_cli.h"
#include "clients/model/quantize_priv.h"
#include "gguf/write.h"

#include "base/bytes.h"
#include "base/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const float LEAST = 0.01F; /* factor of an input that is always zero */

#define MAX_DAT_BYTES ((size_t)8 << 30) /* one of 671 billion weights has 1 GB */

struct imatrix {
    struct gguf *gguf;      /* NULL: the older form, */
    struct buf file;        /* whose bytes these are */
    struct imatrix_dat dat; /* views of file */
};

struct importance { /* of one tensor; floats of any alignment */
    const uint8_t *sums, *counts;
    size_t n_sums, n_counts; /* counts NULL: all experts have the same one, not 0 */
};

static bool is_gguf(const char *path)
{
    char magic[4] = "";
    FILE *file = fopen(path, "rbe");
    bool has_magic = file == NULL || (fread(magic, 1, 4, file) == 4 && memcmp(magic, "GGUF", 4) == 0);

    if (file != NULL)
        fclose(file);
    return has_magic; /* an absent file is gguf_open()'s to refuse */
}

static int imatrix_load(struct imatrix *imatrix, const char *path, struct fault *fault)
{
    struct bytes type;
    int rc;

    if (!is_gguf(path)) {
        rc = cli_read(path, MAX_DAT_BYTES, fault, &imatrix->file);
        return rc < 0 ? rc : imatrix_dat_read(buf_view(&imatrix->file), &imatrix->dat, fault);
    }
    rc = gguf_open(path, fault, &imatrix->gguf);
    if (rc == 0 &&
        (gguf_get_str(imatrix->gguf, "general.type", NULL, &type) != 0 || !bytes_is(type, "imatrix")))
        rc = fault_set(fault, E_FORMAT, "key general.type is not \"imatrix\"");
    return rc;
}

int imatrix_open(const char *path, struct fault *fault, struct imatrix **out)
{
    struct imatrix *imatrix = calloc(1, sizeof(*imatrix));
    int rc;

    if (imatrix == NULL)
        return fault_set(fault, E_NOMEM, "%s", err_text(E_NOMEM));
    rc = imatrix_load(imatrix, path, fault);
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
    imatrix_dat_fini(&imatrix->dat);
    buf_fini(&imatrix->file);
    free(imatrix);
}

/* ---- keys of the result ---- */

static bool is_sums(struct bytes name)
{
    return bytes_ends_with(name, ".in_sum2");
}

static uint32_t count_entries(const struct imatrix *imatrix)
{
    uint32_t n = imatrix->dat.n_entries;

    for (uint64_t i = 0; imatrix->gguf != NULL && i < gguf_tensor_count(imatrix->gguf); i++)
        n += is_sums(gguf_tensor_at(imatrix->gguf, i)->name);
    return n;
}

int imatrix_put_keys(const struct imatrix *imatrix, const char *path, struct gguf_writer *writer)
{
    struct bytes dataset = imatrix->dat.dataset;
    uint64_t n_chunks = imatrix->dat.n_chunks;
    int rc = gguf_put_str(writer, "quantize.imatrix.file", bytes_str(path));

    if (imatrix->gguf != NULL) {
        gguf_array_str(imatrix->gguf, "imatrix.datasets", 0, &dataset);
        gguf_get_u64(imatrix->gguf, "imatrix.chunk_count", NULL, &n_chunks);
    }
    if (rc == 0 && dataset.len_bytes > 0)
        rc = gguf_put_str(writer, "quantize.imatrix.dataset", dataset);
    if (rc == 0)
        rc = gguf_put_u32(writer, "quantize.imatrix.entries_count", count_entries(imatrix));
    if (rc == 0 && n_chunks > 0 && n_chunks <= UINT32_MAX)
        rc = gguf_put_u32(writer, "quantize.imatrix.chunks_count", (uint32_t)n_chunks);
    return rc;
}

/* ---- factors ---- */

static const struct gguf_tensor *imatrix_part(const struct imatrix *imatrix, const struct gguf_tensor *tensor,
                                              const char *part)
{
    char name[1032];

    snprintf(name, sizeof(name), "%.*s.%s", (int)tensor->name.len_bytes, (const char *)tensor->name.data,
             part);
    return gguf_tensor_find(imatrix->gguf, name);
}

/* 1: found, 0: absent, E_FORMAT: of another type. */
static int find_importance(const struct imatrix *imatrix, const struct gguf_tensor *tensor,
                           struct importance *out)
{
    const struct imatrix_dat_entry *entry = imatrix_dat_find(&imatrix->dat, tensor->name);
    const struct gguf_tensor *sums, *counts;

    if (entry != NULL)
        *out = (struct importance){.sums = entry->values, .n_sums = entry->n_values};
    if (imatrix->gguf == NULL)
        return entry != NULL;
    sums = imatrix_part(imatrix, tensor, "in_sum2");
    counts = imatrix_part(imatrix, tensor, "counts");
    if (sums == NULL || counts == NULL)
        return 0;
    if (sums->type != DTYPE_F32 || counts->type != DTYPE_F32)
        return E_FORMAT;
    *out = (struct importance){.sums = sums->data,
                               .counts = counts->data,
                               .n_sums = sums->len_bytes / sizeof(float),
                               .n_counts = counts->len_bytes / sizeof(float)};
    return 1;
}

static float float_at(const uint8_t *floats, uint64_t index)
{
    uint32_t word = get_u32(floats + 4 * index);
    float value;

    memcpy(&value, &word, sizeof(value));
    return value;
}

/* Factors of one matrix from its sums. Without inputs all are 1. */
static void imatrix_row(const uint8_t *sums, uint64_t from, uint64_t n, double count, float *out)
{
    double total = 0;

    for (uint64_t i = 0; i < n; i++) {
        float sum = float_at(sums, from + i);

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
    struct importance found;
    uint64_t cols = tensor->dims[0], n = tensor->dims[2];
    int rc = find_importance(imatrix, tensor, &found);

    if (rc == 0)
        return 0;
    if (rc < 0 || found.n_sums != n * cols || (found.counts != NULL && found.n_counts != n))
        return fault_set(fault, E_FORMAT, "the importance of tensor %.*s has another shape",
                         (int)tensor->name.len_bytes, (const char *)tensor->name.data);
    return 1;
}

int imatrix_factors(const struct imatrix *imatrix, const struct gguf_tensor *tensor, float **out)
{
    struct importance found;
    uint64_t cols = tensor->dims[0], n = tensor->dims[2];

    *out = NULL;
    if (imatrix_check(imatrix, tensor, NULL) <= 0 || find_importance(imatrix, tensor, &found) <= 0)
        return 0;
    *out = malloc(n * cols * sizeof(**out));
    if (*out == NULL)
        return E_NOMEM;
    for (uint64_t e = 0; e < n; e++)
        imatrix_row(found.sums, e * cols, cols, found.counts != NULL ? (double)float_at(found.counts, e) : 1,
                    *out + e * cols);
    return 0;
}
