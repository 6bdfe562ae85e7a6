/* SPDX-License-Identifier: Apache-2.0 */
/* The common settings, in the order of the tables' sections. */
#include "serve/setup/setup.h"

#include <string.h>

#include "base/name.h"
#include "net/http/congestion.h"

static void check_node(struct config_check *check, const char *node)
{
    if (!name_fits(node))
        config_refuse(check, "node.name",
                      "'%.80s' is not a node's name; use 1 to %d letters, digits, '.', '_' and '-'", node,
                      NAME_MOST_BYTES);
}

/* "https://app.example:8443": the text that a browser sends; origins are compared as text. */
static bool is_origin(const char *text)
{
    const char *host = strstr(text, "://");

    if (strcmp(text, "*") == 0 || strcmp(text, "null") == 0)
        return true;
    return host != NULL && host > text && host[3] != '\0' && strpbrk(host + 3, "/?#@ \t*") == NULL;
}

static void check_origins(struct config_check *check, const struct config_list *origins)
{
    for (size_t i = 0; i < origins->n; i++)
        if (!is_origin(origins->items[i]))
            config_refuse_item(
                check, "http.cors_origin", i,
                "'%.200s' is not an origin; write scheme://host or scheme://host:port, without a "
                "path and a slash at the end, or *",
                origins->items[i]);
}

void setup_check_common(struct config_check *check, const struct setup_common *common)
{
    struct fault fault = {0};

    check_node(check, common->node);
    check_origins(check, &common->http->cors_origin);
    if (common->http->congestion_control[0] != '\0' &&
        http_congestion_check(common->http->congestion_control, &fault) < 0)
        config_refuse(check, "http.congestion_control", "%s", fault.text);
    setup_check_files(check, common);
}
