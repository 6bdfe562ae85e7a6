/* SPDX-License-Identifier: Apache-2.0 */
/* The table of kept conversations: who may continue one, when it ends, what it holds at most. */
#include "serve/conversation/conversations.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void put(struct conversations *conversations, const char *id, const char *owner, size_t n_bytes,
                uint64_t now_ns)
{
    struct buf text = {0};

    for (size_t i = 0; i < n_bytes; i++)
        buf_append_byte(&text, 'x');
    conversations_put(conversations, id, owner, &text, now_ns);
}

static enum conversations_take take(struct conversations *conversations, const char *id, const char *owner,
                                    uint64_t now_ns)
{
    struct conversation *conversation;
    enum conversations_take how =
        conversations_take(conversations, bytes_str(id), owner, now_ns, &conversation);

    if (how == CONVERSATIONS_TAKEN)
        conversations_give_back(conversations, conversation, CONVERSATIONS_RELEASED, now_ns);
    return how;
}

/* Of a text that can be read; 0: there is none. */
static size_t length_of(struct conversations *conversations, const char *id)
{
    struct kept_text *text = conversations_read(conversations, bytes_str(id), "team", 1);
    size_t n = kept_text_view(text).len_bytes;

    kept_text_unref(text);
    return n;
}

static void a_conversation_is_continued_once_by_its_owner(void **state)
{
    struct conversations *conversations;
    struct conversation *conversation;

    assert_int_equal(conversations_new(1 << 20, 100, &conversations), 0);
    put(conversations, "msg_a", "team", 10, 0);
    assert_int_equal(take(conversations, "msg_b", "team", 0), CONVERSATIONS_UNKNOWN);
    assert_int_equal(take(conversations, "", "team", 0), CONVERSATIONS_UNKNOWN);
    assert_int_equal(take(conversations, "msg_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "team", 0),
                     CONVERSATIONS_UNKNOWN);
    assert_int_equal(take(conversations, "msg_a", "others", 0), CONVERSATIONS_UNKNOWN);
    assert_int_equal(take(conversations, "msg_a", "team", 0), CONVERSATIONS_TAKEN);
    assert_int_equal(conversations_take(conversations, bytes_str("msg_a"), "team", 0, &conversation),
                     CONVERSATIONS_TAKEN);
    assert_int_equal(length_of(conversations, "msg_a"), 10);
    assert_int_equal(take(conversations, "msg_a", "team", 1), CONVERSATIONS_BUSY);
    conversations_give_back(conversations, conversation, CONVERSATIONS_ENDED, 1);
    assert_int_equal(take(conversations, "msg_a", "team", 2), CONVERSATIONS_CONTINUED);
    assert_int_equal(take(conversations, "msg_a", "others", 2), CONVERSATIONS_UNKNOWN);
    conversations_free(conversations);
}

static void a_conversation_expires_after_its_last_use(void **state)
{
    struct conversations *conversations;
    struct conversation *conversation;

    assert_int_equal(conversations_new(1 << 20, 100, &conversations), 0);
    put(conversations, "msg_a", "team", 10, 0);
    put(conversations, "msg_b", "team", 10, 0);
    assert_int_equal(take(conversations, "msg_a", "team", 90), CONVERSATIONS_TAKEN);
    assert_int_equal(take(conversations, "msg_b", "team", 101), CONVERSATIONS_UNKNOWN);
    assert_int_equal(conversations_take(conversations, bytes_str("msg_a"), "team", 190, &conversation),
                     CONVERSATIONS_TAKEN);
    put(conversations, "msg_c", "team", 10, 1000); /* while it is held, it stays */
    assert_int_equal(conversations_count(conversations), 2);
    conversations_give_back(conversations, conversation, CONVERSATIONS_ENDED, 1000);
    assert_int_equal(take(conversations, "msg_a", "team", 1100), CONVERSATIONS_CONTINUED);
    assert_int_equal(take(conversations, "msg_a", "team", 1101), CONVERSATIONS_UNKNOWN);
    assert_int_equal(conversations_count(conversations), 0);
    assert_int_equal(conversations_bytes(conversations), 0);
    conversations_free(conversations);
}

static void the_table_is_bounded(void **state)
{
    struct conversations *conversations;
    char id[16];

    assert_int_equal(conversations_new(100000, 100, &conversations), 0);
    for (int i = 0; i < 1000; i++) {
        snprintf(id, sizeof(id), "msg_%d", i);
        put(conversations, id, "team", 1000, 0);
        assert_true(conversations_bytes(conversations) <= 100000);
    }
    assert_true(conversations_count(conversations) > 40);
    assert_int_equal(take(conversations, "msg_999", "team", 0), CONVERSATIONS_TAKEN);
    assert_int_equal(take(conversations, "msg_1", "team", 0), CONVERSATIONS_UNKNOWN);
    put(conversations, "msg_large", "team", 200000, 0); /* too large to be kept, and none is evicted for it */
    assert_int_equal(take(conversations, "msg_large", "team", 0), CONVERSATIONS_UNKNOWN);
    assert_int_equal(take(conversations, "msg_999", "team", 0), CONVERSATIONS_TAKEN);
    conversations_free(conversations);
}

static void continue_one(struct conversations *conversations, const char *id, enum conversations_end how)
{
    struct conversation *conversation;

    assert_int_equal(conversations_take(conversations, bytes_str(id), "team", 1, &conversation),
                     CONVERSATIONS_TAKEN);
    conversations_give_back(conversations, conversation, how, 1);
}

static void a_continued_text_is_readable_while_there_is_memory(void **state)
{
    struct conversations *conversations;
    struct kept_text *text;

    assert_int_equal(conversations_new(14000, 100, &conversations), 0);
    put(conversations, "msg_a", "team", 4000, 0);
    put(conversations, "msg_b", "team", 4000, 0);
    continue_one(conversations, "msg_b", CONVERSATIONS_READABLE);
    assert_int_equal(take(conversations, "msg_b", "team", 1), CONVERSATIONS_CONTINUED);
    assert_int_equal(length_of(conversations, "msg_b"), 4000);
    assert_null(conversations_read(conversations, bytes_str("msg_b"), "others", 1));
    text = conversations_read(conversations, bytes_str("msg_b"), "team", 1);
    /* It goes before the conversation that is older but can be continued.  A reference outlives that. */
    put(conversations, "msg_c", "team", 8000, 2);
    assert_int_equal(length_of(conversations, "msg_b"), 0);
    assert_int_equal(kept_text_view(text).len_bytes, 4000);
    assert_int_equal(take(conversations, "msg_b", "team", 2), CONVERSATIONS_CONTINUED);
    assert_int_equal(take(conversations, "msg_a", "team", 2), CONVERSATIONS_TAKEN);
    kept_text_unref(text);
    continue_one(conversations, "msg_a", CONVERSATIONS_ENDED);
    assert_int_equal(length_of(conversations, "msg_a"), 0);
    conversations_free(conversations);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_conversation_is_continued_once_by_its_owner),
        cmocka_unit_test(a_conversation_expires_after_its_last_use),
        cmocka_unit_test(the_table_is_bounded),
        cmocka_unit_test(a_continued_text_is_readable_while_there_is_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
