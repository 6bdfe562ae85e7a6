/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of the endpoint: a front over the scripted backend, and functions that send requests. */
#ifndef TESTS_FRONT_RIG_H
#define TESTS_FRONT_RIG_H

#include <jansson.h>

#include "serve/endpoint/front.h"
#include "sim_backend.h"
#include "tests/unit/net/http/raw.h"

#define CONTEXT 4096

struct rig {
    struct raw_loop raw;
    struct gen_model model;
    struct sim *sim;
    struct sim_counts *counts;
    struct metrics *metrics;
    struct ev_jobs *jobs;
    struct front *front;
    uint16_t port;
    atomic_int n_drained;
};

/* change (may be NULL) may edit the options before their use. */
void rig_begin(struct rig *rig, void (*change)(struct front_opts *opts, struct sim_opts *sim));
/* The same with a model of this chat template. */
void rig_begin_with(struct rig *rig, const char *chat_template);
void rig_end(struct rig *rig);
/* Waits up to three seconds until the counter has this value. */
bool reaches(atomic_uint *counter, unsigned value);
bool passes(atomic_uint *counter, unsigned value); /* or more: for a counter that may continue */

void put_post(struct buf *out, const char *path, const char *fields, const char *body);
/* user: text as written in JSON; more: further members, beginning with a comma. */
void put_message(struct buf *out, const char *user, const char *more);
/* Sends and reads one answer; head_out (may be NULL) receives all of it.
 * Returns the body as JSON, or NULL. */
json_t *ask(struct rig *rig, const struct buf *request, int want_status, struct buf *head_out);
json_t *ask_message(struct rig *rig, const char *user, const char *more, int want_status);
const char *str_at(json_t *root, const char *a, const char *b); /* b NULL: one level */
int num_at(json_t *root, const char *a, const char *b);
const char *text_of(json_t *message, size_t block);
int total_input(json_t *usage);

/* The content of a stream, checked against the grammar on the way. */
struct story {
    struct buf text;      /* of text blocks */
    struct buf arguments; /* of calls */
    struct buf names;     /* of calls */
    char stop[40];
    char error[40];
    int n_pings;
    int n_blocks;
    int open; /* index or -1 */
    bool is_begun, is_ended;
    json_t *start_usage, *end_usage;
};

void stream_message(struct rig *rig, const char *user, const char *more, const char *fields,
                    struct story *story);
void story_fini(struct story *story);

#endif
