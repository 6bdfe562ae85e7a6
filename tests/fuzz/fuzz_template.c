/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as a chat template, and any conversation rendered with it.
 *
 *     u16 length of the template | template | fields of the conversation
 *     field:  u8 kind | u8 length | text       kind mod 8: 0..3 a message of that role, 4 a call of the last message,
 *                                              5 a tool, 6 parameters of the last tool, 7 arguments of the last call
 *
 * The spelling of a control token is appended to every text of the conversation.  A template without that
 * spelling cannot produce the token. */
#include "gguf/write.h"
#include "text/token/chat.h"

#include "base/arena.h"
#include "base/check.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_ITEMS 16

struct conversation {
    struct chat_message messages[MAX_ITEMS];
    struct chat_call calls[MAX_ITEMS];
    struct chat_tool tools[MAX_ITEMS];
    size_t n_messages, n_calls, n_tools;
};

static void add_field(struct conversation *conversation, uint8_t kind, struct bytes text)
{
    struct chat_message *last =
        conversation->n_messages > 0 ? &conversation->messages[conversation->n_messages - 1] : NULL;

    switch (kind % 8) {
    case 4:
        if (last == NULL || last->role != CHAT_ASSISTANT || conversation->n_calls == MAX_ITEMS)
            return;
        if (last->n_calls == 0)
            last->calls = &conversation->calls[conversation->n_calls];
        conversation->calls[conversation->n_calls++] =
            (struct chat_call){.name = text, .arguments = bytes_str("{\"a\":1}")};
        last->n_calls++;
        return;
    case 5:
        if (conversation->n_tools < MAX_ITEMS)
            conversation->tools[conversation->n_tools++] =
                (struct chat_tool){.name = text, .description = text};
        return;
    case 6:
        if (conversation->n_tools > 0)
            conversation->tools[conversation->n_tools - 1].parameters = text;
        return;
    case 7:
        if (conversation->n_calls > 0)
            conversation->calls[conversation->n_calls - 1].arguments = text;
        return;
    default:
        if (conversation->n_messages < MAX_ITEMS)
            conversation->messages[conversation->n_messages++] =
                (struct chat_message){.role = (enum chat_role)(kind % 8), .text = text};
        return;
    }
}

static const char secret[] = "<|Zq7#|>";
#define SECRET_ID 8

/* A small vocabulary with the markers that formats need, and one that no template uses. */
static struct tokenizer *tokenizer_with(struct bytes chat_template)
{
    static const char *const markers[] = {"<unk>",      "<s>",         "<|im_start|>",
                                          "<|im_end|>", "<tool_call>", "</tool_call>",
                                          "<think>",    "</think>",    secret};
    static const int32_t types[] = {2, 3, 3, 3, 4, 4, 4, 4, 3};
    static const float scores[ARRAY_LEN(markers)];
    struct bytes spellings[ARRAY_LEN(markers)];
    struct gguf_writer *writer = NULL;
    struct tokenizer *tokenizer = NULL;
    struct buf image = {0};

    for (size_t i = 0; i < ARRAY_LEN(markers); i++)
        spellings[i] = bytes_str(markers[i]);
    ASSERT(gguf_writer_new(&writer) == 0);
    gguf_put_str(writer, "tokenizer.ggml.model", bytes_str("llama"));
    gguf_put_str_array(writer, "tokenizer.ggml.tokens", spellings, ARRAY_LEN(markers));
    gguf_put_i32_array(writer, "tokenizer.ggml.token_type", types, ARRAY_LEN(markers));
    gguf_put_f32_array(writer, "tokenizer.ggml.scores", scores, ARRAY_LEN(markers));
    gguf_put_u32(writer, "tokenizer.ggml.unknown_token_id", 0);
    gguf_put_u32(writer, "tokenizer.ggml.bos_token_id", 1);
    gguf_put_str(writer, "tokenizer.chat_template", chat_template);
    ASSERT(gguf_writer_header(writer, &image) == 0);
    ASSERT(tokenizer_new_from_image(buf_view(&image), NULL, &tokenizer) == 0);
    gguf_writer_free(writer);
    buf_fini(&image);
    return tokenizer;
}

/* Appends the secret to the text; text that must be JSON stays unchanged. */
static struct bytes with_secret(struct arena *arena, uint8_t kind, struct bytes text)
{
    uint8_t *copy = arena_take(arena, text.len_bytes + sizeof(secret));

    ASSERT(copy != NULL);
    if (kind % 8 >= 6)
        return text;
    if (text.len_bytes > 0)
        memcpy(copy, text.data, text.len_bytes);
    memcpy(copy + text.len_bytes, secret, strlen(secret));
    return bytes_of(copy, text.len_bytes + strlen(secret));
}

static void read_conversation(struct reader reader, struct arena *arena, struct conversation *out)
{
    while (reader.at_bytes < reader.len_bytes) {
        uint8_t kind = read_u8(&reader);
        struct bytes text = read_bytes(&reader, read_u8(&reader));

        if (reader.is_bad)
            return;
        add_field(out, kind, with_secret(arena, kind, text));
    }
}

/* Looking for breakpoints changes no token, and a sampled answer follows the very tokens that it names. */
static void check_extras(const struct chat_format *format, const struct chat_prompt *prompt,
                         const struct token_ids *ids)
{
    static const token_id answer[] = {7, 1, 0, 6};
    struct chat_place places[CHAT_MAX_PLACES] = {{0}};
    struct chat_drawn drawn[CHAT_MAX_PLACES];
    struct chat_extras extras = {.max_ids = SIZE_MAX, .places = places, .drawn = drawn};
    struct token_ids same = {0}, other = {0};

    for (size_t i = 0; i < CHAT_MAX_PLACES && i < prompt->n_messages; i++)
        places[extras.n_places++] = (struct chat_place){.n_messages = i, .text_bytes = i % 3};
    ASSERT(chat_render_extras(format, prompt, &extras, NULL, &same) == 0);
    ASSERT(same.n == ids->n && (ids->n == 0 || memcmp(same.ids, ids->ids, ids->n * sizeof(*ids->ids)) == 0));
    for (size_t i = 0; i < extras.n_places; i++) {
        ASSERT(places[i].n_tokens <= ids->n && (i == 0 || places[i].n_tokens >= places[i - 1].n_tokens));
        ASSERT(places[i].sum == chat_sum(ids->ids, places[i].n_tokens));
        if (places[i].text_bytes > 0 || prompt->messages[i].role != CHAT_ASSISTANT || extras.n_drawn > 0)
            continue;
        drawn[extras.n_drawn++] = (struct chat_drawn){.message = i,
                                                      .base_tokens = places[i].n_tokens,
                                                      .base_sum = places[i].sum,
                                                      .ids = answer,
                                                      .n_ids = ARRAY_LEN(answer),
                                                      .rest = bytes_str("ab")};
    }
    ASSERT(chat_render_extras(format, prompt, &extras, NULL, &other) == 0);
    if (extras.n_drawn > 0 && drawn[0].is_used) {
        size_t n = drawn[0].base_tokens;

        ASSERT(other.n >= n + ARRAY_LEN(answer));
        ASSERT(n == 0 || memcmp(other.ids, ids->ids, n * sizeof(*ids->ids)) == 0);
        ASSERT(memcmp(other.ids + n, answer, sizeof(answer)) == 0);
    }
    token_ids_fini(&same);
    token_ids_fini(&other);
}

static void check(const struct chat_format *format, struct reader reader, bool spells_secret)
{
    struct conversation conversation = {0};
    struct token_ids ids = {0};
    struct fault fault = {0};
    struct buf text = {0};
    struct arena arena;

    arena_init(&arena, 0);
    read_conversation(reader, &arena, &conversation);
    struct chat_prompt prompt = {.messages = conversation.messages,
                                 .n_messages = conversation.n_messages,
                                 .tools = conversation.tools,
                                 .n_tools = conversation.n_tools,
                                 .adds_generation = (reader.len_bytes & 1) != 0,
                                 .continues_last = (reader.len_bytes & 2) != 0,
                                 .thinking = (enum chat_thinking)(reader.len_bytes / 4 % 3),
                                 .now_unix_s = 1735734896};
    int rc = chat_render_text(format, &prompt, &fault, &text);

    ASSERT(rc == 0 || fault.text[0] != '\0');
    ASSERT(chat_render(format, &prompt, SIZE_MAX, NULL, &ids) == rc);
    for (size_t i = 0; i < ids.n && !spells_secret; i++)
        ASSERT(ids.ids[i] != SECRET_ID);
    if (rc == 0)
        check_extras(format, &prompt, &ids);
    buf_fini(&text);
    token_ids_fini(&ids);
    arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct reader reader = reader_of(bytes_of(data, size));
    struct bytes chat_template = read_bytes(&reader, read_u16(&reader));
    struct chat_format *format = NULL;
    struct fault fault = {0};

    if (reader.is_bad)
        return 0;
    struct tokenizer *tokenizer = tokenizer_with(chat_template);
    int rc = chat_format_new(tokenizer, &fault, &format);
    tokenizer_unref(tokenizer);
    if (rc != 0) {
        ASSERT(format == NULL && fault.text[0] != '\0');
        return 0;
    }
    check(format, reader, bytes_find(chat_template, bytes_str("Zq7"), 0) != SIZE_MAX);
    chat_format_free(format);
    return 0;
}
