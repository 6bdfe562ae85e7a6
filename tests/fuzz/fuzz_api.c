/* SPDX-License-Identifier: Apache-2.0 */
/* Request bodies from anybody, and answers from a model that says anything.
 *
 * A body is parsed or refused with a 400 that renders as JSON.  The splitter, fed in two pieces, passes on
 * arguments that are a prefix of valid JSON, whole ones that are an object, and cut ones that can be closed.
 */
#include <string.h>

#include "api/calls.h"
#include "api/error.h"
#include "api/json.h"
#include "api/json_walk.h"
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
                ASSERT(request.messages[i].blocks[b].kind <= GEN_TOOL_RESULT);
        gen_request_fini(&request);
        return;
    }
    ASSERT(error.status == 400 && error.message[0] != '\0');
    ASSERT(api_put_error(&text, &error, "req_1") == 0);
    ASSERT(api_json_load(buf_view(&text), NULL, &root) == 0);
    json_decref(root);
    buf_fini(&text);
}

struct sink {
    struct buf arguments;
    struct json_walk walk;
    enum json_walk_result result;
    bool is_in_call;
};

static int on_text(void *arg, struct bytes text)
{
    ASSERT(!((struct sink *)arg)->is_in_call && text.len_bytes > 0);
    return 0;
}

static int on_begin(void *arg, struct bytes name)
{
    struct sink *sink = arg;

    ASSERT(!sink->is_in_call && name.len_bytes > 0);
    sink->is_in_call = true;
    memset(&sink->walk, 0, sizeof(sink->walk));
    buf_clear(&sink->arguments);
    return 0;
}

static int on_arguments(void *arg, struct bytes piece)
{
    struct sink *sink = arg;

    ASSERT(sink->is_in_call);
    for (size_t i = 0; i < piece.len_bytes; i++) {
        sink->result = json_walk_byte(&sink->walk, piece.data[i]);
        ASSERT(sink->result <= JSON_WALK_DONE);
    }
    return buf_append(&sink->arguments, piece.data, piece.len_bytes);
}

static int on_end(void *arg, enum calls_end how)
{
    struct sink *sink = arg;
    struct buf closed = {0};

    ASSERT(sink->is_in_call);
    sink->is_in_call = false;
    if (how == CALLS_WHOLE) {
        ASSERT(sink->result == JSON_WALK_DONE && sink->arguments.data[0] == '{');
    } else if (json_walk_close(&sink->walk, buf_view(&sink->arguments), &closed) == 0) {
        struct json_walk walk = {0};
        enum json_walk_result result = JSON_WALK_MORE;

        for (size_t i = 0; i < closed.len_bytes; i++)
            result = json_walk_byte(&walk, closed.data[i]);
        ASSERT(result == JSON_WALK_DONE);
    }
    buf_fini(&closed);
    return 0;
}

static void try_calls(struct bytes text)
{
    static const struct calls_events events = {on_text, on_begin, on_arguments, on_end};
    struct sink sink = {0};
    struct calls *calls;
    size_t half = text.len_bytes / 2;

    ASSERT(calls_new(&events, &sink, &calls) == 0);
    ASSERT(calls_feed(calls, bytes_of(text.data, half)) == 0);
    ASSERT(calls_feed(calls, bytes_of(text.data + half, text.len_bytes - half)) == 0);
    ASSERT(calls_finish(calls, text.len_bytes % 2 == 0) == 0);
    ASSERT(!sink.is_in_call);
    calls_free(calls);
    buf_fini(&sink.arguments);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_body(bytes_of(data, size), API_MESSAGES);
    try_body(bytes_of(data, size), API_COUNT_TOKENS);
    try_calls(bytes_of(data, size));
    return 0;
}
