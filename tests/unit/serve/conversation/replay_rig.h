/* SPDX-License-Identifier: Apache-2.0 */
/* Random conversations through parser, template, splitter and answer cache: the client's side and the model's. */
#ifndef TESTS_FRONT_REPLAY_RIG_H
#define TESTS_FRONT_REPLAY_RIG_H

#include <jansson.h>

#include "base/rng.h"
#include "serve/answer/transcript.h"

struct rig_model { /* the bundled vocabulary, with the markers of other families too, and one of their
                    * templates
                    */
    char name[32];
    struct gen_model gen;
};

/* NULL: the bundled model's own template.  False: it is not here. */
bool rig_model_open(const char *template_name, struct rig_model *model);
void rig_model_close(struct rig_model *model);

struct rig_traits { /* of a conversation */
    bool has_tools, has_system;
    bool may_ask_again; /* a question beside results */
    bool always_calls;
    bool thinks;
};

struct rig_talk {
    struct rig_model *model;
    struct rig_traits traits;
    struct rng rng;
    json_t *head;     /* what every request has besides messages */
    json_t *messages; /* as the client remembers them */
    struct answer_cache *cache;
};

struct rig_turn {
    struct gen_request request;
    struct replay replay;
    struct prompt prompt, plain; /* with the answer cache and without */
    struct token_ids drawn;
};

void rig_talk_init(struct rig_talk *talk, struct rig_model *model, uint64_t seed,
                   const struct rig_traits *traits);
void rig_talk_fini(struct rig_talk *talk);
/* The conversation so far, spelled anew, as a prompt. */
void rig_ask(struct rig_talk *talk, bool has_memory, struct rig_turn *turn);
/* The model answers with text or calls; it is remembered; the client appends it and what comes next. */
void rig_answer(struct rig_talk *talk, struct rig_turn *turn);
/* The same with this text, which ends for this reason. */
void rig_answer_text(struct rig_talk *talk, struct rig_turn *turn, const char *text, enum gen_stop stop);
size_t rig_n_remembered(const struct rig_talk *talk);
void rig_turn_fini(struct rig_turn *turn);
void rig_edit_last_answer(struct rig_talk *talk, const char *text);
/* A request of a question and this message, which is messages[1], with results for its calls. */
void rig_parse_message(const char *message, struct gen_request *out);

#endif
