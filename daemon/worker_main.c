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
    const char *role_name;
};

static const struct worker_conf *reload(void *arg)
{
    struct state *state = arg;
    struct worker_conf *conf = main_load_again(&state->options);

    if (conf == NULL)
        return NULL;
    main_find_cluster_key(&conf->cluster_key);
    main_name_node(&conf->node, state->role_name, conf->admin_listen);
    main_keep_fixed(&state->options, state->conf, conf);
    config_free(state->options.table, state->old); /* nobody reads the one before last any more */
    state->old = state->conf;
    state->conf = conf;
    return conf;
}

int worker_main(int argc, char **argv, const struct config_table *table, enum worker_role role)
{
    struct state state = {.options = {.check = worker_check, .libraries = worker_libraries}};
    struct fault fault = {0};
    struct worker_opts opts = {.role = role, .reload = reload, .reload_arg = &state};
    void *conf;
    int status = 0;

    if (main_begin(argc, argv, table, &state.options, &conf, &status) == 0)
        return status;
    state.conf = conf;
    state.role_name = role == WORKER_PREFILL ? "prefill" : "decode";
    main_find_cluster_key(&state.conf->cluster_key);
    main_name_node(&state.conf->node, state.role_name, state.conf->admin_listen);
    log_setup(table->daemon, (enum log_level)state.conf->log_level, (enum log_format)state.conf->log_format);
    opts.conf = state.conf;
    opts.departing = depart_side();
    opts.arriving = arrive_side();
    if (worker_run(&opts, &fault) < 0)
        status = main_failed(&state.options, &fault);
    config_free(table, state.old);
    config_free(table, state.conf);
    return status;
}
