/* SPDX-License-Identifier: Apache-2.0 */
/* The fields that OpenAI's routes share: sampling, limits, stops, response format, stream.
 *
 * Numbers must be in the ranges that the API documents.  The extensions of other servers (top_k, min_p,
 * min_tokens, repetition_penalty, chat_template_kwargs.enable_thinking) must be in ranges that make sense.  An absent
 * limit means "up to the context" in a chat and 16 tokens in a completion. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/api/parse_priv.h"
#include "base/err.h"
#include "base/str.h"

#define MAX_CHOICES    128
#define MAX_STOPS      4
#define MAX_TOP_TEXT   5
#define DEFAULT_TOKENS 16

/* ---- numbers ---- */

static int parse_ranged(struct parse *parse, const json_t *root, const char *name, double range[2],
                        double *out)
{
    double value = *out;
    int rc = parse_number(parse, root, name, &value);

    if (rc < 0)
        return rc;
    if (parse_member(root, name) != NULL && !(value >= range[0] && value <= range[1]))
        return parse_fail(parse, name, "Input should be between %g and %g", range[0], range[1]);
    *out = value;
    return 0;
}

static int parse_openai_read_sampling(struct parse *parse, const json_t *root)
{
    struct sample_opts *sample = &parse->out->work.sample;
    double temperature = (double)NAN, top_p = 1, min_p = 0;
    double frequency = 0, presence = 0, repetition = 0;
    int64_t top_k = 0;
    int64_t seed = 0;
    int rc;

    if ((rc = parse_ranged(parse, root, "temperature", (double[]){0, 2}, &temperature)) < 0 ||
        (rc = parse_ranged(parse, root, "top_p", (double[]){0, 1}, &top_p)) < 0 ||
        (rc = parse_ranged(parse, root, "min_p", (double[]){0, 1}, &min_p)) < 0 ||
        (rc = parse_ranged(parse, root, "frequency_penalty", (double[]){-2, 2}, &frequency)) < 0 ||
        (rc = parse_ranged(parse, root, "presence_penalty", (double[]){-2, 2}, &presence)) < 0 ||
        (rc = parse_ranged(parse, root, "repetition_penalty", (double[]){0.01, 100}, &repetition)) < 0 ||
        (rc = parse_integer(parse, root, "top_k", &top_k, NULL)) < 0 ||
        (rc = parse_integer(parse, root, "seed", &seed, &parse->out->has_seed)) < 0 ||
        (rc = parse_bool(parse, root, "ignore_eos", &parse->out->work.ignores_end)) < 0 ||
        (rc = parse_common_fields(parse, root)) < 0)
        return rc;
    if (top_k < -1) /* -1: off, as other servers spell it */
        return parse_fail(parse, "top_k", "Input should be greater than or equal to -1");
    sample->temperature = (float)temperature;
    sample->top_p = (float)top_p;
    sample->min_p = (float)min_p;
    sample->top_k = top_k < 0 ? 0 : top_k > UINT32_MAX ? UINT32_MAX : (uint32_t)top_k;
    sample->seed = (uint64_t)seed;
    sample->frequency_penalty = (float)frequency;
    sample->presence_penalty = (float)presence;
    sample->repetition_penalty = (float)repetition;
    return 0;
}

static int compare_bias(const void *a, const void *b)
{
    const struct sample_bias *x = a;
    const struct sample_bias *y = b;

    return (x->id > y->id) - (x->id < y->id);
}

static int parse_bias(struct parse *parse, const json_t *root)
{
    json_t *object = parse_member(root, "logit_bias");
    struct sample_opts *sample = &parse->out->work.sample;
    struct sample_bias *list;
    const char *key;
    json_t *value;
    uint32_t n = 0;

    if (object == NULL)
        return 0;
    if (!json_is_object(object))
        return parse_fail(parse, "logit_bias", "Input should be an object");
    if (json_object_size(object) > SAMPLE_MAX_BIAS)
        return parse_fail(parse, "logit_bias", "at most %d tokens may be biased", SAMPLE_MAX_BIAS);
    list = arena_take(&parse->out->arena, (json_object_size(object) + 1) * sizeof(*list));
    if (list == NULL)
        return parse_no_memory(parse);
    json_object_foreach(object, key, value)
    {
        double bias = json_number_value(value);
        uint64_t token;

        if (str_to_u64(bytes_str(key), &token) < 0 || token >= UINT32_MAX)
            return parse_fail(parse, "logit_bias", "keys should be token ids");
        if (!json_is_number(value) || !(bias >= -100 && bias <= 100))
            return parse_fail(parse, "logit_bias", "values should be between -100 and 100");
        list[n++] = (struct sample_bias){.id = (uint32_t)token, .bias = (float)bias};
    }
    if (n > 0)
        qsort(list, n, sizeof(*list), compare_bias);
    for (uint32_t i = 1; i < n; i++)
        if (list[i - 1].id == list[i].id)
            return parse_fail(parse, "logit_bias", "token %u is named twice", list[i].id);
    sample->bias = list;
    sample->n_bias = n;
    return 0;
}

/* ---- limits ---- */

static int parse_limit(struct parse *parse, const json_t *root)
{
    bool is_chat = parse->call == API_CHAT;
    const char *name = is_chat && parse_member(root, "max_completion_tokens") != NULL
                           ? "max_completion_tokens"
                           : "max_tokens";
    int64_t limit = 0;
    bool is_given;
    int rc = parse_integer(parse, root, name, &limit, &is_given);

    if (rc < 0)
        return rc;
    if (!is_given)
        limit = is_chat ? UINT32_MAX : DEFAULT_TOKENS;
    if (limit < (is_chat ? 1 : 0))
        return parse_fail(parse, name, "Input should be greater than or equal to %d", is_chat ? 1 : 0);
    parse->out->work.max_new_tokens = limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit;
    return 0;
}

static int parse_count(struct parse *parse, const json_t *root)
{
    int64_t n = 1;
    int64_t best_of = 1;
    bool has_best = false;
    int rc = parse_integer(parse, root, "n", &n, NULL);

    if (rc < 0 || (parse->call == API_COMPLETIONS &&
                   (rc = parse_integer(parse, root, "best_of", &best_of, &has_best)) < 0))
        return rc;
    if (n < 1 || n > MAX_CHOICES)
        return parse_fail(parse, "n", "Input should be between 1 and %d", MAX_CHOICES);
    if (has_best && best_of != n)
        return parse_fail(parse, "best_of", "only the value of n is supported by this server");
    if (parse->out->n_prompts > 1 && (uint64_t)n * parse->out->n_prompts > MAX_CHOICES)
        return parse_fail(parse, "n", "prompts times n should be at most %d", MAX_CHOICES);
    parse->out->n_choices = (uint32_t)n;
    return 0;
}

/* A chat has a boolean `logprobs` and a number `top_logprobs`; a completion has a number `logprobs`. */
static int parse_logprobs(struct parse *parse, const json_t *root)
{
    bool is_chat = parse->call == API_CHAT;
    const char *name = is_chat ? "top_logprobs" : "logprobs";
    int most = is_chat ? SAMPLE_MAX_TOP : MAX_TOP_TEXT;
    struct sample_opts *sample = &parse->out->work.sample;
    int64_t n = 0;
    bool is_given;
    int rc = is_chat ? parse_bool(parse, root, "logprobs", &sample->wants_logprob) : 0;

    if (rc < 0 || (rc = parse_integer(parse, root, name, &n, &is_given)) < 0)
        return rc;
    if (n < 0 || n > most)
        return parse_fail(parse, name, "Input should be between 0 and %d", most);
    if (is_chat && n > 0 && !sample->wants_logprob)
        return parse_fail(parse, name, "may only be used together with logprobs: true");
    if (!is_chat)
        sample->wants_logprob = is_given;
    sample->n_top = (uint32_t)n;
    return 0;
}

/* ---- stops ---- */

static int parse_openai_add_stop(struct parse *parse, const json_t *item, size_t *n_bytes)
{
    struct gen_request *out = parse->out;

    if (!json_is_string(item))
        return parse_fail(parse, NULL, "Input should be a valid string");
    if (json_string_length(item) == 0)
        return parse_fail(parse, NULL, "String should have at least 1 character");
    *n_bytes += json_string_length(item);
    if (*n_bytes > SAMPLE_MAX_STOP_BYTES)
        return parse_fail(parse, NULL, "stop strings should have at most %d bytes together",
                          SAMPLE_MAX_STOP_BYTES);
    return parse_copy(parse, api_json_str(item), &out->stop_sequences[out->n_stop_sequences++]);
}

static int parse_stop(struct parse *parse, const json_t *root)
{
    const json_t *stop = parse_member(root, "stop");
    size_t n_bytes = 0;
    int rc = 0;

    if (stop == NULL)
        return 0;
    if (!json_is_string(stop) && !json_is_array(stop))
        return parse_fail(parse, "stop", "Input should be a valid string or list");
    if (json_array_size(stop) > MAX_STOPS)
        return parse_fail(parse, "stop", "List should have at most %d items", MAX_STOPS);
    parse->out->stop_sequences = arena_take(&parse->out->arena, MAX_STOPS * sizeof(struct bytes));
    if (parse->out->stop_sequences == NULL)
        return parse_no_memory(parse);
    parse_push(parse, "stop");
    if (json_is_string(stop))
        rc = parse_openai_add_stop(parse, stop, &n_bytes);
    for (size_t i = 0; i < json_array_size(stop) && rc == 0; i++) {
        size_t was = parse_push_index(parse, i);

        rc = parse_openai_add_stop(parse, json_array_get(stop, i), &n_bytes);
        if (rc == 0)
            parse_pop(parse, was);
    }
    if (rc == 0)
        parse_pop(parse, 0);
    return rc;
}

/* Compares with the limit of tokens, which is parsed before. */
static int parse_min_tokens(struct parse *parse, const json_t *root)
{
    int64_t min = 0;
    int rc = parse_integer(parse, root, "min_tokens", &min, NULL);

    if (rc < 0)
        return rc;
    if (min < 0)
        return parse_fail(parse, "min_tokens", "Input should be greater than or equal to 0");
    if (min > parse->out->work.max_new_tokens)
        return parse_fail(parse, "min_tokens",
                          "Input should be less than or equal to the limit of tokens, %u",
                          parse->out->work.max_new_tokens);
    parse->out->work.sample.min_tokens = (uint32_t)min;
    return 0;
}

int parse_openai_sampling(struct parse *parse, const json_t *root)
{
    int rc;

    if ((rc = parse_openai_read_sampling(parse, root)) < 0 || (rc = parse_bias(parse, root)) < 0 ||
        (rc = parse_min_tokens(parse, root)) < 0)
        return rc;
    return parse_stop(parse, root);
}

/* ---- response format and thinking ---- */

int parse_json_schema(struct parse *parse, const json_t *described)
{
    const json_t *schema = parse_member(described, "schema");
    struct bytes name = {0};
    int rc;

    if ((rc = parse_string(parse, described, "name", true, &name)) < 0)
        return rc;
    if (schema == NULL)
        return parse_fail(parse, "schema", "Field required");
    if (!json_is_object(schema))
        return parse_fail(parse, "schema", "Input should be an object");
    parse->out->format = GEN_FORMAT_JSON_SCHEMA;
    return parse_serialise(parse, schema, &parse->out->schema);
}

static int parse_wrapped_schema(struct parse *parse, const json_t *format)
{
    const json_t *wrapper = parse_member(format, "json_schema");

    if (!json_is_object(wrapper))
        return parse_fail(parse, "json_schema",
                          wrapper == NULL ? "Field required" : "Input should be an object");
    parse_push(parse, "json_schema");
    return parse_json_schema(parse, wrapper);
}

int parse_answer_format(struct parse *parse, const json_t *format, parse_value_fn *parse_schema)
{
    struct bytes type = {0};
    int rc;

    if (!json_is_object(format))
        return parse_fail(parse, NULL, "Input should be an object");
    if ((rc = parse_string(parse, format, "type", true, &type)) < 0)
        return rc;
    if (bytes_is(type, "json_object"))
        parse->out->format = GEN_FORMAT_JSON;
    else if (bytes_is(type, "json_schema"))
        rc = parse_schema(parse, format);
    else if (!bytes_is(type, "text"))
        rc = parse_fail(parse, "type", "Input should be 'text', 'json_object' or 'json_schema'");
    if (rc == 0)
        parse_pop(parse, 0);
    return rc;
}

static int parse_openai_format(struct parse *parse, const json_t *root)
{
    const json_t *format = parse_member(root, "response_format");

    if (format == NULL)
        return 0;
    parse_push(parse, "response_format");
    return parse_answer_format(parse, format, parse_wrapped_schema);
}

static int parse_reasoning(struct parse *parse, const json_t *root)
{
    const json_t *switches = parse_member(root, "chat_template_kwargs");
    const json_t *is_on = parse_member(switches, "enable_thinking");
    int rc = parse_string(parse, root, "reasoning_effort", false, &parse->out->effort);

    if (rc < 0)
        return rc;
    if (switches != NULL && !json_is_object(switches))
        return parse_fail(parse, "chat_template_kwargs", "Input should be an object");
    if (json_is_boolean(is_on))
        parse->out->thinking = json_is_true(is_on) ? GEN_THINKING_ON : GEN_THINKING_OFF;
    if (bytes_is(parse->out->effort, "none")) {
        parse->out->thinking = GEN_THINKING_OFF;
        parse->out->effort = bytes_of(NULL, 0);
    }
    return 0;
}

/* Refuses fields that would promise another kind of answer. */
static int check_modalities(struct parse *parse, const json_t *root)
{
    const json_t *list = parse_member(root, "modalities");

    if (list != NULL && !json_is_array(list))
        return parse_fail(parse, "modalities", "Input should be a valid list");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!bytes_is(api_json_str(json_array_get(list, i)), "text"))
            return parse_fail(parse, "modalities", "only 'text' is answered by this server");
    if (parse_member(root, "audio") != NULL)
        return parse_fail(parse, "audio", "audio is not answered by this server");
    if (parse_member(root, "web_search_options") != NULL)
        return parse_fail(parse, "web_search_options", "the web is not searched by this server");
    return 0;
}

/* ---- the whole ---- */

int parse_openai_fields(struct parse *parse, const json_t *root)
{
    const json_t *options = parse_member(root, "stream_options");
    int rc;

    if ((rc = parse_bool(parse, root, "stream", &parse->out->is_stream)) < 0 ||
        (rc = parse_limit(parse, root)) < 0 || (rc = parse_count(parse, root)) < 0 ||
        (rc = parse_openai_sampling(parse, root)) < 0 || (rc = parse_logprobs(parse, root)) < 0)
        return rc;
    if ((rc = parse_openai_format(parse, root)) < 0 ||
        (parse->call == API_CHAT &&
         ((rc = parse_reasoning(parse, root)) < 0 || (rc = check_modalities(parse, root)) < 0)))
        return rc;
    if (options == NULL)
        return 0;
    if (!json_is_object(options))
        return parse_fail(parse, "stream_options", "Input should be an object");
    parse_push(parse, "stream_options");
    rc = parse_bool(parse, options, "include_usage", &parse->out->wants_usage);
    if (rc == 0)
        parse_pop(parse, 0);
    return rc;
}
