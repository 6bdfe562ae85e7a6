/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations that the server keeps, so that the client sends only new messages.
 *
 *     create     the whole request          ── history: the part that a later request needs
 *     continue   new messages and an id     ── the history before them makes it a whole request again
 *
 * A history is JSON with an open end, because the answer still has to come (api_put_thread() in
 * render.c):
 *
 *     {"system":...,"tools":...,"messages":[{...},{...}
 *
 * It holds only members that the parser reads, so the context bounds it, and no cache breakpoints.
 * Breakpoints of earlier requests count neither towards the limit of four nor for retention; the KV found in
 * the cache already has its retention. */
#include <string.h>

#include "serve/api/parse_priv.h"
#include "base/err.h"

/* Room for an answer in the history, so that the loop thread appends to it and copies nothing. */
#define BYTES_PER_TOKEN 8
#define MIN_ROOM_BYTES  ((size_t)1 << 10)
#define MAX_ROOM_BYTES  ((size_t)1 << 20)

/* Members besides the messages: given when a conversation is created, and kept. */
static const char *const fixed[] = {"system", "tools"};

int parse_thread(struct parse *parse, const json_t *root)
{
    const json_t *thread = parse_member(root, "thread");
    struct bytes type;
    int rc = 0;

    if (thread == NULL)
        return 0;
    if (!json_is_object(thread))
        return parse_fail(parse, "thread", "Input should be an object");
    type = api_json_str(parse_member(thread, "type"));
    parse_push(parse, "thread");
    if (bytes_is(type, "create"))
        parse->out->thread = GEN_THREAD_CREATE;
    else if (bytes_is(type, "continue"))
        parse->out->thread = GEN_THREAD_CONTINUE;
    else
        return parse_fail(parse, "type", "Input should be 'create' or 'continue'");
    if (parse->out->thread == GEN_THREAD_CONTINUE)
        rc = parse_string(parse, thread, "previous_message_id", true, &parse->out->thread_id);
    if (rc == 0)
        parse_pop(parse, 0);
    return rc;
}

/* ---- continuing ---- */

static int parse_thread_take_member(json_t *root, json_t *history, const char *name)
{
    json_t *value = json_object_get(history, name);

    return value == NULL ? 0 : json_object_set(root, name, value);
}

/* Puts the history's messages before root's. */
static int join_messages(struct parse *parse, json_t *root, json_t *history)
{
    json_t *earlier = json_object_get(history, "messages"), *list = parse_member(root, "messages");

    if (list == NULL)
        return parse_fail(parse, "messages", "Field required");
    if (!json_is_array(list))
        return parse_fail(parse, "messages", "Input should be a valid list");
    if (json_array_size(list) == 0)
        return parse_fail(parse, "messages", "at least one message is required");
    parse->n_earlier = json_array_size(earlier);
    if (json_array_extend(earlier, list) < 0 || json_object_set(root, "messages", earlier) < 0)
        return parse_no_memory(parse);
    return 0;
}

int parse_thread_join(struct parse *parse, json_t *root, struct bytes history)
{
    json_t *kept;
    int rc = 0;

    if (!json_is_object(root))
        return parse_fail(parse, "body", "Input should be an object");
    for (int i = 0; i < 2; i++)
        if (parse_member(root, fixed[i]) != NULL)
            return parse_fail(parse, fixed[i], "cannot be given where a thread is continued");
    rc = api_json_load(history, NULL, &kept);
    if (rc == E_NOMEM)
        return parse_no_memory(parse);
    if (rc < 0) { /* such as a call with equal keys; the code makes SDKs resend the conversation */
        rc = api_fail(parse->error, 404, "thread.previous_message_id: the thread cannot be read again");
        parse->error->code = "thread_not_found";
        return rc;
    }
    for (int i = 0; i < 2 && rc == 0; i++)
        if (parse_thread_take_member(root, kept, fixed[i]) < 0)
            rc = parse_no_memory(parse);
    if (rc == 0)
        rc = join_messages(parse, root, kept);
    json_decref(kept);
    return rc;
}

/* ---- keeping ---- */

static const char *const of_message[] = {"role", "content", NULL};
static const char *const of_tool[] = {"type", "name", "description", "input_schema", "strict", NULL};
static const char *const of_source[] = {"type", "data", "content", NULL};
static const char *const of_block[] = {"type",  "text",    "thinking",    "signature", "id",
                                       "name",  "input",   "tool_use_id", "is_error",  "content",
                                       "title", "context", "source",      "tool_name", NULL};

static bool thread_is_known(const char *name, const char *const *known)
{
    while (*known != NULL && strcmp(*known, name) != 0)
        known++;
    return *known != NULL;
}

/* Drops all other members.  A call's input and a schema stay as they are. */
static void thread_keep_members(json_t *object, const char *const *known)
{
    const char *name;
    void *spare;
    json_t *value;

    json_object_foreach_safe(object, spare, name, value)
    {
        if (!thread_is_known(name, known))
            json_object_del(object, name);
    }
}

/* The same for a list of objects, for the blocks in their content, and for their sources. */
static void thread_keep_known(json_t *list, const char *const *known)
{
    size_t i;
    json_t *item;

    json_array_foreach(list, i, item)
    {
        json_t *source;

        thread_keep_members(item, known);
        source = json_object_get(item, "source");
        thread_keep_members(source, of_source);
        thread_keep_known(json_object_get(item, "content"), of_block);
        thread_keep_known(json_object_get(source, "content"), of_block);
    }
}

/* Counts the messages that are turns.  Text that the answer continued comes back as part of the answer. */
static size_t count_turns(const json_t *messages)
{
    size_t n = json_array_size(messages);

    while (n > 0 &&
           bytes_is(api_json_str(json_object_get(json_array_get(messages, n - 1), "role")), "assistant"))
        n--;
    return n;
}

/* Room for an answer of as many tokens as the request allows, for most texts. */
static size_t thread_answer_bytes(const struct gen_request *request)
{
    size_t n = (size_t)request->work.max_new_tokens * BYTES_PER_TOKEN;

    return (n < MAX_ROOM_BYTES ? n : MAX_ROOM_BYTES) + MIN_ROOM_BYTES;
}

static void thread_put_fixed(const json_t *root, struct buf *out)
{
    for (int i = 0; i < 2; i++) {
        json_t *value = parse_member(root, fixed[i]);

        if (value == NULL)
            continue;
        thread_keep_known(value, i == 0 ? of_block : of_tool);
        buf_printf(out, "\"%s\": ", fixed[i]);
        api_json_put(out, value);
        buf_append_str(out, ", ");
    }
}

int parse_thread_history(struct parse *parse, json_t *root)
{
    json_t *messages = json_object_get(root, "messages");
    struct buf *text = &parse->out->history;
    size_t n = count_turns(messages);

    thread_keep_known(messages, of_message);
    buf_append_byte(text, '{');
    thread_put_fixed(root, text);
    buf_append_str(text, "\"messages\": [");
    for (size_t i = 0; i < n && text->len_bytes <= API_MAX_KEPT_BYTES; i++) {
        if (i > 0)
            buf_append_str(text, ", ");
        api_json_put(text, json_array_get(messages, i));
    }
    if (text->len_bytes > API_MAX_KEPT_BYTES)
        buf_fini(text);
    else
        buf_reserve(text, thread_answer_bytes(parse->out));
    return text->is_bad ? parse_no_memory(parse) : 0;
}
