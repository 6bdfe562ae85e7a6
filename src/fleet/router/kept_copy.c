/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of kept values when workers leave or come, so that each value has two copies again.
 *
 *     IDLE --a worker leaves or comes--> WAITING --after a second or two--> a pass over all workers:
 *
 *       +--> LISTING --LISTED: names that need a copy--> FETCHING --FETCHED, KEEP to their new workers--> RESTING --+
 *       |                                                                                                          |
 *       +------- the worker's next page, or the next worker; at the end IDLE, or WAITING if more changed ----------+
 *
 * Ranks (kept.c) tell which values a change concerns.  If a worker left: those for which it would be one of the first
 * two; each worker's are sent to the others of the two that are first now.  If one came: those for which it is one of the
 * first two now; the other one of the two sends its own.  A copy replaces nothing.
 *
 * All routers see the change, so each waits for a time of its own, and workers leave out of a list what was fetched or
 * came for the same change before.  A pass moves COPY_BYTES_PER_S at most, one group of values at a time.  Names and sealed values
 * pass through; nothing is opened. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "fleet/router/kept_types_priv.h"

enum { COPY_MAX_CHANGES = 16 };
#define COPY_WAIT_NS     NS_PER_S /* before a pass, and up to as much again by the router's epoch */
#define COPY_ANSWER_NS   (5 * NS_PER_S)
#define COPY_REST_NS     (5 * NS_PER_MS)
#define COPY_BYTES_PER_S (16u << 20)
#define COPY_GROUP_BYTES (4u << 20)     /* of the values of one FETCH, unless one value is longer */
#define COPY_START_NS    (5 * NS_PER_S) /* workers that a new router meets did not come just now */

enum copy_state {
    COPY_IDLE,     /* nothing changed */
    COPY_WAITING,  /* something changed; the timer starts the pass */
    COPY_LISTING,  /* a worker was asked for a page of its names */
    COPY_FETCHING, /* a worker was asked for a group of values */
    COPY_RESTING   /* until the timer asks for more */
};

struct copy_change {
    uint64_t worker, mark; /* digest of the worker's name; of the change */
    bool is_up;
};

struct copy_changes {
    struct copy_change all[COPY_MAX_CHANGES]; /* of more, the first are dropped */
    uint32_t n;
};

struct kept_copy {
    struct router_kept *kept;
    enum copy_state state;
    struct ev_timer *timer;
    uint64_t opened_ns;
    struct copy_changes next, now; /* of the next pass and of this one */
    uint64_t mark;                 /* of this pass */
    uint32_t slot;                 /* the worker that is asked */
    uint64_t number, after;        /* of the question under way; where its next page begins */
    bool is_last;                  /* the page was the worker's last */
    struct {
        char name[STATE_NAME_BYTES];
        uint32_t life_s, len_bytes;
    } wanted[FRAME_KEPT_NAMES];
    uint32_t n_wanted, n_fetched; /* names of the page; of them in this or an earlier group */
    uint64_t group_bytes;         /* that were sent */
    uint64_t n_copied, copied_bytes;
    struct metric *m_copied;
};

static void copy_set_state(struct kept_copy *copy, enum copy_state state, uint64_t timer_ns)
{
    log_debug("kept_copy_state", LOG_U64("from", copy->state), LOG_U64("to", state));
    copy->state = state;
    if (state == COPY_IDLE)
        ev_timer_stop(copy->timer);
    else
        ev_timer_start(copy->timer, timer_ns);
}

/* ---- changes ---- */

static void copy_wait(struct kept_copy *copy)
{
    copy_set_state(copy, COPY_WAITING, COPY_WAIT_NS + copy->kept->router->epoch % COPY_WAIT_NS);
}

void kept_copy_note(struct router_kept *kept, uint32_t slot, bool is_up)
{
    const struct router_worker *worker = &kept->router->workers[slot];
    struct kept_copy *copy = kept->copy;
    struct copy_changes *next = &copy->next;
    struct copy_change change = {.worker = str_digest(worker->node), .is_up = is_up};

    if (is_up && clock_now_ns() < copy->opened_ns + COPY_START_NS)
        return;
    change.mark = kept_score(change.worker + is_up, worker->epoch);
    for (uint32_t i = 0; i < next->n; i++)
        if (next->all[i].mark == change.mark)
            return;
    if (next->n == COPY_MAX_CHANGES)
        memmove(next->all, next->all + 1, --next->n * sizeof(*next->all));
    next->all[next->n++] = change;
    if (copy->state == COPY_IDLE)
        copy_wait(copy);
}

/* The worker is, or would be, one of the first two for a name. */
static bool copy_is_first(const struct router_kept *kept, uint64_t worker, uint64_t name)
{
    uint64_t own = kept_score(name, worker);
    uint32_t n_seen = 0, n_better = 0;

    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS && n_seen < kept->n_up; slot++) {
        if (!kept->workers[slot].is_up)
            continue;
        n_seen++;
        n_better += kept->workers[slot].digest != worker && !kept->router->workers[slot].is_draining &&
                    kept_score(name, kept->workers[slot].digest) > own;
    }
    return n_better < KEPT_COPIES;
}

/* The workers that are to get a copy of the listed worker's value. */
static uint32_t copy_targets(const struct kept_copy *copy, const char *name, uint32_t out[KEPT_COPIES])
{
    const struct router_kept *kept = copy->kept;
    uint64_t digest = str_digest(name);
    const struct router_ranking ranking = kept_rank(kept, name, true);
    const uint32_t *slots = ranking.slots, n = ranking.n < KEPT_COPIES ? ranking.n : KEPT_COPIES;
    uint32_t n_out = 0;
    bool is_own = false, is_wanted[KEPT_COPIES] = {false};

    for (uint32_t k = 0; k < n; k++)
        is_own |= slots[k] == copy->slot;
    for (uint32_t i = 0; i < copy->now.n; i++) {
        const struct copy_change *change = &copy->now.all[i];
        bool has_left = !change->is_up && copy_is_first(kept, change->worker, digest);

        for (uint32_t k = 0; k < n; k++)
            is_wanted[k] |=
                has_left || (change->is_up && is_own && kept->workers[slots[k]].digest == change->worker);
    }
    for (uint32_t k = 0; k < n; k++)
        if (is_wanted[k] && slots[k] != copy->slot &&
            (kept->router->workers[slots[k]].capabilities & CAPABILITY_LISTS) != 0)
            out[n_out++] = slots[k];
    return n_out;
}

/* ---- a pass ---- */

static void copy_pass_end(struct kept_copy *copy)
{
    if (copy->n_copied > 0)
        log_info("kept_copied", LOG_U64("values", copy->n_copied), LOG_U64("bytes", copy->copied_bytes));
    copy->now.n = 0;
    if (copy->next.n > 0)
        copy_wait(copy);
    else
        copy_set_state(copy, COPY_IDLE, 0);
}

/* Asks the pass's worker, or the next one that is there, for a page. */
static void copy_list(struct kept_copy *copy)
{
    struct router *router = copy->kept->router;
    Baton__ListKept list = BATON__LIST_KEPT__INIT;

    for (; copy->slot < PICKER_MAX_WORKERS; copy->slot++, copy->after = 0) {
        if (!copy->kept->workers[copy->slot].is_up ||
            (router->workers[copy->slot].capabilities & CAPABILITY_LISTS) == 0)
            continue;
        list.number = copy->number = ++copy->kept->next_number;
        list.after = copy->after;
        list.mark = copy->mark;
        if (router_send(router, copy->slot, FRAME_LIST_KEPT, &list.base) == 0) {
            copy_set_state(copy, COPY_LISTING, COPY_ANSWER_NS);
            return;
        }
    }
    copy_pass_end(copy);
}

static void copy_next_worker(struct kept_copy *copy)
{
    copy->slot++;
    copy->after = 0;
    copy_list(copy);
}

static void copy_pass_begin(struct kept_copy *copy)
{
    copy->now = copy->next;
    copy->next.n = 0;
    copy->mark = 0;
    for (uint32_t i = 0; i < copy->now.n; i++)
        copy->mark ^= copy->now.all[i].mark;
    copy->mark += copy->mark == 0; /* 0 would be none */
    copy->slot = 0;
    copy->after = copy->n_copied = copy->copied_bytes = 0;
    copy->n_wanted = copy->n_fetched = 0;
    copy_list(copy);
}

/* Asks for the page's next group of values.  Without one: for the next page. */
static void copy_fetch(struct kept_copy *copy)
{
    Baton__Fetch fetch = BATON__FETCH__INIT;
    char *names[FRAME_KEPT_NAMES];
    uint64_t len_bytes = 0;

    while (copy->n_fetched < copy->n_wanted && len_bytes < COPY_GROUP_BYTES) {
        len_bytes += copy->wanted[copy->n_fetched].len_bytes;
        names[fetch.n_names++] = copy->wanted[copy->n_fetched++].name;
    }
    if (fetch.n_names == 0) {
        if (copy->is_last)
            copy_next_worker(copy);
        else
            copy_list(copy);
        return;
    }
    fetch.names = names;
    fetch.number = copy->number = ++copy->kept->next_number;
    fetch.mark = copy->mark;
    copy->group_bytes = 0;
    if (router_send(copy->kept->router, copy->slot, FRAME_FETCH, &fetch.base) < 0)
        copy_next_worker(copy);
    else
        copy_set_state(copy, COPY_FETCHING, COPY_ANSWER_NS);
}

static void copy_rest(struct kept_copy *copy, uint64_t len_bytes)
{
    copy_set_state(copy, COPY_RESTING, COPY_REST_NS + len_bytes * NS_PER_S / COPY_BYTES_PER_S);
}

static void copy_on_timer(void *arg)
{
    struct kept_copy *copy = arg;

    switch (copy->state) {
    case COPY_IDLE:
        break;
    case COPY_WAITING:
        copy_pass_begin(copy);
        break;
    case COPY_LISTING:
    case COPY_FETCHING: /* the worker does not answer */
        copy->n_wanted = copy->n_fetched = 0;
        copy_next_worker(copy);
        break;
    case COPY_RESTING:
        copy_fetch(copy);
        break;
    }
}

/* ---- answers ---- */

void router_kept_listed(struct router *router, uint32_t slot, const Baton__Listed *listed)
{
    struct kept_copy *copy = router->kept != NULL ? router->kept->copy : NULL;
    uint32_t targets[KEPT_COPIES];

    if (copy == NULL || copy->state != COPY_LISTING || slot != copy->slot || listed->number != copy->number ||
        listed->n_names != listed->n_lives_s || listed->n_names != listed->n_lens_bytes)
        return;
    copy->is_last = listed->is_last || listed->next <= copy->after;
    copy->after = listed->next;
    copy->n_wanted = copy->n_fetched = 0;
    for (size_t i = 0; i < listed->n_names && i < FRAME_KEPT_NAMES; i++) {
        if (strlen(listed->names[i]) > FRAME_KEPT_NAME || copy_targets(copy, listed->names[i], targets) == 0)
            continue;
        str_copy(copy->wanted[copy->n_wanted].name, STATE_NAME_BYTES, listed->names[i]);
        copy->wanted[copy->n_wanted].life_s =
            listed->lives_s[i] < FRAME_KEPT_LIFE_S ? listed->lives_s[i] : FRAME_KEPT_LIFE_S;
        copy->wanted[copy->n_wanted++].len_bytes = listed->lens_bytes[i];
    }
    copy_rest(copy, 0);
}

/* Sends a value to its new workers. */
static void copy_send(struct kept_copy *copy, const Baton__Fetched *fetched)
{
    struct router *router = copy->kept->router;
    uint32_t targets[KEPT_COPIES], n, i = 0;
    Baton__Keep keep = BATON__KEEP__INIT;

    while (i < copy->n_fetched && strcmp(copy->wanted[i].name, fetched->name) != 0)
        i++;
    if (i == copy->n_fetched || copy->wanted[i].life_s == 0)
        return;
    keep.name = fetched->name;
    keep.life_s = copy->wanted[i].life_s;
    keep.value = fetched->value;
    keep.mark = copy->mark;
    copy->wanted[i].life_s = 0; /* once */
    n = copy_targets(copy, fetched->name, targets);
    for (uint32_t k = 0; k < n; k++) {
        const struct link *link = router->workers[targets[k]].link;

        if (link == NULL || link_queued_bytes(link) > KEPT_MAX_QUEUED ||
            router_send(router, targets[k], FRAME_KEEP, &keep.base) < 0)
            continue;
        copy->n_copied++;
        copy->copied_bytes += fetched->value.len;
        metric_add(copy->m_copied, 1);
    }
    copy->group_bytes += fetched->value.len;
}

bool kept_copy_receive(struct router_kept *kept, uint32_t slot, const Baton__Fetched *fetched)
{
    struct kept_copy *copy = kept->copy;

    if (copy->state != COPY_FETCHING || fetched->number != copy->number)
        return false;
    if (slot != copy->slot)
        return true;
    if (fetched->is_last)
        copy_rest(copy, copy->group_bytes);
    else
        copy_send(copy, fetched);
    return true;
}

/* ---- start and end ---- */

int kept_copy_open(struct router_kept *kept)
{
    struct kept_copy *copy = calloc(1, sizeof(*copy));

    if (copy == NULL)
        return E_NOMEM;
    kept->copy = copy;
    copy->kept = kept;
    copy->opened_ns = clock_now_ns();
    copy->m_copied = metric_single(kept->router->metrics, METRIC_COUNTER, "baton_kept_copied_total",
                                   "Values that were copied to another worker after one left or came.");
    return ev_timer_new(kept->router->loop, copy_on_timer, copy, &copy->timer);
}

void kept_copy_close(struct router_kept *kept)
{
    if (kept->copy == NULL)
        return;
    ev_timer_free(kept->copy->timer);
    free(kept->copy);
    kept->copy = NULL;
}
