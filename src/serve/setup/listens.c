/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses that a daemon listens on and those that it dials. */
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "net/discover/url.h"
#include "net/link/listen_check.h"
#include "serve/setup/admin_access.h"
#include "serve/setup/setup.h"

static void listens_note(struct config_check *check, struct setup_listens *listens,
                         const struct setup_listen *one)
{
    for (unsigned i = 0; i < listens->n; i++) {
        const struct setup_listen *other = &listens->all[i];

        if (!listen_same(&other->addr, &one->addr))
            continue;
        config_refuse_item(check, one->key, one->item,
                           "'%.200s' is taken by %s = %.200s; choose another port", one->text, other->key,
                           other->text);
        return;
    }
    if (listens->n < SETUP_MAX_LISTENS)
        listens->all[listens->n++] = *one;
}

void setup_check_listen(struct config_check *check, struct setup_listens *listens, const char *key,
                        const char *text)
{
    struct setup_listen one = {.key = key, .text = text};
    struct fault fault = {0};

    if (text[0] == '\0')
        config_refuse(check, key, "not set; give address:port, like 127.0.0.1:8090");
    else if (listen_check(text, &fault, &one.addr) < 0)
        config_refuse(check, key, "%s", fault.text);
    else
        listens_note(check, listens, &one);
}

/* Resolves a name.  Only the front's listener accepts names; the other listeners do not. */
static int listens_look_up(const struct addr *addr, const char *text, struct fault *fault)
{
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(addr->host, NULL, &hints, &found);

    if (rc != 0)
        return fault_set(fault, E_FORMAT, "'%.200s': %s", text, gai_strerror(rc));
    freeaddrinfo(found);
    return 0;
}

static void check_front(struct config_check *check, const struct setup_common *common, size_t item,
                        struct setup_listens *listens)
{
    const char *text = common->http->listen.items[item];
    struct setup_listen one = {.key = "http.listen", .item = item, .text = text};
    struct fault fault = {0};
    int rc = addr_parse(text, &fault, &one.addr);

    if (rc == 0 && !one.addr.is_numeric && common->http->api_keys[0] != '\0' && !check->is_reload)
        rc = listens_look_up(&one.addr, text, &fault);
    else if (rc < 0 || one.addr.is_numeric)
        rc = listen_check(text, &fault, &one.addr);
    if (rc < 0) {
        config_refuse_item(check, "http.listen", item, "%s", fault.text);
        return;
    }
    if (common->http->api_keys[0] == '\0' && !addr_is_loopback(&one.addr))
        config_refuse_item(
            check, "http.listen", item,
            "%.200s is not loopback: give http.api_keys a key file first, or listen on 127.0.0.1", text);
    listens_note(check, listens, &one);
}

void setup_check_listens(struct config_check *check, const struct setup_common *common,
                         struct setup_listens *listens)
{
    struct fault fault = {0};

    for (size_t i = 0; i < common->http->listen.n; i++)
        check_front(check, common, i, listens);
    setup_check_listen(check, listens, "http.admin", common->http->admin);
    if (addr_parse(common->http->admin, NULL, &(struct addr){0}) == 0 &&
        admin_access_check(common->http->admin, &fault) < 0)
        config_refuse(check, "http.admin", "%s", fault.text);
    setup_check_listen(check, listens, "link.listen", common->link_listen);
}

int setup_dial_parse(const char *text, struct fault *fault, struct addr *out)
{
    int rc = addr_parse(text, fault, out);

    if (rc == 0 && (out->port == 0 || strcmp(out->host, "*") == 0))
        rc = fault_set(fault, E_FORMAT, "'%.200s' cannot be dialled; give a host and a port from 1 to 65535",
                       text);
    return rc;
}

void setup_check_dials(struct config_check *check, const char *key, const struct config_list *list,
                       size_t max)
{
    struct fault fault = {0};
    struct discover_url url;
    struct addr addr;
    char shown[200];

    for (size_t i = 0; i < list->n; i++) {
        if ((discover_is_url(list->items[i]) ? discover_url_parse(list->items[i], &fault, &url)
                                             : setup_dial_parse(list->items[i], &fault, &addr)) < 0)
            config_refuse_item(check, key, i, "%s", fault.text);
        for (size_t before = 0; before < i; before++)
            if (strcmp(list->items[before], list->items[i]) == 0) {
                discover_url_show(list->items[i], shown, sizeof(shown));
                config_refuse_item(check, key, i, "'%s' stands there twice; remove one", shown);
                break;
            }
    }
    if (list->n > max)
        config_refuse_item(check, key, max, "%zu addresses are given; %zu are possible", list->n, max);
}
