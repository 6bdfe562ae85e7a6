/* SPDX-License-Identifier: Apache-2.0 */
/* bench_streams: ten thousand streams through baton-router, and through nginx beside it.
 *
 *     tests/bench/bench_streams [--streams N] [--rate R] [--workers N] [--seconds S] [--slow N] [--deaf N]
 *                               [--only router|nginx]
 *
 * Run in the build folder of a machine with two cores or more; as root it takes precedence over other
 * programs.  Starts the front on one core, everything else on another; simulated workers speak the link
 * protocol to the router, and write the same events over HTTP to nginx (proxy_buffering off).  Both fronts
 * are one process.  nginx needs two descriptors for a stream, so it gets as many streams as the limit on
 * descriptors allows. */
#include <errno.h>
#include <ftw.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/tls.h"
#include "tests/bench/streams/streams.h"

#define ROUTER_HTTP   18480
#define ROUTER_ADMIN  18481
#define ROUTER_LINK   18482
#define NGINX_HTTP    18490
#define UPSTREAM_HTTP 18491
#define SPARE_FDS     200

struct bench {
    uint32_t n_streams;
    uint32_t n_workers;
    uint32_t n_slow, n_deaf;
    double rate_per_s;
    double measure_s;
    const char *only;
    const char *model_path;
    const char *source;
    char folder[64];
    size_t shared_bytes;
};

static void pin(unsigned cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu % (unsigned)sysconf(_SC_NPROCESSORS_ONLN), &set);
    sched_setaffinity(0, sizeof(set), &set);
}

/* Other programs shall not disturb; without the right to it they may.  What is nice counts within a session
 * only, so the session is told, too. */
static void hurry(int priority)
{
    FILE *file = fopen("/proc/self/autogroup", "w");

    if (file != NULL) {
        fputs("-20\n", file);
        fclose(file);
    }
    setpriority(PRIO_PROCESS, 0, -priority);
}

/* A child on that core that dies with us. */
static pid_t spawn(unsigned cpu, int priority)
{
    pid_t pid;

    fflush(stdout);
    pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(cpu);
        hurry(priority);
    }
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static pid_t start_router(const struct bench *bench)
{
    char key[100], conf[100], log[100], connections[40], per_address[40], requests[40], http[60], admin[60],
        link[60];
    pid_t pid;

    snprintf(key, sizeof(key), "link.cluster_key=%s/key", bench->folder);
    snprintf(conf, sizeof(conf), "%s/router.conf", bench->folder);
    snprintf(log, sizeof(log), "%s/router.log", bench->folder);
    snprintf(connections, sizeof(connections), "http.max_connections=%u", 2 * bench->n_streams + 4000);
    snprintf(per_address, sizeof(per_address), "http.max_per_address=%u", 2 * bench->n_streams + 4000);
    snprintf(requests, sizeof(requests), "http.max_requests=%u", 2 * bench->n_streams + 4000);
    snprintf(http, sizeof(http), "http.listen=127.0.0.1:%d", ROUTER_HTTP);
    snprintf(admin, sizeof(admin), "http.admin=127.0.0.1:%d", ROUTER_ADMIN);
    snprintf(link, sizeof(link), "link.listen=127.0.0.1:%d", ROUTER_LINK);
    pid = spawn(0, 15);
    if (pid != 0)
        return pid;
    fclose(fopen(conf, "w"));
    if (freopen(log, "w", stderr) == NULL || freopen(log, "a", stdout) == NULL)
        _exit(1);
    execl("./baton-router", "baton-router", "--config", conf, "--set", key, "--set", connections, "--set",
          per_address, "--set", requests, "--set", http, "--set", admin, "--set", link, "--set",
          "slo.ttft=60s", "--set", "slo.itl=60s", "--set", "placement.local_prefill_tokens=1000000", "--set",
          "log.level=warn", "--set", "http.body_timeout=300s", "--set", "http.head_timeout=300s",
          (char *)NULL);
    _exit(1);
}

static pid_t start_nginx(const struct bench *bench)
{
    char conf[100];
    FILE *file;
    pid_t pid;

    snprintf(conf, sizeof(conf), "%s/nginx.conf", bench->folder);
    file = fopen(conf, "w");
    if (file == NULL)
        return -1;
    fprintf(
        file,
        "daemon off; master_process off; pid %s/nginx.pid; error_log %s/nginx.log crit;\n"
        "worker_rlimit_nofile 20000;\n"
        "events { worker_connections 40000; use epoll; multi_accept on; }\n"
        "http { access_log off; client_body_temp_path %s/b; proxy_temp_path %s/p; fastcgi_temp_path %s/f;\n"
        "  uwsgi_temp_path %s/u; scgi_temp_path %s/s; tcp_nodelay on; keepalive_timeout 300s;\n"
        "  client_header_timeout 300s; client_body_timeout 300s;\n"
        "  server { listen 127.0.0.1:%d backlog=4096;\n"
        "    location / { proxy_pass http://127.0.0.1:%d; proxy_http_version 1.1; proxy_buffering off;\n"
        "      proxy_read_timeout 300s; proxy_set_header Connection \"\"; } } }\n",
        bench->folder, bench->folder, bench->folder, bench->folder, bench->folder, bench->folder,
        bench->folder, NGINX_HTTP, UPSTREAM_HTTP);
    fclose(file);
    pid = spawn(0, 15);
    if (pid != 0)
        return pid;
    execl("/usr/sbin/nginx", "nginx", "-c", conf, (char *)NULL);
    _exit(1);
}

static pid_t start_upstream(const struct bench *bench, struct shared *shared, bool is_http,
                            uint32_t n_streams)
{
    static char router[40], key[100];
    struct upstream_opts opts = {.shared = shared,
                                 .n_streams = n_streams,
                                 .rate_per_s = bench->rate_per_s,
                                 .n_workers = bench->n_workers,
                                 .router = router,
                                 .cluster_key = key,
                                 .model = bench->model_path,
                                 .port = UPSTREAM_HTTP};
    pid_t pid;

    snprintf(router, sizeof(router), "127.0.0.1:%d", ROUTER_LINK);
    snprintf(key, sizeof(key), "%s/key", bench->folder);
    pid = spawn(1, 20);
    if (pid == 0)
        _exit(is_http ? upstream_http(&opts) : upstream_workers(&opts));
    return pid;
}

/* The client in a process of its own, so that all its sockets go with it. */
static int measure(const struct bench *bench, struct load_opts *load, struct load_result *out)
{
    struct load_result *result =
        mmap(NULL, sizeof(*result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status = 1;
    pid_t pid = spawn(1, 5);

    load->source = bench->source;
    load->measure_ns = (uint64_t)(bench->measure_s * 1e9);
    load->n_slow = bench->n_slow;
    load->n_deaf = bench->n_deaf;
    if (pid == 0)
        _exit(load_run(load, result) < 0);
    waitpid(pid, &status, 0);
    *out = *result;
    munmap(result, sizeof(*result));
    return status == 0 ? 0 : -1;
}

static int run_front(const struct bench *bench, bool is_nginx, struct load_result *out)
{
    struct rlimit limit = {0};
    struct load_opts load = {.port = is_nginx ? NGINX_HTTP : ROUTER_HTTP,
                             .model = is_nginx ? "other" : "sim",
                             .n_streams = bench->n_streams};
    struct shared *shared =
        mmap(NULL, bench->shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t upstream;
    int rc;

    getrlimit(RLIMIT_NOFILE, &limit);
    if (is_nginx && 2 * (uint64_t)load.n_streams + SPARE_FDS > limit.rlim_cur)
        load.n_streams = (uint32_t)(limit.rlim_cur - SPARE_FDS) / 2;
    load.shared = shared;
    load.front = is_nginx ? start_nginx(bench) : start_router(bench);
    clock_sleep_ns(NS_PER_S / 2);
    upstream = start_upstream(bench, shared, is_nginx, load.n_streams);
    clock_sleep_ns(2 * NS_PER_S);
    rc = measure(bench, &load, out);
    end(upstream);
    end(load.front);
    munmap(shared, bench->shared_bytes);
    return rc;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    return remove(path);
}

static void clean(const struct bench *bench)
{
    nftw(bench->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void print_row(const char *name, const struct load_result *r)
{
    printf("%-8s %7u %10.0f %8.2f %8.2f %8.2f %8.2f %9.0f %% %8.1f KiB %7llu %8.2f %8.1f %%\n", name,
           r->n_streams, (double)r->n_events, r->us[0] / 1e3, r->us[1] / 1e3, r->us[2] / 1e3, r->us[3] / 1e3,
           r->cpu * 100, r->rss_per_stream_bytes / 1024, (unsigned long long)r->n_lost, r->upstream_ms,
           r->waited * 100);
}

static int read_options(struct bench *bench, int argc, char **argv)
{
    static const struct option options[] = {{"streams", required_argument, NULL, 'n'},
                                            {"rate", required_argument, NULL, 'r'},
                                            {"workers", required_argument, NULL, 'w'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"slow", required_argument, NULL, 'l'},
                                            {"deaf", required_argument, NULL, 'd'},
                                            {"only", required_argument, NULL, 'o'},
                                            {"model", required_argument, NULL, 'm'},
                                            {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 'n':
            bench->n_streams = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'r':
            bench->rate_per_s = strtod(optarg, NULL);
            break;
        case 'w':
            bench->n_workers = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 's':
            bench->measure_s = strtod(optarg, NULL);
            break;
        case 'l':
            bench->n_slow = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'd':
            bench->n_deaf = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'o':
            bench->only = optarg;
            break;
        case 'm':
            bench->model_path = optarg;
            break;
        default:
            return -1;
        }
    }
    return bench->n_streams > 0 && bench->rate_per_s > 0 && bench->n_workers > 0 ? 0 : -1;
}

int main(int argc, char **argv)
{
    struct bench bench = {.n_streams = 10000, .n_workers = 50, .rate_per_s = 10, .measure_s = 8, .only = ""};
    const char *source = getenv("srcdir");
    struct load_result router = {0}, nginx = {0};
    struct rlimit limit;
    struct fault fault = {0};
    char model[300], key[100];

    snprintf(model, sizeof(model), "%s/share/baton-demo.gguf", source == NULL ? ".." : source);
    bench.model_path = model;
    bench.source = source == NULL ? ".." : source;
    if (read_options(&bench, argc, argv) < 0)
        return 2;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    log_set_level(LOG_LEVEL_WARN);
    strcpy(bench.folder, "/tmp/bench-streams-XXXXXX");
    if (mkdtemp(bench.folder) == NULL)
        return 1;
    snprintf(key, sizeof(key), "%s/key", bench.folder);
    if (cluster_key_create(key, &fault) < 0) {
        fprintf(stderr, "%s\n", fault.text);
        return 1;
    }
    bench.shared_bytes = sizeof(struct shared) + bench.n_streams * sizeof(struct stream_times);
    printf("%u streams, %.0f tokens/s each, %u groups, %u slow heads, %u deaf readers; added latency in ms\n",
           bench.n_streams, bench.rate_per_s, bench.n_workers, bench.n_slow, bench.n_deaf);
    printf("%-8s %7s %10s %8s %8s %8s %8s %11s %12s %7s %8s %10s\n", "front", "streams", "events", "p50",
           "p99", "p99.9", "most", "CPU", "RSS/stream", "lost", "upstream", "waited");
    fflush(stdout);
    if (strcmp(bench.only, "nginx") != 0) {
        if (run_front(&bench, false, &router) < 0)
            return 1;
        print_row("router", &router);
        fflush(stdout);
    }
    if (strcmp(bench.only, "router") != 0 && access("/usr/sbin/nginx", X_OK) == 0) {
        if (run_front(&bench, true, &nginx) < 0)
            return 1;
        print_row("nginx", &nginx);
    }
    clean(&bench);
    if (router.long_ms[1] > 0)
        printf("220 KB prompts beside them, router's part of TTFT: %.2f ms (%.2f to %.2f)\n",
               router.long_ms[1], router.long_ms[0], router.long_ms[2]);
    return 0;
}
