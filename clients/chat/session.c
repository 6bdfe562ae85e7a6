/* SPDX-License-Identifier: Apache-2.0 */
/* The whole conversation goes with every request, as the protocol demands.  The servers find their earlier
 * work in their prefix caches.  That needs an unchanged prefix from turn to turn, so messages are rendered in
 * order and without any change. */
#include "clients/chat/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

void session_fini(struct session *session)
{
    session_clear(session);
    free(session->messages);
    free(session->model);
    free(session->system);
    free(session->tools);
    *session = (struct session){0};
}

int session_set_system(struct session *session, const char *system)
{
    char *copy = NULL;

    if (system != NULL && *system != '\0') {
        copy = strdup(system);
        if (copy == NULL)
            return E_NOMEM;
    }
    free(session->system);
    session->system = copy;
    return 0;
}

static char *clean_copy(struct bytes text)
{
    struct buf out = {0};

    for (size_t at = 0, len; at < text.len_bytes; at += len) {
        uint8_t utf8[4];
        uint32_t c = utf8_next(text, at, &len);

        buf_append(&out, utf8, utf8_put(c == 0 ? 0xfffd : c, utf8));
    }
    if (out.len_bytes == 0 && !out.is_bad)
        return strdup("");
    return buf_take_str(&out);
}

/* Takes ownership of text, which may be NULL after a failed allocation. */
static int chat_session_add(struct session *session, struct session_message message)
{
    if (message.text != NULL && session->n_messages == session->cap_messages) {
        size_t cap = session->cap_messages > 0 ? session->cap_messages * 2 : 16;
        struct session_message *grown = reallocarray(session->messages, cap, sizeof(*grown));

        if (grown == NULL) {
            free(message.text);
            return E_NOMEM;
        }
        session->messages = grown;
        session->cap_messages = cap;
    }
    if (message.text == NULL)
        return E_NOMEM;
    session->messages[session->n_messages++] = message;
    return 0;
}

int session_add(struct session *session, bool is_answer, struct bytes text)
{
    return chat_session_add(session,
                            (struct session_message){.is_answer = is_answer, .text = clean_copy(text)});
}

int session_add_blocks(struct session *session, bool is_answer, struct bytes json)
{
    return chat_session_add(
        session,
        (struct session_message){.is_answer = is_answer, .is_blocks = true, .text = clean_copy(json)});
}

void session_cut(struct session *session, size_t n_messages)
{
    while (session->n_messages > n_messages)
        free(session->messages[--session->n_messages].text);
}

void session_clear(struct session *session)
{
    session_cut(session, 0);
}

int session_put_request(const struct session *session, struct buf *out)
{
    buf_append_str(out, "{\"model\": ");
    json_put_str(out, bytes_str(session->model));
    buf_printf(out, ", \"max_tokens\": %" PRIu64 ", \"stream\": true", session->max_tokens);
    if (session->has_temperature)
        buf_printf(out, ", \"temperature\": %.9g", session->temperature);
    if (session->has_top_p)
        buf_printf(out, ", \"top_p\": %.9g", session->top_p);
    if (session->has_seed)
        buf_printf(out, ", \"seed\": %" PRIu64, session->seed);
    if (session->system != NULL) {
        buf_append_str(out, ", \"system\": ");
        json_put_str(out, bytes_str(session->system));
    }
    if (session->tools != NULL)
        buf_printf(out, ", \"tools\": %s", session->tools);
    buf_append_str(out, ", \"messages\": [");
    for (size_t i = 0; i < session->n_messages; i++) {
        const struct session_message *message = &session->messages[i];

        buf_printf(out, "%s{\"role\": \"%s\", \"content\": ", i > 0 ? ", " : "",
                   message->is_answer ? "assistant" : "user");
        if (message->is_blocks)
            buf_append_str(out, message->text);
        else
            json_put_str(out, bytes_str(message->text));
        buf_append_str(out, "}");
    }
    return buf_append_str(out, "]}");
}

int session_put_transcript(const struct session *session, struct buf *out)
{
    buf_printf(out, "# %s\n", session->model != NULL ? session->model : "chat");
    if (session->system != NULL)
        buf_printf(out, "\n## system\n\n%s\n", session->system);
    for (size_t i = 0; i < session->n_messages; i++) {
        const struct session_message *message = &session->messages[i];

        buf_printf(out, "\n## %s\n\n", message->is_answer ? "answer" : message->is_blocks ? "tools" : "you");
        if (message->is_blocks)
            buf_printf(out, "```json\n%s\n```\n", message->text);
        else
            buf_printf(out, "%s\n", message->text);
    }
    return out->is_bad ? E_NOMEM : 0;
}
