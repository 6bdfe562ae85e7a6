/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of OpenAI's routes: sending requests and reading streams.  Bodies are written with ' for ". */
#ifndef TESTS_FRONT_RIG_OPENAI_H
#define TESTS_FRONT_RIG_OPENAI_H

#include "rig.h"

#define CHAT        "/v1/chat/completions"
#define MAX_CHOICES 8

void put_request(struct buf *out, const char *path, const char *fields, const char *body);
/* Sends, reads one answer and checks its headers.  Returns the body as JSON. */
json_t *ask_at(struct rig *rig, const char *path, const char *body, int want_status);
/* Sends a request without a body.  Returns its status; *out (may be NULL) receives the answer. */
int status_at(struct rig *rig, const char *method, const char *path, json_t **out);
/* Asks /v1/responses.  input: JSON; more: further members, beginning with a comma. */
json_t *ask_response(struct rig *rig, const char *input, const char *more, int want_status);
/* user: text as written in JSON; more: further members, beginning with a comma. */
json_t *ask_chat(struct rig *rig, const char *user, const char *more, int want_status);
json_t *choice_of(json_t *root, size_t index);
const char *content_of(json_t *root, size_t index);

struct chunks { /* the content of a stream, checked on the way */
    char id[64];
    struct buf texts[MAX_CHOICES];
    struct buf arguments;
    char finish[MAX_CHOICES][16];
    bool has_role[MAX_CHOICES];
    size_t n_logprobs;
    int n_calls;
    json_t *usage, *serving;
    char error[128];
    bool is_done;
};

void stream_at(struct rig *rig, const char *path, const char *fields, const char *body,
               struct chunks *chunks);
void stream_chat(struct rig *rig, const char *user, const char *more, struct chunks *chunks);
void chunks_fini(struct chunks *chunks);
bool says(const struct chunks *chunks, int index, const char *text);

#endif
