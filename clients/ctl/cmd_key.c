/* SPDX-License-Identifier: Apache-2.0 */
/* Rotation of the cluster key: the steps on the key file, and the keys that each link knows.
 *
 * A step changes the file on one host.  The operator copies it to the others and reloads all daemons before the
 * next step. `key status` asks one daemon, compares its keys with the key file, and lists the links that are behind
 * or down.  It exits with 1 while there are any. */
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "clients/ctl/commands.h"
#include "clients/ctl/key_view.h"
#include "net/link/cluster_key.h"

static const char *const step_texts[] = {
    [CLUSTER_STEP_NONE] = "the former key is not accepted any more",
    [CLUSTER_STEP_NEXT] = "the next key is accepted; links still use the current one",
    [CLUSTER_STEP_FORMER] = "new links use the new key; the former one is still accepted"};

static const char *const next_texts[] = {
    [CLUSTER_STEP_NONE] = "The rotation is over after this.",
    [CLUSTER_STEP_NEXT] = "Then 'batonctl key status' on each daemon, and 'batonctl key rotate' again.",
    [CLUSTER_STEP_FORMER] = "Then 'batonctl key status' on each daemon, and 'batonctl key rotate' again."};

static void key_print_file(const char *path, const struct cluster_keys *keys)
{
    printf("%s: current %08x", path, cluster_key_id(keys->current));
    if (keys->step != CLUSTER_STEP_NONE)
        printf(", %s %08x", keys->step == CLUSTER_STEP_NEXT ? "next" : "former",
               cluster_key_id(keys->second));
    printf(", data %08x\n", cluster_key_id(keys->data));
}

static int key_rotate(const char *path)
{
    struct fault fault = {0};
    struct cluster_keys keys;
    int rc = cluster_keys_load(path, &fault, &keys);

    if (rc == 0) {
        cluster_keys_rotate(&keys);
        rc = cluster_keys_save(path, &keys, &fault);
    }
    if (rc == 0) {
        key_print_file(path, &keys);
        printf(
            "Step done: %s.\nCopy the file to every host and reload every daemon. %s\n"
            "Under the systemd units the key is a credential, copied when a unit starts: there, restart the "
            "units one after another instead (systemctl restart).\n",
            step_texts[keys.step], next_texts[keys.step]);
    }
    cluster_keys_wipe(&keys);
    return rc < 0 ? complain(CTL_NAME, "%s", fault.text) : finish_output(CTL_NAME);
}

static int key_show(const char *path)
{
    struct fault fault = {0};
    struct cluster_keys keys;

    if (cluster_keys_load(path, &fault, &keys) < 0)
        return complain(CTL_NAME, "%s", fault.text);
    key_print_file(path, &keys);
    cluster_keys_wipe(&keys);
    return finish_output(CTL_NAME);
}

/* Compares the daemon's keys with those of the file. Returns the number of outdated items, or a negative code. */
static int key_status_ask(const struct ctl *ctl, const struct cluster_keys *keys, bool is_json)
{
    struct admin_door *door = ctl_open(ctl);
    struct fault fault = {0};
    struct buf body = {0}, text = {0};
    int rc;

    if (door == NULL)
        return E_IO;
    rc = admin_door_ask(door, false, "/admin/status", &fault, &body);
    if (rc < 0)
        complain(CTL_NAME, "%s", fault.text);
    else if ((rc = key_view_render(buf_view(&body), keys, is_json, &text)) < 0)
        complain(CTL_NAME, "%s: not a status with keys: %s", ctl->door.address, err_text(rc));
    else
        fwrite(text.data, 1, text.len_bytes, stdout);
    buf_fini(&body);
    buf_fini(&text);
    admin_door_close(door);
    return rc;
}

static int key_status(const struct ctl *ctl, bool is_json)
{
    struct fault fault = {0};
    struct cluster_keys keys;
    int rc;

    if (cluster_keys_load(ctl->door.key_path, &fault, &keys) < 0)
        return complain(CTL_NAME, "%s", fault.text);
    rc = key_status_ask(ctl, &keys, is_json);
    cluster_keys_wipe(&keys);
    if (rc < 0)
        return EXIT_FAILED;
    return finish_output(CTL_NAME) == EXIT_DONE && rc == 0 ? EXIT_DONE : EXIT_FAILED;
}

int cmd_key(const struct ctl *ctl, int argc, char **argv)
{
    bool is_json;

    if (!ctl_read_json(argc, argv, &is_json))
        return EXIT_USAGE;
    argc -= optind;
    argv += optind;
    if (argc == 1 && strcmp(argv[0], "status") == 0)
        return key_status(ctl, is_json);
    if (argc == 2 && strcmp(argv[0], "rotate") == 0)
        return key_rotate(argv[1]);
    if (argc == 2 && strcmp(argv[0], "show") == 0)
        return key_show(argv[1]);
    return complain_usage(CTL_NAME, "key wants status, rotate FILE or show FILE");
}
