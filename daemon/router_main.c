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

static char **router_main_cluster_key(void *conf)
{
    return &((struct router_conf *)conf)->link.cluster_key;
}

static const struct router_conf *router_main_reload(void *arg)
{
    struct state *state = arg;
    struct router_conf *conf = main_load_again(&state->options);

    if (conf == NULL)
        return NULL;
    main_keep_fixed(&state->options, state->conf, conf);
    config_free(&router_conf_table, state->old); /* no thread reads this older one any more */
    state->old = state->conf;
    state->conf = conf;
    return conf;
}

static int router_main_diff(void *arg, struct buf *out, struct fault *fault)
{
    struct state *state = arg;

    return main_diff(&state->options, state->conf, out, fault);
}

/* Long prompts allocate and free megabytes each.  If malloc() returns that memory to the kernel every time,
 * the kernel clears it anew, which costs a tenth of the time from body to tokens.  So each heap keeps up to
 * 32 MiB at its top. */
static void keep_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 32 << 20);
    mallopt(M_TOP_PAD, 1 << 20);
}

int main(int argc, char **argv)
{
    struct state state = {.options = {.table = &router_conf_table,
                                      .check = router_check,
                                      .cluster_key = router_main_cluster_key,
                                      .libraries = router_libraries}};
    struct router_opts opts = {.reload = router_main_reload, .diff = router_main_diff, .reload_arg = &state};
    struct fault fault = {0};
    void *conf;
    int status = 0;

    keep_memory();
    if (main_begin(argc, argv, &state.options, &conf, &status) == 0)
        return status;
    state.conf = conf;
    log_setup("baton-router", (enum log_level)state.conf->log_level, (enum log_format)state.conf->log_format);
    main_log_warnings(&state.options);
    opts.conf = state.conf;
    if (router_run(&opts, &fault) < 0)
        status = main_failed(&state.options, state.conf, &fault);
    config_free(&router_conf_table, state.old);
    config_free(&router_conf_table, state.conf);
    return status;
}
