/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that change a daemon: drain, undrain, reload, role.
 *
 * A drained worker refuses new requests and finishes the running ones.  A drained router reports that it is
 * not ready, so that balancers turn away.  drain --wait returns when nothing runs any more, or when the daemon
 * has exited.  role returns when the daemon shows the worker's new role. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/name.h"
#include "clients/ctl/commands.h"
#include "clients/ctl/status.h"

#define POLL_NS       (200 * NS_PER_MS)
#define DRAIN_MOST_NS (5 * 60 * NS_PER_S) /* the help names it */
#define ROLE_POLL_NS  (10 * NS_PER_MS)
#define ROLE_MOST_NS  (5 * NS_PER_S)

static int cmd_act(const struct ctl *ctl, struct admin_door *door, const char *verb)
{
    struct fault fault = {0};
    struct buf body = {0};
    char path[256];
    int rc;

    snprintf(path, sizeof(path), "/admin/%s", verb);
    rc = admin_door_ask(door, true, path, &fault, &body);
    buf_fini(&body);
    return rc < 0 ? complain(CTL_NAME, "%s: %s", verb, fault.text) : EXIT_DONE;
}

int cmd_verb(const struct ctl *ctl, int argc, char **argv)
{
    struct admin_door *door;
    int status;

    if (argc > 1)
        return complain_usage(CTL_NAME, "%s: unexpected argument: %s", argv[0], argv[1]);
    door = ctl_open(ctl);
    if (door == NULL)
        return EXIT_FAILED;
    status = cmd_act(ctl, door, argv[0]);
    admin_door_close(door);
    return status;
}

/* Asks once.  Returns 1: nothing runs; 0: something runs; -1: see the exit status in *status_out. */
static int is_quiet(struct admin_door *door, uint64_t *n_running_out, int *status_out)
{
    struct fault fault = {0};
    struct buf body = {0};
    struct status_work work = {0};
    int rc = admin_door_ask(door, false, "/admin/status", &fault, &body);

    if (rc == 0)
        rc = status_work(buf_view(&body), &work);
    buf_fini(&body);
    if (rc == E_IO || rc == E_CLOSED || rc == E_TRUNCATED)
        return 1; /* the last call succeeded: the daemon has finished and exited */
    if (rc < 0) {
        *status_out = complain(CTL_NAME, "drain: %s", fault.text[0] != '\0' ? fault.text : err_text(rc));
        return -1;
    }
    if (!work.is_draining) {
        *status_out = complain(CTL_NAME, "drain: the draining was ended meanwhile");
        return -1;
    }
    *n_running_out = work.n_running;
    return work.n_running == 0;
}

/* timeout_ns: 0 waits without a limit. */
static int wait_until_quiet(struct admin_door *door, uint64_t timeout_ns)
{
    uint64_t began_ns = clock_now_ns();
    bool shows = isatty(STDERR_FILENO);
    uint64_t n_running = 0;
    int status = EXIT_DONE;
    int rc;

    while ((rc = is_quiet(door, &n_running, &status)) == 0) {
        if (shows)
            fprintf(stderr, "\r\033[K%" PRIu64 " still running", n_running);
        if (timeout_ns > 0 && clock_now_ns() - began_ns > timeout_ns) {
            status = EXIT_FAILED;
            break;
        }
        clock_sleep_ns(POLL_NS);
    }
    if (shows)
        fprintf(stderr, "\r\033[K");
    if (rc == 0)
        complain(CTL_NAME, "drain: %" PRIu64 " still running after the timeout; it goes on draining",
                 n_running);
    return status;
}

int cmd_drain(const struct ctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {{"wait", no_argument, NULL, 'w'},
                                            {"move", no_argument, NULL, 'm'},
                                            {"timeout", required_argument, NULL, 't'},
                                            {NULL, 0, NULL, 0}};
    struct admin_door *door;
    uint64_t timeout_ns = DRAIN_MOST_NS;
    bool waits = false, moves = false, has_timeout = false;
    int status;
    int c;

    while ((c = getopt_long(argc, argv, "wmt:", options, NULL)) != -1) {
        if (c == '?' || (c == 't' && !option_duration(CTL_NAME, "--timeout", optarg, &timeout_ns)))
            return EXIT_USAGE;
        waits = waits || c == 'w';
        moves = moves || c == 'm';
        has_timeout = has_timeout || c == 't';
    }
    if (optind < argc)
        return complain_usage(CTL_NAME, "drain: unexpected argument: %s", argv[optind]);
    if (has_timeout && !waits)
        return complain_usage(CTL_NAME, "drain: --timeout goes with --wait");
    door = ctl_open(ctl);
    if (door == NULL)
        return EXIT_FAILED;
    status = cmd_act(ctl, door, moves ? "drain-move" : "drain");
    if (status == EXIT_DONE && waits)
        status = wait_until_quiet(door, timeout_ns);
    admin_door_close(door);
    return status;
}

/* ---- role ---- */

/* Returns 1 if the daemon shows this role for the worker, 0 if not, or an error if the daemon does not answer. */
static int has_role(struct admin_door *door, const char *node, const char *role, struct fault *fault)
{
    struct buf body = {0};
    char now[64] = "";
    int rc = admin_door_ask(door, false, "/admin/status", fault, &body);

    if (rc == 0)
        rc = status_role(buf_view(&body), node, now);
    buf_fini(&body);
    return rc < 0 ? rc : strcmp(now, role) == 0;
}

static int wait_for_role(struct admin_door *door, const char *node, const char *role)
{
    uint64_t began_ns = clock_now_ns();
    struct fault fault = {0};
    int rc;

    while ((rc = has_role(door, node, role, &fault)) == 0) {
        if (clock_now_ns() - began_ns > ROLE_MOST_NS)
            return complain(CTL_NAME, "role: %s got the order, but does not show the role yet", node);
        clock_sleep_ns(ROLE_POLL_NS);
    }
    if (rc < 0)
        return complain(CTL_NAME, "role: %s", fault.text[0] != '\0' ? fault.text : err_text(rc));
    printf("%s: %s, effective after %.0f ms\n", node, role, (double)(clock_now_ns() - began_ns) / NS_PER_MS);
    return finish_output(CTL_NAME);
}

static bool is_role(const char *text)
{
    static const char *const roles[] = {"prefill", "decode", "both"};
    bool is_one = false;

    for (size_t i = 0; i < ARRAY_LEN(roles); i++)
        is_one |= strcmp(text, roles[i]) == 0;
    return is_one;
}

int cmd_role(const struct ctl *ctl, int argc, char **argv)
{
    struct admin_door *door;
    char verb[192];
    int status;

    if (argc != 3)
        return complain_usage(CTL_NAME, "role: a worker's name and prefill, decode or both are wanted");
    if (!name_fits(argv[1]))
        return complain_usage(CTL_NAME, "role: %.80s is no worker's name", argv[1]);
    if (!is_role(argv[2]))
        return complain_usage(CTL_NAME, "role: %.80s is none of prefill, decode or both", argv[2]);
    snprintf(verb, sizeof(verb), "role/%s/%s", argv[2], argv[1]);
    door = ctl_open(ctl);
    if (door == NULL)
        return EXIT_FAILED;
    status = cmd_act(ctl, door, verb);
    if (status == EXIT_DONE)
        status = wait_for_role(door, argv[1], argv[2]);
    admin_door_close(door);
    return status;
}
