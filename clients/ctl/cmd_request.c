/* SPDX-License-Identifier: Apache-2.0 */
/* Commands about one request: the reasons of its placement (why), and the time of its parts (trace).  The router
 * answers both, from its ring of placements and from the workers' last reports. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "clients/ctl/commands.h"
#include "clients/ctl/request_view.h"

typedef int (*request_view)(struct bytes json, struct buf *out);

static bool cmd_request_is_id(const char *text)
{
    size_t n = strlen(text);

    return n >= 1 && n <= 63 &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == n;
}

static int cmd_request_show(const struct ctl *ctl, const char *id, request_view view)
{
    struct admin_door *door = ctl_open(ctl);
    struct fault fault = {0};
    struct buf body = {0}, text = {0};
    char path[96];
    int status = EXIT_DONE, rc;

    if (door == NULL)
        return EXIT_FAILED;
    snprintf(path, sizeof(path), "/admin/request/%s", id);
    rc = admin_door_ask(door, false, path, &fault, &body);
    if (rc < 0) {
        status = complain(CTL_NAME, "%s", fault.text);
    } else {
        rc = view != NULL ? view(buf_view(&body), &text) : buf_append(&text, body.data, body.len_bytes);
        if (rc < 0)
            status = complain(CTL_NAME, "%s: not an answer I can read: %s", ctl->door.address, err_text(rc));
        else
            fwrite(text.data, 1, text.len_bytes, stdout);
    }
    buf_fini(&body);
    buf_fini(&text);
    admin_door_close(door);
    return status == EXIT_DONE ? finish_output(CTL_NAME) : status;
}

static int cmd_request(const struct ctl *ctl, int argc, char **argv, request_view view)
{
    const char *name = argv[0];
    bool is_json;

    if (!ctl_read_json(argc, argv, &is_json))
        return EXIT_USAGE;
    if (is_json)
        view = NULL;
    if (optind + 1 != argc || !cmd_request_is_id(argv[optind]))
        return complain_usage(CTL_NAME, "%s: one request's id is wanted: the header request-id of its answer",
                              name);
    return cmd_request_show(ctl, argv[optind], view);
}

int cmd_why(const struct ctl *ctl, int argc, char **argv)
{
    return cmd_request(ctl, argc, argv, request_view_why);
}

int cmd_trace(const struct ctl *ctl, int argc, char **argv)
{
    return cmd_request(ctl, argc, argv, request_view_trace);
}
