/* SPDX-License-Identifier: Apache-2.0 */
/* The command runs in a process group of its own, so that all its children can be killed with it.  It always
 * dies with this program.  A signal during the wait (Ctrl-C in a conversation) ends it. */
#include "clients/chat/run_tests.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"

#define MAX_OUTPUT_BYTES 65536
#define PATIENCE_NS      (120 * NS_PER_S)

static void run_tests_become(int folder_fd, const char *command, int output)
{
    int nothing = open("/dev/null", O_RDONLY);

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 ||
        dup2(output, STDERR_FILENO) < 0 || fchdir(folder_fd) < 0)
        _exit(126);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

/* Reads until the output ends.  Output beyond the bound is read and dropped, so that the command does not
 * block. */
static int listen_to(int input, struct fault *fault, struct buf *out)
{
    uint64_t deadline_ns = clock_now_ns() + PATIENCE_NS;
    struct pollfd pollfd = {.fd = input, .events = POLLIN};
    char chunk[4096];
    ssize_t n;

    for (;;) {
        uint64_t now_ns = clock_now_ns();

        if (now_ns >= deadline_ns)
            return fault_set(fault, E_TIMEOUT, "the tests took more than %llu s and were stopped",
                             (unsigned long long)(PATIENCE_NS / NS_PER_S));
        if (poll(&pollfd, 1, (int)((deadline_ns - now_ns) / NS_PER_MS) + 1) < 0)
            return fault_set(fault, E_CANCELLED, "the user stopped the tests");
        if (pollfd.revents == 0)
            continue;
        n = read(input, chunk, sizeof(chunk));
        if (n <= 0)
            return n == 0 ? 0 : fault_set(fault, E_IO, "%s", strerror(errno));
        if (out->len_bytes + (size_t)n <= MAX_OUTPUT_BYTES)
            buf_append(out, chunk, (size_t)n);
    }
}

int run_tests_in(int folder_fd, const char *command, struct fault *fault, struct buf *out)
{
    int pipes[2];
    int status = 0;
    pid_t child;
    int rc;

    if (pipe2(pipes, O_CLOEXEC) < 0)
        return fault_set(fault, E_IO, "%s", strerror(errno));
    child = fork();
    if (child == 0)
        run_tests_become(folder_fd, command, pipes[1]);
    close(pipes[1]);
    if (child < 0) {
        close(pipes[0]);
        return fault_set(fault, E_IO, "%s", strerror(errno));
    }
    setpgid(child, child); /* the child does it too, and may be first */
    rc = listen_to(pipes[0], fault, out);
    close(pipes[0]);
    if (rc < 0)
        kill(-child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    kill(-child, SIGKILL); /* what it left running */
    if (rc == 0 && WIFEXITED(status) && WEXITSTATUS(status) != 0)
        buf_printf(out, "%sstatus %d",
                   out->len_bytes > 0 && out->data[out->len_bytes - 1] != '\n' ? "\n" : "",
                   WEXITSTATUS(status));
    return rc;
}
