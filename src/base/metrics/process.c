/* SPDX-License-Identifier: Apache-2.0 */
/* The process_* gauges that every Prometheus client has, under their usual names.
 *
 * All values come from /proc/self, which stays readable under ProcSubset=pid; that setting of our units
 * hides the rest of /proc.  A value that cannot be read keeps its last value: a missing gauge is no reason
 * to fail a scrape. */
#include "base/metrics/metrics.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

static void process_set_gauge(struct metrics *metrics, const char *name, const char *help, double value)
{
    metric_set(metric_single(metrics, METRIC_GAUGE, name, help), value);
}

/* Finds the fields of /proc/self/stat behind the command's name, which may contain blanks and
 * parentheses. */
static bool read_stat(unsigned long long *start_ticks, unsigned long long *resident_pages)
{
    char text[1024];
    FILE *file = fopen("/proc/self/stat", "re");
    if (file == NULL)
        return false;

    size_t n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    char *after = strrchr(text, ')');
    /* Field 3 (state) comes next; 22 is the start time, 23 the virtual size, 24 the resident pages. */
    return after != NULL &&
           sscanf(after + 1,
                  " %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s"
                  " %llu %*s %llu",
                  start_ticks, resident_pages) == 2;
}

static int count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int n = 0;

    if (folder == NULL)
        return -1;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        n += entry->d_name[0] != '.';
    closedir(folder);
    return n - 1; /* minus the descriptor of this read */
}

void metrics_read_process(struct metrics *metrics)
{
    unsigned long long start_ticks, resident_pages;
    struct rusage used;
    struct timespec boot;

    if (getrusage(RUSAGE_SELF, &used) == 0) {
        double cpu_s = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                       (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
        struct metric *cpu = metric_single(metrics, METRIC_COUNTER, "process_cpu_seconds_total",
                                           "User and system CPU time spent.");
        metric_add(cpu, cpu_s - metric_value(cpu));
    }
    if (read_stat(&start_ticks, &resident_pages) && clock_gettime(CLOCK_BOOTTIME, &boot) == 0) {
        double up_s = (double)boot.tv_sec + (double)boot.tv_nsec * 1e-9;
        double age_s = up_s - (double)start_ticks / (double)sysconf(_SC_CLK_TCK);

        process_set_gauge(metrics, "process_start_time_seconds", "Start, seconds since 1970.",
                          (double)clock_unix_ns() * 1e-9 - age_s);
        process_set_gauge(metrics, "process_resident_memory_bytes", "Memory in RAM, mapped files included.",
                          (double)resident_pages * (double)sysconf(_SC_PAGESIZE));
    }
    int n_fds = count_descriptors();
    if (n_fds >= 0)
        process_set_gauge(metrics, "process_open_fds", "Open descriptors.", n_fds);
}
