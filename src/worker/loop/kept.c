/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps sealed values for the routers: conversations, responses, remembered answers, orders of streams, claims.
 *
 *      KEEP ──> by_name ──> FETCHED       until its life ends, KEEP without a life, or memory is short
 *
 * A name is a keyed hash and a value is sealed, so this worker knows neither.  stream.kept_memory bounds all values
 * together; beyond it the least recently used goes.  A slice of the values is looked at in each tick, so that one
 * whose life has ended does not stay for long.
 *
 *      LIST_KEPT ──> by_age, a page at a time ──> LISTED ; FETCH with a mark ──> FETCHED
 *
 * So a router copies values to other workers when workers leave or come.  A value that was fetched for a copy, or is
 * one, bears the mark of that change: lists for the same change leave it out.  A forgotten name stays for a
 * while without a value, so that a copy on its way does not bring it back. */
#include "worker/loop/kept_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/hashmap.h"
#include "base/list.h"

#define KEPT_TICK_NS     NS_PER_S
#define KEPT_TICK_LOOKS  1024
#define KEPT_KEY_BYTES   40                 /* of a name's end: its 32 digits of a keyed hash are there */
#define KEPT_OVERHEAD    128                /* the map's half-filled slot and the allocator's overhead */
#define KEPT_REPLY_BYTES ((size_t)8 << 20)  /* values of one FETCH; the rest count as unknown */
#define KEPT_MAX_QUEUED  ((size_t)16 << 20) /* on a link: beyond, no values are sent */
#define KEPT_LIST_LOOKS  4096               /* values that one LIST_KEPT looks at */
#define KEPT_HINTS       8                  /* routers that list at once without a search */
#define KEPT_FORGOTTEN_S 30                 /* how long a forgotten name refuses copies */

struct kept_value {
    struct list use;   /* kept.by_use */
    struct list sweep; /* kept.sweep */
    struct list age;   /* kept.by_age */
    uint64_t number;   /* rises with each new value */
    uint64_t mark;     /* of the change for which it was copied; 0: none */
    bool is_forgotten; /* only its name is left */
    char key[KEPT_KEY_BYTES];
    char name[FRAME_KEPT_NAME + 1];
    uint64_t until_ns;
    size_t len_bytes;
    uint8_t data[]; /* none: a claim */
};

struct worker_kept {
    struct worker *worker;
    struct hashmap *by_name;
    struct list by_use; /* the least recently used first */
    struct list sweep;  /* the one that was looked at longest ago first */
    struct list by_age; /* by number */
    uint64_t next_number;
    const struct kept_value *hints[KEPT_HINTS]; /* the last values of pages; NULL: gone */
    unsigned next_hint;
    size_t n_bytes, n_forgotten;
    struct ev_timer *tick;
    struct metric *m_count, *m_bytes, *m_evicted;
};

static size_t kept_value_bytes(const struct kept_value *value)
{
    return sizeof(*value) + value->len_bytes + KEPT_OVERHEAD;
}

static void kept_value_free(struct worker_kept *kept, struct kept_value *value)
{
    hashmap_remove(kept->by_name, value->key);
    list_remove(&value->use);
    list_remove(&value->sweep);
    list_remove(&value->age);
    for (unsigned i = 0; i < KEPT_HINTS; i++)
        if (kept->hints[i] == value)
            kept->hints[i] = NULL;
    kept->n_bytes -= kept_value_bytes(value);
    kept->n_forgotten -= value->is_forgotten;
    free(value);
}

static void kept_count_values(struct worker_kept *kept)
{
    metric_set(kept->m_count, (double)(hashmap_count(kept->by_name) - kept->n_forgotten));
    metric_set(kept->m_bytes, (double)kept->n_bytes);
}

static void kept_key(const char *name, char key[KEPT_KEY_BYTES])
{
    size_t n = strlen(name);

    memset(key, 0, KEPT_KEY_BYTES);
    memcpy(key, name + (n > KEPT_KEY_BYTES ? n - KEPT_KEY_BYTES : 0),
           n < KEPT_KEY_BYTES ? n : KEPT_KEY_BYTES);
}

/* The entry of a name, also of a forgotten one; NULL: none, or its life has ended. */
static struct kept_value *kept_entry_find(struct worker_kept *kept, const char *name)
{
    char key[KEPT_KEY_BYTES];
    struct kept_value *value;

    kept_key(name, key);
    value = hashmap_get(kept->by_name, key);
    if (value == NULL || value->until_ns > clock_now_ns())
        return value;
    kept_value_free(kept, value);
    return NULL;
}

static struct kept_value *kept_value_find(struct worker_kept *kept, const char *name)
{
    struct kept_value *value = kept_entry_find(kept, name);

    return value != NULL && !value->is_forgotten ? value : NULL;
}

/* Replaces an earlier value.  E_NOMEM, E_LIMIT (larger than the memory for all). */
static int kept_value_put(struct worker_kept *kept, const char *name, uint32_t life_s, struct bytes data)
{
    size_t most = kept->worker->conf->kept_bytes;
    struct kept_value *value = kept_entry_find(kept, name);

    if (value != NULL)
        kept_value_free(kept, value);
    value = calloc(1, sizeof(*value) + data.len_bytes);
    if (value == NULL)
        return E_NOMEM;
    memcpy(value->name, name, strnlen(name, FRAME_KEPT_NAME));
    kept_key(value->name, value->key);
    value->until_ns = clock_now_ns() + life_s * NS_PER_S;
    value->len_bytes = data.len_bytes;
    if (data.len_bytes > 0)
        memcpy(value->data, data.data, data.len_bytes);
    if (kept_value_bytes(value) > most || hashmap_put(kept->by_name, value->key, value, NULL) < 0) {
        int rc = kept_value_bytes(value) > most ? E_LIMIT : E_NOMEM;

        free(value);
        return rc;
    }
    list_push_back(&kept->by_use, &value->use);
    list_push_back(&kept->sweep, &value->sweep);
    list_push_back(&kept->by_age, &value->age);
    value->number = ++kept->next_number;
    kept->n_bytes += kept_value_bytes(value);
    while (kept->n_bytes > most) {
        kept_value_free(kept, container_of(kept->by_use.next, struct kept_value, use));
        metric_add(kept->m_evicted, 1);
    }
    return 0;
}

static void kept_forget_name(struct worker_kept *kept, const char *name)
{
    struct kept_value *value;

    if (kept_value_put(kept, name, KEPT_FORGOTTEN_S, (struct bytes){0}) < 0)
        return;
    value = kept_entry_find(kept, name);
    if (value == NULL) /* the memory is for less than it */
        return;
    value->is_forgotten = true;
    kept->n_forgotten++;
}

void worker_kept_keep(struct worker *worker, const Baton__Keep *keep)
{
    struct worker_kept *kept = worker->kept;
    struct kept_value *value;

    if (keep->life_s == 0)
        kept_forget_name(kept, keep->name);
    else if (keep->mark == 0 || kept_entry_find(kept, keep->name) == NULL)
        (void)kept_value_put(kept, keep->name, keep->life_s, bytes_of(keep->value.data, keep->value.len));
    value = keep->mark != 0 ? kept_value_find(kept, keep->name) : NULL;
    if (value != NULL)
        value->mark = keep->mark;
    kept_count_values(kept);
}

static Baton__Claim kept_claim(struct worker_kept *kept, const Baton__Fetch *fetch)
{
    if (fetch->claim[0] == '\0')
        return BATON__CLAIM__CLAIM_UNKNOWN;
    if (kept_value_find(kept, fetch->claim) != NULL)
        return BATON__CLAIM__CLAIM_TAKEN;
    return kept_value_put(kept, fetch->claim, fetch->claim_life_s, (struct bytes){0}) == 0
               ? BATON__CLAIM__CLAIM_SET
               : BATON__CLAIM__CLAIM_UNKNOWN;
}

void worker_kept_fetch(struct worker_router *router, const Baton__Fetch *fetch)
{
    struct worker_kept *kept = router->worker->kept;
    Baton__Fetched fetched = BATON__FETCHED__INIT;
    size_t n_sent = 0;

    fetched.number = fetch->number;
    for (size_t i = 0; i < fetch->n_names; i++) {
        struct kept_value *value = kept_value_find(kept, fetch->names[i]);

        if (value == NULL || n_sent + value->len_bytes > KEPT_REPLY_BYTES ||
            link_queued_bytes(router->link) > KEPT_MAX_QUEUED)
            continue;
        list_remove(&value->use);
        list_push_back(&kept->by_use, &value->use);
        fetched.name = value->name;
        fetched.value = (ProtobufCBinaryData){.data = value->data, .len = value->len_bytes};
        n_sent += value->len_bytes;
        if (link_send(router->link, FRAME_FETCHED, &fetched.base) < 0)
            return;
        value->mark = fetch->mark != 0 ? fetch->mark : value->mark;
    }
    fetched.name = fetch->claim;
    fetched.value = (ProtobufCBinaryData){0};
    fetched.is_last = true;
    fetched.claim = kept_claim(kept, fetch);
    (void)link_send(router->link, FRAME_FETCHED, &fetched.base);
    kept_count_values(kept);
}

/* The first value after this number. */
static const struct list *kept_list_begin(const struct worker_kept *kept, uint64_t after)
{
    const struct list *at = kept->by_age.next;

    for (unsigned i = 0; i < KEPT_HINTS; i++)
        if (kept->hints[i] != NULL && kept->hints[i]->number == after)
            return kept->hints[i]->age.next;
    while (at != &kept->by_age && container_of(at, struct kept_value, age)->number <= after)
        at = at->next;
    return at;
}

void worker_kept_list(struct worker_router *router, const Baton__ListKept *list)
{
    struct worker_kept *kept = router->worker->kept;
    const struct list *at = kept_list_begin(kept, list->after);
    const struct kept_value *value = NULL;
    uint32_t lives_s[FRAME_KEPT_NAMES], lens_bytes[FRAME_KEPT_NAMES], n = 0;
    uint64_t now_ns = clock_now_ns();
    char *names[FRAME_KEPT_NAMES];
    Baton__Listed listed = BATON__LISTED__INIT;

    listed.number = list->number;
    listed.next = list->after;
    for (unsigned i = 0; i < KEPT_LIST_LOOKS && n < FRAME_KEPT_NAMES && at != &kept->by_age; i++) {
        value = container_of(at, const struct kept_value, age);
        at = at->next;
        listed.next = value->number;
        if (value->is_forgotten || value->until_ns < now_ns + NS_PER_S ||
            (list->mark != 0 && value->mark == list->mark))
            continue;
        names[n] = (char *)(uintptr_t)value->name;
        lives_s[n] = (uint32_t)((value->until_ns - now_ns) / NS_PER_S);
        lens_bytes[n++] = (uint32_t)value->len_bytes;
    }
    if (value != NULL)
        kept->hints[kept->next_hint++ % KEPT_HINTS] = value;
    listed.names = names;
    listed.lives_s = lives_s;
    listed.lens_bytes = lens_bytes;
    listed.n_names = listed.n_lives_s = listed.n_lens_bytes = n;
    listed.is_last = at == &kept->by_age;
    (void)link_send(router->link, FRAME_LISTED, &listed.base);
}

static void kept_on_tick(void *arg)
{
    struct worker_kept *kept = arg;
    uint64_t now_ns = clock_now_ns();

    for (unsigned i = 0; i < KEPT_TICK_LOOKS && !list_is_empty(&kept->sweep); i++) {
        struct kept_value *value = container_of(kept->sweep.next, struct kept_value, sweep);

        list_remove(&value->sweep);
        list_push_back(&kept->sweep, &value->sweep);
        if (value->until_ns <= now_ns)
            kept_value_free(kept, value);
    }
    kept_count_values(kept);
}

int worker_kept_open(struct worker *worker)
{
    struct worker_kept *kept = calloc(1, sizeof(*kept));

    if (kept == NULL)
        return E_NOMEM;
    worker->kept = kept;
    kept->worker = worker;
    list_init(&kept->by_use);
    list_init(&kept->sweep);
    list_init(&kept->by_age);
    kept->m_count =
        metric_single(worker->metrics, METRIC_GAUGE, "baton_worker_kept",
                      "Conversations, responses, remembered answers, orders of streams and claims kept for "
                      "routers.");
    kept->m_bytes = metric_single(worker->metrics, METRIC_GAUGE, "baton_worker_kept_bytes",
                                  "Memory of the values kept for routers.");
    kept->m_evicted = metric_single(worker->metrics, METRIC_COUNTER, "baton_worker_kept_evicted_total",
                                    "Values kept for routers that were dropped for lack of memory.");
    if (hashmap_new(KEPT_KEY_BYTES, &kept->by_name) < 0 ||
        ev_timer_new(worker->loop, kept_on_tick, kept, &kept->tick) < 0)
        return E_NOMEM;
    ev_timer_repeat(kept->tick, KEPT_TICK_NS);
    return 0;
}

void worker_kept_close(struct worker *worker)
{
    struct worker_kept *kept = worker->kept;

    if (kept == NULL)
        return;
    while (!list_is_empty(&kept->by_use))
        kept_value_free(kept, container_of(kept->by_use.next, struct kept_value, use));
    hashmap_free(kept->by_name);
    ev_timer_free(kept->tick);
    free(kept);
    worker->kept = NULL;
}
