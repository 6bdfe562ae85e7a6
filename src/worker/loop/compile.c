/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles grammars for the engine thread on a job thread.  The loop thread carries text to the job threads
 * and grammars back; see grammars.c.  Tenants take turns, so a tenant with many grammars delays only
 * itself. */
#include <stdlib.h>

#include "base/err.h"
#include "base/str.h"
#include "serve/access/fair_queue.h"
#include "worker/loop/worker_priv.h"

#define MAX_WAITING       128 /* grammars.c never orders so many */
#define MAX_WAITING_BYTES (64u << 20)

struct worker_compile { /* a grammar being compiled; the job thread owns it between work and done */
    struct list all;    /* in worker.compiles */
    struct worker *worker;
    struct fair_queue_job job;
    uint64_t number;
    struct buf text;
    struct grammar *grammar;
    int rc;
    struct fault fault;
};

static void compile_free(struct worker_compile *compile)
{
    fair_queue_withdraw(&compile->job);
    list_remove(&compile->all);
    grammar_unref(compile->grammar);
    buf_fini(&compile->text);
    free(compile);
}

static void worker_compile_answer(struct worker *worker, uint64_t number, int code, const char *reason,
                                  struct grammar *grammar)
{
    struct command *command = command_new(COMMAND_GRAMMAR, 0);

    if (command == NULL) {
        grammar_unref(grammar); /* the waiting tasks time out and fail */
        return;
    }
    command->as.compiled.number = number;
    command->as.compiled.code = code;
    command->as.compiled.grammar = grammar;
    str_copy(command->as.compiled.reason, sizeof(command->as.compiled.reason), reason);
    (void)worker_engine_send(worker->engine, command);
}

static void worker_compile_work(void *arg)
{
    struct worker_compile *compile = arg;

    compile->rc = grammar_new(compile->worker->grammar_vocab, buf_view(&compile->text), &compile->fault,
                              &compile->grammar);
}

static void worker_compile_done(void *arg)
{
    struct worker_compile *compile = arg;
    struct grammar *grammar = compile->rc < 0 ? NULL : compile->grammar;

    if (grammar != NULL)
        compile->grammar = NULL;
    worker_compile_answer(compile->worker, compile->number, compile->rc, compile->fault.text, grammar);
    compile_free(compile);
}

int worker_compiles_open(struct worker *worker)
{
    const struct fair_queue_opts opts = {.jobs = worker->jobs,
                                         .loop = worker->loop,
                                         .max_waiting = MAX_WAITING,
                                         .max_waiting_bytes = MAX_WAITING_BYTES};

    return fair_queue_new(&opts, &worker->compile_queue);
}

void worker_compile(struct worker *worker, struct report *report)
{
    struct worker_compile *compile = calloc(1, sizeof(*compile));
    int rc = E_NOMEM;

    if (compile != NULL) {
        compile->worker = worker;
        compile->number = report->grammar_number;
        compile->text = report->constraint;
        report->constraint = (struct buf){0};
        list_push_back(&worker->compiles, &compile->all);
        compile->job = (struct fair_queue_job){.owner = (const void *)(uintptr_t)report->grammar_tenant,
                                               .size_bytes = compile->text.len_bytes,
                                               .work = worker_compile_work,
                                               .done = worker_compile_done,
                                               .arg = compile};
        rc = fair_queue_submit(worker->compile_queue, &compile->job);
        if (rc < 0)
            compile_free(compile);
    }
    if (rc < 0)
        worker_compile_answer(worker, report->grammar_number, E_OVERLOADED,
                              "too many grammars are being compiled", NULL);
}

void worker_compiles_close(struct worker *worker)
{
    while (!list_is_empty(&worker->compiles))
        compile_free(container_of(worker->compiles.next, struct worker_compile, all));
    fair_queue_free(worker->compile_queue);
    worker->compile_queue = NULL;
}
