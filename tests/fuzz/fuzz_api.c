/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: request bodies from clients.  A body is parsed, or refused with a 400 that renders as JSON. */
#include <string.h>

#include "serve/api/error.h"
#include "text/json/json.h"
#include "serve/api/parse.h"
#include "serve/api/render.h"
#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A kept conversation can be continued, and has no message beyond its request's and the answer. */
static void try_thread(struct gen_request *request)
{
    const struct gen_block answer = {.kind = GEN_TEXT, .text = bytes_str("yes")};
    struct gen_request next;
    struct api_error error;
    struct buf thread = request->history;
    json_t *root;

    request->history = (struct buf){0};
    ASSERT(api_put_thread(&thread, &answer, 1) == 0);
    ASSERT(api_json_load(buf_view(&thread), NULL, &root) == 0);
    json_decref(root);
    if (api_parse_continued(bytes_str("{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{\"role\":\"user\","
                                      "\"content\":\"go on\"}],\"thread\":{\"type\":\"continue\","
                                      "\"previous_message_id\":\"msg_1\"}}"),
                            buf_view(&thread), API_MESSAGES, &next, &error) == 0) {
        ASSERT(next.n_messages >= 2 && next.n_messages <= request->n_messages + 2);
        gen_request_fini(&next);
    } else { /* nothing that the history holds is refused where it comes back, except for its length */
        ASSERT(thread.len_bytes > 100000);
    }
    buf_fini(&thread);
}

static void try_body(struct bytes body, enum api_call call)
{
    struct gen_request request;
    struct api_error error = {0};
    struct buf text = {0};
    json_t *root;

    if (api_parse_request(body, call, &request, &error) == 0) {
        if (request.thread == GEN_THREAD_CONTINUE) {
            ASSERT(request.n_messages == 0);
            gen_request_fini(&request);
            return;
        }
        if (request.history.len_bytes > 0)
            try_thread(&request);
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

/* Makes the input the beginning of a string so long that it bypasses the JSON library;
 * the result is the same. */
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
    /* So short a text cannot exceed the limits; the library treats a NUL after a number as a blank. */
    if (api_json_load(buf_view(&body), NULL, &ours) == 0)
        ASSERT(theirs != NULL);
    else
        ASSERT(theirs == NULL || text.len_bytes > 100 || memchr(text.data, 0, text.len_bytes) != NULL);
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
    try_body(bytes_of(data, size), API_EMBEDDINGS);
    return 0;
}
