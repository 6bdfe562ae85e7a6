/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that change nothing: status and metrics.  --json prints the daemon's own JSON, unchanged, for
 * scripts.  --line is for status bars and stays one line with any names of the daemons. */
#include <getopt.h>
#include <stdio.h>

#include "base/err.h"
#include "clients/ctl/commands.h"
#include "clients/ctl/status.h"

enum look { LOOK_TABLE, LOOK_LINE, LOOK_AS_IS };

static int cmd_look_show(const struct ctl *ctl, const char *path, enum look look)
{
    struct admin_door *door = ctl_open(ctl);
    struct fault fault = {0};
    struct buf body = {0};
    struct buf text = {0};
    int status = EXIT_DONE;

    if (door == NULL)
        return EXIT_FAILED;
    if (admin_door_ask(door, false, path, &fault, &body) < 0) {
        status = complain(CTL_NAME, "%s", fault.text);
    } else if (look == LOOK_AS_IS) {
        fwrite(body.data, 1, body.len_bytes, stdout);
    } else {
        int rc = status_render(buf_view(&body), look == LOOK_LINE, &text);

        if (rc < 0)
            status = complain(CTL_NAME, "%s: not a status I can read: %s (--json shows it as it is)",
                              ctl->door.address, err_text(rc));
        else
            fwrite(text.data, 1, text.len_bytes, stdout);
    }
    buf_fini(&body);
    buf_fini(&text);
    admin_door_close(door);
    return status == EXIT_DONE ? finish_output(CTL_NAME) : status;
}

int cmd_status(const struct ctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'}, {"line", no_argument, NULL, 'l'}, {NULL, 0, NULL, 0}};
    enum look look = LOOK_TABLE;
    int c;

    while ((c = getopt_long(argc, argv, "jl", options, NULL)) != -1) {
        if (c == '?')
            return EXIT_USAGE;
        look = c == 'j' ? LOOK_AS_IS : LOOK_LINE;
    }
    if (optind < argc)
        return complain_usage(CTL_NAME, "status: unexpected argument: %s", argv[optind]);
    return cmd_look_show(ctl, "/admin/status", look);
}

int cmd_metrics(const struct ctl *ctl, int argc, char **argv)
{
    if (argc > 1)
        return complain_usage(CTL_NAME, "metrics: unexpected argument: %s", argv[1]);
    return cmd_look_show(ctl, "/metrics", LOOK_AS_IS);
}
