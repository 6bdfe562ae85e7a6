/* SPDX-License-Identifier: Apache-2.0 */
/* The conversation that a request continues.
 *
 *     continue ──take──> held ──the answer is complete, or its stream moved──> continued: none can take it again
 *                          '────the request failed────────────────────────> it can be taken again
 *     the same, with last-event-id ──read──> the text, held or continued by the stream's first request
 *
 * A stream that is resumed is the same answer once more, so its request needs neither the conversation nor the claim.  It
 * takes what is free: the first request gave it up when its client left, or the conversation came from this router and
 * was continued at another one. */
#include "base/clock.h"
#include "base/err.h"
#include "serve/endpoint/front_priv.h"

static enum conversations_take thread_take(struct request *request)
{
    struct conversations *conversations = request->front->conversations;
    struct bytes id = request->gen.thread_id;
    uint64_t now_ns = clock_now_ns();
    enum conversations_take result;

    result = request->shared.claim == STATE_CLAIM_TAKEN
                 ? CONVERSATIONS_CONTINUED
                 : conversations_take(conversations, id, request->owner, now_ns, &request->conversation);
    if (result == CONVERSATIONS_TAKEN)
        request->history = conversations_read(conversations, id, request->owner, now_ns);
    report_conversation(request->front, result);
    return result;
}

/* Another router's copy of the text may be in request->history already. */
static enum conversations_take thread_read(struct request *request)
{
    struct conversations *conversations = request->front->conversations;
    struct bytes id = request->gen.thread_id;
    uint64_t now_ns = clock_now_ns();
    enum conversations_take result =
        conversations_take(conversations, id, request->owner, now_ns, &request->conversation);

    if (request->history == NULL)
        request->history = conversations_read(conversations, id, request->owner, now_ns);
    return request->history != NULL ? CONVERSATIONS_TAKEN : result;
}

/* An SDK checks these error codes before it resends the whole conversation. */
int request_take_thread(struct request *request, struct api_error *error)
{
    switch (request->resume.is_again ? thread_read(request) : thread_take(request)) {
    case CONVERSATIONS_TAKEN:
        return 0;
    case CONVERSATIONS_UNKNOWN:
        api_fail(error, 404, "thread.previous_message_id: no thread is kept under this id");
        error->code = "thread_not_found";
        break;
    case CONVERSATIONS_CONTINUED:
        api_fail(error, 400, "thread.previous_message_id: this thread was continued already");
        error->code = "thread_already_continued";
        break;
    case CONVERSATIONS_BUSY:
        api_fail(error, 400, "thread.previous_message_id: this thread is being continued");
        error->code = "thread_continue_in_flight";
        break;
    }
    return E_NOT_FOUND;
}

void request_leave_thread(struct request *request)
{
    bool is_continued =
        api_call_generates(request->call) && (request->state == REQUEST_DONE || request->resume.has_moved);
    enum conversations_end how = !is_continued             ? CONVERSATIONS_RELEASED
                                 : request->resume.is_kept ? CONVERSATIONS_READABLE
                                                           : CONVERSATIONS_ENDED;

    shared_end(request, how);
    if (request->conversation != NULL)
        conversations_give_back(request->front->conversations, request->conversation, how, clock_now_ns());
    kept_text_unref(request->history);
}
