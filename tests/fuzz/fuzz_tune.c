/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the cache file of kernel choices.  A found record always chooses among the
 * existing kernels.  A new record at the front is found again, and the file stays bounded. */
#include <string.h>

#include "base/check.h"
#include "compute/tensor/tune_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool find(struct bytes text, struct tuned *out)
{
    *out = (struct tuned){0};
    if (!tune_record_find(text, "k", &out->choice, &out->copy))
        return false;
    ASSERT(mem_copy_method_find(out->copy->name) == out->copy);
    kern_choice_set(&out->choice); /* asserts that all of them are variants */
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tuned tuned = {.copy = mem_copy_method_at(0), .choice.at[KERN_FETCH] = FETCH_SPREAD}, found, again;
    struct buf fresh = {0}, fresher = {0};

    if (find(bytes_of(data, size), &found))
        tuned = found;
    tune_record_put(bytes_of(data, size), "k", &tuned, &fresh);
    ASSERT(fresh.len_bytes <= TUNE_FILE_BYTES);
    ASSERT(find(buf_view(&fresh), &again) && again.copy == tuned.copy);
    ASSERT(memcmp(&again.choice, &tuned.choice, sizeof(tuned.choice)) == 0);
    tune_record_put(buf_view(&fresh), "k", &tuned, &fresher);
    ASSERT(bytes_equal(buf_view(&fresh), buf_view(&fresher)));
    buf_fini(&fresh);
    buf_fini(&fresher);
    return 0;
}
