/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the settings of discovery: sources of addresses, and the registration in etcd. */
#include <string.h>

#include "base/file.h"
#include "net/discover/url.h"
#include "serve/setup/setup.h"

static void discovery_check_file(struct config_check *check, const char *key, const char *path)
{
    const char *why = NULL;
    FILE *file = path[0] != '\0' ? file_open(path, &why) : NULL;

    if (path[0] != '\0' && file == NULL)
        config_refuse(check, key, "%s: %s", path, why);
    if (file != NULL)
        fclose(file);
}

static bool discovery_is_wildcard(const char *listen)
{
    return listen[0] == '*' || strncmp(listen, "0.0.0.0:", 8) == 0 || strncmp(listen, "[::]:", 5) == 0;
}

void setup_check_discovery(struct config_check *check, const struct setup_discovery *discovery)
{
    struct discover_url url;
    struct fault fault = {0};

    discovery_check_file(check, "link.discovery_ca", discovery->ca);
    discovery_check_file(check, "link.discovery_certificate", discovery->certificate);
    discovery_check_file(check, "link.discovery_key", discovery->key);
    if ((discovery->certificate[0] == '\0') != (discovery->key[0] == '\0'))
        config_refuse(
            check, "link.discovery_certificate",
            "a certificate needs its key: set link.discovery_certificate and link.discovery_key, or neither");
    if (discovery->advertise[0] != '\0' &&
        setup_dial_parse(discovery->advertise, &fault, &(struct addr){0}) < 0)
        config_refuse(check, "link.advertise", "%s", fault.text);
    if (discovery->registers[0] == '\0')
        return;
    if (discover_url_parse(discovery->registers, &fault, &url) < 0)
        config_refuse(check, "link.register", "%s", fault.text);
    else if (url.kind != DISCOVER_ETCD)
        config_refuse(check, "link.register", "a daemon registers in etcd:// or etcds:// only");
    if (discovery->advertise[0] == '\0' && discovery_is_wildcard(discovery->link_listen))
        config_refuse(check, "link.register",
                      "link.listen = %.60s names no address that others can dial; set link.advertise",
                      discovery->link_listen);
}
