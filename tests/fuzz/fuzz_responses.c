/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: bodies of /v1/responses from clients.  After a NUL byte follow the kept items that the request
 * needs.
 *
 * A body is refused with a 400 that renders as JSON, or names the kept responses that it needs, or the parsed
 * request keeps its limits.  Then the repeated fields, the input items in pages and every event of a stream
 * are JSON, and a response made of the request's own blocks can be continued. */
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "serve/api/error.h"
#include "serve/api/ids.h"
#include "serve/api/parse.h"
#include "serve/api/render_responses.h"
#include "text/json/json.h"

#define RESPONSE_ID "resp_abcdefghijklmnopqrstuvwx"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void is_json(struct buf *text)
{
    json_t *root;

    ASSERT(api_json_load(buf_view(text), NULL, &root) == 0);
    json_decref(root);
    buf_fini(text);
}

static void check_error(const struct api_error *error)
{
    struct buf text = {0};

    ASSERT(error->status == 400 && error->message[0] != '\0');
    ASSERT(api_put_openai_error(&text, error) == 0);
    is_json(&text);
}

static void check_bounds(const struct gen_request *request)
{
    ASSERT(request->response != NULL && request->model.len_bytes > 0 && request->n_messages > 0);
    ASSERT(request->work.max_new_tokens > 0 && request->work.sample.n_top <= 20);
    ASSERT(request->n_stop_sequences <= 4 && request->n_prompts == 0);
    ASSERT(request->tool_choice == GEN_TOOLS_AUTO || request->tool_choice == GEN_TOOLS_NONE ||
           request->n_tools > 0);
    ASSERT(request->response->is_stored || request->response->items.len_bytes == 0);
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

static void check_pages(const struct gen_request *request)
{
    struct api_item_page page = {.limit = 2, .is_ascending = true};
    struct buf text = {0}, after = {0};
    const char *last;

    for (int i = 0; i < 4; i++) {
        json_t *root;

        buf_clear(&text);
        page.after = buf_view(&after);
        ASSERT(api_put_input_items(&text, RESPONSE_ID, request->response->items, &page) == 0);
        ASSERT(api_json_load(buf_view(&text), NULL, &root) == 0);
        last = json_string_value(json_object_get(root, "last_id"));
        buf_clear(&after);
        buf_append_str(&after, last);
        i += json_is_false(json_object_get(root, "has_more")) ? 4 : 0;
        json_decref(root);
        if (memchr(after.data, '\\', after.len_bytes) != NULL ||
            after.len_bytes != strlen((char *)after.data))
            break; /* ids are compared as they are written */
    }
    buf_fini(&text);
    buf_fini(&after);
}

static void check_events(const struct gen_request *request, const struct api_response *response)
{
    struct buf text = {0};

    for (size_t i = 0; i < response->n_items && i < 8; i++)
        for (enum api_item_event event = API_ITEM_ADDED; event <= API_ITEM_DONE; event++) {
            struct api_place place = {.response = response, .index = (unsigned)i, .sequence = i};

            if (api_item_event_name(&place, event, response->items[i].kind) == NULL)
                continue;
            ASSERT(api_put_item_event(&text, &place, event, &response->items[i]) == 0);
            is_json(&text);
        }
    ASSERT(request->response == response->asked);
}

/* Parses a request that continues this one's response, whose output is its own first blocks. */
static void check_continued(struct gen_request *request, const struct api_response *response)
{
    static const char next[] = "{\"model\":\"m\",\"previous_response_id\":\"" RESPONSE_ID "\",\"input\":"
                               "[{\"type\":\"item_reference\",\"id\":\"msg_abcdefghijklmnopqrstuvwx_0\"}]}";
    struct buf text = {0}, history = {0};
    struct api_range output;
    struct gen_request again;
    struct api_error error;
    int rc;

    ASSERT(api_put_response(&text, response, &output) == 0);
    buf_append_str(&history, "{\"previous\":[");
    buf_append(&history, request->response->items.data, request->response->items.len_bytes);
    buf_append_str(&history, "],\"items\":[");
    buf_append(&history, text.data + output.at, output.len_bytes);
    buf_append_str(&history, "]}");
    rc = api_parse_continued(bytes_str(next), buf_view(&history), API_RESPONSES, &again, &error);
    if (rc == 0)
        gen_request_fini(&again);
    else
        check_error(&error);
    is_json(&text);
    is_json(&history);
}

static void render(struct gen_request *request)
{
    struct api_item items[8];
    struct api_usage usage = {0};
    struct api_response response = {.id = RESPONSE_ID,
                                    .model = request->model,
                                    .asked = request->response,
                                    .status = API_RESPONSE_INCOMPLETE,
                                    .items = items,
                                    .usage = &usage};

    for (size_t i = 0; i < request->n_messages; i++)
        for (size_t b = 0; b < request->messages[i].n_blocks && response.n_items < 8; b++) {
            const struct gen_block *block = &request->messages[i].blocks[b];

            items[response.n_items++] =
                (struct api_item){.kind = block->kind == GEN_TOOL_RESULT ? GEN_TEXT : block->kind,
                                  .state = (enum api_item_state)(b % 3),
                                  .text = block->kind == GEN_TOOL_USE ? block->input : block->text,
                                  .call_id = block->id,
                                  .name = block->name,
                                  .signature = block->signature};
        }
    check_events(request, &response);
    check_continued(request, &response);
}

/* The endpoint always passes JSON to the parser. */
static bool is_history(struct bytes text)
{
    json_t *root;

    if (text.len_bytes == 0 || api_json_load(text, NULL, &root) < 0)
        return false;
    json_decref(root);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = memchr(data, '\0', size);
    struct bytes body = bytes_of(data, nul == NULL ? size : (size_t)(nul - data));
    struct bytes history = nul == NULL ? bytes_str("{}") : bytes_of(nul + 1, size - body.len_bytes - 1);
    struct gen_request request;
    struct api_error error = {0};
    char id[IDS_BYTES];
    int rc = api_parse_request(body, API_RESPONSES, &request, &error);

    (void)ids_response_of(body, id);
    if (rc == 0 && request.response->n_wanted > 0) {
        gen_request_fini(&request);
        if (!is_history(history))
            return 0;
        rc = api_parse_continued(body, history, API_RESPONSES, &request, &error);
    }
    if (rc < 0) {
        check_error(&error);
        return 0;
    }
    check_bounds(&request);
    check_pages(&request);
    render(&request);
    gen_request_fini(&request);
    return 0;
}
