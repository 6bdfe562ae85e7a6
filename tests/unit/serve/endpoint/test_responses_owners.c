/* SPDX-License-Identifier: Apache-2.0 */
/* Kept responses and their owners: a server that keeps none, tenants, ids of others, and the bound on kept texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/log.h"
#include "rig_openai.h"
#include "serve/conversation/conversations.h"

static void without(struct front_opts *opts, struct sim_opts *sim)
{
    opts->conversation_bytes = 0;
}

static void a_server_that_keeps_nothing_says_so(void **state)
{
    struct rig rig;
    json_t *root;

    rig_begin(&rig, without);
    root = ask_response(&rig, "'say One.'", "", 200);
    json_decref(root);
    root = ask_response(&rig, "'x'", ",'previous_response_id':'resp_abcdefghijklmnopqrstuvwx'", 400);
    assert_string_equal(str_at(root, "error", "code"), "previous_response_not_found");
    json_decref(root);
    assert_int_equal(status_at(&rig, "GET", "/v1/responses/resp_abcdefghijklmnopqrstuvwx", NULL), 404);
    rig_end(&rig);
}

static char keys_path[] = "/tmp/baton-responses-keys-XXXXXX";

static void keyed(struct front_opts *opts, struct sim_opts *sim)
{
    opts->keys_path = keys_path;
}

static int status_with(struct rig *rig, const char *method, const char *path, const char *key)
{
    struct buf request = {0};
    int status;

    buf_printf(&request, "%s %s HTTP/1.1\r\nHost: a\r\nx-api-key: %s\r\nContent-Length: 0\r\n\r\n", method,
               path, key);
    status = raw_ask(rig->port, (const char *)request.data, NULL);
    buf_fini(&request);
    return status;
}

static void tenants_do_not_see_each_others_responses(void **state)
{
    int fd = mkstemp(keys_path);
    FILE *file = fdopen(fd, "w");
    struct buf request = {0};
    char path[128];
    struct rig rig;
    json_t *root;

    assert_non_null(file);
    /* sha256 of "secret" and of "other" */
    fprintf(file, "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b one\n"
                  "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa two\n");
    fclose(file);
    rig_begin(&rig, keyed);
    put_request(&request, "/v1/responses", "x-api-key: secret\r\n", "{'model':'sim','input':'say One.'}");
    root = ask(&rig, &request, 200, NULL);
    snprintf(path, sizeof(path), "/v1/responses/%s", str_at(root, "id", NULL));
    assert_int_equal(status_with(&rig, "GET", path, "other"), 404);
    assert_int_equal(status_with(&rig, "DELETE", path, "other"), 404);
    assert_int_equal(status_with(&rig, "GET", path, "nobody"), 401);
    assert_int_equal(status_with(&rig, "GET", path, "secret"), 200);
    json_decref(root);
    buf_fini(&request);
    rig_end(&rig);
    unlink(keys_path);
}

static bool reads(struct conversations *kept, const char *owner, uint64_t now_ns, const char *want)
{
    struct kept_text *text = conversations_read(kept, bytes_str("resp_a"), owner, now_ns);
    bool is_there = text != NULL;

    if (is_there)
        assert_true(bytes_is(kept_text_view(text), want));
    kept_text_unref(text);
    return is_there;
}

static void kept_texts_are_read_by_their_owner(void **state)
{
    struct conversations *kept;
    struct buf text = {0};

    assert_int_equal(conversations_new(1 << 20, 100, &kept), 0);
    buf_append_str(&text, "hello");
    conversations_put(kept, "resp_a", "team", &text, 0);
    assert_false(reads(kept, "others", 0, ""));
    assert_false(conversations_remove(kept, bytes_str("resp_a"), "others"));
    assert_true(reads(kept, "team", 90, "hello"));
    assert_true(reads(kept, "team", 180, "hello")); /* to read it counts as a use */
    assert_true(conversations_remove(kept, bytes_str("resp_a"), "team"));
    assert_false(reads(kept, "team", 180, ""));
    assert_int_equal(conversations_bytes(kept), 0);
    conversations_free(kept);
}

static void embeddings_are_refused_by_name(void **state)
{
    struct rig rig;
    json_t *root;

    rig_begin(&rig, NULL);
    root = ask_at(&rig, "/v1/embeddings", "{'model':'sim','input':'x'}", 404);
    assert_string_equal(str_at(root, "error", "code"), "embeddings_unsupported");
    json_decref(root);
    rig_end(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_keeps_nothing_says_so),
        cmocka_unit_test(tenants_do_not_see_each_others_responses),
        cmocka_unit_test(kept_texts_are_read_by_their_owner),
        cmocka_unit_test(embeddings_are_refused_by_name),
    };

    log_setup("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
