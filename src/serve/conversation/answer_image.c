/* SPDX-License-Identifier: Apache-2.0 */
/* See answer_image.h. */
#include "serve/conversation/answer_image.h"

#include "base/err.h"

enum { ANSWER_IMAGE_VERSION = 1, ANSWER_BLOCK_BYTES = 25 /* of an empty block */ };
enum { ANSWER_HAS_THINKING = 1, ANSWER_HAS_DRAWN_IDS = 2 };

static void answer_image_u32(struct buf *out, uint32_t value)
{
    uint8_t bytes[4];

    put_u32(bytes, value);
    buf_append(out, bytes, sizeof(bytes));
}

static void answer_image_text(struct buf *out, struct bytes text)
{
    answer_image_u32(out, (uint32_t)text.len_bytes);
    if (text.len_bytes > 0)
        buf_append(out, text.data, text.len_bytes);
}

int answer_image_pack(const struct cached_answer *answer, struct buf *out)
{
    uint8_t sum[8];

    put_u64(sum, answer->base_sum);
    buf_append_byte(out, ANSWER_IMAGE_VERSION);
    answer_image_u32(out, answer->base_tokens);
    buf_append(out, sum, sizeof(sum));
    answer_image_u32(out, answer->n_opening);
    answer_image_u32(out, answer->n_ids);
    answer_image_u32(out, (uint32_t)answer->n_blocks);
    buf_append_byte(out, (uint8_t)((answer->has_thinking ? ANSWER_HAS_THINKING : 0) |
                                   (answer->drawn_ids != NULL ? ANSWER_HAS_DRAWN_IDS : 0)));
    buf_reserve(out, (size_t)answer->n_ids * 4);
    for (uint32_t i = 0; i < answer->n_ids; i++)
        answer_image_u32(out, answer->ids[i]);
    answer_image_text(out, answer->rest);
    answer_image_text(out, answer->thinking);
    for (size_t i = 0; i < answer->n_blocks; i++) {
        const struct gen_block *block = &answer->blocks[i];

        buf_append_byte(out, (uint8_t)block->kind);
        answer_image_text(out, block->text);
        answer_image_text(out, block->id);
        answer_image_text(out, block->name);
        answer_image_text(out, block->input);
        answer_image_text(out, answer->sorted[i]);
        answer_image_text(out, answer->drawn_ids != NULL ? answer->drawn_ids[i] : (struct bytes){0});
    }
    return out->is_bad ? E_NOMEM : 0;
}

/* ---- parsing ---- */

struct answer_reader {
    struct reader reader;
    struct cached_answer *answer;
    bool has_no_memory;
};

/* Copies a text to where the answer lives. */
static struct bytes answer_image_take(struct answer_reader *in)
{
    struct bytes text = read_bytes(&in->reader, read_u32(&in->reader));
    uint8_t *room;

    if (in->reader.is_bad)
        return (struct bytes){0};
    room = cached_answer_take(in->answer, text.len_bytes + 1);
    in->has_no_memory |= room == NULL;
    if (room == NULL)
        return (struct bytes){0};
    if (text.len_bytes > 0)
        memcpy(room, text.data, text.len_bytes);
    return bytes_of(room, text.len_bytes);
}

static int answer_image_blocks(struct answer_reader *in, size_t n, bool has_drawn_ids)
{
    struct cached_answer *answer = in->answer;

    answer->blocks = cached_answer_take(answer, (n + 1) * sizeof(*answer->blocks));
    answer->sorted = cached_answer_take(answer, (n + 1) * sizeof(*answer->sorted));
    if (has_drawn_ids)
        answer->drawn_ids = cached_answer_take(answer, (n + 1) * sizeof(*answer->drawn_ids));
    if (answer->blocks == NULL || answer->sorted == NULL || (has_drawn_ids && answer->drawn_ids == NULL))
        return E_NOMEM;
    answer->n_blocks = n;
    for (size_t i = 0; i < n && !in->reader.is_bad && !in->has_no_memory; i++) {
        struct gen_block *block = &answer->blocks[i];
        struct bytes drawn;

        block->kind = (enum gen_block_kind)read_u8(&in->reader);
        block->text = answer_image_take(in);
        block->id = answer_image_take(in);
        block->name = answer_image_take(in);
        block->input = answer_image_take(in);
        answer->sorted[i] = answer_image_take(in);
        drawn = answer_image_take(in);
        if (has_drawn_ids)
            answer->drawn_ids[i] = drawn;
        if (block->kind != GEN_TEXT && block->kind != GEN_TOOL_USE)
            return E_FORMAT;
    }
    return 0;
}

static int answer_image_ids(struct answer_reader *in, uint32_t vocab_size)
{
    struct cached_answer *answer = in->answer;

    if (answer->n_ids > (in->reader.len_bytes - in->reader.at_bytes) / 4)
        return E_TRUNCATED;
    if (answer->n_opening > answer->n_ids)
        return E_FORMAT;
    answer->ids = cached_answer_take(answer, ((size_t)answer->n_ids + 1) * sizeof(*answer->ids));
    if (answer->ids == NULL)
        return E_NOMEM;
    for (uint32_t i = 0; i < answer->n_ids; i++) {
        answer->ids[i] = read_u32(&in->reader);
        if (answer->ids[i] >= vocab_size)
            return E_FORMAT;
    }
    return 0;
}

static int answer_image_read(struct answer_reader *in, uint32_t vocab_size)
{
    struct cached_answer *answer = in->answer;
    uint8_t version = read_u8(&in->reader), flags;
    size_t n_blocks;
    int rc;

    answer->base_tokens = read_u32(&in->reader);
    answer->base_sum = read_u64(&in->reader);
    answer->n_opening = read_u32(&in->reader);
    answer->n_ids = read_u32(&in->reader);
    n_blocks = read_u32(&in->reader);
    flags = read_u8(&in->reader);
    if (in->reader.is_bad)
        return E_TRUNCATED;
    if (version != ANSWER_IMAGE_VERSION)
        return E_VERSION;
    rc = answer_image_ids(in, vocab_size);
    if (rc == 0 &&
        (n_blocks == 0 || n_blocks > (in->reader.len_bytes - in->reader.at_bytes) / ANSWER_BLOCK_BYTES))
        rc = E_TRUNCATED;
    if (rc < 0)
        return rc;
    answer->has_thinking = (flags & ANSWER_HAS_THINKING) != 0;
    answer->rest = answer_image_take(in);
    answer->thinking = answer_image_take(in);
    rc = answer_image_blocks(in, n_blocks, (flags & ANSWER_HAS_DRAWN_IDS) != 0);
    return rc < 0 ? rc : in->reader.is_bad ? E_TRUNCATED : in->has_no_memory ? E_NOMEM : 0;
}

int answer_image_parse(struct bytes image, uint32_t vocab_size, struct cached_answer **out)
{
    struct answer_reader in = {.reader = reader_of(image)};
    int rc = cached_answer_new(&in.answer);

    if (rc < 0)
        return rc;
    rc = answer_image_read(&in, vocab_size);
    if (rc < 0)
        cached_answer_unref(in.answer);
    else
        *out = in.answer;
    return rc;
}
