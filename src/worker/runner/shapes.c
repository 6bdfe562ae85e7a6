/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars of answers, compiled once for all requests with the same text.
 *
 *     SUBMIT with a grammar --> known? --yes--> sequence
 *                                  \--no, or on its way--> the task waits
 *                                      REPORT_SHAPE --> loop --> a job pool thread --> COMMAND_SHAPE
 *                                                                   compiles             the tasks go on
 *
 * A compiled grammar belongs to one thread, because it caches the masks that it has computed. A pool
 * thread builds it and hands it over; from then on only the engine thread touches it. SHAPES_MAX are kept,
 * found by a digest of their text and then compared. An evicted grammar lives until the sequences that use
 * it end. Eviction takes the oldest grammar of the tenant that has most, so a tenant with many does not
 * displace another tenant's few.
 *
 * Waiting is bounded: in the number of grammars being compiled, of one tenant half as many; in waiting
 * tasks (once more the scheduler's queue); and in time, after which a grammar that never came is given up.
 *
 * The endpoint has checked a grammar before it arrives here. If it does not compile here, the request
 * fails with the reason. */
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "cache/prefix/tenant.h"
#include "worker/runner/engine_thread_priv.h"

#define SHAPES_MAX       32
#define SHAPES_MAX_BYTES (16u << 20) /* of text */
#define COMPILE_WAIT_NS  (60 * NS_PER_S)

struct shape {
    struct list all; /* in engine.shapes, latest use first */
    uint64_t number;
    uint64_t tenant, digest;
    struct buf text;
    struct grammar *grammar; /* NULL: it is being compiled */
    uint64_t ordered_ns;
};

static struct shape *shape_of(struct list *node)
{
    return container_of(node, struct shape, all);
}

static void shape_free(struct worker_engine *engine, struct shape *shape)
{
    list_remove(&shape->all);
    engine->n_shapes--;
    engine->shape_bytes -= shape->text.len_bytes;
    grammar_unref(shape->grammar);
    buf_fini(&shape->text);
    free(shape);
}

static struct shape *find(struct worker_engine *engine, struct bytes text, uint64_t digest)
{
    list_for_each (node, &engine->shapes)
        if (shape_of(node)->digest == digest && bytes_equal(buf_view(&shape_of(node)->text), text))
            return shape_of(node);
    return NULL;
}

static uint32_t count_of(const struct worker_engine *engine, uint64_t tenant, bool is_compiled)
{
    uint32_t n = 0;

    list_for_each (node, &engine->shapes)
        n += shape_of(node)->tenant == tenant && (shape_of(node)->grammar != NULL) == is_compiled;
    return n;
}

/* The oldest compiled grammar of the tenant that has most of them; NULL: all are being compiled. */
static struct shape *least_wanted(const struct worker_engine *engine)
{
    struct shape *least = NULL;
    uint32_t most = 0;

    for (struct list *node = engine->shapes.prev; node != &engine->shapes; node = node->prev) {
        struct shape *shape = shape_of(node);
        uint32_t n = shape->grammar == NULL ? 0 : count_of(engine, shape->tenant, true);

        if (n > most) {
            most = n;
            least = shape;
        }
    }
    return least;
}

static void make_room(struct worker_engine *engine, size_t more_bytes)
{
    while (engine->n_shapes >= SHAPES_MAX || engine->shape_bytes + more_bytes > SHAPES_MAX_BYTES) {
        struct shape *shape = least_wanted(engine);

        if (shape == NULL)
            return;
        shape_free(engine, shape);
    }
}

static int order(struct worker_engine *engine, struct bytes text, uint64_t tenant, struct shape **out)
{
    struct report *report;
    struct shape *shape;

    make_room(engine, text.len_bytes);
    if (engine->n_shapes >= SHAPES_MAX || count_of(engine, tenant, false) >= SHAPES_MAX / 2)
        return E_OVERLOADED; /* all of them are being compiled */
    report = report_new(REPORT_SHAPE, 0);
    shape = calloc(1, sizeof(*shape));
    if (report == NULL || shape == NULL || buf_append(&shape->text, text.data, text.len_bytes) < 0 ||
        buf_append(&report->shape, text.data, text.len_bytes) < 0) {
        if (shape != NULL)
            buf_fini(&shape->text);
        free(shape);
        report_free(report);
        return E_NOMEM;
    }
    shape->number = report->shape_number = ++engine->next_shape;
    shape->tenant = report->shape_tenant = tenant;
    shape->ordered_ns = clock_now_ns();
    list_push_front(&engine->shapes, &shape->all);
    engine->n_shapes++;
    engine->shape_bytes += text.len_bytes;
    if (mailbox_send(engine->reports, report) < 0) {
        report_free(report);
        shape_free(engine, shape);
        return E_OVERLOADED;
    }
    *out = shape;
    return 0;
}

int worker_shapes_get(struct worker_engine *engine, const struct task_spec *spec, struct grammar **out,
                      uint64_t *number_out)
{
    struct bytes text = buf_view(&spec->order.constraint);
    uint64_t digest = XXH3_64bits(text.data, text.len_bytes);
    struct shape *shape = find(engine, text, digest);
    int rc = shape == NULL ? order(engine, text, tenant_number(spec->order.work.tenant), &shape) : 0;

    if (rc < 0)
        return rc;
    shape->digest = digest;
    list_remove(&shape->all);
    list_push_front(&engine->shapes, &shape->all);
    *out = shape->grammar;
    *number_out = shape->number;
    return shape->grammar != NULL ? 0 : E_AGAIN;
}

void worker_shapes_compiled(struct worker_engine *engine, struct shape_command *command)
{
    list_for_each_safe (node, spare, &engine->shapes) {
        struct shape *shape = shape_of(node);

        if (shape->number != command->number)
            continue;
        shape->grammar = command->grammar;
        command->grammar = NULL;
        worker_tasks_shaped(engine, shape->number, shape->grammar, command);
        if (shape->grammar == NULL) {
            log_warn("shape_refused", LOG_STR("reason", command->reason), LOG_ERR(command->code));
            shape_free(engine, shape);
        }
        return;
    }
}

void worker_shapes_tick(struct worker_engine *engine, uint64_t now_ns)
{
    static const struct shape_command never = {.code = E_OVERLOADED,
                                               .reason = "the shape was not compiled in time"};

    list_for_each_safe (node, spare, &engine->shapes) {
        struct shape *shape = shape_of(node);

        if (shape->grammar != NULL || now_ns - shape->ordered_ns < COMPILE_WAIT_NS)
            continue;
        worker_tasks_shaped(engine, shape->number, NULL, &never);
        shape_free(engine, shape);
    }
}

void worker_shapes_close(struct worker_engine *engine)
{
    while (engine->shapes.next != NULL && !list_is_empty(&engine->shapes))
        shape_free(engine, shape_of(engine->shapes.next));
}
