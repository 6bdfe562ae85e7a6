/* SPDX-License-Identifier: Apache-2.0 */
/* Real vocabularies compared with the ids of their own tokenizers: X.inp has the texts, X.out a line of ids
 * for each, without BOS.  The ids must decode to the same text. */
#include "tests/unit/text/token/vocabularies.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define MARK "\n__ggml_vocab_test__\n"

static struct bytes next_text(struct bytes all, size_t *at)
{
    size_t end = bytes_find(all, bytes_str(MARK), *at);
    struct bytes text;

    if (end == SIZE_MAX)
        end = all.len_bytes;
    text = bytes_of(all.data + *at, end - *at);
    *at = end + strlen(MARK);
    return text;
}

static struct bytes next_line(struct bytes all, size_t *at)
{
    size_t end = bytes_find(all, bytes_str("\n"), *at);
    size_t from = *at;

    if (end == SIZE_MAX)
        end = all.len_bytes;
    *at = end + 1;
    while (from < end && all.data[from] == ' ')
        from++;
    return bytes_of(all.data + from, end - from);
}

static void check_text(const struct tokenizer *tokenizer, struct bytes text, struct bytes expected)
{
    struct token_ids ids = {0};
    struct buf got = {0}, back = {0};
    struct detok detok;

    assert_int_equal(tokenizer_encode(tokenizer, text, 0, SIZE_MAX, &ids), 0);
    ids_as_text(&ids, &got);
    if (!bytes_equal(buf_view(&got), expected))
        print_error("text '%.*s'\n  expected %.*s\n  got      %.*s\n", (int)text.len_bytes,
                    (const char *)text.data, (int)expected.len_bytes, (const char *)expected.data,
                    (int)got.len_bytes, (char *)got.data);
    assert_true(bytes_equal(buf_view(&got), expected));

    detok_init(&detok, tokenizer, false);
    for (size_t i = 0; i < ids.n; i++)
        assert_int_equal(detok_push(&detok, ids.ids[i], &back), 0);
    assert_true(bytes_equal(buf_view(&back), text));
    buf_fini(&back);
    buf_fini(&got);
    token_ids_fini(&ids);
}

static void check_vocabulary(const char *name)
{
    struct buf texts = {0}, lines = {0};
    size_t text_at = 0, line_at = 0;
    unsigned n = 0;
    char path[64];

    snprintf(path, sizeof(path), "vocab/%s.gguf", name);
    struct tokenizer *tokenizer = tokenizer_of_file(path);
    snprintf(path, sizeof(path), "vocab/%s.inp", name);
    data_read(path, &texts);
    snprintf(path, sizeof(path), "vocab/%s.out", name);
    data_read(path, &lines);
    while (line_at < lines.len_bytes) {
        struct bytes text = next_text(buf_view(&texts), &text_at);
        check_text(tokenizer, text, next_line(buf_view(&lines), &line_at));
        n++;
    }
    assert_true(n > 40);
    buf_fini(&lines);
    buf_fini(&texts);
    tokenizer_unref(tokenizer);
}

static void gpt2_gives_the_known_ids(void **state)
{
    check_vocabulary("gpt-2");
}

static void qwen2_gives_the_known_ids(void **state)
{
    check_vocabulary("qwen2");
}

static void sentencepiece_gives_the_known_ids(void **state)
{
    check_vocabulary("llama-spm");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_gives_the_known_ids),
        cmocka_unit_test(qwen2_gives_the_known_ids),
        cmocka_unit_test(sentencepiece_gives_the_known_ids),
    };

    if (!data_is_here()) {
        printf("the shared vocabularies are not here (BATON_DATA); skipped\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
