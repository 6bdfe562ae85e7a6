/* SPDX-License-Identifier: Apache-2.0 */
/* Draws random answers under grammars, for test_grammar_answers.py.
 *
 *     draw_answers [VOCABULARY.gguf]      default: a small vocabulary
 *
 * A line in:  {"constraint": CONSTRAINT, "n": answers, "left": tokens, "seed": number}
 * Lines out:  {"refused": "..."}   or   {"needs": tokens to the end at the start}, then n of
 *             {"ended": true, "utf8": true, "parses": true, "text": "..."}
 *
 * parses: jansson reads it. */
#include "tests/unit/text/grammar/grammar_help.h"

#include "base/check.h"
#include "base/str.h"
#include "text/grammar/grammar_run_priv.h"
#include "tests/unit/check.h"
#include "tests/unit/text/token/vocabularies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct grammar_vocab *open_vocab(const char *path, struct tokenizer **tokenizer)
{
    struct grammar_vocab *vocab;
    struct fault fault = {0};
    struct gguf *gguf;

    if (path == NULL)
        return small_vocab(tokenizer);
    if (gguf_open(path, &fault, &gguf) != 0 || tokenizer_new(gguf, &fault, tokenizer) != 0)
        exit((fprintf(stderr, "%s: %s\n", path, fault.text), 1));
    gguf_close(gguf);
    ASSERT(grammar_vocab_new(*tokenizer, &vocab) == 0);
    return vocab;
}

static void print_answer(struct grammar *grammar, struct tokenizer *tokenizer, struct rng *rng, uint32_t left)
{
    struct buf text = {0}, line = {0};
    bool is_ended = draw_answer(grammar, tokenizer, rng, left, &text);
    struct bytes view = buf_view(&text);
    json_t *json = json_loadb((const char *)view.data, view.len_bytes, JSON_DECODE_ANY, NULL);

    buf_printf(&line, "{\"ended\": %s, \"utf8\": %s, \"parses\": %s, \"text\": ", is_ended ? "true" : "false",
               utf8_valid_prefix(view) == view.len_bytes ? "true" : "false", json != NULL ? "true" : "false");
    json_put_str(&line, view);
    printf("%s}\n", (const char *)line.data);
    json_decref(json);
    buf_fini(&line);
    buf_fini(&text);
}

static void serve(struct grammar_vocab *vocab, struct tokenizer *tokenizer, json_t *ask)
{
    char *constraint = json_dumps(json_object_get(ask, "constraint"), JSON_ENCODE_ANY);
    struct grammar *grammar = NULL;
    struct fault fault = {0};
    struct buf line = {0};
    struct rng rng;

    if (grammar_new(vocab, bytes_str(constraint), &fault, &grammar) != 0) {
        buf_append_str(&line, "{\"refused\": ");
        json_put_str(&line, bytes_str(fault.text));
        printf("%s}\n", (const char *)line.data);
    } else {
        struct grammar_run *run;
        uint32_t left = (uint32_t)json_integer_value(json_object_get(ask, "left"));

        ASSERT(grammar_run_new(grammar, &run) == 0);
        printf("{\"needs\": %u}\n", mask_tokens_to_end(grammar, run->steps[0].state));
        grammar_run_free(run);
        rng_init(&rng, (uint64_t)json_integer_value(json_object_get(ask, "seed")));
        for (json_int_t i = json_integer_value(json_object_get(ask, "n")); i > 0; i--)
            print_answer(grammar, tokenizer, &rng, left);
        grammar_unref(grammar);
    }
    buf_fini(&line);
    free(constraint);
}

int main(int argc, char **argv)
{
    struct tokenizer *tokenizer;
    struct grammar_vocab *vocab = open_vocab(argc > 1 ? argv[1] : NULL, &tokenizer);
    json_t *ask;

    while ((ask = json_loadf(stdin, JSON_DISABLE_EOF_CHECK, NULL)) != NULL) {
        serve(vocab, tokenizer, ask);
        fflush(stdout);
        json_decref(ask);
    }
    grammar_vocab_unref(vocab);
    tokenizer_unref(tokenizer);
    return 0;
}
