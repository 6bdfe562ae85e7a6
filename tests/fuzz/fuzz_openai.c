/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: bodies of OpenAI's routes from clients.
 *
 * A body is refused with a 400 that renders as JSON of four members, or the parsed request keeps its bounds,
 * and an answer with its texts renders as JSON, whole and in chunks. */
#include <string.h>

#include "serve/api/error.h"
#include "text/json/json.h"
#include "serve/api/parse.h"
#include "serve/api/render_openai.h"
#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void is_json(struct buf *text)
{
    json_t *root;

    ASSERT(api_json_load(buf_view(text), NULL, &root) == 0);
    json_decref(root);
    buf_fini(text);
}

static void check_bounds(const struct gen_request *request, enum api_call call)
{
    ASSERT(request->n_choices <= 128 && request->work.sample.n_top <= 20 && request->n_stop_sequences <= 4);
    ASSERT(request->n_prompts <= 128 && request->work.sample.n_bias <= 1024);
    for (size_t i = 1; i < request->work.sample.n_bias; i++)
        ASSERT(request->work.sample.bias[i - 1].id < request->work.sample.bias[i].id);
    if (api_call_generates(call)) {
        ASSERT(request->model.len_bytes > 0);
        ASSERT(request->work.sample.top_p >= 0 && request->work.sample.top_p <= 1);
        ASSERT(request->n_prompts * request->n_choices <= 128);
        ASSERT((request->n_prompts > 0) == (call == API_COMPLETIONS));
    }
    for (size_t i = 0; i < request->n_messages; i++)
        for (size_t b = 0; b < request->messages[i].n_blocks; b++)
            ASSERT(request->messages[i].blocks[b].kind <= GEN_THINKING);
}

/* Checks that arguments of calls are JSON, from any text. */
static void check_arguments(const struct gen_request *request)
{
    for (size_t i = 0; i < request->n_messages; i++)
        for (size_t b = 0; b < request->messages[i].n_blocks; b++) {
            const struct gen_block *block = &request->messages[i].blocks[b];
            json_t *root;

            if (block->kind != GEN_TOOL_USE)
                continue;
            ASSERT(api_json_load(block->input, NULL, &root) == 0);
            json_decref(root);
        }
}

static void render(const struct gen_request *request, struct bytes text)
{
    const struct gen_message *message = request->n_messages > 0 ? &request->messages[0] : NULL;
    struct api_chunk chunk = {.is_chat = request->n_prompts == 0,
                              .id = "x",
                              .model = request->model,
                              .has_usage = request->wants_usage};
    struct api_choice choice = {.blocks = message == NULL ? NULL : message->blocks,
                                .n_blocks = message == NULL ? 0 : message->n_blocks,
                                .before = request->n_prompts > 0 ? request->prompts[0].text : text};
    struct api_usage usage = {0};
    struct buf out = {0};

    ASSERT(api_put_completion(&out, &chunk, &choice, 1, &usage) == 0);
    is_json(&out);
    ASSERT(api_put_chunk_text(&out, &chunk, GEN_TEXT, text) == 0);
    is_json(&out);
    ASSERT(api_put_chunk_arguments(&out, &chunk, 1, text) == 0 || !chunk.is_chat);
    if (chunk.is_chat)
        is_json(&out);
    buf_fini(&out);
    ASSERT(api_put_detokenized(&out, text) == 0);
    is_json(&out);
}

static void try_body(struct bytes body, enum api_call call)
{
    struct gen_request request;
    struct api_error error = {0};
    struct buf text = {0};

    if (api_parse_request(body, call, &request, &error) == 0) {
        check_bounds(&request, call);
        check_arguments(&request);
        render(&request, body);
        gen_request_fini(&request);
        return;
    }
    ASSERT(error.status == 400 && error.message[0] != '\0');
    ASSERT(api_put_openai_error(&text, &error) == 0);
    is_json(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (enum api_call call = API_CHAT; call <= API_DETOKENIZE; call++)
        try_body(bytes_of(data, size), call);
    return 0;
}
