/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster's daemons and models, from a router's status.  Names that join_message_parse() would refuse are
 * changed or left out, so that no name makes a joining host refuse the welcome. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "clients/ctl/join.h"
#include "net/link/addr.h"

/* Copies a name, with '?' for bytes that a message does not carry. False: it is empty or too long. */
static bool members_copy_name(const char *name, char *out, size_t cap)
{
    if (name == NULL || *name == '\0' || !str_copy(out, cap, name))
        return false;
    for (char *at = out; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || (unsigned char)*at > 0x7e)
            *at = '?';
    return true;
}

static void members_add_model(const json_t *worker, struct join_message *out)
{
    const char *fingerprint = json_string_value(json_object_get(worker, "fingerprint"));
    const char *name = json_string_value(json_object_get(worker, "model"));
    struct join_model *model = &out->models[out->n_models];
    uint8_t digest[16];

    if (fingerprint == NULL || strlen(fingerprint) != 32 ||
        hex_decode(bytes_str(fingerprint), digest, sizeof(digest)) != 0 || out->n_models == JOIN_MAX_MODELS)
        return;
    for (unsigned i = 0; i < out->n_models; i++)
        if (strcmp(out->models[i].fingerprint, fingerprint) == 0)
            return;
    if (members_copy_name(name, model->name, sizeof(model->name)) &&
        str_copy(model->fingerprint, sizeof(model->fingerprint), fingerprint))
        out->n_models++;
}

static void members_add_place(const char *prefix, const char *name, const json_t *address,
                              struct join_message *out)
{
    char whole[64];
    struct addr parsed;

    if (json_string_length(address) == 0 ||
        snprintf(whole, sizeof(whole), "%s%s", prefix, name) >= (int)sizeof(whole))
        return;
    if (addr_parse(json_string_value(address), NULL, &parsed) != 0 || parsed.port == 0 ||
        addr_is_any(&parsed) || !join_is_name(bytes_str(whole)))
        return; /* no address that another host could dial */
    (void)join_message_place(out, whole, json_string_value(address));
}

int members_parse(struct bytes status, struct join_message *out)
{
    json_t *root = json_loadb((const char *)status.data, status.len_bytes, 0, NULL);
    const json_t *workers = json_object_get(root, "workers"), *worker;
    size_t i;

    if (!json_is_array(workers)) {
        json_decref(root);
        return E_FORMAT;
    }
    out->has_certificates =
        json_object_get(json_object_get(root, "link_keys"), "certificate_expires_unix_s") != NULL;
    members_add_place("", "router", json_object_get(root, "link"), out);
    json_array_foreach(workers, i, worker)
    {
        const char *name = json_string_value(json_object_get(worker, "node"));

        members_add_model(worker, out);
        if (name == NULL || *name == '\0' || !json_is_true(json_object_get(worker, "up")))
            continue;
        members_add_place("", name, json_object_get(worker, "link"), out);
        members_add_place("kv.", name, json_object_get(worker, "kv"), out);
    }
    json_decref(root);
    return 0;
}
