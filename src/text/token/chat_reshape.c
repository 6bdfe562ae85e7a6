/* SPDX-License-Identifier: Apache-2.0 */
/* Rewrites conversations that a template cannot show as they are.
 *
 *     no tools at all           the tools are described in the system text; calls and results are written
 *                               into answers and questions, in the Hermes format, and parsed as such
 *     tools but no calls        the template lists the tools; calls are written in the template's own
 *                               format where one is detected, results into questions
 *     tools in the system text  an empty one is added where there is none
 *     one call per turn         a turn with more calls is split into turns, each with its result
 *     no text beside a call     the text becomes a turn before the call, or is left out if refused there too
 *     no answer without text    the answer is left out
 *     no answer at the front    an empty question is put before it
 *     no late system text       the text becomes a question, wrapped in a fixed mark
 *     no question after results the question is appended to the last result
 *     turns must alternate      consecutive questions become one
 *
 * The template's limits are found when it is opened (chat_probe.c). So the same conversation always becomes
 * the same turns, and the turns of a longer conversation begin with those of the shorter one.
 *
 * Most conversations need no change and pass through. For the others there are two passes: the first makes
 * turns out of messages, the second joins neighbours. */
#include "text/token/chat_priv.h"

#include <stdarg.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "text/toolcall/spell.h"

#define MAX_REORDERED 256 /* limit on a turn's results that are matched to calls in any order */

struct reshape {
    const struct chat_format *format;
    const struct chat_prompt *from;
    struct arena *arena;
    struct chat_message *turns;
    size_t n;
    bool is_generic;
    bool is_bad;
};

/* ---- does the conversation need a change? ---- */

static bool chat_reshape_wants_tools(const struct chat_prompt *prompt)
{
    bool wants = prompt->n_tools > 0;

    for (size_t i = 0; i < prompt->n_messages; i++)
        wants |= prompt->messages[i].role == CHAT_TOOL || prompt->messages[i].n_calls > 0;
    return wants;
}

static bool is_empty_answer(const struct chat_message *message)
{
    return message->role == CHAT_ASSISTANT && message->text.len_bytes == 0 && message->n_calls == 0;
}

/* True if a question must come before message i: the template needs one, or the system text must go into
 * it. */
static bool wants_question(const struct chat_format *format, const struct chat_prompt *prompt, size_t i)
{
    const struct chat_message *message = &prompt->messages[i];

    if (message->role != CHAT_ASSISTANT || i > 1)
        return false;
    if (i == 1 && prompt->messages[0].role != CHAT_SYSTEM)
        return false;
    return format->has_no_first_answer || (i == 1 && format->has_no_system);
}

/* True if an empty system message must be added, to have the tools. */
static bool lacks_system(const struct chat_format *format, const struct chat_prompt *prompt)
{
    return format->wants_system_tools && prompt->n_tools > 0 &&
           (prompt->n_messages == 0 || prompt->messages[0].role != CHAT_SYSTEM);
}

static bool chat_reshape_is_plain(const struct chat_format *format, const struct chat_prompt *prompt)
{
    if ((!format->has_tools && chat_reshape_wants_tools(prompt)) || lacks_system(format, prompt))
        return false;
    for (size_t i = 0; i < prompt->n_messages; i++) {
        const struct chat_message *message = &prompt->messages[i];
        enum chat_role before = i == 0 ? CHAT_SYSTEM : prompt->messages[i - 1].role;

        if ((message->n_calls > 1 && format->has_one_call) || wants_question(format, prompt, i) ||
            (format->has_no_empty_answer && is_empty_answer(message)) ||
            (format->call_text != CHAT_TEXT_BESIDE && message->n_calls > 0 && message->text.len_bytes > 0) ||
            (i > 0 && message->role == CHAT_SYSTEM && format->has_no_late_system) ||
            (message->role == CHAT_USER && ((before == CHAT_USER && format->wants_turns) ||
                                            (before == CHAT_TOOL && format->has_no_late_question))))
            return false;
    }
    return true;
}

/* ---- texts ---- */

/* Concatenates n pieces in the arena. */
static struct bytes chat_reshape_join(struct reshape *reshape, const struct bytes *pieces, size_t n)
{
    size_t len = 0;
    uint8_t *text;

    for (size_t i = 0; i < n; i++)
        len += pieces[i].len_bytes;
    text = arena_take(reshape->arena, len + 1);
    if (text == NULL) {
        reshape->is_bad = true;
        return bytes_of(NULL, 0);
    }
    len = 0;
    for (size_t i = 0; i < n; i++) {
        if (pieces[i].len_bytes > 0)
            memcpy(text + len, pieces[i].data, pieces[i].len_bytes);
        len += pieces[i].len_bytes;
    }
    return bytes_of(text, len);
}

static struct bytes chat_reshape_wrap(struct reshape *reshape, const char *before, struct bytes text,
                                      const char *after)
{
    const struct bytes pieces[] = {bytes_str(before), text, bytes_str(after)};

    return chat_reshape_join(reshape, pieces, 3);
}

static struct bytes chat_reshape_keep(struct reshape *reshape, struct buf *text)
{
    struct bytes view = buf_view(text);
    struct bytes kept = chat_reshape_join(reshape, &view, 1);

    reshape->is_bad |= text->is_bad;
    buf_fini(text);
    return kept;
}

/* ---- a template without tools ---- */

void chat_put_tool(const struct chat_tool *tool, struct buf *out)
{
    buf_append_str(out, "{\"name\": ");
    json_put_str(out, tool->name);
    if (tool->description.len_bytes > 0) {
        buf_append_str(out, ", \"description\": ");
        json_put_str(out, tool->description);
    }
    if (tool->parameters.len_bytes > 0) {
        buf_append_str(out, ", \"parameters\": ");
        buf_append(out, tool->parameters.data, tool->parameters.len_bytes);
    }
    buf_append_byte(out, '}');
}

static void chat_reshape_put_tools(const struct chat_prompt *from, struct buf *out)
{
    buf_append_str(out, "These tools can be called, one JSON object a line:\n<tools>\n");
    for (size_t i = 0; i < from->n_tools; i++) {
        chat_put_tool(&from->tools[i], out);
        buf_append_byte(out, '\n');
    }
    buf_append_str(out, "</tools>\n");
}

/* True if calls are written in the format that the template's listing asks for. */
static bool spells_natively(const struct chat_format *format)
{
    return format->lists_tools && format->detected != CALLS_PLAIN;
}

/* True if the system text explains how calls are written. A template that lists the tools and has a call
 * format explains it itself. */
static bool describes_calls(const struct reshape *reshape)
{
    const struct chat_format *format = reshape->format;

    return reshape->is_generic && reshape->from->n_tools > 0 && !spells_natively(format);
}

static struct bytes describe_tools(struct reshape *reshape, struct bytes system)
{
    struct buf text = {0};

    buf_append(&text, system.data, system.len_bytes);
    buf_append_str(&text, system.len_bytes == 0 ? "" : "\n\n");
    if (!reshape->format->lists_tools)
        chat_reshape_put_tools(reshape->from, &text);
    buf_append_str(&text, "A call is written like this, each in marks of its own, and its result "
                          "comes with the next message:\n<tool_call>\n{\"name\": \"NAME\", \"arguments\": "
                          "{...}}\n</tool_call>");
    return chat_reshape_keep(reshape, &text);
}

/* Writes the calls behind the turn's text, in the format's own way. */
static void spell_native_calls(struct reshape *reshape, struct chat_message *turn)
{
    enum calls_format calls = reshape->format->info.calls;
    const struct calls_grammar *grammar = &calls_row_of(calls)->grammar;
    struct calls_spelling spelling = {0};
    struct bytes own;

    buf_append(&spelling.text, turn->text.data, turn->text.len_bytes);
    if (turn->text.len_bytes > 0 && !grammar->has_list)
        buf_append_str(&spelling.text, grammar->between);
    for (size_t i = 0; i < turn->n_calls; i++)
        calls_spell(calls, turn->calls[i].name, turn->calls[i].arguments, &spelling);
    calls_spell_end(calls, &spelling);
    own = chat_reshape_keep(reshape, &spelling.own);
    turn->own = (const struct calls_span *)(const void *)own.data;
    turn->n_own = own.len_bytes / sizeof(*turn->own);
    turn->text = chat_reshape_keep(reshape, &spelling.text);
}

static struct bytes spell_calls(struct reshape *reshape, const struct chat_message *message)
{
    struct buf text = {0};

    buf_append(&text, message->text.data, message->text.len_bytes);
    for (size_t i = 0; i < message->n_calls; i++) {
        buf_append_str(&text,
                       text.len_bytes == 0 ? "<tool_call>\n{\"name\": " : "\n<tool_call>\n{\"name\": ");
        json_put_str(&text, message->calls[i].name);
        buf_append_str(&text, ", \"arguments\": ");
        buf_append(&text, message->calls[i].arguments.data, message->calls[i].arguments.len_bytes);
        buf_append_str(&text, "}\n</tool_call>");
    }
    return chat_reshape_keep(reshape, &text);
}

/* ---- messages to turns ---- */

static struct chat_message *chat_reshape_add(struct reshape *reshape, const struct chat_message *message)
{
    struct chat_message *turn = &reshape->turns[reshape->n++];

    *turn = *message;
    turn->number = (size_t)(message - reshape->from->messages);
    return turn;
}

/* Adds a turn that corresponds to no message of the caller. */
static void add_made(struct reshape *reshape, enum chat_role role, struct bytes text)
{
    reshape->turns[reshape->n++] = (struct chat_message){.role = role, .text = text, .number = SIZE_MAX};
}

static void add_generic(struct reshape *reshape, const struct chat_message *message)
{
    struct chat_message *turn = chat_reshape_add(reshape, message);

    if (message->role == CHAT_TOOL) {
        turn->role = CHAT_USER;
        turn->text = chat_reshape_wrap(reshape, "<tool_response>\n", message->text, "\n</tool_response>");
    } else if (message->n_calls > 0) {
        if (spells_natively(reshape->format))
            spell_native_calls(reshape, turn);
        else
            turn->text = spell_calls(reshape, message);
        turn->n_calls = 0;
    }
}

/* Returns which of the n results belongs to the call with this id; tries index likely first. SIZE_MAX:
 * none. */
static size_t find_result(const struct chat_message *results, size_t n, struct bytes id, size_t likely)
{
    if (likely < n && bytes_equal(results[likely].call_id, id))
        return likely;
    for (size_t i = 0; i < n && n <= MAX_REORDERED; i++)
        if (bytes_equal(results[i].call_id, id))
            return i;
    return likely < n ? likely : SIZE_MAX;
}

/* Adds the first n_calls calls of a turn, with its text where the template can show it. */
static void add_calls(struct reshape *reshape, const struct chat_message *message, size_t n_calls)
{
    enum chat_call_text how = reshape->format->call_text;
    struct chat_message *turn = chat_reshape_add(reshape, message);

    if (message->text.len_bytes > 0 && how == CHAT_TEXT_BEFORE) {
        turn->calls = NULL;
        turn->n_calls = 0;
        turn = chat_reshape_add(reshape, message);
        turn->thinking = bytes_of(NULL, 0);
    }
    if (how != CHAT_TEXT_BESIDE)
        turn->text = bytes_of(NULL, 0);
    turn->n_calls = n_calls;
}

/* Adds a turn for each call, followed by its result. Returns how many results were used. */
static size_t add_one_by_one(struct reshape *reshape, size_t at)
{
    const struct chat_message *message = &reshape->from->messages[at];
    const struct chat_message *results = message + 1;
    size_t n = 0;

    while (at + 1 + n < reshape->from->n_messages && results[n].role == CHAT_TOOL)
        n++;
    for (size_t i = 0; i < message->n_calls; i++) {
        size_t result = find_result(results, n, message->calls[i].id, i);

        if (i == 0) {
            add_calls(reshape, message, 1);
        } else {
            struct chat_message *turn = chat_reshape_add(reshape, message);

            turn->calls = message->calls + i;
            turn->n_calls = 1;
            turn->text = turn->thinking = bytes_of(NULL, 0);
        }
        if (result != SIZE_MAX)
            chat_reshape_add(reshape, &results[result]);
    }
    return n;
}

static void chat_reshape_add_message(struct reshape *reshape, size_t *at)
{
    const struct chat_message *message = &reshape->from->messages[*at];
    const struct chat_format *format = reshape->format;

    if (wants_question(format, reshape->from, *at))
        add_made(reshape, CHAT_USER, bytes_str(""));
    if (format->has_no_empty_answer && is_empty_answer(message) &&
        !(reshape->from->continues_last && *at + 1 == reshape->from->n_messages))
        return;
    if (message->role == CHAT_SYSTEM && *at > 0 && format->has_no_late_system) {
        struct chat_message *turn = chat_reshape_add(reshape, message);

        turn->role = CHAT_USER;
        turn->text = chat_reshape_wrap(reshape, "<system-reminder>\n", message->text, "\n</system-reminder>");
    } else if (message->role == CHAT_SYSTEM && *at == 0 && describes_calls(reshape)) {
        chat_reshape_add(reshape, message)->text = describe_tools(reshape, message->text);
    } else if (reshape->is_generic) {
        add_generic(reshape, message);
    } else if (message->n_calls > 1 && format->has_one_call) {
        *at += add_one_by_one(reshape, *at);
    } else if (message->n_calls > 0) {
        add_calls(reshape, message, message->n_calls);
    } else {
        chat_reshape_add(reshape, message);
    }
}

/* ---- joining neighbours ---- */

static bool is_joined(const struct reshape *reshape, const struct chat_message *to,
                      const struct chat_message *next)
{
    if (next->role != CHAT_USER)
        return false;
    if (to->role == CHAT_TOOL)
        return reshape->format->has_no_late_question;
    return to->role == CHAT_USER && (reshape->is_generic || reshape->format->wants_turns);
}

static void join_turns(struct reshape *reshape)
{
    size_t n = 0;

    for (size_t i = 0, end; i < reshape->n; i = end) {
        struct bytes *pieces;
        size_t n_pieces = 0;

        end = i + 1;
        while (end < reshape->n && is_joined(reshape, &reshape->turns[i], &reshape->turns[end]))
            end++;
        reshape->turns[n] = reshape->turns[i];
        if (end - i > 1) {
            pieces = arena_take(reshape->arena, 2 * (end - i) * sizeof(*pieces));
            for (size_t k = i; k < end && pieces != NULL; k++) {
                if (k > i)
                    pieces[n_pieces++] = bytes_str("\n\n");
                pieces[n_pieces++] = reshape->turns[k].text;
            }
            reshape->is_bad |= pieces == NULL;
            reshape->turns[n].text = chat_reshape_join(reshape, pieces, n_pieces);
        }
        n++;
    }
    reshape->n = n;
}

/* ---- the whole conversation ---- */

int chat_reshape(const struct chat_format *format, const struct chat_prompt *from, struct arena *arena,
                 struct chat_prompt *out)
{
    struct reshape reshape = {.format = format, .from = from, .arena = arena};
    size_t cap = 2 * from->n_messages + 2;

    *out = *from;
    if (chat_reshape_is_plain(format, from))
        return 0;
    for (size_t i = 0; i < from->n_messages; i++)
        cap += 2 * from->messages[i].n_calls;
    reshape.turns = arena_take(arena, cap * sizeof(*reshape.turns));
    if (reshape.turns == NULL)
        return E_NOMEM;
    reshape.is_generic = !format->has_tools && chat_reshape_wants_tools(from);
    if (describes_calls(&reshape) && (from->n_messages == 0 || from->messages[0].role != CHAT_SYSTEM))
        add_made(&reshape, CHAT_SYSTEM, describe_tools(&reshape, bytes_of(NULL, 0)));
    else if (lacks_system(format, from))
        add_made(&reshape, CHAT_SYSTEM, bytes_str(""));
    for (size_t i = 0; i < from->n_messages; i++)
        chat_reshape_add_message(&reshape, &i);
    join_turns(&reshape);
    out->messages = reshape.turns;
    out->n_messages = reshape.n;
    if (!format->lists_tools)
        out->n_tools = 0;
    return reshape.is_bad ? E_NOMEM : 0;
}
