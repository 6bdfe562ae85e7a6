/* SPDX-License-Identifier: Apache-2.0 */
/* Reads importance matrices of the older form. Pure.
 *
 * The form has no magic number, so the first counts and names decide: a file of another kind fails there. Bytes
 * behind the last known part are ignored, as llama.cpp does. */
#include "clients/model/imatrix_dat.h"

#include "base/err.h"

#include <stdlib.h>

enum { MAX_ENTRIES = 1 << 16, MAX_NAME = 1024, MAX_DATASET = 1 << 16 };

/* Takes one entry; false if it is no entry or cut. */
static bool imatrix_dat_take(struct reader *reader, struct imatrix_dat_entry *out)
{
    uint32_t len_bytes = read_u32(reader);

    if (reader->is_bad || len_bytes == 0 || len_bytes > MAX_NAME)
        return false;
    out->name = read_bytes(reader, len_bytes);
    read_u32(reader); /* calls */
    out->n_values = read_u32(reader);
    if (reader->is_bad || out->n_values == 0 || out->n_values > INT32_MAX ||
        memchr(out->name.data, '\0', out->name.len_bytes) != NULL)
        return false;
    out->values = read_bytes(reader, (size_t)out->n_values * sizeof(float)).data;
    return !reader->is_bad;
}

/* The optional end of the file. */
static void imatrix_dat_take_end(struct reader *reader, struct imatrix_dat *dat)
{
    uint32_t n_chunks = read_u32(reader), len_bytes;

    if (reader->is_bad || n_chunks > INT32_MAX)
        return;
    dat->n_chunks = n_chunks;
    len_bytes = read_u32(reader);
    if (reader->is_bad || len_bytes > MAX_DATASET)
        return;
    struct bytes dataset = read_bytes(reader, len_bytes);
    if (!reader->is_bad)
        dat->dataset = dataset;
}

int imatrix_dat_read(struct bytes file, struct imatrix_dat *out, struct fault *fault)
{
    static const char other_kind[] = "neither a GGUF file nor an imatrix.dat of llama-imatrix";
    struct reader reader = reader_of(file);
    struct imatrix_dat dat = {.dataset = bytes_str("")};
    uint32_t n = read_u32(&reader);

    if (reader.is_bad || n == 0 || n > MAX_ENTRIES)
        return fault_set(fault, E_FORMAT, "%s", other_kind);
    dat.entries = calloc(n, sizeof(*dat.entries));
    if (dat.entries == NULL)
        return fault_set(fault, E_NOMEM, "%s", err_text(E_NOMEM));
    for (; dat.n_entries < n; dat.n_entries++) {
        if (imatrix_dat_take(&reader, &dat.entries[dat.n_entries]))
            continue;
        uint32_t number = dat.n_entries + 1;

        imatrix_dat_fini(&dat);
        if (number == 1)
            break;
        return fault_set(fault, E_TRUNCATED, "an imatrix.dat of %u matrices, cut or damaged at number %u", n,
                         number);
    }
    if (dat.n_entries != n)
        return fault_set(fault, E_FORMAT, "%s", other_kind);
    imatrix_dat_take_end(&reader, &dat);
    *out = dat;
    return 0;
}

void imatrix_dat_fini(struct imatrix_dat *dat)
{
    free(dat->entries);
    *dat = (struct imatrix_dat){0};
}

const struct imatrix_dat_entry *imatrix_dat_find(const struct imatrix_dat *dat, struct bytes name)
{
    for (uint32_t i = dat->n_entries; i > 0; i--) {
        if (bytes_equal(dat->entries[i - 1].name, name))
            return &dat->entries[i - 1];
    }
    return NULL;
}
