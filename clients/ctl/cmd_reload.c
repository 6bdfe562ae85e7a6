/* SPDX-License-Identifier: Apache-2.0 */
/* reload, and reload --diff: with --diff the daemon reads its files, compares them with its running configuration,
 * and changes nothing.
 *
 * --diff exits with 0 if nothing would change, else with 3, for scripts. */
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "clients/ctl/commands.h"
#include "clients/ctl/request_view_priv.h"

#define EXIT_CHANGES 3

static void cmd_reload_put_change(const json_t *change, struct buf *out)
{
    bool is_live = json_is_true(json_object_get(change, "reload"));

    request_put_name(request_text(change, "key"), 0, out);
    buf_append_str(out, is_live ? "\n" : "   needs a restart\n");
    buf_append_str(out, "  - ");
    request_put_name(request_text(change, "from"), 0, out);
    buf_append_str(out, "\n  + ");
    request_put_name(request_text(change, "to"), 0, out);
    buf_append_str(out, "    (");
    request_put_name(request_text(change, "where"), 0, out);
    buf_append_str(out, ")\n");
}

/* The number of changes, or E_FORMAT. */
static int cmd_reload_put_changes(struct bytes json, struct buf *out)
{
    json_t *root = json_loadb((const char *)json.data, json.len_bytes, 0, NULL);
    const json_t *changes = json_object_get(root, "changes");
    int n = json_is_array(changes) ? (int)json_array_size(changes) : E_FORMAT;
    size_t i;
    json_t *change;

    json_array_foreach(changes, i, change) cmd_reload_put_change(change, out);
    if (n == 0)
        buf_append_str(out, "nothing would change\n");
    json_decref(root);
    return n;
}

static int cmd_reload_diff(const struct ctl *ctl, struct admin_door *door, bool is_json)
{
    struct fault fault = {0};
    struct buf body = {0}, text = {0};
    int rc = admin_door_ask(door, true, "/admin/reload-diff", &fault, &body);
    int n = rc < 0 ? rc : cmd_reload_put_changes(buf_view(&body), &text), status;

    if (rc < 0)
        status = complain(CTL_NAME, "reload: %s", fault.text);
    else if (n < 0)
        status = complain(CTL_NAME, "reload: %s: not an answer I can read", ctl->door.address);
    else {
        const struct buf *shown = is_json ? &body : &text;

        fwrite(shown->data, 1, shown->len_bytes, stdout);
        status = finish_output(CTL_NAME);
        status = status == EXIT_DONE && n > 0 ? EXIT_CHANGES : status;
    }
    buf_fini(&body);
    buf_fini(&text);
    return status;
}

int cmd_reload(const struct ctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {
        {"diff", no_argument, NULL, 'd'}, {"json", no_argument, NULL, 'j'}, {NULL, 0, NULL, 0}};
    bool is_diff = false, is_json = false;
    struct admin_door *door;
    int c, status;

    while ((c = getopt_long(argc, argv, "dj", options, NULL)) != -1) {
        if (c == '?')
            return EXIT_USAGE;
        is_diff = is_diff || c == 'd';
        is_json = is_json || c == 'j';
    }
    if (optind < argc)
        return complain_usage(CTL_NAME, "reload: unexpected argument: %s", argv[optind]);
    if (is_json && !is_diff)
        return complain_usage(CTL_NAME, "reload: --json goes with --diff");
    if (!is_diff)
        return cmd_verb(ctl, 1, argv);
    door = ctl_open(ctl);
    if (door == NULL)
        return EXIT_FAILED;
    status = cmd_reload_diff(ctl, door, is_json);
    admin_door_close(door);
    return status;
}
