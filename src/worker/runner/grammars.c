/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars of answers, compiled once for all requests with the same text.
 *
 *     SUBMIT with a grammar --> known? --yes--> sequence
 *                                  \--no, or compiling---> the task waits
 *                                      REPORT_GRAMMAR --> loop --> a job pool thread --> COMMAND_GRAMMAR
 *                                                                   compiles             the tasks go on
 *
 * A compiled grammar belongs to one thread, because it caches the masks that it computes.  A job thread
 * builds it and hands it over; from then on only the engine thread uses it.  The cache has GRAMMARS_MAX
 * entries, found by a digest of their text and then compared.  An evicted grammar lives until the sequences
 * that use it end.  Eviction takes the oldest grammar of the tenant that has the most, which protects tenants
 * with few.
 *
 * Waiting is bounded in three ways.  The number of grammars being compiled is limited, for one tenant to half
 * of it. As many tasks may wait as fit the scheduler's queue.  A grammar that takes too long fails.
 *
 * The endpoint has already checked the grammar.  If it does not compile here, the request fails with the
 * reason. */
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "cache/prefix/tenant.h"
#include "worker/runner/engine_thread_priv.h"

#define GRAMMARS_MAX       32
#define GRAMMARS_MAX_BYTES (16u << 20) /* bytes of text */
#define COMPILE_WAIT_NS    (60 * NS_PER_S)

struct grammar_entry {
    struct list all; /* in engine.grammars, latest use first */
    uint64_t number;
    uint64_t tenant, digest;
    struct buf text;
    struct grammar *grammar; /* NULL: it is being compiled */
    uint64_t ordered_ns;
};

static struct grammar_entry *grammar_entry_of(struct list *node)
{
    return container_of(node, struct grammar_entry, all);
}

static void grammar_entry_free(struct worker_engine *engine, struct grammar_entry *entry)
{
    list_remove(&entry->all);
    engine->n_grammars--;
    engine->grammar_bytes -= entry->text.len_bytes;
    grammar_unref(entry->grammar);
    buf_fini(&entry->text);
    free(entry);
}

static struct grammar_entry *worker_grammars_find(struct worker_engine *engine, struct bytes text,
                                                  uint64_t digest)
{
    list_for_each (node, &engine->grammars)
        if (grammar_entry_of(node)->digest == digest &&
            bytes_equal(buf_view(&grammar_entry_of(node)->text), text))
            return grammar_entry_of(node);
    return NULL;
}

static uint32_t worker_grammars_count_of(const struct worker_engine *engine, uint64_t tenant,
                                         bool is_compiled)
{
    uint32_t n = 0;

    list_for_each (node, &engine->grammars)
        n += grammar_entry_of(node)->tenant == tenant &&
             (grammar_entry_of(node)->grammar != NULL) == is_compiled;
    return n;
}

/* Returns the oldest compiled grammar of the tenant that has the most.  NULL: all are being compiled. */
static struct grammar_entry *least_wanted(const struct worker_engine *engine)
{
    struct grammar_entry *least = NULL;
    uint32_t most = 0;

    for (struct list *node = engine->grammars.prev; node != &engine->grammars; node = node->prev) {
        struct grammar_entry *entry = grammar_entry_of(node);
        uint32_t n = entry->grammar == NULL ? 0 : worker_grammars_count_of(engine, entry->tenant, true);

        if (n > most) {
            most = n;
            least = entry;
        }
    }
    return least;
}

static void worker_grammars_make_room(struct worker_engine *engine, size_t more_bytes)
{
    while (engine->n_grammars >= GRAMMARS_MAX || engine->grammar_bytes + more_bytes > GRAMMARS_MAX_BYTES) {
        struct grammar_entry *entry = least_wanted(engine);

        if (entry == NULL)
            return;
        grammar_entry_free(engine, entry);
    }
}

static int worker_grammars_order(struct worker_engine *engine, struct bytes text, uint64_t tenant,
                                 struct grammar_entry **out)
{
    struct report *report;
    struct grammar_entry *entry;

    worker_grammars_make_room(engine, text.len_bytes);
    if (engine->n_grammars >= GRAMMARS_MAX ||
        worker_grammars_count_of(engine, tenant, false) >= GRAMMARS_MAX / 2)
        return E_OVERLOADED; /* all of them are being compiled */
    report = report_new(REPORT_GRAMMAR, 0);
    entry = calloc(1, sizeof(*entry));
    if (report == NULL || entry == NULL || buf_append(&entry->text, text.data, text.len_bytes) < 0 ||
        buf_append(&report->constraint, text.data, text.len_bytes) < 0) {
        if (entry != NULL)
            buf_fini(&entry->text);
        free(entry);
        report_free(report);
        return E_NOMEM;
    }
    entry->number = report->grammar_number = ++engine->next_grammar;
    entry->tenant = report->grammar_tenant = tenant;
    entry->ordered_ns = clock_now_ns();
    list_push_front(&engine->grammars, &entry->all);
    engine->n_grammars++;
    engine->grammar_bytes += text.len_bytes;
    if (mailbox_send(engine->reports, report) < 0) {
        report_free(report);
        grammar_entry_free(engine, entry);
        return E_OVERLOADED;
    }
    *out = entry;
    return 0;
}

int worker_grammars_get(struct worker_engine *engine, const struct task_spec *spec, struct grammar **out,
                        uint64_t *number_out)
{
    struct bytes text = buf_view(&spec->order.constraint);
    uint64_t digest = XXH3_64bits(text.data, text.len_bytes);
    struct grammar_entry *entry = worker_grammars_find(engine, text, digest);
    int rc = entry == NULL
                 ? worker_grammars_order(engine, text, tenant_number(spec->order.work.tenant), &entry)
                 : 0;

    if (rc < 0)
        return rc;
    entry->digest = digest;
    list_remove(&entry->all);
    list_push_front(&engine->grammars, &entry->all);
    *out = entry->grammar;
    *number_out = entry->number;
    return entry->grammar != NULL ? 0 : E_AGAIN;
}

void worker_grammars_compiled(struct worker_engine *engine, struct grammar_command *command)
{
    list_for_each_safe (node, spare, &engine->grammars) {
        struct grammar_entry *entry = grammar_entry_of(node);

        if (entry->number != command->number)
            continue;
        entry->grammar = command->grammar;
        command->grammar = NULL;
        worker_tasks_compiled(engine, entry->number, entry->grammar, command);
        if (entry->grammar == NULL) {
            log_warn("grammar_refused", LOG_STR("reason", command->reason), LOG_ERR(command->code));
            grammar_entry_free(engine, entry);
        }
        return;
    }
}

void worker_grammars_tick(struct worker_engine *engine, uint64_t now_ns)
{
    static const struct grammar_command never = {.code = E_OVERLOADED,
                                                 .reason = "the grammar was not compiled in time"};

    list_for_each_safe (node, spare, &engine->grammars) {
        struct grammar_entry *entry = grammar_entry_of(node);

        if (entry->grammar != NULL || now_ns - entry->ordered_ns < COMPILE_WAIT_NS)
            continue;
        worker_tasks_compiled(engine, entry->number, NULL, &never);
        grammar_entry_free(engine, entry);
    }
}

void worker_grammars_close(struct worker_engine *engine)
{
    while (engine->grammars.next != NULL && !list_is_empty(&engine->grammars))
        grammar_entry_free(engine, grammar_entry_of(engine->grammars.next));
}
