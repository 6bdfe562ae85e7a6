/* SPDX-License-Identifier: Apache-2.0 */
/* Converts API messages to chat turns, and turns to tokens.
 *
 *     user message:      [result, result, text, text]  ->  tool turn, tool turn, user turn
 *     assistant message: [thinking, text, call, call]  ->  one turn with its thinking and calls
 *
 * One rendering gives the tokens, the positions of the breakpoints, and the position where the answer's
 * turn opens.  This works because the template's interpreter knows the turn of every byte. */
#include "serve/prompt/prompt.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "serve/prompt/constraint.h"
#include "text/toolcall/calls_types.h"

#define MAX_RENDERINGS 3

struct turns { /* a conversation under construction */
    struct arena *arena;
    struct chat_message *list;
    size_t n;
    size_t cap;
    bool is_bad;
};

struct hint { /* a placeholder for an answer's thinking that the client left out */
    bool is_given;
    size_t message; /* index in the request */
};

struct build { /* and the positions to be found */
    struct gen_request *request;
    const struct replay *replay; /* may be NULL */
    struct chat_drawn *drawn;    /* [n_drawn] our own answers found in the conversation */
    size_t n_drawn;
    struct hint *hints;               /* [n_drawn] */
    bool *is_hintless;                /* [n_messages]: give no hint for this message */
    const struct cached_answer *last; /* the last assistant message, if it is our own answer */
    struct turns turns;
    size_t n_messages; /* added so far */
    size_t first_turn; /* first turn of the last message */
    struct chat_place marks[WORK_N_PINS], base;
};

static struct chat_message *prompt_add_turn(struct turns *turns, enum chat_role role)
{
    if (turns->n == turns->cap) {
        turns->is_bad = true;
        return NULL;
    }
    turns->list[turns->n].role = role;
    return &turns->list[turns->n++];
}

/* Joins the texts of n blocks of one kind, with an empty line between, in the arena.  A single text is
 * not copied. */
static struct bytes join_texts(struct turns *turns, enum gen_block_kind kind, const struct gen_block *blocks,
                               size_t n_blocks)
{
    struct bytes last = bytes_of(NULL, 0);
    size_t len = 0;
    size_t n = 0;
    uint8_t *text;

    for (size_t i = 0; i < n_blocks; i++) {
        if (blocks[i].kind != kind || blocks[i].text.len_bytes == 0)
            continue;
        last = blocks[i].text;
        len += last.len_bytes + 2;
        n++;
    }
    if (n <= 1)
        return last;
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

static void add_user(struct turns *turns, const struct gen_message *message, enum chat_role role)
{
    size_t n_blocks = message->n_blocks;
    size_t from = 0;

    for (size_t i = 0; i <= n_blocks; i++) {
        struct chat_message *turn;

        if (i < n_blocks && message->blocks[i].kind == GEN_TEXT)
            continue;
        if (i > from || n_blocks == 0) {
            turn = prompt_add_turn(turns, role);
            if (turn != NULL)
                turn->text = join_texts(turns, GEN_TEXT, message->blocks + from, i - from);
        }
        if (i < n_blocks) {
            turn = prompt_add_turn(turns, CHAT_TOOL);
            if (turn != NULL) {
                turn->text = message->blocks[i].text;
                turn->call_id = message->blocks[i].id;
            }
        }
        from = i + 1;
    }
}

/* Returns the model's own id of the call that the client knows by this id. */
static struct bytes drawn_id(const struct cached_answer *answer, struct bytes id)
{
    for (size_t i = 0; answer != NULL && answer->drawn_ids != NULL && i < answer->n_blocks; i++)
        if (answer->drawn_ids[i].len_bytes > 0 && bytes_equal(answer->blocks[i].id, id))
            return answer->drawn_ids[i];
    return id;
}

/* answer: our own answer that the message repeats; NULL: none. */
static void add_assistant(struct turns *turns, const struct gen_message *message,
                          const struct cached_answer *answer)
{
    size_t n_blocks = message->n_blocks;
    struct chat_message *turn = prompt_add_turn(turns, CHAT_ASSISTANT);
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
                                                        .id = drawn_id(answer, message->blocks[i].id)};
    /* The template puts a line end before calls.  The model's own line end, which we delivered as text, would
     * double it. */
    while (turn->n_calls > 0 && turn->text.len_bytes > 0 &&
           strchr(" \t\r\n", turn->text.data[turn->text.len_bytes - 1]) != NULL)
        turn->text.len_bytes--;
}

/* Templates know these words and print them; other words are for other servers. */
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

/* Returns the place after n_blocks blocks of a message whose turns begin at first. */
static struct chat_place place_in(const struct gen_message *message, size_t n_blocks, size_t first)
{
    struct chat_place place = {.n_messages = first};

    for (size_t i = 0; i < n_blocks; i++) {
        const struct gen_block *block = &message->blocks[i];

        if (block->kind == GEN_TEXT) {
            place.text_bytes += (place.text_bytes > 0 ? 2 : 0) + block->text.len_bytes;
        } else if (block->kind == GEN_TOOL_RESULT) {
            place.n_messages += place.text_bytes > 0 ? 2 : 1;
            place.text_bytes = 0;
        }
    }
    if (message->role != GEN_ASSISTANT && place.text_bytes > 0 && message->blocks[n_blocks].kind != GEN_TEXT)
        return (struct chat_place){.n_messages = place.n_messages + 1};
    return place;
}

static void find_mark(struct build *build, const struct gen_mark *mark, struct chat_place *place)
{
    const struct gen_message *message = &build->request->messages[build->n_messages - 1];

    if (!mark->is_set || mark->n_messages != build->n_messages)
        return;
    if (mark->n_blocks >= message->n_blocks)
        *place = (struct chat_place){.n_messages = build->turns.n};
    else
        *place = place_in(message, mark->n_blocks, build->first_turn);
}

static struct chat_drawn drawn_of(const struct cached_answer *answer, size_t turn)
{
    return (struct chat_drawn){.message = turn,
                               .base_tokens = answer->base_tokens,
                               .base_sum = answer->base_sum,
                               .ids = answer->ids,
                               .n_opening = answer->n_opening,
                               .n_ids = answer->n_ids,
                               .rest = answer->rest,
                               .needs_thinking = answer->has_thinking};
}

/* Adds assistant message i.  If it is our own answer, its turn uses our text, so that the prompt is the
 * same however the client spells it.  A hint stands for thinking that the client left out.  Where the
 * template shows the hint, the sampled tokens replace the turn, thinking and hint included. */
static void add_answer(struct build *build, size_t i)
{
    const struct gen_message *message = &build->request->messages[i];
    const struct cached_answer *answer = build->drawn == NULL ? NULL : build->replay->answers[i];
    struct gen_message ours;
    struct chat_message *turn;

    build->last = NULL;
    if (answer == NULL || !replay_is_equal(answer, message)) {
        add_assistant(&build->turns, message, NULL);
        return;
    }
    ours =
        (struct gen_message){.role = GEN_ASSISTANT, .blocks = answer->blocks, .n_blocks = answer->n_blocks};
    add_assistant(&build->turns, &ours, answer);
    if (build->turns.is_bad)
        return;
    turn = &build->turns.list[build->turns.n - 1];
    turn->thinking = join_texts(&build->turns, GEN_THINKING, message->blocks, message->n_blocks);
    build->hints[build->n_drawn] = (struct hint){.message = i};
    if (answer->has_thinking && turn->thinking.len_bytes == 0 && !build->is_hintless[i]) {
        turn->thinking = bytes_str("...");
        build->hints[build->n_drawn].is_given = true;
    }
    build->last = answer;
    build->drawn[build->n_drawn++] = drawn_of(answer, build->turns.n - 1);
}

static void prompt_add_message(struct build *build, size_t i)
{
    const struct gen_message *message = &build->request->messages[i];

    build->first_turn = build->turns.n;
    if (message->role == GEN_ASSISTANT)
        add_answer(build, i);
    else
        add_user(&build->turns, message, message->role == GEN_USER ? CHAT_USER : CHAT_SYSTEM);
    for (size_t k = build->first_turn; message->role == GEN_USER && k < build->turns.n; k++)
        build->turns.list[k].call_id = drawn_id(build->last, build->turns.list[k].call_id);
    build->n_messages++;
    for (unsigned pin = 0; pin < WORK_N_PINS; pin++)
        find_mark(build, &build->request->marks[pin], &build->marks[pin]);
}

/* Returns the place of a breakpoint in tools or system; one in a message overwrites it (find_mark). */
static struct chat_place place_in_system(const struct gen_mark *mark, const struct turns *turns)
{
    if (turns->n > 0 && mark->n_messages == 0 && mark->system_bytes > 0)
        return (struct chat_place){.text_bytes = mark->system_bytes};
    return (struct chat_place){.n_messages = turns->n};
}

/* Builds the conversation as turns and tools, and the places to be found. */
static int build_turns(struct build *build, struct chat_prompt *out)
{
    struct gen_request *request = build->request;
    struct turns *turns = &build->turns;
    struct chat_tool *tools = arena_take(&request->arena, (request->n_tools + 1) * sizeof(*tools));

    build->n_messages = build->n_drawn = 0;
    *turns = (struct turns){.arena = &request->arena, .cap = 3}; /* system, prefill, and a spare one */
    for (size_t i = 0; i < request->n_messages; i++)
        turns->cap += request->messages[i].n_blocks + 1;
    turns->list = arena_take(&request->arena, turns->cap * sizeof(*turns->list));
    if (turns->list == NULL || tools == NULL)
        return E_NOMEM;
    if (request->system.len_bytes > 0)
        prompt_add_turn(turns, CHAT_SYSTEM)->text = request->system;
    for (unsigned pin = 0; pin < WORK_N_PINS; pin++) {
        const struct gen_mark *mark = &request->marks[pin];

        build->marks[pin] = place_in_system(mark->is_set ? mark : &request->marks[0], turns);
    }
    for (size_t i = 0; i < request->n_messages; i++)
        prompt_add_message(build, i);
    build->base.n_messages = turns->n;
    for (size_t i = 0; i < request->n_tools; i++)
        tools[i] = (struct chat_tool){request->tools[i].name, request->tools[i].description,
                                      request->tools[i].input_schema};
    *out = (struct chat_prompt){.tools = tools,
                                .n_tools = request->n_tools,
                                .thinking = thinking_of(request),
                                .effort = effort_of(request),
                                .adds_generation = true};
    if (request->prefill.len_bytes > 0) {
        struct chat_message *last = prompt_add_turn(turns, CHAT_ASSISTANT);

        if (last != NULL)
            last->text = request->prefill;
        out->continues_last = true;
    }
    out->messages = turns->list;
    out->n_messages = turns->n;
    return turns->is_bad ? E_NOMEM : 0;
}

/* ---- rendering ---- */

/* Makes room for the answers that were found, if any. */
static int prompt_prepare(struct build *build)
{
    struct arena *arena = &build->request->arena;
    size_t n = 0;

    if (build->replay == NULL || build->replay->keys == NULL)
        return 0;
    for (size_t i = 0; i < build->replay->n; i++)
        n += build->replay->answers[i] != NULL;
    if (n == 0)
        return 0;
    build->hints = arena_take(arena, n * sizeof(*build->hints));
    build->is_hintless = arena_take(arena, build->replay->n * sizeof(*build->is_hintless));
    build->drawn = arena_take(arena, n * sizeof(*build->drawn));
    return build->hints == NULL || build->is_hintless == NULL || build->drawn == NULL ? E_NOMEM : 0;
}

/* Removes the hints that the template shows for answers that were not inserted.  True: render again. */
static bool takes_back_hints(struct build *build)
{
    bool is_any = false;

    for (size_t i = 0; i < build->n_drawn; i++) {
        if (!build->hints[i].is_given || build->drawn[i].is_used || !build->drawn[i].shows_thinking)
            continue;
        build->is_hintless[build->hints[i].message] = true;
        is_any = true;
    }
    return is_any;
}

static int render_once(const struct gen_model *model, struct build *build, struct fault *fault,
                       struct prompt *out)
{
    struct chat_place places[WORK_N_PINS + 1];
    struct chat_extras extras = {
        .max_ids = PROMPT_MAX_TOKENS, .places = places, .n_places = ARRAY_LEN(places)};
    struct chat_prompt chat;
    int rc = build_turns(build, &chat);

    if (rc < 0)
        return rc;
    for (unsigned pin = 0; pin < WORK_N_PINS; pin++) /* longer pins end earlier: places ascend */
        places[WORK_N_PINS - 1 - pin] = build->marks[pin];
    places[WORK_N_PINS] = build->base;
    extras.drawn = build->drawn;
    extras.n_drawn = build->n_drawn;
    out->ids.n = 0;
    rc = chat_render_extras(model->chat, &chat, &extras, fault, &out->ids);
    if (rc < 0)
        return rc;
    for (unsigned pin = 0; pin < WORK_N_PINS; pin++)
        out->mark_tokens[pin] =
            build->request->marks[pin].is_set ? places[WORK_N_PINS - 1 - pin].n_tokens : 0;
    out->base_tokens = places[WORK_N_PINS].is_joint ? places[WORK_N_PINS].n_tokens : 0;
    out->base_sum = places[WORK_N_PINS].sum;
    return 0;
}

static int prompt_render(const struct gen_model *model, struct build *build, struct fault *fault,
                         struct prompt *out)
{
    int rc = prompt_prepare(build);

    /* Without its hint an answer is not inserted; then later answers may not be inserted either. */
    for (size_t i = 0; rc == 0; i++) {
        rc = render_once(model, build, fault, out);
        if (rc < 0 || !takes_back_hints(build))
            break;
        if (i == MAX_RENDERINGS - 2)
            memset(build->is_hintless, true, build->replay->n * sizeof(*build->is_hintless));
    }
    out->n_replayed = 0;
    for (size_t i = 0; i < build->n_drawn; i++)
        out->n_replayed += build->drawn[i].is_used;
    return rc;
}

/* True if the last tokens spell the mark, ignoring blanks after it. */
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
    const char *mark = chat_format_info(model->chat)->think_open;

    return mark != NULL && request->prefill.len_bytes == 0 && ends_in(model, ids, mark);
}

static int prompt_fail(struct api_error *error, int rc, const struct fault *fault)
{
    if (rc == E_NOMEM)
        api_fail(error, 503, "out of memory");
    else if (fault->text[0] != '\0')
        api_fail(error, 400, "messages: %s", fault->text);
    else
        api_fail(error, 400, "messages: the model's chat format cannot express this conversation");
    return rc;
}

/* The loop splits answers and cannot read long schemas in time, so shorten them here. Without memory only the types
 * are lost. */
static void shorten_schemas(struct gen_request *request)
{
    for (size_t i = 0; i < request->n_tools; i++) {
        struct gen_tool *tool = &request->tools[i];
        struct buf text = {0};

        if (tool->input_schema.len_bytes <= CALLS_MAX_SCHEMA_BYTES)
            continue;
        if (calls_shorten_schema(tool->input_schema, &text) < 0)
            buf_fini(&text);
        else if (arena_keep(&request->arena, text.data, text.cap_bytes) != NULL)
            tool->short_schema = buf_view(&text);
    }
}

int prompt_make(const struct gen_model *model, struct gen_request *request, const struct replay *replay,
                struct prompt *out, struct api_error *error)
{
    struct build build = {.request = request, .replay = replay};
    struct prompt prompt = {0};
    struct fault fault = {0};
    int rc;

    rc = prompt_render(model, &build, &fault, &prompt);
    if (rc < 0) {
        prompt_fini(&prompt);
        return prompt_fail(error, rc, &fault);
    }
    prompt.opens_thinking = opens_thinking(model, request, &prompt.ids);
    rc = constraint_make(model, request, prompt.opens_thinking, &prompt.constraint, error);
    if (rc < 0) {
        prompt_fini(&prompt);
        return rc;
    }
    shorten_schemas(request);
    *out = prompt;
    return 0;
}

int prompt_show(const struct gen_model *model, struct gen_request *request, unsigned how, struct buf *out,
                struct api_error *error)
{
    struct build build = {.request = request};
    struct token_ids ids = {0};
    struct chat_prompt chat;
    struct fault fault = {0};
    int rc = build_turns(&build, &chat);

    chat.adds_generation = (how & PROMPT_SHOW_CLOSED) == 0;
    if (rc == 0 && (how & PROMPT_SHOW_IDS) != 0)
        rc = chat_render(model->chat, &chat, PROMPT_MAX_TOKENS, &fault, &ids);
    else if (rc == 0)
        rc = chat_render_text(model->chat, &chat, &fault, out);
    for (size_t i = 0; i < ids.n; i++)
        buf_printf(out, "%s%u", i == 0 ? "" : " ", ids.ids[i]);
    token_ids_fini(&ids);
    if (rc == 0 && out->is_bad)
        rc = E_NOMEM;
    return rc < 0 ? prompt_fail(error, rc, &fault) : 0;
}

void prompt_fini(struct prompt *prompt)
{
    token_ids_fini(&prompt->ids);
    buf_fini(&prompt->text);
    buf_fini(&prompt->constraint);
}

/* Returns the tokens between the reused ones and the mark, if the prefix is long enough to be cached at
 * all. */
static uint32_t prompt_created(uint32_t mark_tokens, uint32_t cached_tokens, uint32_t block_tokens)
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
    uint32_t all = prompt_created(prompt->mark_tokens[0], read, block_tokens), n_counted = 0;

    for (unsigned pin = WORK_N_PINS; pin-- > 0;) { /* the longest first: each token counts for one pin */
        uint32_t upto = prompt_created(prompt->mark_tokens[pin], read, block_tokens);

        upto = upto < n_counted ? n_counted : upto < all ? upto : all;
        usage->created_tokens[pin] = upto - n_counted;
        n_counted = upto;
    }
    usage->cache_read_tokens = read;
    usage->input_tokens = n - read - all;
}
