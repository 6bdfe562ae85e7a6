/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: ids of events from clients.  A parsed id prints as the same text. */
#include "serve/api/event_id.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[EVENT_ID_PREFIX_BYTES + 24];
    struct event_id id;

    if (event_id_parse(bytes_of(data, size), &id) < 0)
        return 0;
    ASSERT(strlen(id.request_id) > 4 && strlen(id.request_id) < IDS_BYTES);
    if (id.has_event) {
        event_id_put_prefix(&id, text);
        snprintf(text + strlen(text), 24, ".%llu", (unsigned long long)id.number);
    } else {
        strcpy(text, id.request_id);
    }
    ASSERT(strlen(text) == size && memcmp(text, data, size) == 0);
    return 0;
}
