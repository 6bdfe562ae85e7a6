/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the tools: in a folder of the user, or in a new one with a project that is small enough for the
 * bundled model.
 *
 * The project's files are "name = value" lines.  Its tests check the form of each line, and each value against
 * its limit in conf/limits.conf.  The tests are text in this file and only read the project, so nothing that a
 * model writes is ever run. */
#include "clients/chat/tools.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/str.h"

static const struct {
    const char *path;
    const char *text;
} project[] = {
    {"conf/limits.conf", "queue_limit = 512\nbatch_limit = 64\n"},
    {"conf/router.conf", "listen_port = 8080\nretry_count = 3\n"},
    {"src/timer.c", "timer_ticks = 250\nidle_timeout = 60\n"},
    {"src/queue.c", "queue_depth = 128\n"},
};

static const char tests[] =
    "passed=0 failed=0\n"
    "for file in conf/* src/*; do\n"
    "    while IFS= read -r line; do\n"
    "        if printf '%s\\n' \"$line\" | grep -Eq '^[A-Za-z_]+ = [0-9]+$'; then passed=$((passed + 1))\n"
    "        else failed=$((failed + 1)); bad=\"$bad\n"
    "FAIL $file: $line\"; fi\n"
    "    done <\"$file\"\n"
    "done\n"
    "echo \"$passed passed, $failed failed$bad\"\n";

int tools_open(const char *path, const char *test_command, struct fault *fault, struct tools *out)
{
    int rc;

    *out = (struct tools){.folder = {.fd = -1}};
    rc = folder_open(path, fault, &out->folder);
    if (rc < 0 || test_command == NULL)
        return rc;
    out->test_command = strdup(test_command);
    return out->test_command == NULL ? fault_set(fault, E_NOMEM, "out of memory") : 0;
}

int tools_open_scratch(struct fault *fault, struct tools *out)
{
    const char *parent = getenv("TMPDIR");
    char path[PATH_MAX];
    int rc;

    *out = (struct tools){.folder = {.fd = -1}};
    snprintf(path, sizeof(path), "%s/baton-chat-XXXXXX", parent != NULL && *parent == '/' ? parent : "/tmp");
    if (mkdtemp(path) == NULL)
        return fault_set(fault, E_IO, "%s: %s", path, strerror(errno));
    rc = tools_open(path, tests, fault, out);
    out->is_scratch = true;
    for (size_t i = 0; i < ARRAY_LEN(project) && rc == 0; i++)
        rc = folder_write(&out->folder, bytes_str(project[i].path), bytes_str(project[i].text), fault);
    return rc;
}

void tools_close(struct tools *tools)
{
    folder_close(&tools->folder);
    free(tools->test_command);
    tools->test_command = NULL;
}
