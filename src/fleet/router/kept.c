/* SPDX-License-Identifier: Apache-2.0 */
/* Values that workers keep for all of their routers: conversations, responses, remembered answers, orders of streams, claims.
 *
 *     put ────KEEP────> the 2 workers that rank first for the name
 *     ask ────FETCH───> the 4 that rank first, each name's own        FETCHED ──> done
 *     claim ──FETCH───> the one that ranks first, alone
 *
 * A worker's rank for a name is a hash of both, so all routers with the same workers agree on it without a word, and a
 * worker that comes or goes changes the places of few names.  Two copies outlive the death of any router and of one
 * worker; then kept_copy.c makes two of one.  Values are sealed as those in a store are, so a worker that errs cannot
 * pass one off as another.
 *
 * A worker that does not answer in time is left alone for a while.  No question waits longer than state.wait.  A name
 * that is forgotten is sent again to each worker that comes back, as long as it is among the last FORGOTTEN. */
#include "fleet/router/kept_types_priv.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "net/link/tls.h"

#define KEPT_MAX_VALUE (FRAME_KEPT_BYTES - STATE_HEAD_BYTES - STATE_TIMES_BYTES)
#define KEPT_LATE_NS   (5 * NS_PER_S)

struct kept_ask {
    struct list node; /* kept.asks, by deadline */
    struct router_kept *kept;
    uint64_t number, until_ns;
    void (*done)(void *arg, struct buf *values, enum state_claim claim);
    void *arg;
    uint32_t n, n_found;
    struct state_name names[STATE_MAX_NAMES];
    struct buf values[STATE_MAX_NAMES];
    enum state_claim claim;
    struct picker_slots waiting; /* workers that have not answered */
    uint32_t n_waiting;
    uint32_t claim_slot; /* PICKER_NONE: nothing is claimed */
};

static uint64_t kept_now_s(void)
{
    return clock_unix_ns() / NS_PER_S;
}

/* ---- ranks ---- */

static uint64_t kept_mix(uint64_t x)
{
    x ^= x >> 31;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ x >> 32;
}

uint64_t kept_score(uint64_t name_digest, uint64_t worker_digest)
{
    return kept_mix(name_digest ^ worker_digest);
}

struct router_ranking kept_rank(const struct router_kept *kept, const char *name, bool is_new)
{
    uint64_t digest = str_digest(name), now_ns = clock_now_ns();
    struct router_ranking ranking = {.n = 0};
    uint32_t n_seen = 0;

    for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS && n_seen < kept->n_up; slot++) {
        const struct kept_worker *worker = &kept->workers[slot];

        if (!worker->is_up)
            continue;
        n_seen++;
        if (now_ns >= worker->late_until_ns && !(is_new && kept->router->workers[slot].is_draining))
            router_ranking_add(&ranking, slot, kept_score(digest, worker->digest));
    }
    return ranking;
}

/* ---- keeping ---- */

static bool kept_is_up(const void *self)
{
    const struct router_kept *kept = self;

    return kept->n_up > 0;
}

static int kept_name(const void *self, const char *kind, struct bytes owner, struct bytes id,
                     struct state_name *out)
{
    const struct router_kept *kept = self;

    return state_name_make(kept->key, kind, owner, id, out);
}

/* Sends a value to its first workers.  Without one, to all that may have it: that it ends now, or without a life also, that
 * it is to be forgotten.  Returns the number of workers. */
static uint32_t kept_send(struct router_kept *kept, const struct state_name *name, uint64_t life_s,
                          struct bytes sealed)
{
    bool is_new = sealed.len_bytes > 0;
    Baton__Keep keep = BATON__KEEP__INIT;
    struct router_ranking ranking = kept_rank(kept, name->text, is_new);
    uint32_t n_sent = 0;

    keep.name = (char *)(uintptr_t)name->text;
    keep.life_s = life_s < FRAME_KEPT_LIFE_S ? (uint32_t)life_s : FRAME_KEPT_LIFE_S;
    keep.value = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)sealed.data, .len = sealed.len_bytes};
    for (uint32_t i = 0; i < ranking.n && (!is_new || n_sent < KEPT_COPIES); i++) {
        const struct link *link = kept->router->workers[ranking.slots[i]].link;

        if (link != NULL && (!is_new || link_queued_bytes(link) < KEPT_MAX_QUEUED))
            n_sent += router_send(kept->router, ranking.slots[i], FRAME_KEEP, &keep.base) == 0;
    }
    return n_sent;
}

static int kept_put_copy(void *self, const struct state_name *name, uint64_t life_s, struct bytes value)
{
    struct router_kept *kept = self;
    uint64_t now_s = kept_now_s();
    const uint64_t times_s[2] = {now_s, now_s + life_s};
    struct buf sealed = {0};
    int rc = value.len_bytes > KEPT_MAX_VALUE ? E_LIMIT
                                              : state_record_seal(kept->key, name, times_s, value, &sealed);

    if (rc == 0 && kept_send(kept, name, life_s, buf_view(&sealed)) == 0)
        rc = E_CLOSED;
    metric_add(rc == 0 ? kept->m_put : kept->m_dropped, 1);
    buf_fini(&sealed);
    return rc;
}

static int kept_put(void *self, const struct state_name *name, uint64_t life_s, struct buf *value)
{
    int rc = value->is_bad ? E_NOMEM : kept_put_copy(self, name, life_s, buf_view(value));

    buf_fini(value);
    return rc;
}

static int kept_remove(void *self, const struct state_name *name)
{
    return kept_send(self, name, 0, (struct bytes){0}) > 0 ? 0 : E_CLOSED;
}

/* Workers drop the value in a second.  Unlike kept_remove() it leaves no forgotten name behind, which would take memory
 * at each worker for each stream.  A copy that another worker has got meanwhile ends with its life. */
static int kept_expire(void *self, const struct state_name *name, uint64_t life_s)
{
    (void)life_s;
    return kept_send(self, name, 1, (struct bytes){0}) > 0 ? 0 : E_CLOSED;
}

static int kept_forget(void *self, const struct state_name *name)
{
    struct router_kept *kept = self;

    (void)kept_remove(kept, name);
    kept->forgotten[kept->n_forgotten++ % KEPT_FORGOTTEN] = *name;
    return 0;
}

/* ---- questions ---- */

static void kept_ask_free(struct kept_ask *ask)
{
    hashmap_remove(ask->kept->by_number, &ask->number);
    list_remove(&ask->node);
    ask->kept->n_asks--;
    for (uint32_t i = 0; i < ask->n; i++)
        buf_fini(&ask->values[i]);
    free(ask);
}

static void kept_cancel(void *ask)
{
    kept_ask_free(ask);
}

static void kept_ask_end(struct kept_ask *ask)
{
    metric_add(ask->kept->m_found, ask->n_found);
    metric_add(ask->kept->m_missed, ask->n - ask->n_found);
    ask->done(ask->arg, ask->values, ask->claim);
    kept_ask_free(ask);
}

static void kept_on_deadline(void *arg)
{
    struct router_kept *kept = arg;

    while (!list_is_empty(&kept->asks)) {
        struct kept_ask *ask = container_of(kept->asks.next, struct kept_ask, node);
        uint64_t now_ns = clock_now_ns();

        if (ask->until_ns > now_ns) {
            ev_timer_start(kept->deadline, ask->until_ns - now_ns);
            return;
        }
        for (uint32_t slot = 0; slot < PICKER_MAX_WORKERS && ask->n_waiting > 0; slot++)
            if (picker_slots_has(&ask->waiting, slot)) {
                kept->workers[slot].late_until_ns = now_ns + KEPT_LATE_NS;
                ask->n_waiting--;
            }
        metric_add(kept->m_late, !picker_slots_is_empty(&ask->waiting));
        kept_ask_end(ask);
    }
}

static struct kept_ask *kept_ask_new(struct router_kept *kept, const struct state_question *question)
{
    struct kept_ask *ask = calloc(1, sizeof(*ask));

    if (ask == NULL)
        return NULL;
    ask->kept = kept;
    ask->number = ++kept->next_number;
    ask->until_ns = clock_now_ns() + kept->router->conf->state_wait_ns;
    ask->done = question->done;
    ask->arg = question->arg;
    ask->n = question->n;
    memcpy(ask->names, question->names, question->n * sizeof(*ask->names));
    ask->claim_slot = PICKER_NONE;
    if (hashmap_put(kept->by_number, &ask->number, ask, NULL) < 0) {
        free(ask);
        return NULL;
    }
    list_push_back(&kept->asks, &ask->node);
    kept->n_asks++;
    return ask;
}

/* Asks one worker for those of the names of which it is one of the first. */
static void kept_ask_worker(struct kept_ask *ask, uint32_t slot, const struct router_ranking *rankings,
                            const struct state_question *question)
{
    Baton__Fetch fetch = BATON__FETCH__INIT;
    char *names[STATE_MAX_NAMES];

    fetch.number = ask->number;
    fetch.names = names;
    for (uint32_t i = 0; i < ask->n; i++)
        for (uint32_t k = 0; k < rankings[i].n; k++)
            if (rankings[i].slots[k] == slot)
                names[fetch.n_names++] = ask->names[i].text;
    if (ask->claim_slot == slot) {
        fetch.claim = (char *)(uintptr_t)question->claim->text;
        fetch.claim_life_s = (uint32_t)question->claim_life_s;
    }
    if (router_send(ask->kept->router, slot, FRAME_FETCH, &fetch.base) < 0)
        return;
    picker_slots_add(&ask->waiting, slot);
    ask->n_waiting++;
}

static void kept_ask_all(struct kept_ask *ask, const struct state_question *question)
{
    struct router_ranking rankings[STATE_MAX_NAMES];
    struct picker_slots asked = {0};

    if (question->claim != NULL) {
        struct router_ranking first = kept_rank(ask->kept, question->claim->text, true);

        ask->claim_slot = first.n > 0 ? first.slots[0] : PICKER_NONE;
    } else {
        ask->claim = STATE_CLAIM_NONE;
    }
    for (uint32_t i = 0; i < ask->n; i++)
        rankings[i] = kept_rank(ask->kept, ask->names[i].text, false);
    for (uint32_t i = 0; i < ask->n; i++)
        for (uint32_t k = 0; k < rankings[i].n; k++) {
            uint32_t slot = rankings[i].slots[k];

            if (picker_slots_has(&asked, slot))
                continue;
            picker_slots_add(&asked, slot);
            kept_ask_worker(ask, slot, rankings, question);
        }
    if (ask->claim_slot != PICKER_NONE && !picker_slots_has(&asked, ask->claim_slot))
        kept_ask_worker(ask, ask->claim_slot, rankings, question);
}

static int kept_ask(void *self, const struct state_question *question, void **out)
{
    struct router_kept *kept = self;
    bool is_first = list_is_empty(&kept->asks);
    struct kept_ask *ask;

    if (kept->n_up == 0)
        return E_CLOSED;
    if (question->n > STATE_MAX_NAMES || (question->n == 0 && question->claim == NULL))
        return E_LIMIT;
    if (kept->n_asks >= STATE_MAX_ASKS)
        return E_AGAIN;
    ask = kept_ask_new(kept, question);
    if (ask == NULL)
        return E_NOMEM;
    kept_ask_all(ask, question);
    if (ask->n_waiting == 0) {
        kept_ask_free(ask);
        return E_CLOSED;
    }
    if (is_first)
        ev_timer_start(kept->deadline, kept->router->conf->state_wait_ns);
    *out = ask;
    return 0;
}

/* ---- messages of workers ---- */

/* The worker counts the life, so that neither a jump of the Unix clock nor another host's clock loses a value. */
static void kept_take_value(struct kept_ask *ask, const Baton__Fetched *fetched)
{
    struct router_kept *kept = ask->kept;
    uint32_t i = 0;

    while (i < ask->n && strcmp(ask->names[i].text, fetched->name) != 0)
        i++;
    if (i == ask->n || ask->values[i].len_bytes > 0 ||
        fetched->value.len == 0) /* a claim, or it expires now */
        return;
    if (state_record_open(kept->key, &ask->names[i], STATE_NO_CLOCK,
                          bytes_of(fetched->value.data, fetched->value.len), &ask->values[i]) < 0) {
        metric_add(kept->m_damaged, 1);
        buf_fini(&ask->values[i]);
        return;
    }
    ask->n_found += ask->values[i].len_bytes > 0;
}

/* A claim that is set when its question has gone is given back. */
static void kept_give_back(struct router_kept *kept, uint32_t slot, const Baton__Fetched *fetched)
{
    Baton__Keep keep = BATON__KEEP__INIT;

    if (!fetched->is_last || fetched->claim != BATON__CLAIM__CLAIM_SET || fetched->name[0] == '\0')
        return;
    keep.name = fetched->name;
    (void)router_send(kept->router, slot, FRAME_KEEP, &keep.base);
}

void router_kept_receive(struct router *router, uint32_t slot, const Baton__Fetched *fetched)
{
    struct router_kept *kept = router->kept;
    struct kept_ask *ask = kept == NULL ? NULL : hashmap_get(kept->by_number, &fetched->number);

    if (kept == NULL)
        return;
    if (fetched->is_last)
        kept->workers[slot].late_until_ns = 0;
    if (kept_copy_receive(kept, slot, fetched))
        return;
    if (ask == NULL || !picker_slots_has(&ask->waiting, slot)) {
        kept_give_back(kept, slot, fetched);
        return;
    }
    if (!fetched->is_last) {
        kept_take_value(ask, fetched);
    } else {
        picker_slots_remove(&ask->waiting, slot);
        ask->n_waiting--;
        if (slot == ask->claim_slot)
            ask->claim = fetched->claim == BATON__CLAIM__CLAIM_SET     ? STATE_CLAIM_SET
                         : fetched->claim == BATON__CLAIM__CLAIM_TAKEN ? STATE_CLAIM_TAKEN
                                                                       : STATE_CLAIM_UNKNOWN;
    }
    if (ask->n_waiting == 0 ||
        (ask->n_found == ask->n &&
         !(ask->claim_slot != PICKER_NONE && picker_slots_has(&ask->waiting, ask->claim_slot))))
        kept_ask_end(ask);
}

void router_kept_worker_up(struct router *router, uint32_t slot)
{
    struct router_kept *kept = router->kept;
    Baton__Keep keep = BATON__KEEP__INIT;

    if (kept == NULL || (router->workers[slot].capabilities & CAPABILITY_KEEPS) == 0)
        return;
    kept->n_up += !kept->workers[slot].is_up;
    kept->workers[slot] =
        (struct kept_worker){.is_up = true, .digest = str_digest(router->workers[slot].node)};
    for (uint64_t i = 0; i < kept->n_forgotten && i < KEPT_FORGOTTEN; i++) {
        keep.name = kept->forgotten[i].text;
        (void)router_send(router, slot, FRAME_KEEP, &keep.base);
    }
    kept_copy_note(kept, slot, true);
}

void router_kept_worker_drains(struct router *router, uint32_t slot)
{
    if (router->kept != NULL && router->kept->workers[slot].is_up)
        kept_copy_note(router->kept, slot, false);
}

/* Questions that waited for this worker alone end in the loop's next turn. */
void router_kept_worker_down(struct router *router, uint32_t slot)
{
    struct router_kept *kept = router->kept;

    if (kept == NULL || !kept->workers[slot].is_up)
        return;
    kept->workers[slot].is_up = false;
    kept->n_up--;
    kept_copy_note(kept, slot, false);
    list_for_each_safe (node, spare, &kept->asks) {
        struct kept_ask *ask = container_of(node, struct kept_ask, node);

        if (!picker_slots_has(&ask->waiting, slot))
            continue;
        picker_slots_remove(&ask->waiting, slot);
        if (--ask->n_waiting > 0)
            continue;
        ask->until_ns = 0;
        list_remove(&ask->node);
        list_push_front(&kept->asks, &ask->node);
        ev_timer_start(kept->deadline, 0);
    }
}

/* ---- start and end ---- */

uint32_t router_kept_n_workers(const struct router *router)
{
    return router->kept == NULL ? 0 : router->kept->n_up;
}

bool router_kept_is_late(const struct router *router)
{
    uint64_t now_ns = clock_now_ns();
    bool is_late = false;

    for (uint32_t slot = 0; router->kept != NULL && slot < PICKER_MAX_WORKERS && !is_late; slot++)
        is_late = router->kept->workers[slot].is_up && now_ns < router->kept->workers[slot].late_until_ns;
    return is_late;
}

struct state_values router_kept_values(struct router *router)
{
    static const struct state_values_ops kept_ops = {.is_up = kept_is_up,
                                                     .name = kept_name,
                                                     .put = kept_put,
                                                     .put_copy = kept_put_copy,
                                                     .remove = kept_remove,
                                                     .expire = kept_expire,
                                                     .forget = kept_forget,
                                                     .ask = kept_ask,
                                                     .cancel = kept_cancel,
                                                     .max_bytes = KEPT_MAX_VALUE};

    return router->kept == NULL ? (struct state_values){0}
                                : (struct state_values){.ops = &kept_ops, .self = router->kept};
}

static void kept_declare(struct router_kept *kept, struct metrics *m)
{
    struct metric_family *asks =
        metric_family(m, METRIC_COUNTER, "baton_kept_asks_total",
                      "Names that workers were asked for, by what became of it.", "result");
    struct metric_family *puts =
        metric_family(m, METRIC_COUNTER, "baton_kept_puts_total",
                      "Values for workers to keep, by what became of them.", "result");

    kept->m_found = metric_series(asks, (const char *const[]){"found"});
    kept->m_missed = metric_series(asks, (const char *const[]){"missed"});
    kept->m_late = metric_single(m, METRIC_COUNTER, "baton_kept_late_total",
                                 "Questions that a worker did not answer in time.");
    kept->m_put = metric_series(puts, (const char *const[]){"sent"});
    kept->m_dropped = metric_series(puts, (const char *const[]){"dropped"});
    kept->m_damaged = metric_single(m, METRIC_COUNTER, "baton_kept_damaged_total",
                                    "Values that workers kept and that did not open.");
}

int router_kept_open(struct router *router, const uint8_t cluster_key[32], struct fault *fault)
{
    struct router_kept *kept = calloc(1, sizeof(*kept));

    if (kept == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    router->kept = kept;
    kept->router = router;
    kept->others_until_ns = clock_now_ns() + KEPT_UNKNOWN_NS;
    list_init(&kept->asks);
    if (hashmap_new_counted(&kept->by_number) < 0 || kept_copy_open(kept) < 0 ||
        ev_timer_new(router->loop, kept_on_deadline, kept, &kept->deadline) < 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    if (cluster_key_derive(cluster_key, "state", kept->key) < 0)
        return fault_set(fault, E_INTERNAL, "key derivation failed");
    kept_declare(kept, router->metrics);
    return 0;
}

void router_kept_close(struct router *router)
{
    struct router_kept *kept = router->kept;

    if (kept == NULL)
        return;
    while (!list_is_empty(&kept->asks))
        kept_ask_free(container_of(kept->asks.next, struct kept_ask, node));
    hashmap_free(kept->by_number);
    ev_timer_free(kept->deadline);
    kept_copy_close(kept);
    OPENSSL_cleanse(kept, sizeof(*kept));
    free(kept);
    router->kept = NULL;
}
