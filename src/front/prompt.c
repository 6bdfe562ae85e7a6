/* SPDX-License-Identifier: Apache-2.0 */
/* From API messages to chat turns to tokens.
 *
 *     user message:      [result, result, text, text]  ->  tool turn, tool turn, user turn
 *     assistant message: [thinking, text, call, call]  ->  one turn with its thinking and calls
 *
 * Every breakpoint is found by rendering the conversation cut off there and taking the common prefix with the
 * whole: no knowledge of the template is needed, and the boundary lies on a token.  The usual place, after
 * the last message, needs only the length of what opens the assistant's turn. */
#include "front/prompt.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "front/shape.h"

#define MAX_PROMPT_TOKENS (100u << 20)

struct turns { /* a conversation in the making */
    struct arena *arena;
    struct chat_message *list;
    size_t n;
    size_t cap;
    bool is_bad;
};

static struct chat_message *add_turn(struct turns *turns, enum chat_role role)
{
    if (turns->n == turns->cap) {
        turns->is_bad = true;
        return NULL;
    }
    turns->list[turns->n].role = role;
    return &turns->list[turns->n++];
}

/* The texts of n blocks of one kind, with an empty line between, in the arena. */
static struct bytes join_texts(struct turns *turns, enum gen_block_kind kind, const struct gen_block *blocks,
                               size_t n_blocks)
{
    size_t len = 0;
    size_t n = 0;
    uint8_t *text;

    for (size_t i = 0; i < n_blocks; i++) {
        if (blocks[i].kind != kind || blocks[i].text.len_bytes == 0)
            continue;
        len += blocks[i].text.len_bytes + 2;
        n++;
    }
    if (n == 0)
        return bytes_of(NULL, 0);
    text = arena_take(turns->arena, len);
    if (text == NULL) {
        turns->is_bad = true;
        return bytes_of(NULL, 0);
    }
    len = 0;
    for (size_t i = 0; i < n_blocks; i++) {
        if (blocks[i].kind != kind || blocks[i].text.len_bytes == 0)
            continue;
        if (len > 0) {
            memcpy(text + len, "\n\n", 2);
            len += 2;
        }
        memcpy(text + len, blocks[i].text.data, blocks[i].text.len_bytes);
        len += blocks[i].text.len_bytes;
    }
    return bytes_of(text, len);
}

static void add_user(struct turns *turns, const struct gen_message *message, size_t n_blocks,
                     enum chat_role role)
{
    size_t from = 0;

    for (size_t i = 0; i <= n_blocks; i++) {
        struct chat_message *turn;

        if (i < n_blocks && message->blocks[i].kind == GEN_TEXT)
            continue;
        if (i > from || n_blocks == 0) {
            turn = add_turn(turns, role);
            if (turn != NULL)
                turn->text = join_texts(turns, GEN_TEXT, message->blocks + from, i - from);
        }
        if (i < n_blocks) {
            turn = add_turn(turns, CHAT_TOOL);
            if (turn != NULL) {
                turn->text = message->blocks[i].text;
                turn->call_id = message->blocks[i].id;
            }
        }
        from = i + 1;
    }
}

static void add_assistant(struct turns *turns, const struct gen_message *message, size_t n_blocks)
{
    struct chat_message *turn = add_turn(turns, CHAT_ASSISTANT);
    struct chat_call *calls = arena_take(turns->arena, (n_blocks + 1) * sizeof(*calls));

    if (turn == NULL || calls == NULL) {
        turns->is_bad = true;
        return;
    }
    turn->text = join_texts(turns, GEN_TEXT, message->blocks, n_blocks);
    turn->thinking = join_texts(turns, GEN_THINKING, message->blocks, n_blocks);
    turn->calls = calls;
    for (size_t i = 0; i < n_blocks; i++)
        if (message->blocks[i].kind == GEN_TOOL_USE)
            calls[turn->n_calls++] = (struct chat_call){.name = message->blocks[i].name,
                                                        .arguments = message->blocks[i].input,
                                                        .id = message->blocks[i].id};
    /* The template puts a line end before calls; the model's own, which we delivered as text, would double
     * it. */
    while (turn->n_calls > 0 && turn->text.len_bytes > 0 &&
           strchr(" \t\r\n", turn->text.data[turn->text.len_bytes - 1]) != NULL)
        turn->text.len_bytes--;
}

/* Templates know these words and print them; others are for other servers. */
static const char *effort_of(const struct gen_request *request)
{
    static const char *const words[][2] = {{"minimal", "low"}, {"low", "low"},    {"medium", "medium"},
                                           {"high", "high"},   {"xhigh", "high"}, {"max", "high"}};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (bytes_is(request->effort, words[i][0]))
            return words[i][1];
    return NULL;
}

static enum chat_thinking thinking_of(const struct gen_request *request)
{
    switch (request->thinking) {
    case GEN_THINKING_UNSAID:
        return CHAT_THINKING_DEFAULT;
    case GEN_THINKING_ON:
        return CHAT_THINKING_ON;
    case GEN_THINKING_OFF:
        return CHAT_THINKING_OFF;
    }
    return CHAT_THINKING_DEFAULT;
}

/* The conversation up to a mark (NULL: all of it) as turns and tools. */
static int build(struct gen_request *request, const struct gen_mark *upto, struct chat_prompt *out)
{
    size_t n_messages = upto == NULL ? request->n_messages : upto->n_messages;
    struct turns turns = {.arena = &request->arena, .cap = 3}; /* system, prefill, and one for nothing */
    struct chat_tool *tools = arena_take(&request->arena, (request->n_tools + 1) * sizeof(*tools));

    for (size_t i = 0; i < n_messages; i++)
        turns.cap += request->messages[i].n_blocks + 1;
    turns.list = arena_take(&request->arena, turns.cap * sizeof(*turns.list));
    if (turns.list == NULL || tools == NULL)
        return E_NOMEM;
    if (request->system.len_bytes > 0)
        add_turn(&turns, CHAT_SYSTEM)->text = request->system;
    for (size_t i = 0; i < n_messages; i++) {
        const struct gen_message *message = &request->messages[i];
        size_t n_blocks = upto != NULL && i + 1 == n_messages ? upto->n_blocks : message->n_blocks;

        if (message->role == GEN_ASSISTANT)
            add_assistant(&turns, message, n_blocks);
        else
            add_user(&turns, message, n_blocks, message->role == GEN_USER ? CHAT_USER : CHAT_SYSTEM);
    }
    for (size_t i = 0; i < request->n_tools; i++)
        tools[i] = (struct chat_tool){request->tools[i].name, request->tools[i].description,
                                      request->tools[i].input_schema};
    *out = (struct chat_prompt){.messages = turns.list,
                                .tools = tools,
                                .n_tools = request->n_tools,
                                .thinking = thinking_of(request),
                                .effort = effort_of(request)};
    if (upto == NULL && request->prefill.len_bytes > 0) {
        struct chat_message *last = add_turn(&turns, CHAT_ASSISTANT);

        if (last != NULL)
            last->text = request->prefill;
        out->continues_last = true;
    }
    out->n_messages = turns.n;
    out->adds_generation = upto == NULL;
    return turns.is_bad ? E_NOMEM : 0;
}

/* How many tokens open the assistant's turn?  0 when the template does not render a lone question. */
static int count_opening(const struct gen_model *model, const struct chat_prompt *whole, uint32_t *out)
{
    const struct chat_message turn = {.role = CHAT_USER, .text = bytes_str("x")};
    struct chat_prompt prompt = {.messages = &turn, .n_messages = 1, .thinking = whole->thinking};
    struct token_ids closed = {0};
    struct token_ids opened = {0};
    int rc = chat_render(model->chat, &prompt, MAX_PROMPT_TOKENS, NULL, &closed);

    prompt.adds_generation = true;
    if (rc == 0)
        rc = chat_render(model->chat, &prompt, MAX_PROMPT_TOKENS, NULL, &opened);
    if (rc == 0)
        *out = opened.n > closed.n ? (uint32_t)(opened.n - closed.n) : 0;
    token_ids_fini(&closed);
    token_ids_fini(&opened);
    return rc == E_NOMEM ? rc : 0;
}

static int find_mark(const struct gen_model *model, struct gen_request *request, const struct gen_mark *mark,
                     const struct token_ids *ids, uint32_t *out)
{
    const struct gen_message *last =
        request->n_messages == 0 ? NULL : &request->messages[request->n_messages - 1];
    struct token_ids part = {0};
    struct chat_prompt prompt;
    uint32_t n = 0;
    int rc;

    if (!mark->is_set)
        return 0;
    rc = build(request, mark, &prompt);
    if (rc == 0 && last != NULL && request->prefill.len_bytes == 0 &&
        mark->n_messages == request->n_messages && mark->n_blocks == last->n_blocks) {
        rc = count_opening(model, &prompt, &n);
        if (rc == 0)
            *out = n < ids->n ? (uint32_t)ids->n - n : 0;
        return rc;
    }
    /* A template may refuse a conversation that ends there: then there is no mark to be found. */
    if (rc == 0)
        rc = chat_render(model->chat, &prompt, MAX_PROMPT_TOKENS, NULL, &part);
    while (rc == 0 && n < part.n && n < ids->n && part.ids[n] == ids->ids[n])
        n++;
    if (rc == 0)
        *out = n;
    token_ids_fini(&part);
    return rc == E_NOMEM ? rc : 0;
}

/* Do the last tokens spell the mark, but for blanks behind it? */
static bool ends_in(const struct gen_model *model, const struct token_ids *ids, const char *mark)
{
    size_t left = strlen(mark);
    bool is_begun = false;

    for (size_t i = ids->n; i > 0 && left > 0; i--) {
        struct bytes piece = tokenizer_piece(model->tokenizer, ids->ids[i - 1]);

        for (size_t k = piece.len_bytes; k > 0 && left > 0; k--) {
            if (!is_begun && strchr(" \t\r\n", piece.data[k - 1]) != NULL && piece.data[k - 1] != '\0')
                continue;
            is_begun = true;
            if ((uint8_t)mark[--left] != piece.data[k - 1])
                return false;
        }
    }
    return left == 0;
}

static bool opens_thinking(const struct gen_model *model, const struct gen_request *request,
                           const struct token_ids *ids)
{
    const char *mark = chat_format_manner(model->chat)->think_open;

    return mark != NULL && request->prefill.len_bytes == 0 && ends_in(model, ids, mark);
}

static int fail(struct api_error *error, int rc, const struct fault *fault)
{
    if (rc == E_NOMEM)
        api_fail(error, 503, "out of memory");
    else if (fault->text[0] != '\0')
        api_fail(error, 400, "messages: %s", fault->text);
    else
        api_fail(error, 400, "messages: the model's chat format cannot express this conversation");
    return rc;
}

int prompt_make(const struct gen_model *model, struct gen_request *request, struct prompt *out,
                struct api_error *error)
{
    struct prompt prompt = {0};
    struct chat_prompt chat;
    struct fault fault = {0};
    int rc;

    rc = build(request, NULL, &chat);
    if (rc == 0)
        rc = chat_render(model->chat, &chat, MAX_PROMPT_TOKENS, &fault, &prompt.ids);
    if (rc == 0)
        rc = find_mark(model, request, &request->mark, &prompt.ids, &prompt.mark_tokens);
    if (rc == 0)
        rc = find_mark(model, request, &request->mark_1h, &prompt.ids, &prompt.mark_1h_tokens);
    if (rc < 0) {
        prompt_fini(&prompt);
        return fail(error, rc, &fault);
    }
    prompt.opens_thinking = opens_thinking(model, request, &prompt.ids);
    rc = shape_make(model, request, prompt.opens_thinking, &prompt.shape, error);
    if (rc < 0)
        prompt_fini(&prompt);
    else
        *out = prompt;
    return rc;
}

void prompt_fini(struct prompt *prompt)
{
    token_ids_fini(&prompt->ids);
    buf_fini(&prompt->text);
    buf_fini(&prompt->shape);
}

/* Tokens between what was reused and the mark, if the prefix is long enough to be kept at all. */
static uint32_t created(uint32_t mark_tokens, uint32_t cached_tokens, uint32_t block_tokens)
{
    if (mark_tokens < block_tokens || mark_tokens <= cached_tokens)
        return 0;
    return mark_tokens - cached_tokens;
}

void prompt_account(const struct prompt *prompt, uint32_t cached_tokens, uint32_t block_tokens,
                    struct api_usage *usage)
{
    uint32_t n = (uint32_t)prompt->ids.n;
    uint32_t read = cached_tokens < n ? cached_tokens : n;
    uint32_t all = created(prompt->mark_tokens, read, block_tokens);
    uint32_t in_1h = created(prompt->mark_1h_tokens, read, block_tokens);

    usage->cache_read_tokens = read;
    usage->created_1h_tokens = in_1h < all ? in_1h : all;
    usage->created_5m_tokens = all - usage->created_1h_tokens;
    usage->input_tokens = n - read - all;
}
