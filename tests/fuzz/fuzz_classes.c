/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: definitions of classes, one on a line, and the names in requests.  A refused definition
 * changes nothing, and no request exceeds the class of its key. */
#include <string.h>

#include "base/check.h"
#include "fleet/picker/classes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void take_name(const uint8_t *data, size_t size, char out[PICKER_CLASS_BYTES])
{
    size_t n = size < PICKER_CLASS_BYTES - 1 ? size : PICKER_CLASS_BYTES - 1;

    memset(out, 0, PICKER_CLASS_BYTES);
    if (n > 0)
        memcpy(out, data, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char allowed[PICKER_CLASS_BYTES], wanted[PICKER_CLASS_BYTES];
    struct picker_classes classes, before;
    const struct picker_class *most, *it;
    struct fault fault = {0};

    picker_classes_init(&classes, 500000000, 50000000);
    take_name(data, size, allowed);
    take_name(data + size / 2, size - size / 2, wanted);
    while (size > 0) {
        const uint8_t *end = memchr(data, '\n', size);
        size_t n = end != NULL ? (size_t)(end - data) : size;

        before = classes;
        if (picker_classes_add(&classes, bytes_of(data, n), &fault) < 0)
            ASSERT(memcmp(&before, &classes, sizeof(before)) == 0);
        ASSERT(classes.n >= 1 && classes.n <= PICKER_MAX_CLASSES);
        n += end != NULL;
        data += n;
        size -= n;
    }
    most = &classes.all[picker_classes_choose(&classes, allowed, "")];
    it = &classes.all[picker_classes_choose(&classes, allowed, wanted)];
    ASSERT(it->priority <= most->priority && it->weight <= most->weight && it->share <= most->share);
    return 0;
}
