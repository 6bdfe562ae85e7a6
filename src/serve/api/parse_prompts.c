/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies with raw prompts instead of conversations: /v1/completions, /v1/embeddings, /tokenize, /detokenize.
 *
 *     "text"   ["text", "text"]   [1, 2, 3]   [[1, 2], [3]]
 *
 * A prompt of token ids is used unchanged.  The code that knows the model checks whether the ids exist. */
#include "serve/api/parse_priv.h"
#include "base/err.h"

#define MAX_PROMPTS 128
#define MAX_INPUTS  2048 /* OpenAI's own limit */
#define MAX_DIMS    65536

/* Parses a list of integers that can be token ids. */
static int parse_ids(struct parse *parse, const json_t *list, struct gen_prompt *out)
{
    size_t n = json_array_size(list);

    out->tokens = arena_take(&parse->out->arena, (n + 1) * sizeof(*out->tokens));
    if (out->tokens == NULL)
        return parse_no_memory(parse);
    for (size_t i = 0; i < n; i++) {
        int64_t id;

        if (!api_json_integer(json_array_get(list, i), &id) || id < 0 || id >= UINT32_MAX) {
            parse_push_index(parse, i);
            return parse_fail(parse, NULL, "Input should be a token id");
        }
        out->tokens[i] = (uint32_t)id;
    }
    out->n_tokens = n;
    return 0;
}

static int parse_one(struct parse *parse, const json_t *item, struct gen_prompt *out)
{
    if (json_is_string(item))
        return parse_copy(parse, api_json_str(item), &out->text);
    if (!json_is_array(item))
        return parse_fail(parse, NULL, "Input should be a valid string or a list of token ids");
    return parse_ids(parse, item, out);
}

static int take_prompts(struct parse *parse, size_t n)
{
    parse->out->prompts = arena_take(&parse->out->arena, n * sizeof(struct gen_prompt));
    parse->out->n_prompts = n;
    return parse->out->prompts == NULL ? parse_no_memory(parse) : 0;
}

static int parse_prompts(struct parse *parse, const json_t *root, const char *name, size_t most)
{
    const json_t *prompt = parse_member(root, name);
    size_t n = json_array_size(prompt);
    int rc;

    if (prompt == NULL)
        return parse_fail(parse, name, "Field required");
    parse_push(parse, name);
    if (json_is_array(prompt) && n == 0)
        return parse_fail(parse, NULL, "List should have at least 1 item");
    if (!json_is_array(prompt) || json_is_number(json_array_get(prompt, 0))) {
        rc = take_prompts(parse, 1);
        if (rc == 0)
            rc = parse_one(parse, prompt, &parse->out->prompts[0]);
        if (rc == 0)
            parse_pop(parse, 0);
        return rc;
    }
    if (n > most)
        return parse_fail(parse, NULL, "List should have at most %zu items", most);
    rc = take_prompts(parse, n);
    for (size_t i = 0; i < n && rc == 0; i++) {
        size_t was = parse_push_index(parse, i);

        rc = parse_one(parse, json_array_get(prompt, i), &parse->out->prompts[i]);
        if (rc == 0)
            parse_pop(parse, was);
    }
    if (rc == 0)
        parse_pop(parse, 0);
    return rc;
}

int parse_completions(struct parse *parse, const json_t *root)
{
    struct gen_request *out = parse->out;
    struct bytes suffix = {0};
    int rc;

    out->adds_special = true;
    if ((rc = parse_model(parse, root)) < 0 || (rc = parse_prompts(parse, root, "prompt", MAX_PROMPTS)) < 0 ||
        (rc = parse_bool(parse, root, "add_special_tokens", &out->adds_special)) < 0 ||
        (rc = parse_bool(parse, root, "echo", &out->echoes)) < 0 ||
        (rc = parse_string(parse, root, "suffix", false, &suffix)) < 0 ||
        (rc = parse_openai_fields(parse, root)) < 0)
        return rc;
    if (suffix.len_bytes > 0)
        return parse_fail(parse, "suffix", "text is not filled in by this server, only continued");
    return 0;
}

static int parse_encoding(struct parse *parse, const json_t *root)
{
    struct bytes format = bytes_str("float");
    int rc = parse_string(parse, root, "encoding_format", false, &format);

    if (rc < 0)
        return rc;
    parse->out->embedding_is_base64 = bytes_is(format, "base64");
    if (!parse->out->embedding_is_base64 && !bytes_is(format, "float"))
        return parse_fail(parse, "encoding_format", "Input should be 'float' or 'base64'");
    return 0;
}

/* An embedding is computed like a prompt with an answer of one token, which is dropped. */
int parse_embeddings(struct parse *parse, const json_t *root)
{
    struct gen_request *out = parse->out;
    int64_t dims = 0;
    bool has_dims;
    int rc;

    out->adds_special = true;
    out->work.wants_embedding = out->work.ignores_end = true;
    out->work.max_new_tokens = 1;
    if ((rc = parse_model(parse, root)) < 0 || (rc = parse_prompts(parse, root, "input", MAX_INPUTS)) < 0 ||
        (rc = parse_encoding(parse, root)) < 0 ||
        (rc = parse_bool(parse, root, "add_special_tokens", &out->adds_special)) < 0 ||
        (rc = parse_cache_salt(parse, root)) < 0 ||
        (rc = parse_integer(parse, root, "dimensions", &dims, &has_dims)) < 0)
        return rc;
    if (has_dims && (dims < 1 || dims > MAX_DIMS))
        return parse_fail(parse, "dimensions", "Input should be between 1 and %d", MAX_DIMS);
    out->embedding_dims = (uint32_t)dims;
    return 0;
}

/* `prompt` is tokenised as the start of a prompt; `content` as any piece of text. */
int parse_tokenize(struct parse *parse, const json_t *root)
{
    struct gen_request *out = parse->out;
    const char *name = parse_member(root, "prompt") != NULL ? "prompt" : "content";
    struct bytes text = {0};
    int rc;

    if ((rc = parse_string(parse, root, "model", false, &out->model)) < 0)
        return rc;
    out->adds_special = name[0] == 'p';
    if ((rc = parse_bool(parse, root, "add_special", &out->adds_special)) < 0 ||
        (rc = parse_bool(parse, root, "add_special_tokens", &out->adds_special)) < 0)
        return rc;
    if (parse_member(root, "messages") != NULL)
        return parse_chat_prompt(parse, root);
    if (parse_member(root, name) == NULL)
        return parse_fail(parse, "prompt", "Field required (or content, or messages)");
    if ((rc = parse_string(parse, root, name, true, &text)) < 0 || (rc = take_prompts(parse, 1)) < 0)
        return rc;
    out->prompts[0].text = text;
    return 0;
}

int parse_detokenize(struct parse *parse, const json_t *root)
{
    const json_t *tokens = parse_member(root, "tokens");
    int rc = parse_string(parse, root, "model", false, &parse->out->model);

    if (rc < 0)
        return rc;
    if (tokens == NULL)
        return parse_fail(parse, "tokens", "Field required");
    if (!json_is_array(tokens))
        return parse_fail(parse, "tokens", "Input should be a valid list");
    if ((rc = take_prompts(parse, 1)) < 0)
        return rc;
    parse_push(parse, "tokens");
    rc = parse_ids(parse, tokens, &parse->out->prompts[0]);
    if (rc == 0)
        parse_pop(parse, 0);
    return rc;
}
