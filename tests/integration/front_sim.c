/* SPDX-License-Identifier: Apache-2.0 */
/* The real endpoint over the scripted backend, for tests with other projects' clients:
 *
 *     front_sim [--listen HOST:PORT] [--keys FILE] [--context TOKENS] [--token-us N]
 *               [--certificate FILE --private-key FILE] [--h2c yes] [--origin ORIGIN] [--per-address N]
 *
 * Prints "listening PORT" when it listens, and serves until a signal ends it.
 * tests/unit/serve/endpoint/sim_backend.h describes the model "sim". */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/event/jobs.h"
#include "base/event/signals.h"
#include "serve/endpoint/front.h"
#include "tests/unit/serve/endpoint/sim_backend.h"
#include "tests/unit/serve/endpoint/sim_model.h"

struct program {
    const char *listen;
    const char *keys_path;
    uint32_t context_length;
    uint64_t token_ns;
    struct http_tls_files files;
    struct http_tls *tls;
    bool has_h2c;
    const char *origin;
    uint32_t per_address;
    struct ev_loop *loop;
    struct ev_jobs *jobs;
    struct metrics *metrics;
    struct gen_model model;
    struct sim *sim;
    struct front *front;
};

static void stop(void *arg)
{
    ev_loop_stop(arg);
}

static bool parse_arguments(struct program *program, int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--listen") == 0)
            program->listen = argv[i + 1];
        else if (strcmp(argv[i], "--keys") == 0)
            program->keys_path = argv[i + 1];
        else if (strcmp(argv[i], "--context") == 0)
            program->context_length = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--token-us") == 0)
            program->token_ns = strtoull(argv[i + 1], NULL, 10) * NS_PER_US;
        else if (strcmp(argv[i], "--certificate") == 0)
            program->files.certificate = argv[i + 1];
        else if (strcmp(argv[i], "--private-key") == 0)
            program->files.key = argv[i + 1];
        else if (strcmp(argv[i], "--h2c") == 0)
            program->has_h2c = strcmp(argv[i + 1], "yes") == 0;
        else if (strcmp(argv[i], "--origin") == 0)
            program->origin = argv[i + 1];
        else if (strcmp(argv[i], "--per-address") == 0)
            program->per_address = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        else
            return false;
    }
    return argc % 2 == 1;
}

static int start(struct program *program, struct fault *fault)
{
    struct sim_opts sim = {.model = &program->model, .accept_ns = NS_PER_MS, .token_ns = program->token_ns};
    struct front_opts opts;
    int rc;

    if (ev_loop_new(&program->loop) < 0 || ev_jobs_new(1, 64, &program->jobs) < 0 ||
        metrics_new(&program->metrics) < 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    rc = sim_model_open(program->context_length, &program->model);
    if (rc < 0)
        return fault_set(fault, rc, "cannot make the model");
    sim.loop = program->loop;
    if (sim_new(&sim, &program->sim) < 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    front_opts_init(&opts);
    opts.loop = program->loop;
    opts.jobs = program->jobs;
    opts.metrics = program->metrics;
    opts.backend = sim_backend(program->sim);
    opts.keys_path = program->keys_path;
    opts.has_open_metrics = true;
    opts.has_h2c = program->has_h2c;
    opts.origins = &program->origin;
    opts.n_origins = program->origin != NULL;
    opts.limits.max_conns_per_address = program->per_address;
    if (program->files.certificate != NULL) {
        struct http_tls_opts tls = {.files = program->files,
                                    .has_http2 = true,
                                    .loop = program->loop,
                                    .metrics = program->metrics,
                                    .poll_ns = 100 * NS_PER_MS};

        rc = http_tls_new(&tls, fault, &program->tls);
        if (rc < 0)
            return rc;
        opts.tls = program->tls;
    }
    rc = front_new(&opts, fault, &program->front);
    return rc < 0 ? rc : front_listen(program->front, program->listen, fault);
}

int main(int argc, char **argv)
{
    struct program program = {.listen = "127.0.0.1:0", .context_length = 8192, .token_ns = 200 * NS_PER_US};
    struct ev_signal *on_term = NULL;
    struct ev_signal *on_int = NULL;
    struct fault fault = {0};

    signal(SIGPIPE, SIG_IGN); /* as the daemons do: a client may be gone when it is written to */
    log_setup("front_sim", LOG_LEVEL_WARN, LOG_FORMAT_TEXT);
    if (!parse_arguments(&program, argc, argv)) {
        fprintf(stderr,
                "usage: front_sim [--listen HOST:PORT] [--keys FILE] [--context TOKENS] [--token-us N]\n"
                "                 [--certificate FILE --private-key FILE] [--h2c yes] [--origin ORIGIN] "
                "[--per-address N]\n");
        return 2;
    }
    if (start(&program, &fault) < 0) {
        fprintf(stderr, "front_sim: %s\n", fault.text);
        return 1;
    }
    if (ev_signal_new(program.loop, SIGTERM, stop, program.loop, &on_term) < 0 ||
        ev_signal_new(program.loop, SIGINT, stop, program.loop, &on_int) < 0)
        return 1;
    printf("listening %u\n", front_port(program.front));
    fflush(stdout);
    ev_loop_run(program.loop);
    ev_signal_free(on_term);
    ev_signal_free(on_int);
    front_free(program.front);
    http_tls_free(program.tls);
    ev_jobs_free(program.jobs);
    sim_free(program.sim);
    sim_model_close(&program.model);
    metrics_free(program.metrics);
    ev_loop_free(program.loop);
    return 0;
}
