/* SPDX-License-Identifier: Apache-2.0 */
/* baton-router: options and configuration, then fleet/router/router.c. */
#include <malloc.h>

#include "base/log.h"
#include "daemon/main_common.h"
#include "fleet/router/router.h"

struct state {
    struct main_options options;
    struct router_conf *conf, *old;
};

static char **cluster_key(void *conf)
{
    return &((struct router_conf *)conf)->cluster_key;
}

static const struct router_conf *reload(void *arg)
{
    struct state *state = arg;
    struct router_conf *conf = main_load_again(&state->options);

    if (conf == NULL)
        return NULL;
    main_keep_fixed(&state->options, state->conf, conf);
    config_free(&router_conf_table, state->old); /* nobody reads the one before last any more */
    state->old = state->conf;
    state->conf = conf;
    return conf;
}

/* Long prompts take and give back megabytes each.  Handed to the kernel every time and cleared by it anew,
 * they cost a tenth of the way from body to tokens; so up to 32 MiB are kept at the top of each heap. */
static void keep_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 32 << 20);
    mallopt(M_TOP_PAD, 1 << 20);
}

int main(int argc, char **argv)
{
    struct state state = {
        .options = {.check = router_check, .cluster_key = cluster_key, .libraries = router_libraries}};
    struct fault fault = {0};
    void *conf;
    int status = 0;

    keep_memory();
    if (main_begin(argc, argv, &router_conf_table, &state.options, &conf, &status) == 0)
        return status;
    state.conf = conf;
    log_setup("baton-router", (enum log_level)state.conf->log_level, (enum log_format)state.conf->log_format);
    main_log_warnings(&state.options);
    if (router_run(state.conf, reload, &state, &fault) < 0)
        status = main_failed(&state.options, state.conf, &fault);
    config_free(&router_conf_table, state.old);
    config_free(&router_conf_table, state.conf);
    return status;
}
