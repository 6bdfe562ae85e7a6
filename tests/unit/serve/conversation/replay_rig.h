/* SPDX-License-Identifier: Apache-2.0 */
/* Random conversations through parser, template, splitter and answer cache:
 * the client's side and the model's side. */
#ifndef TESTS_FRONT_REPLAY_RIG_H
#define TESTS_FRONT_REPLAY_RIG_H

#include <jansson.h>

#include "base/rng.h"
#include "serve/answer/transcript.h"

struct rig_model { /* the bundled vocabulary, with other families' markers, and a template of one of them */
    char name[32];
    struct gen_model gen;
};

/* Opens a model.  NULL: the bundled model's own template.  False: the template is not available. */
bool rig_model_open(const char *template_name, struct rig_model *model);
void rig_model_close(struct rig_model *model);

struct rig_traits { /* of a conversation */
    bool has_tools, has_system;
    bool may_ask_again; /* may ask a question beside results */
    bool always_calls;
    bool thinks;
};

struct rig_talk {
    struct rig_model *model;
    struct rig_traits traits;
    struct rng rng;
    json_t *head;     /* members of every request besides messages */
    json_t *messages; /* the client's copy of them */
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
/* Makes a prompt of the conversation so far, in another spelling. */
void rig_ask(struct rig_talk *talk, bool has_memory, struct rig_turn *turn);
/* The model answers with text or calls.  The answer is cached; the client appends it and its next message. */
void rig_answer(struct rig_talk *talk, struct rig_turn *turn);
/* The same with this text and this reason for its end. */
void rig_answer_text(struct rig_talk *talk, struct rig_turn *turn, const char *text, enum gen_stop stop);
size_t rig_n_remembered(const struct rig_talk *talk);
void rig_turn_fini(struct rig_turn *turn);
void rig_edit_last_answer(struct rig_talk *talk, const char *text);
/* Makes a request with a question, then this message (messages[1]), then results for its calls. */
void rig_parse_message(const char *message, struct gen_request *out);

#endif
