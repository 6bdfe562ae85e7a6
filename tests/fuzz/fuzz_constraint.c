/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the constraint of a client's request, for a model of any family.
 *
 * The first byte chooses the family and whether the prompt opens the thinking; the rest is a request's body.
 * The result is none, a 400, or a constraint that compiles for the model's vocabulary (or is refused for its
 * size or a schema, never for its form). */
#include <string.h>

#include "text/json/json.h"
#include "serve/api/parse.h"
#include "base/check.h"
#include "base/err.h"
#include "serve/prompt/constraint.h"
#include "text/grammar/grammar.h"
#include "tests/unit/serve/endpoint/sim_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TURNS        "{% for m in messages %}{{ m.content }}{{ m.tool_calls|string if m.tool_calls }}{% endfor %}"
#define FAMILY(mark) "{# <think> " mark " #}{{ tools|string if tools }}" TURNS
#define DEEPSEEK                                                                                             \
    "<\xef\xbd\x9ctool\xe2\x96\x81"                                                                          \
    "calls\xe2\x96\x81"                                                                                      \
    "begin\xef\xbd\x9c>"

static const char *const sources[] = {FAMILY("<tool_call>"),
                                      FAMILY("<tool_call><function="),
                                      FAMILY("<tool_call><arg_key>"),
                                      FAMILY("[TOOL_CALLS]"),
                                      FAMILY("[TOOL_CALLS][ARGS]"),
                                      FAMILY(DEEPSEEK "```json"),
                                      FAMILY(DEEPSEEK),
                                      FAMILY("<|start|><|channel|><|message|><|constrain|><|end|><|call|>"),
                                      FAMILY("<|python_tag|>"),
                                      "{% for m in messages %}{{ m.content }}{% endfor %}"};
#define N_FAMILIES ARRAY_LEN(sources)

static struct gen_model models[N_FAMILIES];
static struct grammar_vocab *vocabs[N_FAMILIES];

static void try_constraint(size_t family, const struct gen_request *request, bool begins_thinking)
{
    struct api_error error = {0};
    struct fault fault = {0};
    struct grammar *grammar = NULL;
    struct buf constraint = {0};
    int rc = constraint_make(&models[family], request, begins_thinking, &constraint, &error);

    if (rc < 0) {
        ASSERT(error.status == 400 && error.message[0] != '\0');
    } else if (constraint.len_bytes > 0) {
        rc = grammar_new(vocabs[family], buf_view(&constraint), &fault, &grammar);
        ASSERT(rc == 0 || rc == E_LIMIT || rc == E_UNSUPPORTED || strncmp(fault.text, "constraint:", 6) != 0);
    }
    grammar_unref(grammar);
    buf_fini(&constraint);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gen_request request;
    struct api_error error = {0};
    size_t family;

    if (size == 0)
        return 0;
    family = (data[0] & 127) % N_FAMILIES;
    if (models[family].chat == NULL) {
        ASSERT(sim_model_open_with(sources[family], 4096, &models[family]) == 0);
        ASSERT(grammar_vocab_new(models[family].tokenizer, &vocabs[family]) == 0);
    }
    if (api_parse_request(bytes_of(data + 1, size - 1), API_MESSAGES, &request, &error) < 0)
        return 0;
    try_constraint(family, &request, data[0] >= 128);
    gen_request_fini(&request);
    return 0;
}
