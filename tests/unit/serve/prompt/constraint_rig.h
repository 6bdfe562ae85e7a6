/* SPDX-License-Identifier: Apache-2.0 */
/* Requests with constrained answers, for each family of templates.  Tests the texts that a model may write under the
 * constraint, and reads back randomly sampled answers.  The tools are get, with an id, and set, with a mode
 * and a number. */
#ifndef TESTS_FRONT_CONSTRAINT_RIG_H
#define TESTS_FRONT_CONSTRAINT_RIG_H

#include "base/rng.h"
#include "serve/answer/answer.h"
#include "serve/prompt/constraint.h"
#include "text/grammar/grammar.h"
#include "tests/unit/serve/endpoint/sim_model.h"

/* A template with this family's marks. */
#define FAMILY(marks)                                                                                        \
    "{# " marks " #}{% for m in messages %}{{ m.role }}:{{ m.content }}{{ m.tool_calls|string if "           \
    "m.tool_calls }};{% endfor %}{{ tools|string if tools }}"

#define ARGS "{\"mode\": \"on\", \"n\": 5}"

struct constraint_family {
    const char *name, *source;
    const char *call; /* a call of set with ARGS */
    bool is_one;      /* the format allows one call per answer */
};

extern const struct constraint_family families[];
extern const size_t n_families;

#define SCHEMA                                                                                               \
    "{\"type\":\"object\",\"properties\":{\"mode\":{\"enum\":[\"on\",\"off\"]},\"n\":{\"type\":\"integer\"}" \
    "},"                                                                                                     \
    "\"required\":[\"mode\",\"n\"],\"additionalProperties\":false}"
#define TOOLS(strict)                                                                                        \
    "\"tools\":[{\"name\":\"get\",\"strict\":" strict                                                        \
    ",\"input_schema\":{\"type\":\"object\",\"properties\":{"                                                \
    "\"id\":{\"type\":\"integer\"}},\"required\":[\"id\"],\"additionalProperties\":false}},{\"name\":"       \
    "\"set\",\"strict\":" strict ",\"input_schema\":" SCHEMA "}],"
#define CHOICE(choice) "\"tool_choice\":{" choice "},"
#define ANY            CHOICE("\"type\":\"any\"")
#define SET            CHOICE("\"type\":\"tool\",\"name\":\"set\"")

/* The answer is a document. */
#define FORMAT                                                                                               \
    "\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"object\","               \
    "\"properties\":{\"ok\":{"                                                                               \
    "\"type\":\"boolean\"}},\"required\":[\"ok\"],\"additionalProperties\":false}}},"

struct ask { /* a request and its result */
    struct gen_request request;
    struct buf constraint;
    struct tokenizer *tokenizer;
    struct grammar_vocab *vocab;
    struct grammar *grammar; /* NULL: any answer */
};

/* fields: members of the request, each followed by a comma. */
void ask(const struct gen_model *model, const char *fields, bool begins_thinking, struct ask *out);
/* The same where the answer continues this text of the client's. */
void ask_begun(const struct gen_model *model, const char *fields, const char *begun, struct ask *out);
void ask_fini(struct ask *ask);
bool takes(const struct ask *ask, const char *text); /* true if the model may write this text and then end */
/* The same for text or a document at the beginning of an answer, behind the mark that the family has there. */
bool takes_text(const struct ask *ask, const struct constraint_family *family, const char *text);

struct begun_case { /* whether an answer may have this text, which begins in thinking or not */
    const char *fields, *text;
    bool begins, is_taken;
};
/* Checks the cases with a model that has this template. */
void check_begun_cases(const char *template, const struct begun_case *cases, size_t n_cases);

struct sink {
    struct buf text, thinking;
    struct buf arguments; /* arguments of the last call */
    struct buf names;     /* "set;get;" */
    unsigned n_calls, n_bad;
};

extern const struct answer_sink sink_all;   /* keeps all output */
extern const struct answer_sink sink_calls; /* checks every call against the schemas above */
void sink_fini(struct sink *sink);

/* Returns a random token of those that the mask allows, all equally likely. */
token_id draw_one(const uint64_t *mask, uint32_t n_tokens, struct rng *rng);
bool is_stop(const struct tokenizer *tokenizer, token_id id);
/* Samples an answer of at most n tokens and reads it back into the sink. */
enum gen_stop draw(const struct gen_model *model, const struct ask *ask, struct rng *rng, uint32_t n,
                   struct sink *sink);
/* The same for one call and no text, without a check of its arguments. */
void draw_call(const struct gen_model *model, const struct ask *forced, struct rng *rng, uint32_t n,
               struct sink *sink);
/* Samples an answer that begins with this text, without a check of its arguments. */
enum gen_stop draw_behind(const struct gen_model *model, const struct ask *ask, const char *begin,
                          struct rng *rng, uint32_t n, struct sink *sink);

#endif
