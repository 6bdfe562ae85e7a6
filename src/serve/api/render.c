/* SPDX-License-Identifier: Apache-2.0 */
/* Rendering answers.
 *
 * Members that must be numbers are numbers, and members that must be absent are absent.  One client
 * refuses `caller: null`.  Another replaces its totals by the counts in message_delta, so message_delta
 * repeats them unchanged. */
#include "serve/api/render.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"

static int api_render_result(const struct buf *out)
{
    return out->is_bad ? E_NOMEM : 0;
}

const char *api_stop_reason(enum gen_stop stop)
{
    static const char *const reasons[] = {
#define X(stop, stop_reason, finish_reason, status) stop_reason,
        GEN_STOP_TABLE(X)
#undef X
    };

    return reasons[stop];
}

static void put_str_member(struct buf *out, const char *name, struct bytes text)
{
    buf_printf(out, "\"%s\":", name);
    json_put_str(out, text);
}

void api_usage_add(struct api_usage *sum, const struct api_usage *usage)
{
    sum->input_tokens += usage->input_tokens;
    sum->cache_read_tokens += usage->cache_read_tokens;
    for (unsigned pin = 0; pin < WORK_N_PINS; pin++)
        sum->created_tokens[pin] += usage->created_tokens[pin];
    sum->output_tokens += usage->output_tokens;
    sum->thinking_tokens += usage->thinking_tokens;
}

uint32_t api_usage_created(const struct api_usage *usage)
{
    uint32_t n_tokens = 0;

    for (unsigned pin = 0; pin < WORK_N_PINS; pin++)
        n_tokens += usage->created_tokens[pin];
    return n_tokens;
}

/* Writes the counts that both message_start and message_delta carry, and leaves the object open. */
static void open_usage(struct buf *out, const struct api_usage *usage)
{
    buf_printf(
        out,
        "\"usage\":{\"input_tokens\":%u,\"cache_creation_input_tokens\":%u,\"cache_read_input_tokens\":%u,"
        "\"output_tokens\":%u",
        usage->input_tokens, api_usage_created(usage), usage->cache_read_tokens, usage->output_tokens);
}

static void put_creation(struct buf *out, const struct api_usage *usage)
{
    buf_append_str(out, ",\"cache_creation\":");
    for (unsigned pin = 0; pin < WORK_N_PINS; pin++)
        buf_printf(out, "%c\"ephemeral_%s_input_tokens\":%u", pin == 0 ? '{' : ',', work_pin_ttl(pin),
                   usage->created_tokens[pin]);
    buf_append_str(out, "},\"service_tier\":\"standard\"");
}

static void put_details(struct buf *out, const struct api_usage *usage)
{
    buf_printf(out, ",\"output_tokens_details\":{\"thinking_tokens\":%u}", usage->thinking_tokens);
}

static void put_stop(struct buf *out, enum gen_stop stop, struct bytes stop_sequence)
{
    buf_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", api_stop_reason(stop));
    if (stop == GEN_STOP_SEQUENCE)
        json_put_str(out, stop_sequence);
    else
        buf_append_str(out, "null");
}

static void api_render_put_block(struct buf *out, const struct gen_block *block)
{
    if (block->kind == GEN_TEXT) {
        buf_append_str(out, "{\"type\":\"text\",");
        put_str_member(out, "text", block->text);
    } else if (block->kind == GEN_THINKING) {
        buf_append_str(out, "{\"type\":\"thinking\",");
        put_str_member(out, "thinking", block->text);
        buf_append_byte(out, ',');
        put_str_member(out, "signature", block->signature);
    } else {
        buf_append_str(out, "{\"type\":\"tool_use\",");
        put_str_member(out, "id", block->id);
        buf_append_byte(out, ',');
        put_str_member(out, "name", block->name);
        buf_append_str(out, ",\"input\":");
        buf_append(out, block->input.data, block->input.len_bytes);
    }
    buf_append_byte(out, '}');
}

/* Writes a list of content blocks and leaves out empty text. */
static void put_blocks(struct buf *out, const struct gen_block *blocks, size_t n)
{
    const char *separator = "";

    for (size_t i = 0; i < n; i++) {
        if (blocks[i].kind == GEN_TEXT && blocks[i].text.len_bytes == 0)
            continue;
        buf_append_str(out, separator);
        api_render_put_block(out, &blocks[i]);
        separator = ",";
    }
}

int api_put_thread(struct buf *history, const struct gen_block *blocks, size_t n)
{
    if (history->len_bytes > 0 && history->data[history->len_bytes - 1] != '[')
        buf_append_str(history, ", ");
    buf_append_str(history, "{\"role\": \"assistant\", \"content\": [");
    put_blocks(history, blocks, n);
    return buf_append_str(history, "]}]}");
}

static void open_message(struct buf *out, const char *id, struct bytes model)
{
    buf_append_str(out, "{");
    put_str_member(out, "id", bytes_str(id));
    buf_append_str(out, ",\"type\":\"message\",\"role\":\"assistant\",");
    put_str_member(out, "model", model);
    buf_append_str(out, ",\"content\":[");
}

int api_put_message(struct buf *out, const struct api_answer *answer)
{
    open_message(out, answer->id, answer->model);
    put_blocks(out, answer->blocks, answer->n_blocks);
    buf_append_str(out, "],");
    put_stop(out, answer->stop, answer->stop_sequence);
    buf_append_str(out, ",\"stop_details\":null,\"container\":null,\"diagnostics\":null,");
    open_usage(out, &answer->usage);
    put_creation(out, &answer->usage);
    put_details(out, &answer->usage);
    return buf_append_str(out, ",\"server_tool_use\":null,\"inference_geo\":null,\"speed\":null}}");
}

int api_put_message_start(struct buf *out, const char *id, struct bytes model, const struct api_usage *usage)
{
    buf_append_str(out, "{\"type\":\"message_start\",\"message\":");
    open_message(out, id, model);
    buf_append_str(out, "],\"stop_reason\":null,\"stop_sequence\":null,");
    open_usage(out, usage);
    put_creation(out, usage);
    return buf_append_str(out, "}}}");
}

static int put_start(struct buf *out, unsigned index, const char *block)
{
    return buf_printf(out, "{\"type\":\"content_block_start\",\"index\":%u,\"content_block\":%s", index,
                      block);
}

int api_put_text_start(struct buf *out, unsigned index)
{
    return put_start(out, index, "{\"type\":\"text\",\"text\":\"\"}}");
}

int api_put_call_start(struct buf *out, unsigned index, const char *id, struct bytes name)
{
    put_start(out, index, "{\"type\":\"tool_use\",");
    put_str_member(out, "id", bytes_str(id));
    buf_append_byte(out, ',');
    put_str_member(out, "name", name);
    return buf_append_str(out, ",\"input\":{}}}");
}

/* Runs for every token of every stream, so it allocates once, appends few pieces and parses no format. */
static int put_delta(struct buf *out, unsigned index, const char *head, struct bytes text)
{
    buf_reserve(out, text.len_bytes + text.len_bytes / 8 + 112);
    buf_append_str(out, "{\"type\":\"content_block_delta\",\"index\":");
    buf_append_u64(out, index);
    buf_append_str(out, head);
    json_put_str(out, text);
    return buf_append_str(out, "}}");
}

int api_put_text_delta(struct buf *out, unsigned index, struct bytes text)
{
    return put_delta(out, index, ",\"delta\":{\"type\":\"text_delta\",\"text\":", text);
}

int api_put_thinking_start(struct buf *out, unsigned index)
{
    return put_start(out, index, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}");
}

int api_put_thinking_delta(struct buf *out, unsigned index, struct bytes text)
{
    return put_delta(out, index, ",\"delta\":{\"type\":\"thinking_delta\",\"thinking\":", text);
}

int api_put_signature_delta(struct buf *out, unsigned index, struct bytes signature)
{
    return put_delta(out, index, ",\"delta\":{\"type\":\"signature_delta\",\"signature\":", signature);
}

int api_put_call_delta(struct buf *out, unsigned index, struct bytes partial_json)
{
    return put_delta(out, index, ",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":", partial_json);
}

int api_put_block_stop(struct buf *out, unsigned index)
{
    return buf_printf(out, "{\"type\":\"content_block_stop\",\"index\":%u}", index);
}

static void put_ms(struct buf *out, const char *name, uint64_t ns)
{
    buf_printf(out, "\"%s\":%llu.%03llu,", name, (unsigned long long)(ns / NS_PER_MS),
               (unsigned long long)(ns % NS_PER_MS / NS_PER_US));
}

void api_put_serving(struct buf *out, const struct gen_serving *serving)
{
    buf_printf(out,
               ",\"baton\":{\"prompt\":%u,\"computed\":%u,\"reused\":%u,\"transferred\":%u,\"drawn\":%u,"
               "\"redispatched\":%u,\"preempted\":%u,\"drafted\":%u,\"accepted\":%u,",
               serving->prompt_tokens, serving->computed_tokens, serving->reused_tokens,
               serving->transferred_tokens, serving->drawn_tokens, serving->n_redispatched,
               serving->n_preempted, serving->drafted_tokens, serving->accepted_tokens);
    buf_printf(out,
               "\"transferred_bytes\":{\"attention\":%llu,\"recurrent\":%llu,\"index\":%llu,\"mtp\":%llu},",
               (unsigned long long)serving->attention_bytes, (unsigned long long)serving->recurrent_bytes,
               (unsigned long long)serving->index_bytes, (unsigned long long)serving->mtp_bytes);
    put_ms(out, "queue_ms", serving->queue_ns);
    put_ms(out, "prefill_ms", serving->prefill_ns);
    put_ms(out, "transfer_ms", serving->transfer_ns);
    put_ms(out, "exposed_ms", serving->exposed_ns);
    put_ms(out, "decode_ms", serving->decode_ns);
    put_ms(out, "ttft_ms", serving->ttft_ns);
    put_ms(out, "total_ms", serving->total_ns);
    put_str_member(out, "prefill", bytes_str(serving->prefill_worker));
    buf_append_byte(out, ',');
    put_str_member(out, "decode", bytes_str(serving->decode_worker));
    buf_append_byte(out, ',');
    put_str_member(out, "transport", bytes_str(serving->transport));
    buf_append_byte(out, '}');
}

int api_put_message_delta(struct buf *out, enum gen_stop stop, struct bytes stop_sequence,
                          const struct api_usage *usage, const struct gen_serving *serving)
{
    buf_append_str(out, "{\"type\":\"message_delta\",\"delta\":{");
    put_stop(out, stop, stop_sequence);
    buf_append_str(out, "},");
    open_usage(out, usage);
    put_details(out, usage);
    if (serving != NULL)
        api_put_serving(out, serving);
    return buf_append_str(out, "}}");
}

int api_put_count(struct buf *out, uint32_t input_tokens)
{
    return buf_printf(out, "{\"input_tokens\":%u}", input_tokens);
}

/* ---- models ---- */

int api_put_model(struct buf *out, const struct api_model *model)
{
    char created[21];

    clock_rfc3339(model->created_unix_s, created);
    buf_append_str(out, "{\"type\":\"model\",");
    put_str_member(out, "id", bytes_str(model->name));
    buf_append_byte(out, ',');
    put_str_member(out, "display_name", bytes_str(model->name));
    buf_printf(out,
               ",\"created_at\":\"%s\",\"max_input_tokens\":%u,\"max_tokens\":%u,\"capabilities\":null,"
               "\"lifecycle\":\"active\",\"line\":null,\"deprecated_at\":null,\"retires_at\":null,"
               "\"object\":\"model\",\"created\":%llu,\"owned_by\":\"local\"}",
               created, model->context_length, model->context_length,
               (unsigned long long)model->created_unix_s);
    return api_render_result(out);
}

static void api_render_put_id(struct buf *out, const char *name, const struct api_model *model)
{
    buf_printf(out, ",\"%s\":", name);
    if (model == NULL)
        buf_append_str(out, "null");
    else
        json_put_str(out, bytes_str(model->name));
}

static size_t api_render_find_model(const struct api_model *models, size_t n, const char *name)
{
    size_t i = 0;

    while (i < n && strcmp(models[i].name, name) != 0)
        i++;
    return i;
}

int api_put_models(struct buf *out, const struct api_model *models, size_t n, const struct api_page *page)
{
    size_t from = 0;
    size_t to = n;
    size_t all_to;

    /* A cursor that names no model gives an empty page. */
    if (page->after != NULL) {
        from = api_render_find_model(models, n, page->after);
        from = from < n ? from + 1 : n;
    }
    if (page->before != NULL) {
        to = api_render_find_model(models, n, page->before);
        to = to < n ? to : 0;
    }
    if (from > to)
        from = to;
    all_to = to;
    /* With only a before cursor, the page ends at the cursor. */
    if (to - from > page->limit) {
        if (page->before != NULL && page->after == NULL)
            from = to - page->limit;
        else
            to = from + page->limit;
    }
    buf_append_str(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = from; i < to; i++) {
        if (i > from)
            buf_append_byte(out, ',');
        api_put_model(out, &models[i]);
    }
    buf_printf(out, "],\"has_more\":%s",
               (page->before != NULL && page->after == NULL ? from > 0 && to > from : to < all_to) ? "true"
                                                                                                   : "false");
    api_render_put_id(out, "first_id", to > from ? &models[from] : NULL);
    api_render_put_id(out, "last_id", to > from ? &models[to - 1] : NULL);
    return buf_append_byte(out, '}');
}
