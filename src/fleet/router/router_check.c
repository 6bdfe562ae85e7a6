/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the router's settings that the table of keys cannot express. */
#include "fleet/router/router.h"
#include "fleet/router/state_priv.h"

#include <string.h>

#include "base/str.h"
#include "fleet/picker/classes.h"
#include "fleet/router/router_priv.h"
#include "net/otlp/otlp_encode.h"
#include "serve/access/auth.h"
#include "serve/setup/setup.h"

/* Warns of the first line of the key file that names a class which is not there. */
static void check_key_classes(struct config_check *check, const char *path,
                              const struct picker_classes *classes)
{
    struct auth_keys *keys = NULL;
    struct auth_entry entry;
    struct fault fault = {0};

    if (path[0] == '\0' || auth_keys_load(path, &fault, &keys) < 0)
        return; /* setup_check_common() has said it */
    for (size_t i = 0;
         auth_key_at(keys, i, &entry) || auth_tenant_at(keys, i - auth_keys_count(keys), &entry); i++) {
        if (entry.rule == NULL || entry.rule->class_name[0] == '\0' ||
            picker_classes_has(classes, entry.rule->class_name))
            continue;
        config_warn(
            check, "http.api_keys",
            "%s: a line of tenant %s names the class %s, which [classes] does not define: its requests get "
            "the class default",
            path, entry.tenant, entry.rule->class_name);
        break;
    }
    auth_keys_free(keys);
}

static void check_classes(struct config_check *check, const struct router_conf *conf)
{
    struct picker_classes classes;
    struct fault fault = {0};
    bool are_whole = true;

    picker_classes_init(&classes, conf->ttft_slo_ns, conf->itl_slo_ns);
    for (size_t i = 0; i < conf->classes.n; i++) {
        const char *text = conf->classes.items[i];

        if (picker_classes_add(&classes, bytes_of(text, strlen(text)), &fault) < 0) {
            config_refuse_item(check, "classes.class", i, "%s", fault.text);
            are_whole = false;
        }
    }
    if (are_whole)
        check_key_classes(check, conf->http.api_keys, &classes);
}

void router_check(struct config_check *check)
{
    const struct router_conf *conf = check->config;
    const struct setup_common common = {.node = conf->node,
                                        .http = &conf->http,
                                        .link_listen = conf->link_listen,
                                        .link = conf->link,
                                        .public_prefix = conf->public_prefix};
    const struct setup_discovery discovery = {.registers = conf->link_register,
                                              .advertise = conf->link_advertise,
                                              .link_listen = conf->link_listen,
                                              .ca = conf->discovery_ca,
                                              .certificate = conf->discovery_certificate,
                                              .key = conf->discovery_key};
    struct setup_listens listens = {0};
    struct otlp_url collector;
    struct fault fault = {0};

    setup_check_common(check, &common);
    setup_check_listens(check, &common, &listens);
    setup_check_discovery(check, &discovery);
    setup_check_memory(check, "cache.replay_memory", conf->replay_bytes);
    setup_check_memory(check, "cache.thread_memory", conf->conversation_bytes);
    check_classes(check, conf);
    router_state_check(check, conf);
    if (conf->trace_url[0] != '\0' && otlp_url_read(conf->trace_url, &fault, &collector) < 0)
        config_refuse(check, "trace.url", "%s", fault.text);
    if (conf->itl_slo_ns > conf->ttft_slo_ns)
        config_warn(check, "slo.itl", "longer than slo.ttft; were the two exchanged?");
}
