/* SPDX-License-Identifier: Apache-2.0 */
/* An operator who meets a failure wants to know the next step.  So each message names the address or the file,
 * and the likely cause: a daemon that does not run, another port, another cluster's key. */
#include "clients/ctl/admin_call.h"

#include <jansson.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "clients/common/fetch.h"
#include "net/link/tls.h"

enum { MAX_BODY_BYTES = 16 << 20 };

struct admin_door {
    struct admin_door_opts opts;
    struct ev_loop *loop;
    struct http_client *client;
    struct http_fields fields;
};

int admin_door_token(const char *key_path, const char *purpose, struct fault *fault, char out[65])
{
    uint8_t key[32];
    uint8_t derived[32];
    int rc = cluster_key_load(key_path, fault, key);

    if (rc < 0)
        return rc;
    rc = cluster_key_derive(key, purpose, derived);
    if (rc == 0)
        hex_encode(derived, sizeof(derived), out);
    OPENSSL_cleanse(key, sizeof(key));
    OPENSSL_cleanse(derived, sizeof(derived));
    return rc < 0 ? fault_set(fault, rc, "%s", err_text(rc)) : 0;
}

static int make_token(const char *path, struct fault *fault, struct http_fields *fields)
{
    char token[65];
    int rc = admin_door_token(path, "admin", fault, token);

    if (rc < 0)
        return rc;
    rc = http_fields_addf(fields, "authorization", "Bearer %s", token);
    OPENSSL_cleanse(token, sizeof(token));
    return rc < 0 ? fault_set(fault, rc, "%s", err_text(rc)) : 0;
}

int admin_door_open(const struct admin_door_opts *opts, struct fault *fault, struct admin_door **out)
{
    struct admin_door *door = calloc(1, sizeof(*door));
    struct http_client_opts client = {.address = opts->address, .connect_ns = 3 * NS_PER_S};
    int rc;

    if (door == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    door->opts = *opts;
    rc = make_token(opts->key_path, fault, &door->fields);
    if (rc == 0) {
        rc = ev_loop_new(&door->loop);
        if (rc < 0)
            fault_set(fault, rc, "cannot make an event loop: %s", err_text(rc));
    }
    if (rc == 0) {
        client.loop = door->loop;
        rc = http_client_new(&client, fault, &door->client);
    }
    if (rc < 0) {
        admin_door_close(door);
        return rc;
    }
    *out = door;
    return 0;
}

void admin_door_close(struct admin_door *door)
{
    if (door == NULL)
        return;
    http_client_free(door->client);
    ev_loop_free(door->loop);
    if (door->fields.text.data != NULL)
        OPENSSL_cleanse(door->fields.text.data, door->fields.text.len_bytes);
    http_fields_fini(&door->fields);
    free(door);
}

struct ev_loop *admin_door_loop(struct admin_door *door)
{
    return door->loop;
}

static int explain_failure(const struct admin_door *door, int rc, struct fault *fault)
{
    char why[256];

    str_copy(why, sizeof(why), fault->text);
    if (rc == E_IO)
        return fault_set(fault, rc,
                         "cannot connect to %s; is the daemon running, and is this its http.admin address "
                         "(--admin HOST:PORT)?",
                         why);
    if (rc == E_FORMAT)
        return fault_set(fault, rc, "%s; is this the http.admin address of a Baton daemon?", why);
    return fault_set(fault, rc, "%s", why);
}

static int explain_status(const struct admin_door *door, int status, const struct buf *body,
                          struct fault *fault)
{
    json_t *root = json_loadb((const char *)body->data, body->len_bytes, 0, NULL);
    const char *message = json_string_value(json_object_get(root, "message"));
    int rc;

    if (status == 401)
        rc = fault_set(fault, E_AUTH,
                       "%s refuses the key of %s; give this cluster's key with --cluster-key FILE",
                       door->opts.address, door->opts.key_path);
    else if (status == 404)
        rc = fault_set(fault, E_NOT_FOUND, "%s knows no such request; is this its http.admin address?",
                       door->opts.address);
    else
        rc = fault_set(fault, E_PEER, "%s: %s (status %d)", door->opts.address, message ? message : "refused",
                       status);
    json_decref(root);
    return rc;
}

int admin_door_ask(struct admin_door *door, bool is_post, const char *path, struct fault *fault,
                   struct buf *body_out)
{
    struct fetch_opts opts = {.loop = door->loop,
                              .client = door->client,
                              .method = is_post ? HTTP_POST : HTTP_GET,
                              .path = path,
                              .fields = &door->fields,
                              .timeout_ns = 10 * NS_PER_S,
                              .max_bytes = MAX_BODY_BYTES};
    int status = fetch(&opts, fault, body_out);

    if (status < 0)
        return explain_failure(door, status, fault);
    return status == 200 ? 0 : explain_status(door, status, body_out, fault);
}
