/* SPDX-License-Identifier: Apache-2.0 */
/* The model of random conversations: the bundled vocabulary with the markers of other families after it, and
 * the template of one family, if available. */
#include "tests/unit/serve/conversation/replay_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "gguf/write.h"
#include "tests/unit/check.h"

static const char *const more_markers[] = {"<s>",
                                           "</s>",
                                           "<|begin_of_text|>",
                                           "<|start_header_id|>",
                                           "<|end_header_id|>",
                                           "<|eot_id|>",
                                           "[INST]",
                                           "[/INST]",
                                           "[AVAILABLE_TOOLS]",
                                           "[/AVAILABLE_TOOLS]",
                                           "[TOOL_CALLS]",
                                           "[TOOL_RESULTS]",
                                           "[/TOOL_RESULTS]",
                                           "<think>",
                                           "</think>",
                                           "<|im_system|>",
                                           "<|im_user|>",
                                           "<|im_assistant|>",
                                           "<|im_middle|>",
                                           "<|tool_calls_section_begin|>",
                                           "<|tool_calls_section_end|>",
                                           "<|tool_call_begin|>",
                                           "<|tool_call_argument_begin|>",
                                           "<|tool_call_end|>",
                                           "<|START_ACTION|>",
                                           "<|END_ACTION|>",
                                           "<|START_RESPONSE|>",
                                           "<|END_RESPONSE|>",
                                           "]~b]",
                                           "<minimax:tool_call>",
                                           "</minimax:tool_call>",
                                           "<|turn>",
                                           "<turn|>",
                                           "<|tool_call>",
                                           "<tool_call|>",
                                           "<|tool_response>",
                                           "<tool_response|>",
                                           "<|\"|>",
                                           "<|begin|>",
                                           "<|content|>",
                                           "<|tool_calls|>",
                                           "<|tool_call:begin|>",
                                           "<|tool_call:name|>",
                                           "<|tool_call:args|>",
                                           "<|tool_call:end|>",
                                           "<|open|>",
                                           "<|close|>",
                                           "<|sep|>",
                                           "]<]minimax[>[",
                                           "</mm:think>"};

/* Turns, calls and results as Kimi's template writes them. */
static const char kimi_template[] =
    "{% if tools %}<|im_system|>tool_declare<|im_middle|>{{ tools|tojson }}<|im_end|>{% endif %}"
    "{% for m in messages %}"
    "{% if m.role == 'user' %}<|im_user|>{% elif m.role == 'assistant' %}<|im_assistant|>{% else "
    "%}<|im_system|>"
    "{% endif %}{{ m.role }}<|im_middle|>"
    "{% if m.role == 'tool' %}{{ '## Return of ' ~ m.tool_call_id ~ '\n' }}{% endif %}{{ m.content }}"
    "{% if m.tool_calls %}<|tool_calls_section_begin|>{% for c in m.tool_calls %}<|tool_call_begin|>{{ c.id "
    "}}"
    "<|tool_call_argument_begin|>{{ c.function.arguments|tojson }}<|tool_call_end|>{% endfor %}"
    "<|tool_calls_section_end|>{% endif %}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>{% endif %}";

/* Calls and the marks around answers as Cohere's template writes them. */
static const char cohere_template[] =
    "{% if tools %}<|im_start|>system\n{{ tools|tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role ~ '\n' }}"
    "{% if m.tool_calls %}<|START_ACTION|>[{% for c in m.tool_calls %}"
    "{{ '\n    {\"tool_call_id\": \"' ~ loop.index0 ~ '\", \"tool_name\": \"' ~ c.function.name ~ '\", "
    "\"parameters\": ' "
    "}}"
    "{{ c.function.arguments|tojson ~ '}' }}{{ ',' if not loop.last }}{% endfor %}{{ '\n]' }}<|END_ACTION|>"
    "{% elif m.role == 'assistant' %}<|START_RESPONSE|>{{ m.content }}<|END_RESPONSE|>"
    "{% else %}{{ m.content }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/* Likewise MiniMax; the vocabulary ends turns with <|im_end|>. */
static const char minimax_template[] =
    "]~b]system\n{{ tools|tojson if tools }}<|im_end|>\n"
    "{% for m in messages %}"
    "]~b]{{ 'ai' if m.role == 'assistant' else m.role }}\n{{ m.content }}"
    "{% if m.tool_calls %}<minimax:tool_call>\n{% for c in m.tool_calls %}"
    "<invoke name=\"{{ c.function.name }}\">\n"
    "{% for k, v in c.function.arguments|items %}"
    "<parameter name=\"{{ k }}\">{{ v if v is string else v|tojson }}</parameter>\n{% endfor %}"
    "</invoke>\n{% endfor %}</minimax:tool_call>{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}]~b]ai\n{% endif %}";

/* Likewise Gemma 4: results stand in the turn of their calls. */
static const char gemma_template[] =
    "{% macro put(v) %}{% if v is string %}<|\"|>{{ v }}<|\"|>"
    "{% elif v is boolean %}{{ 'true' if v else 'false' }}"
    "{% elif v is mapping %}{% raw %}{{% endraw %}{{ pairs(v) }}}"
    "{% elif v is sequence %}[{% for i in v %}{{ put(i) }}{{ ',' if not loop.last }}{% endfor %}]"
    "{% else %}{{ v }}{% endif %}{% endmacro %}"
    "{% macro pairs(d) %}{% for k, v in d|dictsort %}{{ k }}:{{ put(v) }}{{ ',' if not loop.last }}"
    "{% endfor %}{% endmacro %}"
    "<|turn>system\n{{ tools|tojson if tools }}<turn|>\n"
    "{% set ns = namespace(is_open=false) %}{% for m in messages %}"
    "{% if m.role == 'tool' %}<|tool_response>response:{{ m.name }}{{ '{' }}value:{{ put(m.content) }}}"
    "<tool_response|>{% set ns.is_open = true %}"
    "{% else %}{% if not (ns.is_open and m.role == 'assistant') %}{{ '<turn|>\n' if ns.is_open }}"
    "<|turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{% endif %}"
    "{% set ns.is_open = false %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<|tool_call>call:{{ c.function.name }}{{ '{' }}"
    "{{ pairs(c.function.arguments) }}}<tool_call|>{% endfor %}"
    "{{ '<turn|>\n' if not m.tool_calls }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt and not ns.is_open %}<|turn>model\n{% endif %}";

/* Likewise Solar Open: an answer is text or calls, and both have the ids of calls. */
static const char solar_template[] =
    "{% if tools %}<|begin|>system<|content|>{{ tools|tojson }}<|im_end|>{% endif %}{% for m in messages %}"
    "<|begin|>{{ m.role }}{% if m.tool_calls %}<|tool_calls|>{% for c in m.tool_calls %}"
    "<|tool_call:begin|>{{ c.id }}<|tool_call:name|>{{ c.function.name }}<|tool_call:args|>"
    "{{ c.function.arguments|tojson }}<|tool_call:end|>{% endfor %}"
    "{% else %}<|content|>{{ '## Result of ' ~ m.tool_call_id ~ '\n' if m.role == 'tool' }}{{ m.content }}"
    "{% endif %}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|begin|>assistant{% endif %}";

/* Likewise Functionary 3.2: the prompt ends with the mark before a recipient. */
static const char functionary_template[] =
    "<|im_start|>system\n{{ tools|tojson if tools }}<|im_end|>\n{% for m in messages %}"
    "<|im_start|>{{ m.role }}\n{% if m.role != 'assistant' %}{{ m.content }}"
    "{% else %}{% if m.content %}{{ '>>>all\n' + m.content }}{% endif %}"
    "{% for c in m.tool_calls or [] %}{{ '>>>' + c.function.name + '\n' + c.function.arguments }}{% endfor %}"
    "{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n>>>{% endif %}";

/* Likewise Kimi K3, without thinking. */
static const char kimi_3_template[] =
    "{% macro begin(tag) %}{{ '<|open|>' + tag + '<|sep|>' }}{% endmacro %}"
    "{% macro end(tag) %}{{ '<|close|>' + tag + '<|sep|>' }}{% endmacro %}"
    "{{ begin('message role=\"system\"') }}{{ tools|tojson if tools }}{{ end('message') }}<|im_end|>"
    "{% for m in messages %}{{ begin('message role=\"' ~ m.role ~ '\"') }}"
    "{% if m.role != 'assistant' %}{{ m.content }}{% else %}"
    "{{ begin('response') }}{{ m.content }}{{ end('response') }}{% if m.tool_calls %}{{ begin('tools') }}"
    "{% for c in m.tool_calls %}"
    "{{ begin('call tool=\"' ~ c.function.name ~ '\" index=\"' ~ loop.index ~ '\"') }}"
    "{% for k, v in c.function.arguments|items %}{{ begin('argument key=\"' ~ k ~ '\" type=\"' ~ "
    "('string' if v is string else 'object' if v is mapping else 'array' if v is sequence else 'number') ~ "
    "'\"') }}"
    "{{ v if v is string else v|tojson }}{{ end('argument') }}{% endfor %}{{ end('call') }}{% endfor %}"
    "{{ end('tools') }}{% endif %}{% endif %}{{ end('message') }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}{{ begin('message role=\"assistant\"') }}{{ begin('response') }}{% endif "
    "%}";

/* Likewise MiniMax M3, without thinking. */
static const char minimax_3_template[] =
    "{% set M = ']<]minimax[>[' %}"
    "{% macro put(v) %}{% if v is mapping %}{% for k, i in v.items() %}{{ M }}<{{ k }}>{{ put(i) }}{{ M "
    "}}</{{ k }}>"
    "{% endfor %}{% elif v is iterable and v is not string %}{% for i in v %}{{ M }}<item>{{ put(i) }}{{ M "
    "}}</item>"
    "{% endfor %}{% elif v is boolean %}{{ v|tojson }}{% else %}{{ v }}{% endif %}{% endmacro %}"
    "]~b]system\n{{ tools|tojson if tools }}<|im_end|>\n{% for m in messages %}"
    "]~b]{{ 'ai' if m.role == 'assistant' else m.role }}\n{{ '</mm:think>' if m.role == 'assistant' }}"
    "{{ m.content }}{% if m.tool_calls %}{{ M ~ '<tool_call>\n' }}{% for c in m.tool_calls %}"
    "{{ M ~ '<invoke name=\"' ~ c.function.name ~ '\">' }}{{ put(c.function.arguments) }}{{ M ~ "
    "'</invoke>\n' }}"
    "{% endfor %}{{ M ~ '</tool_call>' }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}]~b]ai\n{% endif %}";

static const struct {
    const char *name, *source;
} own_templates[] = {{"kimi", kimi_template},     {"minimax", minimax_template},
                     {"gemma", gemma_template},   {"cohere", cohere_template},
                     {"solar", solar_template},   {"functionary", functionary_template},
                     {"kimi-3", kimi_3_template}, {"minimax-3", minimax_3_template}};

static bool find_own(const char *name, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(own_templates); i++)
        if (strcmp(own_templates[i].name, name) == 0)
            return buf_append_str(out, own_templates[i].source) == 0;
    return false;
}

static char *source_path(const char *name)
{
    const char *source = getenv("srcdir");
    struct buf path = {0};

    buf_printf(&path, "%s/%s", source == NULL ? "." : source, name);
    return buf_take_str(&path);
}

static bool read_file(const char *name, struct buf *out)
{
    const char *folder = getenv("BATON_DATA");
    struct buf below = {0};
    char *path, piece[4096];
    size_t n;

    if (folder != NULL)
        buf_printf(&below, "%s/templates/%s.jinja", folder, name);
    buf_printf(&below, "%s", "");
    path = folder != NULL ? buf_take_str(&below) : NULL;
    if (path == NULL) {
        buf_fini(&below);
        buf_printf(&below, "../shared/data/templates/%s.jinja", name);
        path = source_path((char *)below.data);
    }
    buf_fini(&below);
    FILE *file = fopen(path, "rbe");
    free(path);
    if (file == NULL)
        return false;
    while ((n = fread(piece, 1, sizeof(piece), file)) > 0)
        assert_int_equal(buf_append(out, piece, n), 0);
    fclose(file);
    return true;
}

/* Writes the file's own vocabulary, then more markers. */
static void put_tokens(struct gguf_writer *writer, const struct gguf *gguf)
{
    enum gguf_kind kind;
    uint64_t n, n_all;
    struct bytes *tokens;
    int32_t *types;

    assert_int_equal(gguf_array_len(gguf, "tokenizer.ggml.tokens", &kind, &n), 0);
    n_all = n + ARRAY_LEN(more_markers);
    tokens = calloc(n_all, sizeof(*tokens));
    types = calloc(n_all, sizeof(*types));
    assert_non_null(tokens);
    assert_non_null(types);
    for (uint64_t i = 0; i < n_all; i++) {
        int64_t type = 3;

        tokens[i] = i < n ? (struct bytes){0} : bytes_str(more_markers[i - n]);
        if (i < n) {
            assert_int_equal(gguf_array_str(gguf, "tokenizer.ggml.tokens", i, &tokens[i]), 0);
            assert_int_equal(gguf_array_i64(gguf, "tokenizer.ggml.token_type", i, &type), 0);
        }
        types[i] = (int32_t)type;
    }
    assert_int_equal(gguf_put_str_array(writer, "tokenizer.ggml.tokens", tokens, n_all), 0);
    assert_int_equal(gguf_put_i32_array(writer, "tokenizer.ggml.token_type", types, n_all), 0);
    assert_int_equal(gguf_put_u32(writer, "tokenizer.ggml.bos_token_id", (uint32_t)n), 0);
    free(tokens);
    free(types);
}

bool rig_model_open(const char *template_name, struct rig_model *model)
{
    struct buf chat_template = {0}, image = {0};
    struct gguf_writer *writer;
    struct fault fault = {0};
    struct gguf *gguf;
    char *path;

    memset(model, 0, sizeof(*model));
    str_copy(model->name, sizeof(model->name), template_name == NULL ? "bundled" : template_name);
    if (template_name != NULL && !find_own(template_name, &chat_template) &&
        !read_file(template_name, &chat_template))
        return false;
    path = source_path("share/baton-demo.gguf");
    assert_int_equal(gguf_open(path, &fault, &gguf), 0);
    free(path);
    assert_int_equal(gguf_writer_new(&writer), 0);
    put_tokens(writer, gguf);
    if (template_name != NULL)
        assert_int_equal(gguf_put_str(writer, "tokenizer.chat_template", buf_view(&chat_template)), 0);
    if (template_name != NULL && strcmp(template_name, "mistral-nemo") == 0) {
        enum gguf_kind kind;
        uint64_t n;

        assert_int_equal(gguf_array_len(gguf, "tokenizer.ggml.tokens", &kind, &n), 0);
        assert_int_equal(gguf_put_u32(writer, "tokenizer.ggml.eos_token_id", (uint32_t)n + 1), 0);
    }
    assert_int_equal(gguf_put_keys_of(writer, gguf, "tokenizer."), 0);
    assert_int_equal(gguf_writer_header(writer, &image), 0);
    if (tokenizer_new_from_image(buf_view(&image), &fault, &model->gen.tokenizer) != 0 ||
        chat_format_new(model->gen.tokenizer, &fault, &model->gen.chat) != 0)
        fail_msg("%s: %s", model->name, fault.text);
    gguf_writer_free(writer);
    gguf_close(gguf);
    buf_fini(&image);
    buf_fini(&chat_template);
    str_copy(model->gen.fingerprint, sizeof(model->gen.fingerprint), "f00d");
    model->gen.context_length = 1 << 20;
    model->gen.block_tokens = 32;
    return true;
}

void rig_model_close(struct rig_model *model)
{
    chat_format_free(model->gen.chat);
    tokenizer_unref(model->gen.tokenizer);
}
