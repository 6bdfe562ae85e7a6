/* SPDX-License-Identifier: Apache-2.0 */
/* baton-trace: a router's log to a trace. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "clients/common/cli.h"
#include "clients/trace/export.h"
#include "net/link/tls.h"

#define TRACE_NAME "baton-trace"

struct trace_cli {
    const char *key_path;
    char **paths;
    int n_paths;
};

static void print_help(void)
{
    printf("usage: %s export [--key FILE] [LOG]...\n"
           "Turns a router's log (log.format = json, log.prefixes = yes) into a trace for baton-sim and "
           "baton-bench,\n"
           "on standard output: arrivals, lengths, and which beginnings of prompts are equal.  Without LOG "
           "it reads\n"
           "standard input.\n"
           "\n"
           "  --key FILE   key of the trace's hashes, 64 hex digits; without it each export has its own,\n"
           "               so that two exports cannot be joined\n"
           "  --help, --version\n",
           TRACE_NAME);
}

static int read_lines(FILE *file, const char *name, struct export *export)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    int rc = 0;

    while (rc == 0 && (len = getline(&line, &cap, file)) >= 0) {
        if (len > 0 && line[len - 1] == '\n')
            len--;
        rc = export_line(export, bytes_of(line, (size_t)len));
    }
    free(line);
    if (rc < 0)
        return complain(TRACE_NAME, "%s: %s", name, err_text(rc));
    return ferror(file) ? complain(TRACE_NAME, "%s: %s", name, strerror(errno)) : EXIT_DONE;
}

static int read_logs(const struct trace_cli *cli, struct export *export)
{
    int status = EXIT_DONE;

    if (cli->n_paths == 0)
        return read_lines(stdin, "standard input", export);
    for (int i = 0; status == EXIT_DONE && i < cli->n_paths; i++) {
        FILE *file = fopen(cli->paths[i], "re");

        if (file == NULL)
            return complain(TRACE_NAME, "%s: %s", cli->paths[i], strerror(errno));
        status = read_lines(file, cli->paths[i], export);
        fclose(file);
    }
    return status;
}

static int print_trace(struct export *export)
{
    struct export_counts counts;
    struct buf out = {0};
    int rc = export_write(export, &out, &counts);

    if (rc == 0)
        fwrite(out.data, 1, out.len_bytes, stdout);
    buf_fini(&out);
    if (rc == E_NOT_FOUND)
        return complain(TRACE_NAME,
                        "no answered request in %" PRIu64 " lines; is it the router's log as JSON lines?",
                        counts.n_lines);
    if (rc < 0)
        return complain(TRACE_NAME, "%s", err_text(rc));
    fprintf(stderr,
            "%" PRIu64 " requests; left out: %" PRIu64 " without an answer, %" PRIu64
            " lines of other events\n",
            counts.n_requests, counts.n_unanswered, counts.n_other);
    return finish_output(TRACE_NAME);
}

static int trace_export(const struct trace_cli *cli)
{
    struct export *export;
    struct fault fault = {0};
    uint8_t key[32];
    int status;

    rng_system(key, sizeof(key));
    if (cli->key_path != NULL && cluster_key_load(cli->key_path, &fault, key) < 0)
        return complain(TRACE_NAME, "%s", fault.text);
    if (export_new(key, &export) < 0)
        return complain(TRACE_NAME, "%s", err_text(E_NOMEM));
    status = read_logs(cli, export);
    if (status == EXIT_DONE)
        status = print_trace(export);
    export_free(export);
    return status;
}

int main(int argc, char **argv)
{
    struct trace_cli cli = {0};
    int at = 2;

    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        print_help();
        return finish_output(TRACE_NAME);
    }
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        printf("%s %s\n", TRACE_NAME, PACKAGE_VERSION);
        return finish_output(TRACE_NAME);
    }
    if (argc < 2 || strcmp(argv[1], "export") != 0)
        return complain_usage(TRACE_NAME, "the one command is export");
    while (at < argc && argv[at][0] == '-' && argv[at][1] != '\0') {
        if (strcmp(argv[at], "--help") == 0) {
            print_help();
            return finish_output(TRACE_NAME);
        }
        if (strcmp(argv[at], "--key") != 0)
            return complain_usage(TRACE_NAME, "%s: unknown option", argv[at]);
        if (at + 1 == argc)
            return complain_usage(TRACE_NAME, "--key: wants a file");
        cli.key_path = argv[at + 1];
        at += 2;
    }
    cli.paths = argv + at;
    cli.n_paths = argc - at;
    return trace_export(&cli);
}
