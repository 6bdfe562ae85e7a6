/* SPDX-License-Identifier: Apache-2.0 */
/* One token per byte, plus the control tokens of ChatML and those that the template names.  So every
 * character beyond ASCII has several tokens, which tests streaming. */
#include "sim_model.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/str.h"
#include "gguf/write.h"
#include "tests/unit/text/token/chat_templates.h"

#define N_SPECIALS   5 /* these always exist; the others if the template has them */
#define MAX_TOKENS   (256 + 64)
#define CONTROL      3
#define USER_DEFINED 4

static const struct {
    const char *spelling;
    int32_t type;
} specials[] = {{"<|im_start|>", CONTROL},
                {"<|im_end|>", CONTROL},
                {"<|endoftext|>", CONTROL},
                {"<tool_call>", USER_DEFINED},
                {"</tool_call>", USER_DEFINED},
                {"<|start|>", CONTROL},
                {"<|channel|>", CONTROL},
                {"<|message|>", CONTROL},
                {"<|constrain|>", CONTROL},
                {"<|end|>", CONTROL},
                {"<|call|>", CONTROL},
                {"[TOOL_CALLS]", CONTROL},
                {"[ARGS]", CONTROL},
                {"<|python_tag|>", CONTROL},
                {"<minimax:tool_call>", CONTROL},
                {"</minimax:tool_call>", CONTROL},
                {"<seed:tool_call>", CONTROL},
                {"</seed:tool_call>", CONTROL},
                {"<|tool_call>", CONTROL},
                {"<tool_call|>", CONTROL},
                {"<|\"|>", CONTROL},
                {"<tool_sep>", CONTROL},
                {"<arg_key>", CONTROL},
                {"</arg_key>", CONTROL},
                {"<arg_value>", CONTROL},
                {"</arg_value>", CONTROL},
                {"<tool_calls:opensource>", CONTROL},
                {"</tool_calls:opensource>", CONTROL},
                {"<tool_call:opensource>", CONTROL},
                {"</tool_call:opensource>", CONTROL},
                {"<tool_sep:opensource>", CONTROL},
                {"<arg_key:opensource>", CONTROL},
                {"</arg_key:opensource>", CONTROL},
                {"<arg_value:opensource>", CONTROL},
                {"</arg_value:opensource>", CONTROL},
                {"\xef\xbd\x9c"
                 "DSML\xef\xbd\x9c",
                 CONTROL}};

/* Returns the printable character for a byte in byte-level vocabularies. */
static struct bytes spell_byte(unsigned byte, uint8_t room[4])
{
    uint32_t next = 0x100;

    for (unsigned b = 0; b < 256; b++) {
        bool is_plain = (b > 0x20 && b < 0x7f) || (b > 0xa0 && b != 0xad);
        uint32_t code = is_plain ? b : next++;

        if (b == byte)
            return bytes_of(room, utf8_put(code, room));
    }
    return bytes_of(room, 0);
}

static int write_image(const char *chat_template, struct buf *out)
{
    struct bytes spellings[MAX_TOKENS];
    int32_t types[MAX_TOKENS];
    uint8_t rooms[256][4];
    uint32_t n = 256;
    struct gguf_writer *writer;
    int rc = gguf_writer_new(&writer);

    if (rc < 0)
        return rc;
    for (unsigned i = 0; i < 256; i++) {
        spellings[i] = spell_byte(i, rooms[i]);
        types[i] = 1;
    }
    for (unsigned i = 0; i < ARRAY_LEN(specials); i++) {
        if (i >= N_SPECIALS && strstr(chat_template, specials[i].spelling) == NULL)
            continue;
        spellings[n] = bytes_str(specials[i].spelling);
        types[n++] = specials[i].type;
    }
    if ((rc = gguf_put_str(writer, "tokenizer.ggml.model", bytes_str("gpt2"))) == 0 &&
        (rc = gguf_put_str(writer, "tokenizer.ggml.pre", bytes_str("qwen2"))) == 0 &&
        (rc = gguf_put_str_array(writer, "tokenizer.ggml.tokens", spellings, n)) == 0 &&
        (rc = gguf_put_i32_array(writer, "tokenizer.ggml.token_type", types, n)) == 0 &&
        (rc = gguf_put_str_array(writer, "tokenizer.ggml.merges", spellings, 0)) == 0 &&
        (rc = gguf_put_u32(writer, "tokenizer.ggml.eos_token_id", 257)) == 0 &&
        (rc = gguf_put_str(writer, "tokenizer.chat_template", bytes_str(chat_template))) == 0)
        rc = gguf_writer_header(writer, out);
    gguf_writer_free(writer);
    return rc;
}

int sim_model_open(uint32_t context_length, struct gen_model *out)
{
    return sim_model_open_with(hermes_template, context_length, out);
}

int sim_model_open_with(const char *chat_template, uint32_t context_length, struct gen_model *out)
{
    struct fault fault = {0};
    struct buf image = {0};
    int rc = write_image(chat_template, &image);

    memset(out, 0, sizeof(*out));
    if (rc == 0)
        rc = tokenizer_new_from_image(buf_view(&image), &fault, &out->tokenizer);
    if (rc == 0)
        rc = chat_format_new(out->tokenizer, &fault, &out->chat);
    buf_fini(&image);
    if (rc < 0) {
        fprintf(stderr, "sim_model: %s: %s\n", err_name(rc), fault.text);
        sim_model_close(out);
        return rc;
    }
    str_copy(out->name, sizeof(out->name), "sim");
    out->context_length = context_length;
    out->block_tokens = 32;
    out->created_unix_s = 1767225600;
    return 0;
}

void sim_model_close(struct gen_model *model)
{
    chat_format_free(model->chat);
    tokenizer_unref(model->tokenizer);
    memset(model, 0, sizeof(*model));
}
