/* SPDX-License-Identifier: Apache-2.0 */
/* Implements "truncation": "auto" of /v1/responses: removes the oldest turns of a conversation that exceeds
 * the context.
 *
 *     system | user ── assistant ── user ── assistant ── user ...
 *               └───── left out ────┘ ^ a turn of the user that answers no call: a prompt may begin here
 *
 * The amount is estimated from the bytes of the turns, then the rest is tokenised again; few passes are
 * enough.  The answer keeps a quarter of the context, or max_output_tokens if that is less.  If the last turn
 * alone is too long, the request fails as without truncation. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "serve/endpoint/responses_priv.h"

#define MAX_PASSES 6

/* True if a conversation may begin with this turn. */
static bool truncate_may_begin(const struct gen_message *message)
{
    if (message->role != GEN_USER)
        return false;
    for (size_t i = 0; i < message->n_blocks; i++)
        if (message->blocks[i].kind == GEN_TOOL_RESULT)
            return false;
    return true;
}

static size_t truncate_bytes_of_turn(const struct gen_message *message)
{
    size_t n = 16; /* roughly the tokens that the template adds to a turn, in bytes */

    for (size_t i = 0; i < message->n_blocks; i++)
        n += message->blocks[i].text.len_bytes + message->blocks[i].input.len_bytes +
             message->blocks[i].name.len_bytes;
    return n;
}

/* Returns how many turns to remove, to drop about this part of their bytes.  0: no turn can be removed. */
static size_t truncate_count_turns(const struct gen_request *gen, double part)
{
    size_t n_bytes = 0, n_gone = 0, found = 0;

    for (size_t i = 0; i < gen->n_messages; i++)
        n_bytes += truncate_bytes_of_turn(&gen->messages[i]);
    for (size_t i = 0; i + 1 < gen->n_messages && (double)n_gone < part * (double)n_bytes; i++) {
        n_gone += truncate_bytes_of_turn(&gen->messages[i]);
        if (truncate_may_begin(&gen->messages[i + 1]))
            found = i + 1;
    }
    /* If the estimate ends inside a turn with calls,
     * continue to the next place where a conversation may begin. */
    for (size_t i = found + 1; found == 0 && i < gen->n_messages; i++)
        if (truncate_may_begin(&gen->messages[i]))
            found = i;
    return found;
}

static int truncate_warn(struct request *request, size_t n_turns)
{
    struct gen_response *response = request->gen.response;
    struct bytes had = response->warnings;
    struct buf text = {0};
    char *copy;

    buf_append_byte(&text, '[');
    if (had.len_bytes > 2) {
        buf_append(&text, had.data + 1, had.len_bytes - 2);
        buf_append_byte(&text, ',');
    }
    buf_printf(
        &text,
        "{\"code\":\"input_truncated\",\"param\":\"truncation\",\"message\":\"the first %zu turns were "
        "left out, because the conversation exceeds the context\"}]",
        n_turns);
    copy = text.is_bad ? NULL : arena_str(&request->gen.arena, buf_view(&text));
    if (copy != NULL)
        response->warnings = bytes_of(copy, text.len_bytes);
    buf_fini(&text);
    return copy == NULL ? E_NOMEM : 0;
}

/* Looks up cached answers in the remaining turns. */
static int truncate_find_answers(struct request *request)
{
    struct answer_cache *cache = request->front->answer_cache;
    int rc;

    replay_fini(&request->replay);
    if (cache == NULL)
        return 0;
    rc = replay_read(&request->gen, &request->replay);
    if (rc == 0)
        replay_find(&request->replay, cache, request->owner, request->model->fingerprint, true);
    return rc;
}

static uint32_t truncate_most_tokens(const struct request *request)
{
    uint32_t room = request->model->context_length, answer = request->gen.work.max_new_tokens;

    return room - (answer < room / 4 ? answer : room / 4);
}

static int truncate_leave_out(struct request *request, size_t n)
{
    prompt_fini(&request->prompt);
    memset(&request->prompt, 0, sizeof(request->prompt));
    request->gen.messages += n;
    request->gen.n_messages -= n;
    if (truncate_find_answers(request) == 0)
        return prompt_make(request->model, &request->gen, &request->replay, &request->prompt,
                           &request->error);
    api_fail(&request->error, 503, "out of memory");
    return E_NOMEM;
}

int responses_truncate(struct request *request)
{
    size_t n_out = 0;
    int rc = 0;

    if (request->gen.response == NULL || !request->gen.response->truncates)
        return 0;
    for (int i = 0; i < MAX_PASSES && !atomic_load(&request->is_abandoned); i++) {
        size_t have = request->prompt.ids.n, most = truncate_most_tokens(request), n;

        if (have <= most)
            break;
        n = truncate_count_turns(&request->gen, (double)(have - most) / (double)have);
        if (n == 0)
            break;
        n_out += n;
        if ((rc = truncate_leave_out(request, n)) < 0)
            return rc;
    }
    if (n_out == 0 || truncate_warn(request, n_out) == 0)
        return 0;
    api_fail(&request->error, 503, "out of memory");
    return E_NOMEM;
}
