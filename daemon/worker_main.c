/* SPDX-License-Identifier: Apache-2.0 */
/* A worker of either role carries both ends of a hand-off, so that a router can use it for either. */
#include "daemon/worker_main.h"

#include "base/log.h"
#include "daemon/main_common.h"
#include "decode/arrive.h"
#include "prefill/depart.h"

struct state {
    struct main_options options;
    struct worker_conf *conf, *old;
};

static char **cluster_key(void *conf)
{
    return &((struct worker_conf *)conf)->cluster_key;
}

static const struct worker_conf *reload(void *arg)
{
    struct state *state = arg;
    struct worker_conf *conf = main_load_again(&state->options);

    if (conf == NULL)
        return NULL;
    main_keep_fixed(&state->options, state->conf, conf);
    config_free(state->options.table, state->old); /* nobody reads the one before last any more */
    state->old = state->conf;
    state->conf = conf;
    return conf;
}

int worker_main(int argc, char **argv, const struct config_table *table, enum worker_role role)
{
    struct state state = {
        .options = {.check = worker_check, .cluster_key = cluster_key, .libraries = worker_libraries}};
    struct fault fault = {0};
    struct worker_opts opts = {.role = role, .reload = reload, .reload_arg = &state};
    void *conf;
    int status = 0;

    if (main_begin(argc, argv, table, &state.options, &conf, &status) == 0)
        return status;
    state.conf = conf;
    log_setup(table->daemon, (enum log_level)state.conf->log_level, (enum log_format)state.conf->log_format);
    main_log_warnings(&state.options);
    opts.conf = state.conf;
    opts.departing = depart_side();
    opts.arriving = arrive_side();
    if (worker_run(&opts, &fault) < 0)
        status = main_failed(&state.options, state.conf, &fault);
    config_free(table, state.old);
    config_free(table, state.conf);
    return status;
}
