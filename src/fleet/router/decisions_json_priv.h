/* SPDX-License-Identifier: Apache-2.0 */
/* One placement in the ring, and its JSON. */
#ifndef FLEET_ROUTER_DECISIONS_JSON_PRIV_H
#define FLEET_ROUTER_DECISIONS_JSON_PRIV_H

#include "base/bytes.h"
#include "fleet/picker/picker.h"
#include "proto/frame.h"

enum { DECISIONS = 512, DECISION_CANDIDATES = 12 };

struct decision_candidate {
    char node[64];
    enum picker_role role;
    bool is_chosen;
    const char *why_not; /* static: why it could not take the request; "": it could */
    uint32_t cached_tokens, n_running, blocks_free;
    double queue_s, prompt_s, transfer_s, itl_s;
    double cost_s; /* picker_cost_s() */
};

struct decision_part { /* one worker's report of an attempt */
    bool is_known;
    char node[64];
    Baton__TaskTimes times; /* numbers only */
};

struct decision {
    char request_id[40];
    char model[64], class_name[32];
    uint32_t attempt;    /* from 1 */
    const char *refused; /* static reason; NULL: placed */
    uint64_t received_ns, submitted_ns, decided_ns, first_ns, ended_ns, waited_ns, decided_unix_ns;
    uint64_t ttft_slo_ns, itl_slo_ns;
    uint32_t n_tokens, n_answered, owner_tokens;
    uint32_t prefix; /* of the keyed hash of the first block; 0: shorter than a block, or not hashed */
    int error;
    struct picker_choice choice; /* placed */
    uint32_t n_workers, n_looked_at, n_candidates;
    struct decision_candidate candidates[DECISION_CANDIDATES];
    struct decision_part parts[2]; /* prefill, decode */
};

void decision_put(const struct decision *decision, struct buf *out);
/* Appends a brief form: the chosen workers, estimate and actual time, and the bytes of its hand-off. */
void decision_put_brief(const struct decision *decision, uint64_t number, struct buf *out);

#endif
