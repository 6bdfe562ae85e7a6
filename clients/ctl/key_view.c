/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon is behind when its keys are not those of the key file.  A link is behind when the next step would cut it:
 *
 *     the daemon has a next key     the peer does not know it yet
 *     else                          the peer's current key is another one
 *
 * The keys of a link that is down are unknown.  Links with certificates have no keys. */
#include "clients/ctl/key_view.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

struct key_view {
    const char *current, *next, *former; /* of the daemon; NULL: none */
    struct buf *out;
    unsigned n_links, n_behind, n_unknown;
    bool is_json, is_daemon_behind, has_certificate;
};

static const char *key_text(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static void key_put_name(struct buf *out, const char *name)
{
    for (; name != NULL && *name != '\0'; name++) {
        const char c = (unsigned char)*name < ' ' || *name == 0x7f ? '?' : *name;

        buf_append(out, &c, 1);
    }
}

static bool key_is(const char *a, const char *b)
{
    return a != NULL && b != NULL && strcmp(a, b) == 0;
}

static bool key_is_behind(const struct key_view *view, const char *current, const char *second)
{
    if (view->next != NULL)
        return !key_is(second, view->next) && !key_is(current, view->next);
    return !key_is(current, view->current);
}

/* True if the daemon's id belongs to this key of the file. key NULL: the file has no such key. */
static bool key_is_of_file(const char *id, const uint8_t *key)
{
    char wanted[12];

    if (key == NULL || id == NULL)
        return key == NULL && id == NULL;
    snprintf(wanted, sizeof(wanted), "%08" PRIx32, cluster_key_id(key));
    return strcmp(id, wanted) == 0;
}

static bool key_daemon_is_behind(const struct key_view *view, const char *data,
                                 const struct cluster_keys *file)
{
    return !key_is_of_file(view->current, file->current) ||
           !key_is_of_file(view->next, file->step == CLUSTER_STEP_NEXT ? file->second : NULL) ||
           !key_is_of_file(view->former, file->step == CLUSTER_STEP_FORMER ? file->second : NULL) ||
           !key_is_of_file(data, file->data);
}

static void key_view_add_json(const struct key_view *view, const char *name, const char *behind)
{
    buf_printf(view->out, "%s{\"peer\": ", view->n_links > 0 ? ", " : "");
    json_put_str(view->out, bytes_str(name != NULL ? name : ""));
    buf_printf(view->out, ", \"behind\": %s}", behind);
}

static void key_view_add_unknown(struct key_view *view, const char *name, bool is_up)
{
    view->n_unknown++;
    if (view->is_json) {
        key_view_add_json(view, name, "null");
    } else {
        buf_append_str(view->out, "  ");
        key_put_name(view->out, name);
        buf_append_str(view->out, is_up ? ": says nothing about its keys  <- unknown\n"
                                        : ": the link is down  <- unknown\n");
    }
    view->n_links++;
}

static void key_view_add(struct key_view *view, const json_t *peer)
{
    const json_t *keys = json_object_get(peer, "keys");
    const char *name = key_text(peer, "node"), *current = key_text(keys, "current"),
               *second = key_text(keys, "second");
    bool is_behind;

    name = name != NULL ? name : key_text(peer, "address");
    if (!json_is_object(keys)) {
        key_view_add_unknown(view, name, json_is_true(json_object_get(peer, "up")));
        return;
    }
    is_behind = key_is_behind(view, current, second);
    view->n_behind += is_behind;
    if (view->is_json) {
        key_view_add_json(view, name, is_behind ? "true" : "false");
    } else {
        buf_append_str(view->out, "  ");
        key_put_name(view->out, name);
        buf_append_str(view->out, ": made with ");
        key_put_name(view->out, key_text(keys, "used"));
        buf_append_str(view->out, ", uses ");
        key_put_name(view->out, current != NULL ? current : "another key");
        if (second != NULL) {
            buf_append_str(view->out, ", accepts ");
            key_put_name(view->out, second);
        }
        buf_append_str(view->out, is_behind ? "  <- behind\n" : "\n");
    }
    view->n_links++;
}

static void key_view_add_all(struct key_view *view, const json_t *root)
{
    static const char *const lists[] = {"workers", "routers", "peers"};

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        const json_t *list = json_object_get(root, lists[i]);

        for (size_t k = 0; k < json_array_size(list); k++)
            key_view_add(view, json_array_get(list, k));
    }
}

static void key_view_head(const struct key_view *view, const json_t *root)
{
    key_put_name(view->out, key_text(root, "node"));
    buf_append_str(view->out, ": current ");
    key_put_name(view->out, view->current);
    if (view->next != NULL || view->former != NULL) {
        buf_append_str(view->out, view->next != NULL ? ", next " : ", former ");
        key_put_name(view->out, view->next != NULL ? view->next : view->former);
    }
    buf_append_str(view->out, view->is_daemon_behind
                                  ? "  <- behind: the key file has other keys; reload or restart it\n"
                                  : "\n");
}

static void key_view_foot(const struct key_view *view)
{
    if (view->has_certificate)
        buf_append_str(view->out, "links use certificates and tell nothing about keys: ask each daemon\n");
    else if (view->n_behind > 0)
        buf_printf(view->out, "%u of %u links are behind: the next step would cut them\n", view->n_behind,
                   view->n_links);
    else if (view->n_unknown == 0)
        buf_printf(view->out, "all %u links are up to date\n", view->n_links);
    if (view->n_unknown > 0)
        buf_printf(view->out, "%u of %u links are unknown: ask the daemons at their ends\n", view->n_unknown,
                   view->n_links);
}

int key_view_render(struct bytes json, const struct cluster_keys *file, bool is_json, struct buf *out)
{
    json_t *root = json_loadb((const char *)json.data, json.len_bytes, 0, NULL);
    const json_t *keys = json_object_get(root, "link_keys");
    struct key_view view = {.current = key_text(keys, "current"),
                            .next = key_text(keys, "next"),
                            .former = key_text(keys, "former"),
                            .out = out,
                            .is_json = is_json,
                            .has_certificate = json_object_get(keys, "certificate_expires_unix_s") != NULL};

    if (view.current == NULL) {
        json_decref(root);
        return E_FORMAT;
    }
    view.is_daemon_behind = key_daemon_is_behind(&view, key_text(keys, "data"), file);
    if (is_json)
        buf_append_str(out, "{\"links\": [");
    else
        key_view_head(&view, root);
    if (!view.has_certificate)
        key_view_add_all(&view, root);
    if (is_json)
        buf_printf(out, "], \"behind\": %u, \"unknown\": %u, \"daemon_behind\": %s, \"certificates\": %s}\n",
                   view.n_behind, view.n_unknown, view.is_daemon_behind ? "true" : "false",
                   view.has_certificate ? "true" : "false");
    else
        key_view_foot(&view);
    json_decref(root);
    return out->is_bad ? E_NOMEM : (int)(view.n_behind + view.n_unknown + view.is_daemon_behind);
}
