/* SPDX-License-Identifier: Apache-2.0 */
/* Request bodies from anybody: parsed, or refused with a 400 that renders as JSON. */
#include "api/error.h"
#include "api/json.h"
#include "api/parse.h"
#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_body(struct bytes body, enum api_call call)
{
    struct gen_request request;
    struct api_error error = {0};
    struct buf text = {0};
    json_t *root;

    if (api_parse_request(body, call, &request, &error) == 0) {
        ASSERT(request.model.len_bytes > 0);
        for (size_t i = 0; i < request.n_messages; i++)
            for (size_t b = 0; b < request.messages[i].n_blocks; b++)
                ASSERT(request.messages[i].blocks[b].kind <= GEN_THINKING);
        gen_request_fini(&request);
        return;
    }
    ASSERT(error.status == 400 && error.message[0] != '\0');
    ASSERT(api_put_error(&text, &error, "req_1") == 0);
    ASSERT(api_json_load(buf_view(&text), NULL, &root) == 0);
    json_decref(root);
    buf_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_body(bytes_of(data, size), API_MESSAGES);
    try_body(bytes_of(data, size), API_COUNT_TOKENS);
    return 0;
}
