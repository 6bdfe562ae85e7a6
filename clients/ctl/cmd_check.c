/* SPDX-License-Identifier: Apache-2.0 */
/* batonctl check: lets a router's workers connect to each other, and shows which connections work. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "clients/ctl/commands.h"
#include "clients/ctl/join.h"

#define CHECK_POLL_NS (200 * NS_PER_MS)
#define CHECK_MOST_NS (20 * NS_PER_S)

/* Starts a check and waits for its end. *out is its head. */
static int check_until_done(struct admin_door *door, struct fault *fault, struct buf *head,
                            struct check_view **out)
{
    uint64_t until_ns = clock_now_ns() + CHECK_MOST_NS;
    int rc = admin_door_ask(door, true, "/admin/check", fault, head);

    while (rc == 0) {
        clock_sleep_ns(CHECK_POLL_NS);
        check_view_free(*out);
        *out = NULL;
        buf_clear(head);
        rc = admin_door_ask(door, false, "/admin/check", fault, head);
        if (rc == 0 && check_view_new(buf_view(head), out) != 0)
            rc = fault_set(fault, E_FORMAT, "not a check that I can read");
        if (rc != 0 || !check_view_is_running(*out))
            break;
        if (clock_now_ns() >= until_ns)
            rc = fault_set(fault, E_TIMEOUT, "the check does not end");
    }
    return rc;
}

static int check_read_rows(struct admin_door *door, struct check_view *view, FILE *copy, struct fault *fault)
{
    struct buf body = {0};
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < check_view_rows(view); i++) {
        char path[64];

        snprintf(path, sizeof(path), "/admin/check/%u", i);
        buf_clear(&body);
        rc = admin_door_ask(door, false, path, fault, &body);
        if (rc == 0 && copy != NULL)
            fwrite(body.data, 1, body.len_bytes, copy);
        if (rc == 0 && check_view_add(view, buf_view(&body)) != 0)
            rc = fault_set(fault, E_FORMAT, "not a check that I can read");
    }
    buf_fini(&body);
    return rc;
}

static void check_read_models(struct admin_door *door, struct check_view *view)
{
    static struct join_message members;
    struct buf body = {0};

    if (admin_door_ask(door, false, "/admin/status", NULL, &body) == 0 &&
        members_parse(buf_view(&body), &members) == 0)
        check_view_models(view, &members);
    buf_fini(&body);
}

static int check_show(struct admin_door *door, bool is_json)
{
    struct check_view *view = NULL;
    struct fault fault = {0};
    struct buf head = {0}, text = {0};
    unsigned n_found = 0;
    int rc = check_until_done(door, &fault, &head, &view);

    if (rc == 0 && is_json)
        fwrite(head.data, 1, head.len_bytes, stdout);
    if (rc == 0)
        rc = check_read_rows(door, view, is_json ? stdout : NULL, &fault);
    if (rc == 0) {
        check_read_models(door, view);
        n_found = check_view_render(view, &text);
        if (!is_json)
            fwrite(text.data, 1, text.len_bytes, stdout);
    }
    check_view_free(view);
    buf_fini(&head);
    buf_fini(&text);
    if (rc != 0)
        return complain(CTL_NAME, "check: %s", fault.text);
    rc = finish_output(CTL_NAME);
    return rc == EXIT_DONE && n_found > 0 ? 3 : rc;
}

int cmd_check(const struct ctl *ctl, int argc, char **argv)
{
    struct admin_door *door;
    bool is_json;
    int status;

    if (!ctl_read_json(argc, argv, &is_json))
        return EXIT_USAGE;
    if (optind < argc)
        return complain_usage(CTL_NAME, "check: unexpected argument: %s", argv[optind]);
    door = ctl_open(ctl);
    if (door == NULL)
        return EXIT_FAILED;
    status = check_show(door, is_json);
    admin_door_close(door);
    return status;
}
