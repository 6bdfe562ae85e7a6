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

/* The input as the beginning of a string so long that it goes past the JSON library: which says the same. */
static void try_long(struct bytes text)
{
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL;
    json_t *ours = NULL, *theirs;
    struct buf body = {0};

    buf_append_str(&body, "[\"");
    buf_append(&body, text.data, text.len_bytes);
    for (int i = 0; i < 5000; i++)
        buf_append_byte(&body, 'x');
    buf_append_str(&body, "\"]");
    theirs = json_loadb((char *)body.data, body.len_bytes, flags, NULL);
    if (theirs == NULL) /* a number may be out of range */
        theirs = json_loadb((char *)body.data, body.len_bytes, flags | JSON_DECODE_INT_AS_REAL, NULL);
    /* so short a text can break none of the bounds */
    ASSERT((api_json_load(buf_view(&body), NULL, &ours) == 0) == (theirs != NULL) || text.len_bytes > 100);
    ASSERT(ours == NULL || theirs == NULL || json_equal(ours, theirs));
    json_decref(ours);
    json_decref(theirs);
    buf_fini(&body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_long(bytes_of(data, size));
    try_body(bytes_of(data, size), API_MESSAGES);
    try_body(bytes_of(data, size), API_COUNT_TOKENS);
    return 0;
}
