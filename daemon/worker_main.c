/* SPDX-License-Identifier: Apache-2.0 */
/* A worker of either role has both ends of a KV transfer, so that a router can use it for either role. */
#include "daemon/worker_main.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/str.h"
#include "daemon/main_common.h"

struct state {
    struct main_options options;
    struct worker_conf *conf, *old;
};

static char **worker_main_cluster_key(void *conf)
{
    return &((struct worker_conf *)conf)->link.cluster_key;
}

#define MAX_NODE_BYTES 63 /* longest node name that routers accept */

/* Replaces characters that a node's name may not have by '-'.  A name that is too long keeps its beginning
 * and gets a digest of the whole. */
static void fit_host(char *host, size_t max_bytes)
{
    for (char *c = host; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && strchr("._-", *c) == NULL)
            *c = '-';
    if (strlen(host) <= max_bytes)
        return;
    snprintf(host + max_bytes - 9, 10, "-%08x", (unsigned)str_digest(host));
}

/* Replaces an empty node.name by HOST-ROLE-PORT with http.admin's port, which differs between workers of one
 * host. */
static void name_node(const struct main_options *options, void *arg)
{
    struct worker_conf *conf = arg;
    char **name = &conf->node;
    const char *role = options->table->daemon + strlen("baton-");
    const char *colon = strrchr(conf->http.admin, ':');
    const char *port = colon != NULL ? colon + 1 : "";
    char host[256] = "", own[32], text[MAX_NODE_BYTES + 1];

    if ((*name)[0] != '\0')
        return;
    snprintf(own, sizeof(own), "pid%ld", (long)getpid()); /* for a port that bind() chooses */
    if (port[0] == '\0' || strspn(port, "0") == strlen(port) || strlen(port) > 5)
        port = own;
    if (gethostname(host, sizeof(host) - 1) < 0 || host[0] == '\0')
        str_copy(host, sizeof(host), "host");
    fit_host(host, MAX_NODE_BYTES - strlen(role) - strlen(port) - 2);
    snprintf(text, sizeof(text), "%s-%s-%s", host, role, port);
    free(*name);
    *name = strdup(text);
    if (*name == NULL)
        abort();
}

static const struct worker_conf *worker_main_reload(void *arg)
{
    struct state *state = arg;
    struct worker_conf *conf = main_load_again(&state->options);

    if (conf == NULL)
        return NULL;
    main_keep_fixed(&state->options, state->conf, conf);
    config_free(state->options.table, state->old); /* no thread reads this older one any more */
    state->old = state->conf;
    state->conf = conf;
    return conf;
}

static int worker_main_diff(void *arg, struct buf *out, struct fault *fault)
{
    struct state *state = arg;

    return main_diff(&state->options, state->conf, out, fault);
}

int worker_main(int argc, char **argv, const struct config_table *table)
{
    struct state state = {.options = {.table = table,
                                      .check = worker_check,
                                      .cluster_key = worker_main_cluster_key,
                                      .complete = name_node,
                                      .libraries = worker_libraries,
                                      .tune = worker_tune}};
    struct fault fault = {0};
    struct worker_opts opts = {.daemon = table->daemon,
                               .reload = worker_main_reload,
                               .diff = worker_main_diff,
                               .reload_arg = &state};
    void *conf;
    int status = 0;

    if (main_begin(argc, argv, &state.options, &conf, &status) == 0)
        return status;
    state.conf = conf;
    log_setup(table->daemon, (enum log_level)state.conf->log_level, (enum log_format)state.conf->log_format);
    main_log_warnings(&state.options);
    opts.conf = state.conf;
    if (worker_run(&opts, &fault) < 0)
        status = main_failed(&state.options, state.conf, &fault);
    config_free(table, state.old);
    config_free(table, state.conf);
    return status;
}
