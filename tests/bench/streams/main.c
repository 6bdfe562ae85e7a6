/* SPDX-License-Identifier: Apache-2.0 */
/* bench_streams: ten thousand streams through baton-router, and through nginx beside it.
 *
 *     tests/bench/bench_streams [--streams N] [--rate R] [--workers N] [--seconds S] [--slow N] [--deaf N]
 *                               [--prompts N] [--blocks N] [--only router|nginx] [--remote] [--steer] [--first]
 *                               [--congestion NAME] [--model VOCABULARY.gguf] [--programs FOLDER]
 *     tests/bench/bench_streams --router ADDRESS --key FILE [--workers N]
 *
 * --blocks: at the beginning of the measurement the simulated workers tell the router, which knows none, that they
 * have so many blocks cached.  Printed are the time until its index has them, and the longest pieces of work of its
 * loop.
 *
 * The second form starts only the simulated workers, for a router that runs already, until it is ended
 * (tests/bench/bench_fleet.py).
 *
 * Run in the build folder of a machine with two cores or more.  Clients are sockets that receive over
 * loopback; --remote puts them behind a network device, where real ones are (remote.c), --steer has loopback
 * receive on the client's core (machine.c says why), --congestion chooses TCP's congestion control of all
 * sockets of both fronts (else it is the system's), --first takes precedence over other programs; all four
 * need root.  Starts the front on one core, everything else on another; simulated workers speak the link
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
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "net/link/tls.h"
#include "tests/bench/streams/streams.h"

#define ROUTER_HTTP   18480
#define ROUTER_ADMIN  18481
#define ROUTER_LINK   18482
#define NGINX_HTTP    18490
#define UPSTREAM_HTTP 18491
#define SPARE_FDS     200
#define FRONT_CPU     0
#define CLIENT_CPU    1 /* the upstream's, too */

struct bench {
    uint32_t n_streams;
    uint32_t n_workers;
    uint32_t n_slow, n_deaf, n_prompts, n_blocks;
    double rate_per_s;
    double measure_s;
    bool is_remote;       /* streams come from behind a network device */
    bool is_first;        /* takes precedence over other programs */
    bool steers;          /* what loopback receives is received on the client's core */
    const char *programs; /* the folder of baton-router */
    const char *only;
    const char *router, *key; /* start only workers, for this router */
    const char *congestion;   /* TCP's; NULL: the system's */
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

/* The client and the upstream share a core.  The client has to wait, so that tokens leave when they are due.
 * With --first no other program comes in between either.  nice counts within a session only, so the session
 * is set, too. */
static void set_nice(const struct bench *bench, int nice)
{
    FILE *file = bench->is_first ? fopen("/proc/self/autogroup", "w") : NULL;

    if (file != NULL) {
        fputs("-20\n", file);
        fclose(file);
    }
    setpriority(PRIO_PROCESS, 0, bench->is_first ? nice - 20 : nice);
}

/* Starts a child on that core that dies with this process. */
static pid_t spawn(const struct bench *bench, unsigned cpu, int nice)
{
    pid_t pid;

    fflush(stdout);
    pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(cpu);
        set_nice(bench, nice);
    }
    return pid;
}

/* Ends the child gently, so that a tool that counts its instructions can print its result. */
static void end(pid_t pid)
{
    uint64_t until_ns = clock_now_ns() + 5 * NS_PER_S;

    kill(pid, SIGTERM);
    while (waitpid(pid, NULL, WNOHANG) == 0) {
        if (clock_now_ns() > until_ns)
            kill(pid, SIGKILL);
        clock_sleep_ns(10 * NS_PER_MS);
    }
}

static pid_t start_router(const struct bench *bench)
{
    char key[100], conf[100], log[100], connections[40], per_address[40], requests[40], http[60], admin[60],
        link[60], program[200];
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
    snprintf(program, sizeof(program), "%s/baton-router", bench->programs);
    pid = spawn(bench, FRONT_CPU, 5);
    if (pid != 0)
        return pid;
    fclose(fopen(conf, "w"));
    if (freopen(log, "w", stderr) == NULL || freopen(log, "a", stdout) == NULL)
        _exit(1);
    execl(program, "baton-router", "--config", conf, "--set", key, "--set", connections, "--set", per_address,
          "--set", requests, "--set", http, "--set", admin, "--set", link, "--set", "slo.ttft=60s", "--set",
          "slo.itl=60s", "--set", "placement.local_prefill_tokens=1000000", "--set", "log.level=warn",
          "--set", "stop.lame_duck=0", "--set", "http.body_timeout=300s", "--set", "http.head_timeout=300s",
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
    pid = spawn(bench, FRONT_CPU, 5);
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
                                 .n_blocks = bench->n_blocks,
                                 .router = router,
                                 .cluster_key = key,
                                 .model = bench->model_path,
                                 .port = UPSTREAM_HTTP};
    pid_t pid;

    snprintf(router, sizeof(router), "127.0.0.1:%d", ROUTER_LINK);
    snprintf(key, sizeof(key), "%s/key", bench->folder);
    pid = spawn(bench, CLIENT_CPU, 0);
    if (pid == 0)
        _exit(is_http ? upstream_http(&opts) : upstream_workers(&opts));
    return pid;
}

/* Waits until the router would serve: it listens, and a worker has sent the vocabulary. */
static void await_router(void)
{
    static const char question[] = "GET /readyz HTTP/1.0\r\n\r\n";
    uint64_t until_ns = clock_now_ns() + 60 * NS_PER_S;
    char answer[64] = "";

    while (strstr(answer, " 200 ") == NULL && clock_now_ns() < until_ns) {
        int fd = load_dial(ROUTER_HTTP);
        ssize_t n = -1;

        if (fd >= 0 && send(fd, question, sizeof(question) - 1, MSG_NOSIGNAL) > 0)
            n = recv(fd, answer, sizeof(answer) - 1, 0);
        answer[n > 0 ? n : 0] = '\0';
        if (fd >= 0)
            close(fd);
        clock_sleep_ns(NS_PER_S / 10);
    }
}

/* ---- blocks ---- */

/* The router's metrics; false: no answer, or more than fits. */
static bool read_metrics(const struct bench *bench, char *out, size_t size)
{
    char key_path[100], token[65], question[160];
    uint8_t key[32], derived[32];
    struct fault fault = {0};
    size_t kept = 0;
    ssize_t n;
    int fd;

    snprintf(key_path, sizeof(key_path), "%s/key", bench->folder);
    if (cluster_key_load(key_path, &fault, key) < 0 || cluster_key_derive(key, "metrics", derived) < 0)
        return false;
    hex_encode(derived, sizeof(derived), token);
    snprintf(question, sizeof(question), "GET /metrics HTTP/1.0\r\nauthorization: Bearer %s\r\n\r\n", token);
    fd = load_dial(ROUTER_ADMIN);
    n = fd >= 0 ? send(fd, question, strlen(question), MSG_NOSIGNAL) : -1;
    while (n > 0 && kept + 1 < size) {
        n = recv(fd, out + kept, size - 1 - kept, 0);
        kept += n > 0 ? (size_t)n : 0;
    }
    out[kept] = '\0';
    if (fd >= 0)
        close(fd);
    return n == 0 && strstr(out, " 200 ") != NULL;
}

static double metric_of(const char *metrics, const char *name)
{
    const char *at = strstr(metrics, name);

    return at != NULL ? strtod(at + strlen(name), NULL) : -1;
}

/* Pieces of work, or whole turns of the loop, that took over 2 ms of processor time since the start. */
static double long_work(const char *metrics, const char *work)
{
    char all[80], shorter[80];

    snprintf(all, sizeof(all), "\nbaton_loop_stall_seconds_count{work=\"%s\"} ", work);
    snprintf(shorter, sizeof(shorter), "\nbaton_loop_stall_seconds_bucket{work=\"%s\",le=\"0.002\"} ", work);
    return strstr(metrics, all) != NULL ? metric_of(metrics, all) - metric_of(metrics, shorter) : 0;
}

/* Waits until the router's index has the blocks, while the client measures. */
static void await_blocks(const struct bench *bench, const struct shared *shared, pid_t client)
{
    static const char *const works[] = {"link read", "turn", "timer", "http read"};
    static char before[1 << 20], metrics[1 << 20];
    uint64_t until_ns = clock_now_ns() + 120 * NS_PER_S, began_ns;
    siginfo_t over = {0};
    double known = 0;

    while ((began_ns = atomic_load(&shared->began_ns)) == 0 && clock_now_ns() < until_ns)
        clock_sleep_ns(NS_PER_MS);
    (void)read_metrics(bench, before, sizeof(before));
    while (known < bench->n_blocks && over.si_pid == 0) {
        clock_sleep_ns(20 * NS_PER_MS);
        if (read_metrics(bench, metrics, sizeof(metrics)))
            known = metric_of(metrics, "\nbaton_router_blocks_known{tier=\"memory\"} ");
        waitid(P_PID, (id_t)client, &over, WEXITED | WNOHANG | WNOWAIT);
    }
    printf("%.0f of %u blocks known after %.2f s; over 2 ms of processor time:", known, bench->n_blocks,
           (double)(clock_now_ns() - began_ns) / 1e9);
    for (size_t i = 0; i < sizeof(works) / sizeof(works[0]); i++)
        printf(" %s %.0f", works[i], long_work(metrics, works[i]) - long_work(before, works[i]));
    printf("; the longest turn since the start: %.1f ms\n",
           1e3 * metric_of(metrics, "\nbaton_loop_stall_max_seconds{work=\"turn\"} "));
}

/* Runs the client in its own process, whose end closes all its sockets. */
static int measure(const struct bench *bench, struct load_opts *load, struct load_result *out)
{
    struct load_result *result =
        mmap(NULL, sizeof(*result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status = 1;
    pid_t pid = spawn(bench, CLIENT_CPU, 15);

    load->source = bench->source;
    load->cpu = CLIENT_CPU;
    load->measure_ns = (uint64_t)(bench->measure_s * 1e9);
    load->n_slow = bench->n_slow;
    load->n_deaf = bench->n_deaf;
    load->n_prompts = bench->n_prompts;
    load->is_remote = bench->is_remote;
    if (pid == 0)
        _exit(load_run(load, result) < 0);
    if (bench->n_blocks > 0 && load->port == ROUTER_HTTP)
        await_blocks(bench, load->shared, pid);
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
    if (!is_nginx)
        await_router();
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

static void print_head(void)
{
    printf("%-8s %7s %9s %7s %7s %7s %7s %6s %13s %7s %7s %5s %8s %7s\n", "front", "streams", "tokens/s",
           "p50", "p99", "p99.9", "most", "CPU", "us/token", "KiB", "other", "lost", "upstream", "waited");
    fflush(stdout);
}

/* us/token: the front's CPU time, in its own code and in the kernel.  other: the other core. */
static void print_row(const struct bench *bench, const char *name, const struct load_result *r)
{
    double per_s = (double)r->n_events / bench->measure_s;

    printf(
        "%-8s %7u %9.0f %7.2f %7.2f %7.2f %7.2f %4.0f %% %5.2f + %5.2f %7.1f %5.0f %% %5llu %8.2f %5.1f %%\n",
        name, r->n_streams, per_s, r->us[0] / 1e3, r->us[1] / 1e3, r->us[2] / 1e3, r->us[3] / 1e3,
        (r->user + r->kernel) * 100, r->user / per_s * 1e6, r->kernel / per_s * 1e6,
        r->rss_per_stream_bytes / 1024, r->other_core * 100, (unsigned long long)r->n_lost, r->upstream_ms,
        r->waited * 100);
    fflush(stdout);
}

static bool take_number(struct bench *bench, int option, const char *text)
{
    uint32_t n = (uint32_t)strtoul(text, NULL, 10);

    switch (option) {
    case 'n':
        bench->n_streams = n;
        return n > 0;
    case 'w':
        bench->n_workers = n;
        return n > 0;
    case 'l':
        bench->n_slow = n;
        return true;
    case 'd':
        bench->n_deaf = n;
        return true;
    case 'b':
        bench->n_blocks = n;
        return true;
    case 'g':
        bench->n_prompts = n;
        return true;
    case 'r':
        bench->rate_per_s = strtod(text, NULL);
        return bench->rate_per_s > 0;
    case 's':
        bench->measure_s = strtod(text, NULL);
        return bench->measure_s > 0;
    }
    return false;
}

static int read_options(struct bench *bench, int argc, char **argv)
{
    static const struct option options[] = {{"streams", required_argument, NULL, 'n'},
                                            {"rate", required_argument, NULL, 'r'},
                                            {"workers", required_argument, NULL, 'w'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"slow", required_argument, NULL, 'l'},
                                            {"deaf", required_argument, NULL, 'd'},
                                            {"prompts", required_argument, NULL, 'g'},
                                            {"blocks", required_argument, NULL, 'b'},
                                            {"remote", no_argument, NULL, 'x'},
                                            {"only", required_argument, NULL, 'o'},
                                            {"model", required_argument, NULL, 'm'},
                                            {"programs", required_argument, NULL, 'p'},
                                            {"congestion", required_argument, NULL, 'c'},
                                            {"first", no_argument, NULL, 'f'},
                                            {"steer", no_argument, NULL, 't'},
                                            {"router", required_argument, NULL, 'a'},
                                            {"key", required_argument, NULL, 'k'},
                                            {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 'o')
            bench->only = optarg;
        else if (c == 'm')
            bench->model_path = optarg;
        else if (c == 'p')
            bench->programs = optarg;
        else if (c == 'c')
            bench->congestion = optarg;
        else if (c == 'a')
            bench->router = optarg;
        else if (c == 'k')
            bench->key = optarg;
        else if (c == 'f')
            bench->is_first = true;
        else if (c == 't')
            bench->steers = true;
        else if (c == 'x')
            bench->is_remote = true;
        else if (c == '?' || !take_number(bench, c, optarg))
            return -1;
    }
    return 0;
}

static int run_workers(const struct bench *bench)
{
    static struct shared shared;
    const struct upstream_opts opts = {.shared = &shared,
                                       .rate_per_s = bench->rate_per_s,
                                       .n_workers = bench->n_workers,
                                       .router = bench->router,
                                       .cluster_key = bench->key,
                                       .model = bench->model_path};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return upstream_workers(&opts);
}

static int run_both(const struct bench *bench)
{
    struct load_result router = {0}, nginx = {0};

    printf("%u streams, %.0f tokens/s each, %u groups, %u slow heads, %u deaf readers; added latency in ms\n",
           bench->n_streams, bench->rate_per_s, bench->n_workers, bench->n_slow, bench->n_deaf);
    printf("TCP's congestion control: %s\n", machine_congestion());
    if (bench->is_remote)
        printf("streams come from behind a network device\n");
    if (bench->steers)
        printf("what loopback receives is received on the other core\n");
    print_head();
    if (strcmp(bench->only, "nginx") != 0) {
        if (run_front(bench, false, &router) < 0)
            return 1;
        print_row(bench, "router", &router);
    }
    if (strcmp(bench->only, "router") != 0 && access("/usr/sbin/nginx", X_OK) == 0) {
        if (run_front(bench, true, &nginx) < 0)
            return 1;
        print_row(bench, "nginx", &nginx);
    }
    if (router.long_ms[1] > 0)
        printf("220 KB prompts beside them, router's part of TTFT: %.2f ms (%.2f to %.2f)\n",
               router.long_ms[1], router.long_ms[0], router.long_ms[2]);
    return 0;
}

int main(int argc, char **argv)
{
    struct bench bench = {.n_streams = 10000,
                          .n_workers = 50,
                          .n_prompts = 15,
                          .rate_per_s = 10,
                          .measure_s = 8,
                          .programs = ".",
                          .only = ""};
    const char *source = getenv("srcdir");
    struct rlimit limit;
    struct fault fault = {0};
    char model[300], key[100];
    int status;

    snprintf(model, sizeof(model), "%s/share/baton-demo.gguf", source == NULL ? ".." : source);
    bench.model_path = model;
    bench.source = source == NULL ? ".." : source;
    if (read_options(&bench, argc, argv) < 0)
        return 2;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    log_set_level(LOG_LEVEL_WARN);
    if (bench.router != NULL && bench.key != NULL)
        return run_workers(&bench);
    strcpy(bench.folder, "/tmp/bench-streams-XXXXXX");
    if (mkdtemp(bench.folder) == NULL)
        return 1;
    snprintf(key, sizeof(key), "%s/key", bench.folder);
    if (cluster_key_create(key, &fault) < 0) {
        fprintf(stderr, "%s\n", fault.text);
        return 1;
    }
    bench.shared_bytes = sizeof(struct shared) + bench.n_streams * sizeof(struct stream_times);
    status = 1;
    if ((!bench.steers || machine_steer(CLIENT_CPU) == 0) &&
        (bench.congestion == NULL || machine_set_congestion(bench.congestion) == 0))
        status = run_both(&bench);
    machine_put_back();
    clean(&bench);
    return status;
}
