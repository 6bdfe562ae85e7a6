/* SPDX-License-Identifier: Apache-2.0 */
/* Carries the cancelling of a response to the router that runs it.
 *
 *     CANCEL     number of the question 8 | tenant | NUL | id of the response
 *     CANCELLED  epoch of the asking router 8 | number of the question 8 | the answer for its client
 *
 * Numbers are little endian.  Both are sections of router messages (router_message_priv.h).  A router that does not run the response says
 * nothing, so the asking one waits a second for a response that no router runs (serve/endpoint/cancels.c). */
#include "fleet/router/cancels_priv.h"

#include "base/str.h"
#include "fleet/router/router_message_priv.h"
#include "fleet/router/state_priv.h"
#include "serve/endpoint/front_shared.h"

#define CANCELS_MAX_ID     63u
#define CANCELS_MAX_ANSWER 16384u /* a longer answer is replaced by its id and status */

static void cancels_put_number(struct buf *out, uint64_t number)
{
    uint8_t bytes[8];

    put_u64(bytes, number);
    buf_append(out, bytes, sizeof(bytes));
}

bool router_cancels_ask(void *router, const char *tenant, struct bytes id, uint64_t number)
{
    struct buf section = {0};
    bool is_sent;

    cancels_put_number(&section, number);
    buf_append(&section, tenant, strlen(tenant) + 1);
    buf_append(&section, id.data, id.len_bytes);
    is_sent = !section.is_bad && router_state_send(router, ROUTER_MESSAGE_CANCEL, buf_view(&section));
    buf_fini(&section);
    return is_sent;
}

void router_cancels_receive(struct router *router, uint64_t asker, struct bytes section)
{
    struct reader reader = reader_of(section);
    uint64_t number = read_u64(&reader);
    const uint8_t *tenant = section.data + reader.at_bytes, *end;
    struct front *front = router_state_front(router);
    struct buf answer = {0}, reply = {0};
    struct bytes id;

    end = reader.is_bad ? NULL : memchr(tenant, '\0', section.len_bytes - reader.at_bytes);
    if (front == NULL || end == NULL)
        return;
    id = bytes_of(end + 1, (size_t)(section.data + section.len_bytes - end - 1));
    if (id.len_bytes > CANCELS_MAX_ID || !front_cancel_response(front, (const char *)tenant, id, &answer))
        return;
    if (answer.is_bad || answer.len_bytes > CANCELS_MAX_ANSWER) {
        buf_fini(&answer);
        buf_printf(&answer, "{\"id\":\"%.*s\",\"object\":\"response\",\"status\":\"cancelled\"}",
                   (int)id.len_bytes, (const char *)id.data);
    }
    cancels_put_number(&reply, asker);
    cancels_put_number(&reply, number);
    buf_append(&reply, answer.data, answer.len_bytes);
    if (!reply.is_bad)
        (void)router_state_send(router, ROUTER_MESSAGE_CANCELLED, buf_view(&reply));
    buf_fini(&answer);
    buf_fini(&reply);
}

void router_cancels_receive_end(struct router *router, struct bytes section)
{
    struct reader reader = reader_of(section);
    uint64_t asker = read_u64(&reader), number = read_u64(&reader);
    struct front *front = router_state_front(router);

    if (reader.is_bad || asker != router->epoch || front == NULL)
        return;
    front_cancelled(front, number,
                    bytes_of(section.data + reader.at_bytes, section.len_bytes - reader.at_bytes));
}
