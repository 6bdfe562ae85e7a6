/* SPDX-License-Identifier: Apache-2.0 */
/* Vocabularies for tests.
 *
 * The GGUF writer makes the small ones, so that a test chooses exactly the merges. */
#include "tests/unit/text/token/vocabularies.h"

#include "base/err.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

char *data_path(const char *name)
{
    const char *folder = getenv("BATON_DATA");
    const char *source = getenv("srcdir");
    struct buf path = {0};

    if (folder != NULL)
        buf_printf(&path, "%s/%s", folder, name);
    else
        buf_printf(&path, "%s/../shared/data/%s", source == NULL ? "." : source, name);
    char *text = buf_take_str(&path);
    if (text != NULL && access(text, R_OK) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

bool data_is_here(void)
{
    char *path = data_path("vocab/qwen2.gguf");

    free(path);
    return path != NULL;
}

void data_read(const char *name, struct buf *out)
{
    char *path = data_path(name);
    char piece[4096];
    size_t n;

    assert_non_null(path);
    FILE *file = fopen(path, "rbe");
    assert_non_null(file);
    while ((n = fread(piece, 1, sizeof(piece), file)) > 0)
        assert_int_equal(buf_append(out, piece, n), 0);
    fclose(file);
    free(path);
}

struct tokenizer *tokenizer_of_file(const char *name)
{
    return tokenizer_with_template(name, NULL);
}

struct tokenizer *tokenizer_with_template(const char *name, const char *chat_template)
{
    struct fault fault = {0};
    struct gguf *gguf = NULL;
    struct gguf_writer *writer = NULL;
    struct buf image = {0};
    char *path = data_path(name);

    assert_non_null(path);
    assert_int_equal(gguf_open(path, &fault, &gguf), 0);
    assert_int_equal(gguf_writer_new(&writer), 0);
    if (chat_template != NULL)
        assert_int_equal(gguf_put_str(writer, "tokenizer.chat_template", bytes_str(chat_template)), 0);
    assert_int_equal(gguf_put_keys_of(writer, gguf, ""), 0);
    assert_int_equal(gguf_writer_header(writer, &image), 0);
    gguf_writer_free(writer);
    gguf_close(gguf);
    free(path);
    return tokenizer_of_image(&image);
}

struct tokenizer *tokenizer_of_image(struct buf *image)
{
    struct tokenizer *tokenizer = NULL;
    struct fault fault = {0};

    int rc = tokenizer_new_from_image(buf_view(image), &fault, &tokenizer);
    if (rc != 0)
        print_error("%s: %s\n", err_name(rc), fault.text);
    assert_int_equal(rc, 0);
    buf_fini(image);
    return tokenizer;
}

/* ---- making small ones ---- */

struct list { /* of tokens being made */
    struct bytes spellings[1024];
    int32_t types[1024];
    float scores[1024];
    char room[1024][32];
    uint64_t n;
};

static void add(struct list *list, const char *spelling, int32_t type, float score)
{
    assert_true(list->n < 1024);
    list->spellings[list->n] = bytes_str(spelling);
    list->types[list->n] = type;
    list->scores[list->n] = score;
    list->n++;
}

static void add_extra(struct list *list, const struct token_spec *extra)
{
    for (; extra != NULL && extra->spelling != NULL; extra++)
        add(list, extra->spelling, extra->type, extra->score);
}

/* Spells a byte in GPT-2's alphabet, straight from its description. */
static size_t spell_byte(unsigned byte, char out[8])
{
    uint32_t next = 0x100;

    for (unsigned b = 0; b < 256; b++) {
        bool is_plain = (b > 0x20 && b < 0x7f) || (b > 0xa0 && b != 0xad);
        uint32_t code = is_plain ? b : next++;

        if (b == byte) {
            size_t len_bytes = utf8_put(code, (uint8_t *)out);
            out[len_bytes] = '\0';
            return len_bytes;
        }
    }
    return 0;
}

static void finish(struct list *list, struct gguf_writer *writer, struct buf *out)
{
    assert_int_equal(gguf_put_str_array(writer, "tokenizer.ggml.tokens", list->spellings, list->n), 0);
    assert_int_equal(gguf_put_i32_array(writer, "tokenizer.ggml.token_type", list->types, list->n), 0);
    assert_int_equal(gguf_writer_header(writer, out), 0);
    gguf_writer_free(writer);
    free(list);
}

static uint64_t add_merges(struct list *list, const char *const *merges, struct bytes *texts)
{
    uint64_t n = 0;

    for (; merges != NULL && merges[n] != NULL; n++) {
        const char *blank = strchr(merges[n] + 1, ' ');
        char *room = list->room[list->n];

        snprintf(room, sizeof(list->room[0]), "%.*s%s", (int)(blank - merges[n]), merges[n], blank + 1);
        texts[n] = bytes_str(merges[n]);
        add(list, room, 1, 0);
    }
    return n;
}

/* Gives the token with this spelling its role, if the token exists. */
static void put_role(const struct list *list, struct gguf_writer *writer, const char *spelling,
                     const char *key)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (bytes_is(list->spellings[i], spelling))
            assert_int_equal(gguf_put_u32(writer, key, i), 0);
    }
}

static void add_bytes(struct list *list, struct bytes lacking)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        if (lacking.len_bytes > 0 && memchr(lacking.data, (int)byte, lacking.len_bytes) != NULL)
            continue;
        spell_byte(byte, list->room[list->n]);
        add(list, list->room[list->n], 1, 0);
    }
}

void byte_level_image_lacking(struct bytes lacking, const char *pre, const struct token_spec *extra,
                              struct buf *out)
{
    struct list *list = calloc(1, sizeof(*list));
    struct gguf_writer *writer = NULL;

    assert_non_null(list);
    assert_int_equal(gguf_writer_new(&writer), 0);
    add_bytes(list, lacking);
    add_extra(list, extra);
    assert_int_equal(gguf_put_str(writer, "tokenizer.ggml.model", bytes_str("gpt2")), 0);
    assert_int_equal(gguf_put_str(writer, "tokenizer.ggml.pre", bytes_str(pre)), 0);
    assert_int_equal(gguf_put_str_array(writer, "tokenizer.ggml.merges", NULL, 0), 0);
    put_role(list, writer, "<unk>", "tokenizer.ggml.unknown_token_id");
    finish(list, writer, out);
}

void byte_level_image(const char *pre, const char *const *merges, const struct token_spec *extra,
                      const char *chat_template, struct buf *out)
{
    struct list *list = calloc(1, sizeof(*list));
    struct gguf_writer *writer = NULL;
    struct bytes texts[512];

    assert_non_null(list);
    assert_int_equal(gguf_writer_new(&writer), 0);
    add_bytes(list, bytes_of(NULL, 0));
    uint64_t n = add_merges(list, merges, texts);
    add_extra(list, extra);
    assert_int_equal(gguf_put_str(writer, "tokenizer.ggml.model", bytes_str("gpt2")), 0);
    assert_int_equal(gguf_put_str(writer, "tokenizer.ggml.pre", bytes_str(pre)), 0);
    assert_int_equal(gguf_put_str_array(writer, "tokenizer.ggml.merges", texts, n), 0);
    if (chat_template != NULL)
        assert_int_equal(gguf_put_str(writer, "tokenizer.chat_template", bytes_str(chat_template)), 0);
    put_role(list, writer, "<s>", "tokenizer.ggml.bos_token_id");
    put_role(list, writer, "<|im_end|>", "tokenizer.ggml.eos_token_id");
    finish(list, writer, out);
}

static void add_sentencepiece(struct list *list, const struct token_spec *extra, bool has_bytes)
{
    add(list, "<unk>", 2, 0);
    add(list, "<s>", 3, 0);
    add(list, "</s>", 3, 0);
    for (unsigned byte = 0; has_bytes && byte < 256; byte++) {
        snprintf(list->room[list->n], sizeof(list->room[0]), "<0x%02X>", byte);
        add(list, list->room[list->n], 6, 0);
    }
    add_extra(list, extra);
}

static void put_roles(struct gguf_writer *writer)
{
    assert_int_equal(gguf_put_u32(writer, "tokenizer.ggml.unknown_token_id", 0), 0);
    assert_int_equal(gguf_put_u32(writer, "tokenizer.ggml.bos_token_id", 1), 0);
    assert_int_equal(gguf_put_u32(writer, "tokenizer.ggml.eos_token_id", 2), 0);
}

void sentencepiece_image(const struct token_spec *extra, bool has_bytes, struct buf *out)
{
    struct list *list = calloc(1, sizeof(*list));
    struct gguf_writer *writer = NULL;

    assert_non_null(list);
    assert_int_equal(gguf_writer_new(&writer), 0);
    add_sentencepiece(list, extra, has_bytes);
    assert_int_equal(gguf_put_str(writer, "tokenizer.ggml.model", bytes_str("llama")), 0);
    assert_int_equal(gguf_put_f32_array(writer, "tokenizer.ggml.scores", list->scores, list->n), 0);
    put_roles(writer);
    finish(list, writer, out);
}

void sentencepiece_merges_image(const struct token_spec *extra, const char *const *merges, struct buf *out)
{
    struct list *list = calloc(1, sizeof(*list));
    struct gguf_writer *writer = NULL;
    struct bytes texts[64];
    uint64_t n = 0;

    assert_non_null(list);
    assert_int_equal(gguf_writer_new(&writer), 0);
    add_sentencepiece(list, extra, true);
    for (; merges[n] != NULL; n++)
        texts[n] = bytes_str(merges[n]);
    assert_int_equal(gguf_put_str(writer, "tokenizer.ggml.model", bytes_str("gemma4")), 0);
    assert_int_equal(gguf_put_str_array(writer, "tokenizer.ggml.merges", texts, n), 0);
    put_roles(writer);
    finish(list, writer, out);
}

/* ---- looking at results ---- */

void ids_as_text(const struct token_ids *ids, struct buf *out)
{
    for (size_t i = 0; i < ids->n; i++)
        buf_printf(out, "%s%u", i == 0 ? "" : " ", ids->ids[i]);
}

char *encode_as_pieces(const struct tokenizer *tokenizer, struct bytes text, unsigned flags)
{
    struct token_ids ids = {0};
    struct buf out = {0};

    assert_int_equal(tokenizer_encode(tokenizer, text, flags, SIZE_MAX, &ids), 0);
    for (size_t i = 0; i < ids.n; i++) {
        struct bytes piece = tokenizer_piece(tokenizer, ids.ids[i]);
        buf_append_str(&out, i == 0 ? "" : "|");
        buf_append(&out, piece.data, piece.len_bytes);
    }
    token_ids_fini(&ids);
    return buf_take_str(&out);
}

/* ---- for chat formats ---- */

static const struct token_spec chat_specials[] = {
    {"<s>", 3, 0},         {"</s>", 3, 0},         {"<|im_start|>", 3, 0},     {"<|im_end|>", 3, 0},
    {"<tool_call>", 4, 0}, {"</tool_call>", 4, 0}, {"<tool_response>", 4, 0},  {"[INST]", 3, 0},
    {"<think>", 4, 0},     {"</think>", 4, 0},     {"\xc2\xa7\xc2\xa7", 4, 0}, {NULL, 0, 0},
};

struct tokenizer *chat_tokenizer(const char *chat_template)
{
    struct buf image = {0};

    byte_level_image("qwen2", NULL, chat_specials, chat_template, &image);
    return tokenizer_of_image(&image);
}

struct chat_format *chat_format_for(const char *chat_template)
{
    struct tokenizer *tokenizer = chat_tokenizer(chat_template);
    struct chat_format *format = NULL;
    struct fault fault = {0};

    int rc = chat_format_new(tokenizer, &fault, &format);
    if (rc != 0)
        print_error("%s\n", fault.text);
    assert_int_equal(rc, 0);
    tokenizer_unref(tokenizer); /* the format has its own reference */
    return format;
}

void expect_chat_refusal(const char *chat_template, const char *words)
{
    struct tokenizer *tokenizer = chat_tokenizer(chat_template);
    struct chat_format *format = NULL;
    struct fault fault = {0};

    assert_int_not_equal(chat_format_new(tokenizer, &fault, &format), 0);
    assert_null(format);
    if (strstr(fault.text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", fault.text, words);
    tokenizer_unref(tokenizer);
}

void expect_chat_text(const struct chat_format *format, const struct chat_prompt *prompt,
                      const char *expected)
{
    struct buf text = {0};

    struct fault fault = {0};

    if (chat_render_text(format, prompt, &fault, &text) != 0)
        fail_msg("%s", fault.text);
    assert_string_equal(text.data == NULL ? "" : (char *)text.data, expected);
    buf_fini(&text);
}
