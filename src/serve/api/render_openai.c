/* SPDX-License-Identifier: Apache-2.0 */
/* Rendering for OpenAI's clients.
 *
 * A choice of a chat has one content: the concatenated texts of its blocks, or null when there are only
 * calls. Thinking is reasoning_content next to it, which most clients of thinking models know.  Members
 * that clients' schemas require as null are present as null. */
#include "serve/api/render_openai.h"

#include "base/err.h"
#include "base/str.h"

static int render_openai_result(const struct buf *out)
{
    return out->is_bad ? E_NOMEM : 0;
}

const char *api_finish_reason(enum gen_stop stop)
{
    static const char *const reasons[] = {
#define X(stop, stop_reason, finish_reason, status) finish_reason,
        GEN_STOP_TABLE(X)
#undef X
    };

    return reasons[stop];
}

/* ---- parts ---- */

static void render_openai_put_head(struct buf *out, const struct api_chunk *chunk, const char *object)
{
    buf_append_str(out, "{\"id\":");
    json_put_str(out, bytes_str(chunk->id));
    buf_append_str(out, ",\"object\":\"");
    buf_append_str(out, object);
    buf_append_str(out, "\",\"created\":");
    buf_append_u64(out, chunk->created_unix_s);
    buf_append_str(out, ",\"model\":");
    json_put_str(out, chunk->model);
    if (chunk->fingerprint != NULL && chunk->fingerprint[0] != '\0') {
        buf_append_str(out, ",\"system_fingerprint\":\"fp_");
        buf_append(out, chunk->fingerprint, strnlen(chunk->fingerprint, 12));
        buf_append_byte(out, '"');
    } else {
        buf_append_str(out, ",\"system_fingerprint\":null");
    }
    buf_append_str(out, ",\"choices\":[");
}

static void render_openai_put_logprobs(struct buf *out, struct bytes logprobs)
{
    buf_append_str(out, ",\"logprobs\":");
    if (logprobs.data == NULL)
        buf_append_str(out, "null");
    else
        buf_append(out, logprobs.data, logprobs.len_bytes);
}

static void put_usage(struct buf *out, const struct api_usage *usage)
{
    uint32_t prompt = usage->input_tokens + usage->cache_read_tokens + api_usage_created(usage);

    buf_printf(out,
               ",\"usage\":{\"prompt_tokens\":%u,\"completion_tokens\":%u,\"total_tokens\":%llu,"
               "\"prompt_tokens_details\":{\"cached_tokens\":%u},"
               "\"completion_tokens_details\":{\"reasoning_tokens\":%u}}",
               prompt, usage->output_tokens, (unsigned long long)prompt + usage->output_tokens,
               usage->cache_read_tokens, usage->thinking_tokens);
}

/* ---- whole answers ---- */

static void put_joined(struct buf *out, const struct api_choice *choice, enum gen_block_kind kind)
{
    struct buf text = {0};

    if (kind == GEN_TEXT)
        buf_append(&text, choice->before.data, choice->before.len_bytes);
    for (size_t i = 0; i < choice->n_blocks; i++)
        if (choice->blocks[i].kind == kind)
            buf_append(&text, choice->blocks[i].text.data, choice->blocks[i].text.len_bytes);
    out->is_bad |= text.is_bad;
    json_put_str(out, buf_view(&text));
    buf_fini(&text);
}

static size_t count_blocks(const struct api_choice *choice, enum gen_block_kind kind)
{
    size_t n = 0;

    for (size_t i = 0; i < choice->n_blocks; i++)
        n += choice->blocks[i].kind == kind;
    return n;
}

static void put_calls(struct buf *out, const struct api_choice *choice)
{
    const char *separator = "";

    buf_append_str(out, ",\"tool_calls\":[");
    for (size_t i = 0; i < choice->n_blocks; i++) {
        const struct gen_block *block = &choice->blocks[i];

        if (block->kind != GEN_TOOL_USE)
            continue;
        buf_printf(out, "%s{\"id\":", separator);
        json_put_str(out, block->id);
        buf_append_str(out, ",\"type\":\"function\",\"function\":{\"name\":");
        json_put_str(out, block->name);
        buf_append_str(out, ",\"arguments\":");
        json_put_str(out, block->input);
        buf_append_str(out, "}}");
        separator = ",";
    }
    buf_append_byte(out, ']');
}

static void put_message(struct buf *out, const struct api_choice *choice)
{
    bool has_calls = count_blocks(choice, GEN_TOOL_USE) > 0;

    buf_append_str(out, "\"message\":{\"role\":\"assistant\",\"content\":");
    if (has_calls && count_blocks(choice, GEN_TEXT) == 0)
        buf_append_str(out, "null");
    else
        put_joined(out, choice, GEN_TEXT);
    buf_append_str(out, ",\"refusal\":null");
    if (count_blocks(choice, GEN_THINKING) > 0) {
        buf_append_str(out, ",\"reasoning_content\":");
        put_joined(out, choice, GEN_THINKING);
    }
    if (has_calls)
        put_calls(out, choice);
    buf_append_byte(out, '}');
}

int api_put_completion(struct buf *out, const struct api_chunk *common, const struct api_choice *choices,
                       size_t n, const struct api_usage *usage)
{
    render_openai_put_head(out, common, common->is_chat ? "chat.completion" : "text_completion");
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "%s{\"index\":%zu,", i == 0 ? "" : ",", i);
        if (common->is_chat) {
            put_message(out, &choices[i]);
        } else {
            buf_append_str(out, "\"text\":");
            put_joined(out, &choices[i], GEN_TEXT);
        }
        render_openai_put_logprobs(out, choices[i].logprobs);
        buf_printf(out, ",\"finish_reason\":\"%s\"}", api_finish_reason(choices[i].stop));
    }
    buf_append_byte(out, ']');
    put_usage(out, usage);
    buf_append_byte(out, '}');
    return render_openai_result(out);
}

/* ---- chunks ---- */

static void open_chunk(struct buf *out, const struct api_chunk *chunk)
{
    render_openai_put_head(out, chunk, chunk->is_chat ? "chat.completion.chunk" : "text_completion");
    buf_append_str(out, "{\"index\":");
    buf_append_u64(out, chunk->index);
    buf_append_str(out, chunk->is_chat ? ",\"delta\":{" : ",\"text\":");
}

/* finish: the finish reason, or NULL. */
static int close_chunk(struct buf *out, const struct api_chunk *chunk, const char *finish)
{
    if (chunk->is_chat)
        buf_append_byte(out, '}');
    render_openai_put_logprobs(out, chunk->logprobs);
    if (finish == NULL)
        buf_append_str(out, ",\"finish_reason\":null}]");
    else
        buf_printf(out, ",\"finish_reason\":\"%s\"}]", finish);
    if (chunk->has_usage)
        buf_append_str(out, ",\"usage\":null");
    if (chunk->serving != NULL)
        api_put_serving(out, chunk->serving);
    buf_append_byte(out, '}');
    return render_openai_result(out);
}

int api_put_chunk_role(struct buf *out, const struct api_chunk *chunk)
{
    open_chunk(out, chunk);
    buf_append_str(out, "\"role\":\"assistant\",\"content\":\"\"");
    return close_chunk(out, chunk, NULL);
}

int api_put_chunk_text(struct buf *out, const struct api_chunk *chunk, enum gen_block_kind kind,
                       struct bytes text)
{
    open_chunk(out, chunk);
    if (chunk->is_chat)
        buf_append_str(out, kind == GEN_THINKING ? "\"reasoning_content\":" : "\"content\":");
    json_put_str(out, text);
    return close_chunk(out, chunk, NULL);
}

int api_put_chunk_call(struct buf *out, const struct api_chunk *chunk, unsigned call, const char *id,
                       struct bytes name)
{
    open_chunk(out, chunk);
    buf_printf(out, "\"tool_calls\":[{\"index\":%u,\"id\":", call);
    json_put_str(out, bytes_str(id));
    buf_append_str(out, ",\"type\":\"function\",\"function\":{\"name\":");
    json_put_str(out, name);
    buf_append_str(out, ",\"arguments\":\"\"}}]");
    return close_chunk(out, chunk, NULL);
}

int api_put_chunk_arguments(struct buf *out, const struct api_chunk *chunk, unsigned call, struct bytes piece)
{
    open_chunk(out, chunk);
    buf_printf(out, "\"tool_calls\":[{\"index\":%u,\"function\":{\"arguments\":", call);
    json_put_str(out, piece);
    buf_append_str(out, "}}]");
    return close_chunk(out, chunk, NULL);
}

int api_put_chunk_end(struct buf *out, const struct api_chunk *chunk, enum gen_stop stop)
{
    open_chunk(out, chunk);
    if (!chunk->is_chat)
        buf_append_str(out, "\"\"");
    return close_chunk(out, chunk, api_finish_reason(stop));
}

int api_put_chunk_usage(struct buf *out, const struct api_chunk *chunk, const struct api_usage *usage)
{
    render_openai_put_head(out, chunk, chunk->is_chat ? "chat.completion.chunk" : "text_completion");
    buf_append_byte(out, ']');
    put_usage(out, usage);
    if (chunk->serving != NULL)
        api_put_serving(out, chunk->serving);
    buf_append_byte(out, '}');
    return render_openai_result(out);
}

/* ---- tokens ---- */

int api_put_tokens(struct buf *out, const uint32_t *tokens, size_t n, uint32_t context_length)
{
    buf_append_str(out, "{\"tokens\":[");
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "%s%u", i == 0 ? "" : ",", tokens[i]);
    return buf_printf(out, "],\"count\":%zu,\"max_model_len\":%u}", n, context_length);
}

int api_put_detokenized(struct buf *out, struct bytes text)
{
    buf_append_str(out, "{\"prompt\":");
    json_put_str(out, text);
    buf_append_str(out, ",\"content\":");
    json_put_str(out, text);
    return buf_append_byte(out, '}');
}
