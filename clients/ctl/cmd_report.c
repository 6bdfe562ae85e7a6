/* SPDX-License-Identifier: Apache-2.0 */
/* report: one text about some daemons for a support request: versions, the host, status and metrics.
 *
 * It has no prompts and no keys, because the daemons show none, and numbers in place of tenants' names.  A daemon
 * that does not answer gets an entry too, and the report continues. */
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "clients/ctl/commands.h"
#include "clients/ctl/report_text.h"

static void report_put_host(void)
{
    struct utsname host = {0};
    char when[21];

    clock_rfc3339(clock_unix_ns() / NS_PER_S, when);
    printf("# baton report, %s\nbatonctl %s\n", when, PACKAGE_VERSION);
    if (uname(&host) == 0)
        printf("host: %s %s %s, %ld CPUs, %ld MiB\n", host.sysname, host.release, host.machine,
               sysconf(_SC_NPROCESSORS_ONLN),
               sysconf(_SC_PHYS_PAGES) / 1024 * (sysconf(_SC_PAGESIZE) / 1024));
}

static void report_put_part(struct admin_door *door, const char *path, struct report_tenants *tenants)
{
    struct fault fault = {0};
    struct buf body = {0}, text = {0};

    printf("\n## %s\n", path);
    if (admin_door_ask(door, false, path, &fault, &body) < 0)
        printf("no answer: %s\n", fault.text);
    else if (report_put_metrics(buf_view(&body), tenants, &text) < 0)
        printf("out of memory\n");
    else
        fwrite(text.data, 1, text.len_bytes, stdout);
    buf_fini(&body);
    buf_fini(&text);
}

/* False: the key could not be read. */
static bool report_put_daemon(const struct ctl *ctl, struct report_tenants *tenants)
{
    struct admin_door *door = ctl_open(ctl);

    if (door == NULL)
        return false;
    printf("\n# daemon at %s\n", ctl->door.address);
    report_put_part(door, "/admin/status", tenants);
    report_put_part(door, "/metrics", tenants);
    admin_door_close(door);
    return true;
}

int cmd_report(const struct ctl *ctl, int argc, char **argv)
{
    struct report_tenants tenants = {.n = 0};
    struct ctl each = *ctl;
    bool is_whole = true;

    if (argc > 1 && argv[1][0] == '-')
        return complain_usage(CTL_NAME, "report: admin addresses are wanted, or none for --admin's");
    report_put_host();
    if (argc == 1)
        is_whole = report_put_daemon(&each, &tenants);
    for (int i = 1; i < argc && is_whole; i++) {
        each.door.address = argv[i];
        is_whole = report_put_daemon(&each, &tenants);
    }
    report_tenants_fini(&tenants);
    return is_whole ? finish_output(CTL_NAME) : EXIT_FAILED;
}
