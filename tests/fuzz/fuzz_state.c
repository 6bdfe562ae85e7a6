/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: replies of a shared store to a router.  A record opens only if this key sealed it, so no input does.
 * Messages of routers, and images of remembered answers, which are sealed and so come from routers of other versions
 * at worst: what parses stays within its bounds, and an answer packs into an image that parses into the same. */
#include "net/state/state_record.h"
#include "serve/conversation/answer_image.h"
#include "fleet/router/router_message_priv.h"

#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_router_message(struct bytes image)
{
    struct bytes sections, section;
    struct router_message received;
    unsigned kind;
    size_t n = 0;

    if (router_message_parse(image, &received) < 0)
        return;
    ASSERT(received.epoch != 0 && strlen(received.node) < sizeof(received.node));
    for (sections = received.sections; router_message_next(&sections, &kind, &section);
         n += section.len_bytes + 5)
        ASSERT(section.len_bytes == 0 || (section.data >= image.data &&
                                          section.data + section.len_bytes <= image.data + image.len_bytes));
    ASSERT(n <= image.len_bytes);
}

static void check_answer(struct bytes image)
{
    struct cached_answer *answer, *again;
    struct buf packed = {0};

    if (answer_image_parse(image, 1000, &answer) < 0)
        return;
    ASSERT(answer->n_blocks > 0 && answer->n_opening <= answer->n_ids);
    for (uint32_t i = 0; i < answer->n_ids; i++)
        ASSERT(answer->ids[i] < 1000);
    ASSERT(answer_image_pack(answer, &packed) == 0);
    ASSERT(answer_image_parse(buf_view(&packed), 1000, &again) == 0);
    ASSERT(again->n_ids == answer->n_ids && again->n_blocks == answer->n_blocks &&
           bytes_equal(again->thinking, answer->thinking));
    cached_answer_unref(again);
    cached_answer_unref(answer);
    buf_fini(&packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t key[STATE_KEY_BYTES] = {3};
    struct bytes image = bytes_of(data, size);
    struct state_name name;
    struct buf out = {0};

    ASSERT(state_name_make(key, "thread", bytes_str("team"), image, &name) == 0);
    ASSERT(strlen(name.text) == sizeof("baton:{0123456789abcdef}:thread:") - 1 + 32);
    ASSERT(state_record_open(key, &name, 1000, image, &out) < 0);
    buf_fini(&out);
    check_router_message(image);
    check_answer(image);
    return 0;
}
