/* SPDX-License-Identifier: Apache-2.0 */
/* Each replica plays the trace once, from its own starting point, so that the bursts of the replicas do not
 * coincide.  A heap of replicas, ordered by next arrival, merges them. */
#include "clients/sim/replay.h"

#include <stdlib.h>

#include "base/err.h"

#define MOST_NS 3.2e18 /* a hundred years */

struct cursor { /* of one replica */
    uint64_t at_ns;
    uint32_t replica, entry, n_left;
};

struct replay {
    const struct trace *trace;
    struct replay_opts opts;
    uint64_t span_ns, n_made;
    struct cursor *heap; /* [n_cursors] */
    uint32_t n_cursors;
};

static uint64_t cursor_time(const struct replay *replay, const struct cursor *cursor)
{
    uint64_t shift_ns = replay->span_ns / replay->opts.n_replicas * cursor->replica;
    uint64_t at_ns = replay->trace->entries[cursor->entry].at_ns;

    return at_ns >= shift_ns ? at_ns - shift_ns : at_ns + replay->span_ns - shift_ns;
}

static bool cursor_is_before(const struct cursor *a, const struct cursor *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->replica < b->replica;
}

static void cursor_sift(struct replay *replay, uint32_t at, struct cursor cursor)
{
    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child >= replay->n_cursors)
            break;
        if (child + 1 < replay->n_cursors && cursor_is_before(&replay->heap[child + 1], &replay->heap[child]))
            child++;
        if (!cursor_is_before(&replay->heap[child], &cursor))
            break;
        replay->heap[at] = replay->heap[child];
        at = child;
    }
    replay->heap[at] = cursor;
}

static bool replay_when(void *self, uint64_t *at_ns_out)
{
    const struct replay *replay = self;

    *at_ns_out = (uint64_t)((double)replay->heap[0].at_ns / replay->opts.speed);
    return replay->n_cursors > 0 &&
           (replay->opts.n_requests == 0 || replay->n_made < replay->opts.n_requests);
}

static void replay_take(void *self, struct sim_request *out)
{
    struct replay *replay = self;
    struct cursor cursor = replay->heap[0];
    const struct trace_entry *entry = &replay->trace->entries[cursor.entry];

    *out = (struct sim_request){.at_ns = (uint64_t)((double)cursor.at_ns / replay->opts.speed),
                                .prompt_tokens = entry->prompt_tokens > 0 ? entry->prompt_tokens : 1,
                                .answer_tokens = entry->answer_tokens > 0 ? entry->answer_tokens : 1,
                                .ids = replay->trace->block_ids + entry->first_block,
                                .n_blocks = entry->n_blocks,
                                .salt = (uint64_t)cursor.replica << 48,
                                .tenant = cursor.replica,
                                .kind = replay->opts.marks_kinds && entry->has_other_class ? 1 : 0};
    replay->n_made++;
    cursor.entry = cursor.entry + 1 < replay->trace->n_entries ? cursor.entry + 1 : 0;
    cursor.n_left--;
    if (cursor.n_left == 0)
        cursor = replay->heap[--replay->n_cursors];
    else
        cursor.at_ns = cursor_time(replay, &cursor);
    cursor_sift(replay, 0, cursor);
}

int replay_new(const struct trace *trace, const struct replay_opts *opts, struct replay **out)
{
    struct replay *replay = calloc(1, sizeof(*replay));

    if (replay != NULL)
        replay->heap = calloc(opts->n_replicas, sizeof(*replay->heap));
    if (replay == NULL || replay->heap == NULL) {
        replay_free(replay);
        return E_NOMEM;
    }
    replay->trace = trace;
    replay->opts = *opts;
    replay->span_ns = trace->entries[trace->n_entries - 1].at_ns + 1;
    if ((double)replay->span_ns / opts->speed > MOST_NS) {
        replay_free(replay);
        return E_RANGE;
    }
    for (uint32_t i = opts->n_replicas; i-- > 0;) {
        struct cursor cursor = {.replica = i, .n_left = (uint32_t)trace->n_entries};
        uint64_t shift_ns = replay->span_ns / opts->n_replicas * i;
        uint32_t low = 0, high = (uint32_t)trace->n_entries - 1;

        while (low < high) { /* the first entry at or after the shift */
            uint32_t middle = low + (high - low) / 2;

            if (trace->entries[middle].at_ns < shift_ns)
                low = middle + 1;
            else
                high = middle;
        }
        cursor.entry = low;
        cursor.at_ns = cursor_time(replay, &cursor);
        replay->heap[i] = cursor;
    }
    replay->n_cursors = opts->n_replicas;
    for (uint32_t i = opts->n_replicas / 2 + 1; i-- > 0;)
        if (i < replay->n_cursors)
            cursor_sift(replay, i, replay->heap[i]);
    *out = replay;
    return 0;
}

void replay_free(struct replay *replay)
{
    if (replay == NULL)
        return;
    free(replay->heap);
    free(replay);
}

struct sim_load replay_load(struct replay *replay)
{
    return (struct sim_load){.self = replay,
                             .when = replay_when,
                             .take = replay_take,
                             .span_ns = (uint64_t)((double)replay->span_ns / replay->opts.speed)};
}
