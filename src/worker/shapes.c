/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of answers, compiled once for all requests that have the same.
 *
 *     SUBMIT with a shape --> known? --yes--> sequence
 *                                \--no, or on its way--> the task waits
 *                                      REPORT_SHAPE --> loop --> a thread of the job pool --> COMMAND_SHAPE
 *                                                                   compiles                 the tasks go on
 *
 * A compiled grammar belongs to one thread, since it keeps the masks that it worked out: it is built on a
 * thread of the pool, handed over, and touched by the engine thread only from then on.  The latest SHAPES_MAX
 * are kept, by their whole text; those that leave while sequences use them live until those end.
 *
 * What waits is bounded: so many shapes at once, so many tasks (the scheduler's queue, again), and a time
 * after which a shape that never came is given up.
 *
 * What does not compile here was let through by somebody who thought it would: the request fails with the
 * reason. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "worker/engine_thread_priv.h"

#define SHAPES_MAX       32
#define SHAPES_MAX_BYTES (16u << 20) /* of text */
#define COMPILE_WAIT_NS  (60 * NS_PER_S)

struct shape {
    struct list all; /* in engine.shapes, latest use first */
    uint64_t number;
    struct buf text;
    struct grammar *grammar; /* NULL: is being compiled */
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

static struct shape *find(struct worker_engine *engine, struct bytes text)
{
    list_for_each (node, &engine->shapes)
        if (bytes_equal(buf_view(&shape_of(node)->text), text))
            return shape_of(node);
    return NULL;
}

/* Oldest first; those being compiled are waited for. */
static void make_room(struct worker_engine *engine, size_t more_bytes)
{
    struct list *node = engine->shapes.prev;

    while (node != &engine->shapes &&
           (engine->n_shapes >= SHAPES_MAX || engine->shape_bytes + more_bytes > SHAPES_MAX_BYTES)) {
        struct shape *shape = shape_of(node);

        node = node->prev;
        if (shape->grammar != NULL)
            shape_free(engine, shape);
    }
}

static int order(struct worker_engine *engine, struct bytes text, struct shape **out)
{
    struct report *report;
    struct shape *shape;

    make_room(engine, text.len_bytes);
    if (engine->n_shapes >= SHAPES_MAX)
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

int worker_shapes_get(struct worker_engine *engine, struct bytes text, struct grammar **out,
                      uint64_t *number_out)
{
    struct shape *shape = find(engine, text);
    int rc = shape == NULL ? order(engine, text, &shape) : 0;

    if (rc < 0)
        return rc;
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
