/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the machine's counters for a process and a core, and changes settings while the program runs.
 *
 * A packet sent over loopback is received at once, by the processor that sent it: TCP's receiving, waking the
 * reader, and the acknowledgement that comes back.  A front with distant clients does none of that for them.
 * Receive packet steering (RPS) can hand a device's packets to another processor before that work begins; for
 * lo it is set in one file, by root, for the whole network namespace.
 *
 * TCP's congestion control is set the same way, so that it is the same for every front.  Both settings are
 * restored at the end, also when the program is interrupted. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/streams/streams.h"

#define STEERING   "/sys/class/net/lo/queues/rx-0/rps_cpus"
#define CONGESTION "/proc/sys/net/ipv4/tcp_congestion_control"

static struct setting {
    const char *path;
    char before[256]; /* its former content; empty: it was not changed */
} steering = {.path = STEERING}, congestion = {.path = CONGESTION};

static double tick_s(unsigned long ticks)
{
    return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

static FILE *open_of(pid_t pid, const char *name)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    return fopen(path, "r");
}

double machine_rss_bytes(pid_t pid)
{
    FILE *file = open_of(pid, "statm");
    unsigned long pages = 0;

    if (file == NULL)
        return 0;
    if (fscanf(file, "%*u %lu", &pages) != 1)
        pages = 0;
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static double waited_s(pid_t pid)
{
    FILE *file = open_of(pid, "schedstat");
    unsigned long long ran_ns = 0;
    unsigned long long waited_ns = 0;

    if (file == NULL)
        return 0;
    if (fscanf(file, "%llu %llu", &ran_ns, &waited_ns) != 2)
        waited_ns = 0;
    fclose(file);
    return (double)waited_ns / 1e9;
}

struct machine_times machine_times(pid_t pid, unsigned cpu)
{
    struct machine_times times = {.waited_s = waited_s(pid)};
    FILE *file = open_of(pid, "stat");
    unsigned long user = 0, kernel = 0, t[8] = {0};
    char line[512], name[16];

    if (file != NULL) {
        if (fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                   &kernel) != 2)
            user = kernel = 0;
        fclose(file);
    }
    times.user_s = tick_s(user);
    times.kernel_s = tick_s(kernel);

    snprintf(name, sizeof(name), "cpu%u ", cpu);
    file = fopen("/proc/stat", "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0 &&
            sscanf(line + strlen(name), "%lu %lu %lu %lu %lu %lu %lu %lu", &t[0], &t[1], &t[2], &t[3], &t[4],
                   &t[5], &t[6], &t[7]) == 8)
            times.core_s = tick_s(t[0] + t[1] + t[2] + t[5] + t[6] + t[7]); /* all but idle and iowait */
    if (file != NULL)
        fclose(file);
    return times;
}

/* ---- settings ---- */

static int write_setting(const struct setting *setting, const char *text)
{
    int fd = open(setting->path, O_WRONLY | O_CLOEXEC);
    bool is_written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    if (fd >= 0)
        close(fd);
    return is_written ? 0 : -1;
}

static int read_setting(const struct setting *setting, char out[256])
{
    FILE *file = fopen(setting->path, "r");
    bool is_read = file != NULL && fgets(out, 256, file) != NULL;

    if (file != NULL)
        fclose(file);
    return is_read ? 0 : -1;
}

static void put_back(struct setting *setting)
{
    if (setting->before[0] != '\0')
        (void)write_setting(setting, setting->before);
    setting->before[0] = '\0';
}

void machine_put_back(void)
{
    put_back(&steering);
    put_back(&congestion);
}

static void on_signal(int number)
{
    machine_put_back();
    _exit(128 + number);
}

static int change(struct setting *setting, const char *text)
{
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    signal(SIGHUP, on_signal);
    if (read_setting(setting, setting->before) == 0 && write_setting(setting, text) == 0)
        return 0;
    fprintf(stderr, "%s: %s: %s\n", setting->path, text, strerror(errno));
    setting->before[0] = '\0';
    return -1;
}

int machine_steer(unsigned cpu)
{
    char mask[32];

    snprintf(mask, sizeof(mask), "%x", 1u << cpu);
    return change(&steering, mask);
}

int machine_set_congestion(const char *name)
{
    return change(&congestion, name);
}

const char *machine_congestion(void)
{
    static char name[256];

    if (read_setting(&congestion, name) < 0)
        return "unknown";
    name[strcspn(name, "\n")] = '\0';
    return name;
}
