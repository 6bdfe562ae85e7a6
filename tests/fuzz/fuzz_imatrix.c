/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: importance matrices of the older form, for baton-model quantize. */
#include "clients/model/imatrix_dat.h"

#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_inside(const uint8_t *data, size_t size, const uint8_t *view, size_t len_bytes)
{
    ASSERT(view >= data && len_bytes <= size && view <= data + size - len_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct imatrix_dat dat = {0};
    struct fault fault = {0};

    if (imatrix_dat_read(bytes_of(data, size), &dat, &fault) != 0) {
        ASSERT(fault.text[0] != '\0' && dat.entries == NULL);
        return 0;
    }
    ASSERT(dat.n_entries > 0);
    for (uint32_t i = 0; i < dat.n_entries; i++) {
        const struct imatrix_dat_entry *entry = &dat.entries[i], *last = imatrix_dat_find(&dat, entry->name);

        check_inside(data, size, entry->name.data, entry->name.len_bytes);
        check_inside(data, size, entry->values, (size_t)entry->n_values * sizeof(float));
        ASSERT(last >= entry && bytes_equal(last->name, entry->name));
    }
    if (dat.dataset.len_bytes > 0)
        check_inside(data, size, dat.dataset.data, dat.dataset.len_bytes);
    imatrix_dat_fini(&dat);
    return 0;
}
