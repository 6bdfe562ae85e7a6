/* SPDX-License-Identifier: Apache-2.0 */
/* baton-setup: writes the configuration of the daemons of one host, with the reason of each setting.
 *
 * It changes nothing before it has shown all decisions.  It never overwrites an existing file. */
#include <getopt.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"
#include "base/name.h"
#include "base/str.h"
#include "clients/common/cli.h"
#include "clients/setup/steps.h"
#include "net/link/addr.h"
#include "net/link/cluster_key.h"

struct setup_args {
    struct setup_wish wish;
    struct setup_answers answers;
    char folder[PATH_MAX], key_path[PATH_MAX], own_address[64];
    bool has_role, is_dry, starts, is_sure;
};

static void setup_main_usage(void)
{
    printf("usage: baton-setup [OPTION]...\n\n"
           "Writes the configuration of this host's daemons and the cluster's key; asks on a terminal "
           "without --role.\n\n"
           "  -r, --role ROLE           all (router and workers), router, prefill or decode\n"
           "  -m, --model FILE          the GGUF file that workers serve\n"
           "  -R, --router HOST:PORT    where workers register (prefill, decode); may be repeated\n"
           "  -a, --address ADDRESS     this host's address for other hosts (workers: the one that reaches "
           "the router)\n"
           "      --http HOST:PORT      where clients connect; beyond loopback it needs --api-keys\n"
           "      --api-keys FILE       API keys of the endpoint (batonctl new-key)\n"
           "  -n, --name NAME           of the first worker: prefill-NAME.conf, baton-prefill@NAME (0)\n"
           "  -t, --threads N           compute threads of all workers together (all CPUs)\n"
           "      --kv-memory SIZE      KV memory of each worker, as 4GiB (by the memory of this host)\n"
           "      --prefill-workers N   with --role all: how many of the workers prefill (half)\n"
           "  -d, --dir FOLDER          where the files go (%s)\n"
           "      --start               enable and start the units with systemctl\n"
           "      --dry-run             print the files, write nothing\n"
           "  -y, --yes                 write without a question\n"
           "  -h, --help                this text\n"
           "  -V, --version             the version\n",
           BATON_SYSCONFDIR);
}

static bool setup_main_role(const char *text, struct setup_args *args)
{
    static const char *const names[] = {"all", "router", "prefill", "decode"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcasecmp(text, names[i]) == 0) {
            args->wish.role = (enum setup_role)i;
            args->has_role = true;
            return true;
        }
    complain_usage(SETUP_NAME, "--role %s: all, router, prefill or decode", text);
    return false;
}

static bool setup_main_count(const char *option, const char *text, unsigned max, unsigned *out)
{
    uint64_t number;

    if (!option_u64(SETUP_NAME, option, text, &number))
        return false;
    if (number < 1 || number > max) {
        complain_usage(SETUP_NAME, "%s %s: from 1 to %u", option, text, max);
        return false;
    }
    *out = (unsigned)number;
    return true;
}

static bool setup_main_name(const char *text)
{
    if (name_is_valid(bytes_str(text), 40))
        return true;
    complain_usage(SETUP_NAME, "--name %s: 1 to 40 letters, digits, '.', '_' or '-'", text);
    return false;
}

/* Reads an option whose value is checked here. */
static bool setup_main_value(int c, const char *text, struct setup_args *args)
{
    struct setup_wish *wish = &args->wish;
    struct fault fault = {0};

    switch (c) {
    case 'r':
        return setup_main_role(text, args);
    case 'm':
        if (setup_model_read(text, &fault, &wish->model) == 0)
            return true;
        complain(SETUP_NAME, "%s", fault.text);
        return false;
    case 'R':
        if (wish->n_routers == SETUP_MAX_ROUTERS) {
            complain_usage(SETUP_NAME, "--router: %d at most", SETUP_MAX_ROUTERS);
            return false;
        }
        wish->routers[wish->n_routers++] = text;
        return true;
    case 'n':
        wish->name = text;
        return setup_main_name(text);
    case 't':
        return setup_main_count("--threads", text, 1024, &wish->n_threads);
    case 'P':
        return setup_main_count("--prefill-workers", text, SETUP_MAX_NODES, &wish->n_prefill);
    default:
        if (str_to_size(bytes_str(text), &wish->kv_memory_bytes) == 0 && wish->kv_memory_bytes > 0)
            return true;
        complain_usage(SETUP_NAME, "--kv-memory %s: not a size (512MiB, 4GiB)", text);
        return false;
    }
}

static const struct option setup_options[] = {{"role", required_argument, NULL, 'r'},
                                              {"model", required_argument, NULL, 'm'},
                                              {"router", required_argument, NULL, 'R'},
                                              {"address", required_argument, NULL, 'a'},
                                              {"http", required_argument, NULL, 'H'},
                                              {"api-keys", required_argument, NULL, 'A'},
                                              {"name", required_argument, NULL, 'n'},
                                              {"threads", required_argument, NULL, 't'},
                                              {"kv-memory", required_argument, NULL, 'M'},
                                              {"prefill-workers", required_argument, NULL, 'P'},
                                              {"dir", required_argument, NULL, 'd'},
                                              {"start", no_argument, NULL, 'S'},
                                              {"dry-run", no_argument, NULL, 'D'},
                                              {"yes", no_argument, NULL, 'y'},
                                              {"help", no_argument, NULL, 'h'},
                                              {"version", no_argument, NULL, 'V'},
                                              {NULL, 0, NULL, 0}};

/* Returns -1 to continue, or the exit status of the program. */
static int setup_main_options(int argc, char **argv, struct setup_args *args)
{
    int c;

    while ((c = getopt_long(argc, argv, "r:m:R:a:n:t:d:yhV", setup_options, NULL)) != -1) {
        switch (c) {
        case 'a':
            args->wish.address = optarg;
            break;
        case 'H':
            args->wish.http = optarg;
            break;
        case 'A':
            args->wish.api_keys = optarg;
            break;
        case 'd':
            args->wish.folder = optarg;
            break;
        case 'S':
            args->starts = true;
            break;
        case 'D':
            args->is_dry = true;
            break;
        case 'y':
            args->is_sure = true;
            break;
        case 'h':
            setup_main_usage();
            return finish_output(SETUP_NAME);
        case 'V':
            printf("baton-setup %s\n", PACKAGE_VERSION);
            return finish_output(SETUP_NAME);
        case '?':
            return EXIT_USAGE;
        default:
            if (!setup_main_value(c, optarg, args))
                return c == 'm' ? EXIT_FAILED : EXIT_USAGE;
        }
    }
    return optind < argc ? complain_usage(SETUP_NAME, "unexpected argument: %s", argv[optind]) : -1;
}

/* ---- showing ---- */

static void setup_main_put(const char *first, const char *text)
{
    struct buf lines = {0};

    setup_wrap(text, "        ", 100, &lines);
    printf("%s\n%s", first, lines.len_bytes > 0 ? (const char *)lines.data : "");
    buf_fini(&lines);
}

static void setup_main_show_host(const struct setup_host *host)
{
    char memory[24], available[24];

    str_from_size(host->memory_bytes >> 20 << 20, memory);
    str_from_size(host->available_bytes >> 20 << 20, available);
    printf("%s: %s, %u usable CPUs%s (%s), %u NUMA %s, %s of memory (%s available)\n", host->name,
           host->cpu_model, host->n_cpus, host->has_quota ? " by the control group" : "", host->kernels,
           host->n_nodes, host->n_nodes == 1 ? "node" : "nodes", memory, available);
    for (unsigned i = 0; i < host->n_rails; i++)
        printf("RDMA port %s\n", host->rails[i]);
    if (host->n_rails == 0)
        printf("no RDMA port is up: KV travels over shared memory within the host, and over TCP beyond\n");
}

static void setup_main_show_plan(const struct setup_args *args, const struct setup_plan *plan)
{
    char first[800];

    if (plan->split[0] != '\0')
        setup_main_put("\nWorkers:", plan->split);
    for (unsigned i = 0; i < plan->n_files; i++) {
        const struct setup_file *file = &plan->files[i];

        printf("\n%s/%s (%s)\n", args->folder, file->name, file->unit);
        for (unsigned j = 0; j < file->n_lines; j++) {
            snprintf(first, sizeof(first), "    %s.%s = %s", file->lines[j].section, file->lines[j].key,
                     file->lines[j].value);
            setup_main_put(first, file->lines[j].why);
        }
    }
    putchar('\n');
}

static int setup_main_print(const struct setup_args *args, const struct setup_plan *plan)
{
    for (unsigned i = 0; i < plan->n_files; i++) {
        struct buf text = {0};

        if (setup_render(&plan->files[i], &text) != 0)
            return complain(SETUP_NAME, "%s", err_text(E_NOMEM));
        printf("==> %s/%s <==\n%s\n", args->folder, plan->files[i].name, (const char *)text.data);
        buf_fini(&text);
    }
    printf("nothing was written (--dry-run)\n");
    return finish_output(SETUP_NAME);
}

/* ---- doing ---- */

/* A host that joins another host's router needs that cluster's key, not a new one. */
static bool setup_main_makes_key(const struct setup_args *args)
{
    return args->wish.role == SETUP_ALL || args->wish.role == SETUP_ROUTER;
}

/* A worker's host needs the key of the router's host; the key that the package makes at installation is another
 * one. */
static int setup_main_show_key(const struct setup_args *args)
{
    struct fault fault = {0};
    uint8_t key[CLUSTER_KEY_BYTES];

    if (access(args->key_path, F_OK) != 0) {
        printf("%s is missing: get it with batonctl token on the router's host and batonctl join here\n",
               args->key_path);
        return args->starts ? complain(SETUP_NAME, "not started: the cluster's key is missing") : EXIT_DONE;
    }
    if (cluster_key_load(args->key_path, &fault, key) != 0)
        return complain(SETUP_NAME, "%s", fault.text);
    printf("kept %s (key %08x). It must be the key of the router's host (batonctl key show FILE there); "
           "otherwise batonctl token there and batonctl join --replace here\n",
           args->key_path, cluster_key_id(key));
    OPENSSL_cleanse(key, sizeof(key));
    return EXIT_DONE;
}

static int setup_main_write(const struct setup_args *args, const struct setup_plan *plan)
{
    struct fault fault = {0};
    bool made = false;
    int rc = setup_write(args->folder, plan, &fault);

    if (rc != 0)
        return complain(SETUP_NAME, "%s", fault.text);
    for (unsigned i = 0; i < plan->n_files; i++)
        printf("wrote %s/%s\n", args->folder, plan->files[i].name);
    if (setup_main_makes_key(args)) {
        if (setup_key(args->key_path, &fault, &made) != 0)
            return complain(SETUP_NAME, "%s", fault.text);
        printf("%s %s (the cluster's key; 0600)\n", made ? "made" : "kept", args->key_path);
    } else {
        rc = setup_main_show_key(args);
        if (rc != EXIT_DONE || access(args->key_path, F_OK) != 0)
            return rc;
    }
    if (setup_check(args->folder, plan, args->key_path, &fault) != 0)
        return complain(SETUP_NAME, "%s", fault.text);
    printf("checked: the daemons accept these files\n");
    if (args->starts && setup_start(plan, &fault) != 0)
        return complain(SETUP_NAME, "%s", fault.text);
    if (!args->starts) {
        printf("start: systemctl enable --now baton.target");
        for (unsigned i = 0; i < plan->n_files; i++)
            printf(" %s", plan->files[i].unit);
        putchar('\n');
    }
    return finish_output(SETUP_NAME);
}

/* Fills in what follows from the options: folder, key, own address. */
static int setup_main_complete(struct setup_args *args, struct fault *fault)
{
    struct setup_wish *wish = &args->wish;
    bool is_worker_host = wish->role == SETUP_PREFILL || wish->role == SETUP_DECODE;
    struct addr addr;
    int rc = 0;

    if (wish->folder[0] == '/')
        str_copy(args->folder, sizeof(args->folder), wish->folder);
    else if (getcwd(args->folder, sizeof(args->folder)) != NULL) {
        size_t n = strlen(args->folder);

        if ((size_t)snprintf(args->folder + n, sizeof(args->folder) - n, "/%s", wish->folder) >=
            sizeof(args->folder) - n)
            return fault_set(fault, E_INVAL, "--dir: the path is too long");
    }
    snprintf(args->key_path, sizeof(args->key_path), "%.*s/cluster.key", PATH_MAX - 16, args->folder);
    if (strcmp(args->folder, BATON_SYSCONFDIR) != 0)
        wish->key_path = args->key_path;
    if (is_worker_host && wish->address == NULL && wish->n_routers > 0) {
        rc = setup_own_address(wish->routers[0], fault, args->own_address);
        wish->address = args->own_address;
    }
    if (rc == 0 && wish->http != NULL)
        rc = addr_parse(wish->http, fault, &addr);
    if (rc == 0 && wish->http != NULL && wish->api_keys == NULL)
        rc = addr_want_loopback(wish->http, "--http", "give --api-keys FILE; batonctl new-key makes keys",
                                fault);
    return rc;
}

static int setup_main_run(struct setup_args *args)
{
    static struct setup_host host;
    static struct setup_plan plan;
    static struct setup_ports ports;
    struct fault fault = {0};
    char hidden[700];

    if (!args->has_role && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) {
        if (setup_ask(&args->wish, &args->answers) != 0)
            return complain(SETUP_NAME, "the input ended; nothing was written");
    } else if (!args->has_role) {
        return complain_usage(SETUP_NAME, "give --role all, router, prefill or decode");
    }
    if (setup_main_complete(args, &fault) != 0)
        return complain(SETUP_NAME, "%s", fault.text);
    setup_look("", &host);
    setup_ports_init(&ports, args->folder, args->wish.address);
    args->wish.is_free = setup_ports_is_free;
    args->wish.is_free_arg = &ports;
    if (setup_decide(&host, &args->wish, &fault, &plan) != 0 ||
        (!args->is_dry && setup_check_absent(args->folder, &plan, &fault) != 0))
        return complain(SETUP_NAME, "%s", fault.text);
    setup_main_show_host(&host);
    setup_main_show_plan(args, &plan);
    if (setup_model_is_hidden(&args->wish.model, hidden, sizeof(hidden))) {
        if (args->starts && !args->is_dry)
            return complain(SETUP_NAME, "%s", hidden);
        printf("note: %s\n", hidden);
    }
    if (args->is_dry)
        return setup_main_print(args, &plan);
    if (!args->has_role && !args->is_sure && !setup_confirm("Write these files? y or n"))
        return complain(SETUP_NAME, "nothing was written");
    return setup_main_write(args, &plan);
}

int main(int argc, char **argv)
{
    static struct setup_args args = {.wish = {.folder = BATON_SYSCONFDIR}};
    int status = setup_main_options(argc, argv, &args);

    if (status >= 0)
        return status;
    if (args.starts && strcmp(args.wish.folder, BATON_SYSCONFDIR) != 0)
        return complain_usage(SETUP_NAME, "--start: the units read %s only, not --dir %s", BATON_SYSCONFDIR,
                              args.wish.folder);
    return setup_main_run(&args);
}
