/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the answer's constraint.
 *
 *     tool_choice any, tool    [close what the prompt opened] calls
 *     format                   thinking? JSON, or calls if there are tools
 *     tools, auto              text (thinking text | call text)*
 *     tools, none              text (thinking text)*
 *     a thinking budget        the same
 *     otherwise                nothing: any answer is allowed
 *
 * Under auto, a call that has begun must have a tool's name and an object of arguments; a strict tool's
 * arguments must match its schema.  This applies where a mark of its own begins a call.  Llama's brace
 * may begin other things, so there the constraint covers only strict tools.
 *
 * In harmony, everything is a message: thinking and comments, then a call or the final message, which a prompt may have
 * begun. */
#include "serve/prompt/constraint.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "serve/prompt/constraint_priv.h"
#include "text/grammar/grammar.h"
#include "text/toolcall/calls.h"

/* ---- the request's wishes ---- */

/* True if calls are allowed and there is a reason to constrain them. */
static bool holds_calls(const struct constraint *constraint)
{
    const struct gen_request *request = constraint->request;
    bool has_strict = false;

    for (size_t i = 0; i < request->n_tools; i++)
        has_strict |= request->tools[i].is_strict;
    return request->n_tools > 0 && request->tool_choice != GEN_TOOLS_NONE &&
           (has_strict || !constraint_is_bare(constraint));
}

/* True if thinking is off but the template has no switch for it, or opens the thinking anyway. */
static bool forbids_thinking(const struct constraint *constraint, bool begins_thinking)
{
    return constraint->request->thinking == GEN_THINKING_OFF &&
           (begins_thinking ||
            (!constraint->format->has_think_switch &&
             (constraint->format->think_open != NULL || constraint->format->calls == CALLS_HARMONY)));
}

static bool constraint_is_wanted(const struct constraint *constraint, bool begins_thinking)
{
    const struct gen_request *request = constraint->request;

    if (request->n_prompts > 0)
        return request->format != GEN_FORMAT_TEXT;
    return constraint_is_forced(request) || request->format != GEN_FORMAT_TEXT || holds_calls(constraint) ||
           (request->n_tools > 0 && request->tool_choice == GEN_TOOLS_NONE) ||
           forbids_thinking(constraint, begins_thinking) ||
           (request->thinking_budget > 0 &&
            (constraint->format->think_open != NULL || constraint->format->calls == CALLS_HARMONY));
}

/* The document that the request asks for, behind the mark of answers if the format wants it. */
static void constraint_put_document(struct constraint *constraint, bool is_behind_thinking)
{
    const struct calls_row *row = calls_row_of(constraint->format->answers);
    enum calls_answer_mark when = row->answer_mark;

    bool has_mark = constraint->request->prefill.len_bytes == 0 && constraint->request->n_prompts == 0 &&
                    (when == CALLS_ANSWER_MUST || (when == CALLS_ANSWER_AFTER && is_behind_thinking));

    if (has_mark) {
        constraint_open_seq(constraint);
        constraint_outer_mark(constraint, row->answer[0]);
    }
    constraint_json(constraint, constraint->request->format == GEN_FORMAT_JSON_SCHEMA
                                    ? constraint->request->schema
                                    : bytes_str("{\"type\":\"object\"}"));
    if (has_mark)
        constraint_close(constraint);
}

/* ---- thinking between marks ---- */

/* may_call: a call may end the thinking, if the format's calls do so. */
static void put_rest_of_thinking(struct constraint *constraint, bool may_call)
{
    const char *until[4] = {constraint->format->think_close}, *also = constraint->format->think_close_also;
    bool calls_end =
        constraint->request->n_tools > 0 && calls_row_of(constraint->format->calls)->calls_end_thinking;
    size_t n = 1;

    may_call = may_call && calls_end && holds_calls(constraint);
    if (also != NULL)
        until[n++] = also;
    if (calls_end)
        until[n++] = constraint_call_mark(constraint);
    constraint_free(constraint, until, constraint->request->thinking_budget);
    constraint_open_any(constraint);
    constraint_one_mark(constraint, constraint->format->think_close);
    if (also != NULL)
        constraint_one_mark(constraint, also);
    if (may_call)
        constraint_calls(constraint, false, false);
    constraint_close(constraint);
}

static void put_thinking(struct constraint *constraint, bool may_call)
{
    const char *also = constraint->format->think_open_also;

    constraint_open_seq(constraint);
    constraint_open_any(constraint);
    constraint_one_mark(constraint, constraint->format->think_open);
    if (also != NULL)
        constraint_one_mark(constraint, also);
    constraint_close(constraint);
    put_rest_of_thinking(constraint, may_call);
    constraint_close(constraint);
}

static void put_line_ends(struct constraint *constraint)
{
    constraint_open_rep(constraint);
    constraint_text(constraint, "\n");
    constraint_close_rep(constraint, 0, 2);
}

/* Continues the thinking that the prompt has opened, or closes it at once. */
static void put_begun(struct constraint *constraint, bool is_closed)
{
    if (is_closed)
        constraint_outer_mark(constraint, constraint->format->think_close);
    else
        put_rest_of_thinking(constraint, constraint->request->format == GEN_FORMAT_TEXT);
    put_line_ends(constraint);
}

/* ---- most families ---- */

#define MAX_UNTIL (3 + CALLS_MAX_ANSWER_MARKS) /* marks, and NULL at the end */

/* A mark around the text of an answer that may be a control token, which free text does not have; NULL: none. */
static const char *constraint_answer_mark(const struct calls_row *row, size_t i)
{
    return row->has_text_marks ? NULL : row->answer[i];
}

/* True if no call may be made, and the words that begin one are no part of other answers. */
static bool bans_words(const struct constraint *constraint)
{
    return calls_row_of(constraint->format->calls)->grammar.is_words &&
           constraint->request->tool_choice == GEN_TOOLS_NONE;
}

/* The marks that text must not contain.  A sentence that opens thinking is text, except where an answer begins. */
static void list_marks(const struct constraint *constraint, const char *until[MAX_UNTIL])
{
    const struct chat_format_info *format = constraint->format;
    const struct calls_row *row = calls_row_of(format->answers);
    size_t n = 0;

    for (size_t i = 0; i < CALLS_MAX_ANSWER_MARKS && constraint_answer_mark(row, i) != NULL; i++)
        until[n++] = row->answer[i];
    if (format->think_open != NULL && !format->think_is_words)
        until[n++] = format->think_open;
    if (constraint->request->n_tools > 0 && constraint_call_mark(constraint)[0] != '\0' &&
        (holds_calls(constraint) || !constraint_is_bare(constraint) || bans_words(constraint)))
        until[n++] = constraint_call_mark(constraint);
}

/* Two spellings of a sentence share a beginning, or there is but one.  Appends the texts that are a part of a spelling and
 * then a character that continues neither: `firsts`, which begin marks, are no such characters. */
static void put_parts(struct buf *pattern, const char *const sentences[2], const char *firsts)
{
    size_t shared = 0;

    while (sentences[0][shared] != '\0' && sentences[0][shared] == sentences[1][shared])
        shared++;
    for (unsigned k = 0; k < (sentences[0][shared] == '\0' ? 1 : 2); k++)
        for (size_t i = k == 0 ? 0 : shared + 1; sentences[k][i] != '\0'; i++)
            buf_printf(pattern, "%s%.*s[^%c%.*s%s%s]", k + i > 0 ? "|" : "", (int)i, sentences[k],
                       sentences[k][i], i == shared && sentences[1][i] != '\0', sentences[1] + i, firsts,
                       i == 0 ? " \\t\\r\\n" : "");
}

/* Text up to the first character that is not the sentence's.  It begins no mark, and blanks before the sentence do not
 * count.  The sentence has letters, blanks, an apostrophe and a colon. */
static void put_other_words(struct constraint *constraint, const char *const sentences[2],
                            const char *const *until)
{
    struct buf schema = {0}, pattern = {0};
    char firsts[2 * MAX_UNTIL + 1] = "";
    size_t n = 0;

    for (size_t i = 0; until[i] != NULL; i++) {
        if (strchr("[]^-\\", until[i][0]) != NULL)
            firsts[n++] = '\\';
        firsts[n++] = until[i][0];
    }
    buf_append_str(&pattern, "^[ \\t\\r\\n]*(");
    put_parts(&pattern, sentences, firsts);
    buf_append_str(&pattern, ")$");
    buf_append_str(&schema, "{\"pattern\":");
    json_put_str(&schema, buf_view(&pattern));
    buf_append_byte(&schema, '}');
    constraint_tagged(constraint, &(const struct calls_tags){.value_close = sentences[0]}, buf_view(&schema),
                      NULL);
    constraint->out->is_bad |= pattern.is_bad || schema.is_bad;
    buf_fini(&schema);
    buf_fini(&pattern);
}

/* The beginning of an answer whose thinking begins with a sentence: thinking, or text that does not begin so. */
static void put_first_words(struct constraint *constraint, const char *const *until, bool thinks)
{
    const char *also = constraint->format->think_open_also;
    const char *const sentences[2] = {constraint->format->think_open,
                                      also != NULL ? also : constraint->format->think_open};
    const char *all[MAX_UNTIL + 2] = {sentences[0], sentences[1]};

    memcpy(all + 2, until, MAX_UNTIL * sizeof(all[0]));
    constraint_open_any(constraint);
    if (thinks) {
        constraint_open_seq(constraint);
        put_line_ends(constraint);
        put_thinking(constraint, true);
        constraint_free(constraint, until, 0);
        constraint_close(constraint);
    }
    constraint_free(constraint, all, 0);
    constraint_open_seq(constraint);
    put_other_words(constraint, sentences, until);
    constraint_free(constraint, until, 0);
    constraint_close(constraint);
    constraint_close(constraint);
}

/* The mark that may end an answer. */
static void put_answer_end(struct constraint *constraint, const struct calls_row *row)
{
    if (row->answer_end == NULL)
        return;
    constraint_open_rep(constraint);
    constraint_mark(constraint, row->answer_end);
    constraint_close_rep(constraint, 0, 1);
}

/* Text, with calls and thinking between as far as they are allowed.  begins: the answer begins here. */
static void put_open_answer(struct constraint *constraint, bool thinks, bool begins)
{
    const struct chat_format_info *format = constraint->format;
    bool calls = holds_calls(constraint);
    const struct calls_row *row = calls_row_of(format->answers);
    const char *until[MAX_UNTIL] = {0};

    list_marks(constraint, until);
    if (format->think_is_words && begins)
        put_first_words(constraint, until, thinks);
    else
        constraint_free(constraint, until, 0);
    thinks = thinks && format->think_open != NULL && !format->think_is_words;
    if (!calls && !thinks && constraint_answer_mark(row, 0) == NULL) {
        put_answer_end(constraint, row);
        return;
    }
    constraint_open_rep(constraint);
    constraint_open_seq(constraint);
    constraint_open_any(constraint);
    if (calls)
        constraint_calls(constraint, false, false);
    if (thinks)
        put_thinking(constraint, true);
    for (size_t i = 0; i < CALLS_MAX_ANSWER_MARKS && constraint_answer_mark(row, i) != NULL; i++)
        constraint_one_mark(constraint, row->answer[i]);
    constraint_close(constraint);
    constraint_free(constraint, until, 0);
    constraint_close(constraint);
    constraint_close_rep(constraint, 0, -1);
    put_answer_end(constraint, row);
}

/* True if the prompt ends with the mark that begins a part of the answer (Functionary 3.2). */
static bool is_part_begun(const struct constraint *constraint)
{
    return calls_row_of(constraint->format->calls)->grammar.is_begun &&
           constraint->request->prefill.len_bytes == 0;
}

/* Calls instead of text.  Where calls follow the text, it is empty. */
static void put_calls_alone(struct constraint *constraint, bool is_held, bool begins_thinking)
{
    const struct calls_row *row = calls_row_of(constraint->format->answers);

    constraint_open_seq(constraint);
    if (row->answer_mark == CALLS_ANSWER_AFTER && begins_thinking)
        constraint_outer_mark(constraint, row->answer[0]);
    if (row->answer_mark == CALLS_ANSWER_AFTER)
        constraint_outer_mark(constraint, row->answer[1]);
    if (is_part_begun(constraint))
        constraint_begun_calls(constraint, is_held, true);
    else
        constraint_calls(constraint, is_held, !constraint->request->is_single_call);
    constraint_close(constraint);
}

static void put_call_or_document(struct constraint *constraint, bool begins_thinking)
{
    const struct gen_request *request = constraint->request;

    constraint_open_any(constraint);
    if (request->n_tools > 0 && request->tool_choice != GEN_TOOLS_NONE)
        put_calls_alone(constraint, false, begins_thinking);
    constraint_put_document(constraint, begins_thinking);
    constraint_close(constraint);
}

/* A part for a tool or, behind the mark of answers, text. */
static void put_begun_parts(struct constraint *constraint)
{
    constraint_open_any(constraint);
    if (holds_calls(constraint))
        constraint_begun_calls(constraint, false, true);
    constraint_open_seq(constraint);
    constraint_text(constraint, calls_row_of(constraint->format->answers)->answer[0]);
    put_open_answer(constraint, false, false);
    constraint_close(constraint);
    constraint_close(constraint);
}

static void put_plain(struct constraint *constraint, bool begins_thinking)
{
    const struct gen_request *request = constraint->request;
    bool forces = constraint_is_forced(request);
    bool thinks = !forces && request->thinking != GEN_THINKING_OFF;

    constraint_open_seq(constraint);
    if (begins_thinking)
        put_begun(constraint, !thinks);
    if (forces) {
        put_calls_alone(constraint, true, begins_thinking);
    } else if (request->format != GEN_FORMAT_TEXT) {
        if (thinks && !begins_thinking && constraint->format->think_open != NULL) {
            constraint_open_rep(constraint);
            constraint_open_seq(constraint);
            put_thinking(constraint, false);
            put_line_ends(constraint);
            constraint_close(constraint);
            constraint_close_rep(constraint, 0, 1);
        }
        put_call_or_document(constraint, begins_thinking);
    } else if (is_part_begun(constraint)) {
        put_begun_parts(constraint);
    } else {
        put_open_answer(constraint, thinks, !begins_thinking);
    }
    constraint_close(constraint);
}

/* ---- harmony ---- */

static void put_channel(struct constraint *constraint, const char *channel)
{
    constraint_mark(constraint, "<|channel|>");
    constraint_text(constraint, channel);
    constraint_mark(constraint, "<|message|>");
}

static void put_next_message(struct constraint *constraint)
{
    constraint_mark(constraint, "<|end|>");
    constraint_mark(constraint, "<|start|>");
    constraint_text(constraint, "assistant");
}

static void put_aside(struct constraint *constraint, const char *channel, uint32_t max_tokens)
{
    static const char *const until[] = {"<|end|>", NULL};

    constraint_open_seq(constraint);
    put_channel(constraint, channel);
    constraint_free(constraint, until, max_tokens);
    put_next_message(constraint);
    constraint_close(constraint);
}

/* The text or the document of the final message. */
static void put_final(struct constraint *constraint)
{
    static const char *const until[] = {"<|end|>", NULL};

    if (constraint->request->format != GEN_FORMAT_TEXT)
        constraint_put_document(constraint, false);
    else
        constraint_free(constraint, until, 0);
}

/* The rest of a final message that the prompt has begun.  A call is another message, behind the text or instead of the
 * document. */
static void put_begun_final(struct constraint *constraint, bool forces, bool calls)
{
    bool has_text = !forces && constraint->request->format == GEN_FORMAT_TEXT;

    constraint_open_seq(constraint);
    if (has_text)
        put_final(constraint);
    constraint_open_any(constraint);
    if (calls) {
        constraint_open_seq(constraint);
        put_next_message(constraint);
        constraint_calls(constraint, forces, false);
        constraint_close(constraint);
    }
    if (has_text)
        constraint_text(constraint, "");
    else if (!forces)
        put_final(constraint);
    constraint_close(constraint);
    constraint_close(constraint);
}

static void put_harmony(struct constraint *constraint)
{
    const struct gen_request *request = constraint->request;
    bool forces = constraint_is_forced(request);
    bool calls = request->n_tools > 0 && request->tool_choice != GEN_TOOLS_NONE;

    if (request->prefill.len_bytes > 0) {
        put_begun_final(constraint, forces, calls);
        return;
    }
    constraint_open_seq(constraint);
    if (!forces && (request->thinking != GEN_THINKING_OFF || calls)) {
        constraint_open_rep(constraint);
        constraint_open_any(constraint);
        if (request->thinking != GEN_THINKING_OFF)
            put_aside(constraint, "analysis", request->thinking_budget);
        if (calls)
            put_aside(constraint, "commentary", 0);
        constraint_close(constraint);
        constraint_close_rep(constraint, 0, -1);
    }
    constraint_open_any(constraint);
    if (calls)
        constraint_calls(constraint, forces, false);
    if (!forces) {
        constraint_open_seq(constraint);
        put_channel(constraint, "final");
        put_final(constraint);
        constraint_close(constraint);
    }
    constraint_close(constraint);
    constraint_close(constraint);
}

/* A raw prompt has no chat format, so its continuation has neither thinking nor calls. */
static void put_continuation(struct constraint *constraint)
{
    constraint_open_seq(constraint);
    constraint_put_document(constraint, false);
    constraint_close(constraint);
}

/* Without schemas, a shorter constraint is within all limits: its work is names, of about 20 steps a byte.  So that of a
 * short request is never compiled on the loop. */
#define SURE_BYTES (64u << 10)

/* Writes the constraint, and checks that a worker accepts it. */
static int constraint_try(struct constraint *constraint, const struct gen_model *model, bool begins_thinking,
                          struct api_error *error)
{
    const struct gen_request *request = constraint->request;
    struct buf *out = constraint->out;

    constraint->steps_left = GRAMMAR_MAX_STEPS;
    if (request->n_prompts > 0)
        put_continuation(constraint);
    else if (constraint->format->calls != CALLS_HARMONY)
        put_plain(constraint, begins_thinking);
    else
        put_harmony(constraint);
    if (out->is_bad) {
        api_fail(error, 503, "out of memory");
        return E_NOMEM;
    }
    if (constraint->refusal[0] != '\0')
        return api_fail(error, 400, "%s", constraint->refusal);
    if (out->len_bytes > CONSTRAINT_MAX_BYTES)
        return api_fail(error, 400, "the schemas of tools and answer come to more than 1 MiB");
    return constraint_has_schemas(request) || out->len_bytes > SURE_BYTES
               ? constraint_check_whole(constraint, model, error)
               : 0;
}

int constraint_make(const struct gen_model *model, const struct gen_request *request, bool begins_thinking,
                    struct buf *out, struct api_error *error)
{
    struct constraint constraint = {.request = request, .format = chat_format_info(model->chat), .out = out};
    int rc = constraint_check_schemas(&constraint, model->verdicts, error);

    if (rc < 0 || request->work.max_new_tokens == 0 || !constraint_is_wanted(&constraint, begins_thinking))
        return rc;
    rc = constraint_try(&constraint, model, begins_thinking, error);
    if (rc == E_FORMAT && constraint.plain == PLAIN_LISTED && constraint.refusal[0] == '\0') {
        constraint.plain = PLAIN_ANY;
        buf_clear(out);
        rc = constraint_try(&constraint, model, begins_thinking, error);
    }
    return rc;
}
