/* SPDX-License-Identifier: Apache-2.0 */
/* baton-model pull: fetches a model from a hub or a web server, and prints the path of its file.
 *
 * The hub's list has the files of a repository with their sizes and SHA-256. The command chooses one model by its
 * quantisation and fetches all of its parts, one file after another (clients/pull).
 *
 *     list of the hub ---> choice ---> files that are absent or differ are linked to copies elsewhere, or fetched
 *         | no answer                                             ^
 *         +--> lists of folders -----> choice, complete, said ----+ none: the hub's fault is the command's
 *
 * The folders: the one where models are kept; the system's, if that is another; the cache of the hub's libraries.  With --to
 * only the first counts. */
#include "clients/model/model_cli.h"

#include "base/err.h"
#include "base/str.h"
#include "clients/model/rig.h"
#include "clients/pull/pull.h"
#include "gguf/gguf.h"

#include <ctype.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char NAME[] = "pull";

static const char HELP[] =
    "Usage: baton-model pull [OPTIONS] hf:OWNER/NAME[:QUANT] | https://HOST/FILE.gguf\n"
    "Fetch a model unless it is there, check it, and print the path of its (first) file.\n"
    "\n"
    "  --to FOLDER        where models are kept (default: /var/lib/baton/models if it exists and can be\n"
    "                     written, else $XDG_CACHE_HOME/baton/models or ~/.cache/baton/models)\n"
    "  --offline          ask no server: use only files that are there\n"
    "  --connections N    at the same time, 1 to 16 (default 4)\n"
    "  --timeout SECONDS  a connection without a byte for this long is cut (default 30)\n"
    "  --sha256 HEX       digest that the model must have; it must be one file\n"
    "  --quiet            no progress\n"
    "  --help             this text\n"
    "\n"
    "QUANT is a quantisation such as Q4_K_M, or a file of the repository; without it Q4_K_M or another\n"
    "usual one is taken. An interrupted download is continued by the same command. If the hub does not\n"
    "answer, a complete model that is there is used, with a warning. Without --to, models in\n"
    "/var/lib/baton/models and in the cache of the hub's libraries are used and not fetched again.\n"
    "Environment: HF_TOKEN, sent to the hub only; HF_ENDPOINT, a hub in place of https://huggingface.co;\n"
    "HF_HUB_CACHE, HF_HOME: where that cache is.\n";

enum { MAX_PAGES = 50, TOKEN_BYTES = 1024 };

struct pull_args {
    struct pull_name name;
    struct pull_opts opts;
    const char *text, *to;
    char endpoint[PULL_URL_BYTES], token[TOKEN_BYTES];
    char sha256[65];
    bool is_offline, is_help;
};

struct pulling {
    const struct pull_args *args;
    bool is_local;            /* no server is asked for files: --offline, or the hub is away */
    bool is_misused;          /* the options do not fit the model */
    bool is_system;           /* the model stands in the system's folder, and is used there */
    bool is_kept;             /* the list is that of the folder */
    struct buf folder;        /* of all models, then of this one */
    struct buf system, cache; /* the same of pull_reuse's places */
    struct pull_reuse elsewhere;
    struct pull_list list;
    struct buf options; /* the available models, if the name is ambiguous */
};

/* ---- the hub ---- */

/* Appends a path with the bytes escaped that an address must not have. */
static void cmd_pull_put_escaped(struct buf *out, const char *path)
{
    for (; *path != '\0'; path++) {
        if (isalnum((unsigned char)*path) || strchr("-_.~/", *path) != NULL)
            buf_append_byte(out, (uint8_t)*path);
        else
            buf_printf(out, "%%%02X", (unsigned char)*path);
    }
}

static int list_hub(struct pulling *p, bool is_brief, struct fault *fault)
{
    const struct pull_args *args = p->args;
    struct pull_opts opts = args->opts;
    struct buf body = {0};
    char next[PULL_URL_BYTES];
    int rc = 0;

    int n = snprintf(next, sizeof(next), "%s/api/models/%s/%s/tree/main?recursive=true", args->endpoint,
                     args->name.owner, args->name.repo);
    if (n >= (int)sizeof(next))
        return fault_set(fault, E_LIMIT, "the address is too long");
    opts.is_brief = is_brief;
    for (int page = 0; rc == 0 && next[0] != '\0' && page < MAX_PAGES; page++) {
        rc = pull_http_page(&opts, next, &body, next, fault);
        if (rc == 0)
            rc = pull_list_read(&p->list, buf_view(&body), fault);
    }
    buf_fini(&body);
    return rc;
}

/* The address of file i. For a web address the parts of a split model differ in their numbers. */
static void put_url(const struct pulling *p, size_t i, struct buf *out)
{
    const struct pull_args *args = p->args;
    const char *path = p->list.files[i].path, *slash = strrchr(path, '/');

    if (args->name.is_hub) {
        buf_printf(out, "%s/%s/%s/resolve/main/", args->endpoint, args->name.owner, args->name.repo);
        cmd_pull_put_escaped(out, path);
        return;
    }
    size_t n = strcspn(args->name.url, "?#"), file_bytes = strlen(slash != NULL ? slash + 1 : path);
    buf_append(out, args->name.url, n - file_bytes);
    buf_printf(out, "%s%s", slash != NULL ? slash + 1 : path, args->name.url + n);
}

/* ---- an address ---- */

static int list_url(struct pulling *p, struct fault *fault)
{
    const char *path = p->args->name.path;
    struct gguf_part part = {.count = 1};
    bool is_part = gguf_part_name(bytes_str(path), &part);
    int rc = 0;

    if (part.count > 4096)
        return fault_set(fault, E_LIMIT, "%u parts", part.count);
    for (uint32_t i = 1; i <= part.count && rc == 0; i++) {
        struct buf name = {0};

        if (is_part)
            gguf_part_path(&part, i, &name);
        else
            buf_append_str(&name, path);
        rc = name.is_bad ? E_NOMEM : pull_list_add(&p->list, buf_view(&name), 0, p->args->sha256);
        buf_fini(&name);
    }
    return rc < 0 ? fault_set(fault, rc, "%s", err_text(rc)) : 0;
}

/* ---- fetching ---- */

static int fetch_one(struct pulling *p, size_t i, const char *path, struct fault *fault)
{
    struct buf url = {0};
    int rc;

    put_url(p, i, &url);
    rc = url.is_bad ? fault_set(fault, E_NOMEM, "out of memory")
                    : pull_get(&p->args->opts, (const char *)url.data, path, &p->list.files[i], fault);
    buf_fini(&url);
    if (rc == 0 && !p->args->name.is_hub && p->list.files[i].sha256[0] == '\0')
        rc = pull_store_drop_page(path, fault);
    return rc;
}

/* The folder of the model. */
static const char *pull_place(const struct pulling *p)
{
    return p->is_system ? p->elsewhere.system : (const char *)p->folder.data;
}

/* The path of file i. */
static int put_path(const struct pulling *p, size_t i, struct buf *out, struct fault *fault)
{
    buf_printf(out, "%s/%s", pull_place(p), p->list.files[i].path);
    return out->is_bad ? fault_set(fault, E_NOMEM, "out of memory") : 0;
}

static bool has_all(const struct pulling *p, const char *folder)
{
    bool has = true;

    for (size_t i = 0; i < p->list.n && has; i++) {
        struct buf path = {0};

        buf_printf(&path, "%s/%s", folder, p->list.files[i].path);
        has = !path.is_bad && pull_store_has((const char *)path.data, &p->list.files[i]);
        buf_fini(&path);
    }
    return has;
}

/* Takes the system's folder for a model that is complete there and nowhere else. */
static void choose_place(struct pulling *p)
{
    p->is_system = p->elsewhere.system != NULL && p->list.n > 0 && !p->is_kept &&
                   !has_all(p, (const char *)p->folder.data) && has_all(p, p->elsewhere.system);
}

/* Links file i to a copy elsewhere, or fetches it. */
static int get_one(struct pulling *p, size_t i, const char *path, struct fault *fault)
{
    int rc = pull_reuse(&p->args->opts, &p->elsewhere, path, &p->list.files[i], fault);

    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (p->is_local)
        return fault_set(fault, E_NOT_FOUND, "%.300s%s, and --offline forbids to fetch it", path,
                         access(path, F_OK) != 0              ? " is not there"
                         : p->list.files[i].sha256[0] == '\0' ? ": the file that it leads to has changed"
                                                              : " is another file");
    return fetch_one(p, i, path, fault);
}

static int fetch_all(struct pulling *p, struct buf *first_out, struct fault *fault)
{
    int rc = 0;

    choose_place(p); /* --sha256 may have set a digest */
    for (size_t i = 0; i < p->list.n && rc == 0; i++) {
        struct buf path = {0};

        rc = put_path(p, i, &path, fault);
        if (rc == 0 && !pull_store_has((const char *)path.data, &p->list.files[i]))
            rc = get_one(p, i, (const char *)path.data, fault);
        if (i == 0 && rc == 0)
            buf_append_str(first_out, (const char *)path.data);
        buf_fini(&path);
    }
    return rc;
}

/* Fills the list with the files of the model in one folder. */
static int choose_in(struct pulling *p, const char *folder, struct fault *fault)
{
    int rc;

    pull_list_fini(&p->list);
    buf_clear(&p->options);
    rc = pull_store_list(folder, &p->list);
    if (rc != 0)
        return fault_set(fault, rc, "%s", err_text(rc));
    if (p->list.n == 0)
        return fault_set(fault, E_NOT_FOUND, "nothing in %.300s, and --offline forbids to fetch it", folder);
    return pull_list_choose(&p->list, p->args->name.pick, &p->options, fault);
}

/* The same in the cache of the hub's libraries, where the names of blobs are the digests to have. */
static int choose_in_cache(struct pulling *p, struct fault *fault)
{
    struct buf snapshot = {0};
    int rc = E_NOT_FOUND;

    if (p->elsewhere.cache != NULL && pull_reuse_snapshot(p->elsewhere.cache, &snapshot))
        rc = choose_in(p, (const char *)snapshot.data, fault);
    if (rc == 0 && !pull_reuse_digests((const char *)snapshot.data, &p->list))
        rc = fault_set(fault, E_NOT_FOUND, "%.300s has files without a digest", (const char *)snapshot.data);
    buf_fini(&snapshot);
    return rc;
}

/* Fills the list with the files of the model in the first folder that has it. The fault is that of the folder where models
 * are kept. */
static int choose_local(struct pulling *p, struct fault *fault)
{
    struct fault unused;
    int rc = choose_in(p, (const char *)p->folder.data, fault);

    p->is_kept = rc == 0;
    if (rc != 0 && p->elsewhere.system != NULL && choose_in(p, p->elsewhere.system, &unused) == 0)
        rc = 0;
    if (rc != 0 && choose_in_cache(p, &unused) == 0)
        rc = 0;
    if (rc != 0 && (p->elsewhere.system != NULL || p->elsewhere.cache != NULL))
        rc = choose_in(p, (const char *)p->folder.data, fault); /* its options count */
    choose_place(p);
    return rc;
}

/* Goes on with the model in the folder, and says so. The fault remains the hub's if the model is not there. */
static bool use_local(struct pulling *p, const struct fault *of_hub)
{
    struct fault unused;
    struct buf path = {0};
    char sha256[65] = "";

    p->is_local = choose_local(p, &unused) == 0;
    buf_clear(&p->options);
    if (!p->is_local)
        return false;
    buf_printf(&path, "%s/%s", pull_place(p), p->list.files[0].path);
    str_copy(sha256, sizeof(sha256), p->list.files[0].sha256);
    if (!path.is_bad && sha256[0] == '\0')
        pull_store_digest((const char *)path.data, sha256);
    fprintf(stderr, "baton-model %s: %s: %s\n", NAME, p->args->text, of_hub->text);
    fprintf(stderr,
            "baton-model %s: the copy that is there is used; the hub may have another: %s, SHA-256 %s\n",
            NAME, p->list.files[0].path, sha256[0] != '\0' ? sha256 : "not known");
    buf_fini(&path);
    return true;
}

/* The hub's list, or the folder's if the hub is away: it does not answer, or refuses access. */
static int choose_of_hub(struct pulling *p, struct fault *fault)
{
    struct fault unused;
    bool is_there = choose_local(p, &unused) == 0;
    int rc;

    buf_clear(&p->options);
    pull_list_fini(&p->list);
    p->is_kept = false;
    rc = list_hub(p, is_there, fault);
    if (rc == 0)
        return pull_list_choose(&p->list, p->args->name.pick, &p->options, fault);
    if ((rc == E_PEER || rc == E_TIMEOUT || rc == E_OVERLOADED || rc == E_AUTH) && use_local(p, fault))
        return 0;
    if (is_there && rc != E_CANCELLED) {
        struct fault of_hub = *fault;
        fault_set(fault, rc, "%s; --offline uses the copy that is there", of_hub.text);
    }
    return rc;
}

/* Takes --sha256 for the list's only file. A list or a copy that has another digest ends the command before a byte is
 * fetched. */
static int demand_digest(struct pulling *p, struct fault *fault)
{
    const char *wanted = p->args->sha256;
    struct pull_file *file = p->list.files;
    struct timespec begun;
    struct buf path = {0};
    int rc;

    if (wanted[0] == '\0')
        return 0;
    if (p->list.n != 1) {
        p->is_misused = true;
        return fault_set(fault, E_INVAL, "--sha256 is the digest of one file, but the model has %zu",
                         p->list.n);
    }
    rc = put_path(p, 0, &path, fault);
    bool is_copy = rc == 0 && p->is_local && access((const char *)path.data, F_OK) == 0;
    if (is_copy)
        rc = pull_store_compute_still(&p->args->opts, (const char *)path.data, file->sha256, &begun, fault);
    if (rc == 0 && file->sha256[0] != '\0' && strcmp(file->sha256, wanted) != 0)
        rc =
            fault_set(fault, E_MISMATCH, "%s%.300s has SHA-256 %s, but --sha256 says %s; nothing was fetched",
                      is_copy ? "the copy of " : "the hub's ", file->path, file->sha256, wanted);
    /* A copy's kept digest may be absent, or older than its bytes, and in a folder of others it stays so. */
    if (is_copy && rc == 0)
        pull_store_keep_digest((const char *)path.data, wanted, &begun);
    str_copy(file->sha256, sizeof(file->sha256), is_copy ? "" : wanted);
    buf_fini(&path);
    return rc;
}

/* Finds the folders of the model. */
static int find_folders(struct pulling *p, struct fault *fault)
{
    const struct pull_args *args = p->args;
    int rc = pull_store_folder(args->to, &p->folder, fault);

    if (rc == E_NOT_FOUND && args->to == NULL && pull_reuse_system(&p->folder))
        rc = 0; /* a user without a home */
    if (rc == 0 && args->to == NULL && pull_reuse_system(&p->system) &&
        !bytes_equal(buf_view(&p->system), buf_view(&p->folder)))
        p->elsewhere.system = "";
    if (args->name.is_hub)
        for (int i = 0; i < 2; i++)
            buf_printf(i == 0 ? &p->folder : &p->system, "/%s/%s", args->name.owner, args->name.repo);
    if (rc == 0 && (p->folder.is_bad || p->system.is_bad))
        return fault_set(fault, E_NOMEM, "out of memory");
    if (p->elsewhere.system != NULL)
        p->elsewhere.system = (const char *)p->system.data;
    if (args->to == NULL && pull_reuse_cache(&args->name, &p->cache))
        p->elsewhere.cache = (const char *)p->cache.data;
    return rc;
}

/* Fills the list with the files to have. */
static int cmd_pull_choose(struct pulling *p, struct fault *fault)
{
    const struct pull_args *args = p->args;
    int rc = find_folders(p, fault);

    p->is_local = args->is_offline;
    if (rc != 0)
        return rc;
    if (!args->name.is_hub)
        rc = list_url(p, fault);
    else
        rc = p->is_local ? choose_local(p, fault) : choose_of_hub(p, fault);
    choose_place(p);
    if (rc == 0 && p->list.usual != NULL)
        fprintf(stderr, "baton-model %s: %s: several models; %s is taken: %s\n", NAME, args->text,
                p->list.usual, p->list.files[0].path);
    return rc;
}

static int model_cmd_pull(struct pulling *p, struct buf *first_out, struct fault *fault)
{
    struct gguf *gguf = NULL;
    int rc = pull_http_init();

    if (rc == 0)
        rc = cmd_pull_choose(p, fault);
    if (rc == 0)
        rc = demand_digest(p, fault);
    if (rc == 0)
        rc = fetch_all(p, first_out, fault);
    if (rc == 0)
        rc = gguf_open((const char *)first_out->data, fault, &gguf);
    gguf_close(gguf);
    return rc;
}

/* ---- the command ---- */

static const struct option OPTIONS[] = {{"to", required_argument, NULL, 't'},
                                        {"offline", no_argument, NULL, 'o'},
                                        {"connections", required_argument, NULL, 'c'},
                                        {"timeout", required_argument, NULL, 'T'},
                                        {"sha256", required_argument, NULL, 's'},
                                        {"quiet", no_argument, NULL, 'q'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};

static bool cmd_pull_take_number(uint64_t most, uint32_t *out)
{
    uint64_t value;

    if (str_to_u64(bytes_str(optarg), &value) != 0 || value == 0 || value > most)
        return false;
    *out = (uint32_t)value;
    return true;
}

static bool cmd_pull_take_option(int option, struct pull_args *args)
{
    uint8_t digest[32];

    switch (option) {
    case 't':
        args->to = optarg;
        return optarg[0] != '\0';
    case 'o':
        args->is_offline = true;
        return true;
    case 'c':
        return cmd_pull_take_number(16, &args->opts.n_connections);
    case 'T':
        return cmd_pull_take_number(3600, &args->opts.stall_s);
    case 's':
        if (hex_decode(bytes_str(optarg), digest, sizeof(digest)) != 0)
            return false;
        hex_encode(digest, sizeof(digest), args->sha256);
        return true;
    case 'q':
        args->opts.is_quiet = true;
        return true;
    default:
        return false;
    }
}

/* Takes HF_TOKEN without the blanks and line ends around it, as files of secrets have. A byte that no header may have
 * would end the request's head early, or add fields to it: such a token is never sent, and the command is refused if it
 * would be. */
static bool cmd_pull_take_token(struct pull_args *args)
{
    bool may_ask_hub =
        !args->is_offline && (args->name.is_hub || pull_is_same_origin(args->endpoint, args->name.url));
    const char *token = getenv("HF_TOKEN");
    size_t n;

    token = token != NULL ? token : "";
    while (isspace((unsigned char)*token))
        token++;
    n = strlen(token);
    while (n > 0 && isspace((unsigned char)token[n - 1]))
        n--;
    if (n >= sizeof(args->token))
        return !may_ask_hub;
    for (size_t i = 0; i < n; i++)
        if (!isgraph((unsigned char)token[i]))
            return !may_ask_hub;
    memcpy(args->token, token, n);
    args->opts.token = args->token;
    return true;
}

static bool cmd_pull_parse(int argc, char **argv, struct pull_args *args)
{
    const char *endpoint = getenv("HF_ENDPOINT");
    struct fault fault;
    int option;

    *args =
        (struct pull_args){.opts = {.n_connections = 4, .stall_s = 30, .is_cancelled = rig_is_interrupted}};
    while ((option = getopt_long(argc, argv, "h", OPTIONS, NULL)) != -1) {
        if (option == 'h')
            args->is_help = true;
        else if (!cmd_pull_take_option(option, args))
            return false;
    }
    if (args->is_help)
        return true;
    if (argc - optind != 1)
        return false;
    args->text = argv[optind];
    if (pull_name_read(args->text, &args->name, &fault) != 0) {
        fprintf(stderr, "baton-model %s: %s: %s\n", NAME, args->text, fault.text);
        return false;
    }
    endpoint = endpoint != NULL && endpoint[0] != '\0' ? endpoint : "https://huggingface.co";
    if (!str_copy(args->endpoint, sizeof(args->endpoint), endpoint) || strchr(endpoint, '@') != NULL) {
        fprintf(stderr, "baton-model %s: HF_ENDPOINT is no usable address\n", NAME);
        return false;
    }
    for (size_t n = strlen(args->endpoint); n > 0 && args->endpoint[n - 1] == '/'; n--)
        args->endpoint[n - 1] = '\0';
    args->opts.endpoint = args->endpoint;
    if (!cmd_pull_take_token(args)) {
        fprintf(stderr, "baton-model %s: HF_TOKEN is no token\n", NAME);
        return false;
    }
    return true;
}

int cmd_pull(int argc, char **argv)
{
    struct pull_args args;
    struct pulling p = {.args = &args};
    struct fault fault = {0};
    struct buf first = {0};
    int status, rc;

    if (!cmd_pull_parse(argc, argv, &args))
        return cli_usage(NAME, NULL);
    if (args.is_help) {
        fputs(HELP, stdout);
        return cli_done(NAME);
    }
    rig_catch_interrupt();
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error of the write */
    rc = model_cmd_pull(&p, &first, &fault);
    if (rc == E_CANCELLED) {
        fprintf(stderr, "baton-model %s: interrupted; the same command continues\n", NAME);
        status = rig_interrupt_status();
    } else if (rc < 0) {
        status = cli_failed(NAME, args.text, &fault);
        if (p.is_misused)
            status = CLI_USAGE;
        fwrite(p.options.data, 1, p.options.len_bytes, stderr);
    } else {
        puts((const char *)first.data);
        status = cli_done(NAME);
    }
    pull_list_fini(&p.list);
    buf_fini(&p.folder);
    buf_fini(&p.system);
    buf_fini(&p.cache);
    buf_fini(&p.options);
    buf_fini(&first);
    return status;
}
