/* SPDX-License-Identifier: Apache-2.0 */
/* The options of all daemons.  There are few, because a file configures a daemon: the path of that file,
 * single keys (--set section.key=value), and questions about the configuration. */
#include "daemon/main_common.h"

#include <ctype.h>
#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/str.h"

enum { OPT_CHECK = 256, OPT_DUMP, OPT_SAMPLE, OPT_MANUAL, OPT_TUNE };

static const struct option options_long[] = {{"config", required_argument, NULL, 'c'},
                                             {"set", required_argument, NULL, 's'},
                                             {"check-config", no_argument, NULL, OPT_CHECK},
                                             {"dump-config", no_argument, NULL, OPT_DUMP},
                                             {"sample-config", no_argument, NULL, OPT_SAMPLE},
                                             {"manual-keys", no_argument, NULL, OPT_MANUAL},
                                             {"tune", no_argument, NULL, OPT_TUNE},
                                             {"help", no_argument, NULL, 'h'},
                                             {"version", no_argument, NULL, 'V'},
                                             {NULL, 0, NULL, 0}};

/* Turns fastbins off.  With them, freeing 64 KiB or more first merges all small free chunks of the heap, which
 * takes 60 ms on the loop after a job thread has freed a JSON tree or a key file.  Without them each chunk is
 * merged when it is freed. */
static void merge_at_once(void)
{
    mallopt(M_MXFAST, 0);
}

static void main_common_print_help(const struct main_options *options)
{
    const struct config_table *table = options->table;

    printf("usage: %s [--config FILE] [--set SECTION.KEY=VALUE]...\n\n"
           "  -c, --config FILE     read FILE and FILE.d/*.conf (standard: %s/%s if it is there)\n"
           "  -s, --set S.KEY=VAL   set one key; may be repeated; wins over the file\n"
           "      --check-config    check the configuration and exit\n"
           "      --dump-config     print every key with its value and where that came from\n"
           "      --sample-config   print an annotated sample file\n"
           "      --manual-keys     print the key list as manual source\n"
           "%s"
           "  -h, --help            this text\n"
           "  -V, --version         the version\n\n"
           "SIGHUP reloads, SIGTERM drains and stops (stop.lame_duck, stop.drain_timeout), a second SIGTERM\n"
           "stops at once.\n",
           table->daemon, BATON_SYSCONFDIR, table->file_name,
           options->tune == NULL
               ? ""
               : "      --tune            measure the variants of kernels and copies anew and print them\n");
}

/* Replaces the cluster key's path in place (heap): the configured value, else
 * $CREDENTIALS_DIRECTORY/cluster.key, else sysconfdir. */
static void find_cluster_key(char **path)
{
    const char *credentials = getenv("CREDENTIALS_DIRECTORY");
    char found[512];

    if ((*path)[0] != '\0')
        return;
    snprintf(found, sizeof(found), "%s/cluster.key", credentials ? credentials : BATON_SYSCONFDIR);
    free(*path);
    *path = strdup(found);
    if (*path == NULL)
        abort();
}

/* Reads, completes and checks a snapshot. findings gets every error, and warnings too. */
static int load_checked(const struct main_options *options, bool is_reload, struct buf *findings, void **out)
{
    struct config_check check = {.table = options->table, .findings = findings, .is_reload = is_reload};
    void *conf;
    int rc =
        config_load(options->table,
                    &(struct config_source){options->config_path, options->overrides, options->n_overrides},
                    findings, &conf);

    if (rc < 0)
        return rc;
    find_cluster_key(options->cluster_key(conf));
    if (options->complete != NULL)
        options->complete(options, conf);
    check.config = conf;
    options->check(&check);
    if (check.n_refused > 0 || findings->is_bad) {
        config_free(options->table, conf);
        return findings->is_bad ? E_NOMEM : E_INVAL;
    }
    *out = conf;
    return 0;
}

static void print_findings(const struct buf *findings)
{
    if (findings->len_bytes > 0)
        fwrite(findings->data, 1, findings->len_bytes, stderr);
}

/* Reads the configuration without checking it, and prints its errors.  NULL: it cannot be read. */
static void *load_unchecked(const struct main_options *options)
{
    struct buf errors = {0};
    void *conf;
    int rc =
        config_load(options->table,
                    &(struct config_source){options->config_path, options->overrides, options->n_overrides},
                    &errors, &conf);

    print_findings(&errors);
    buf_fini(&errors);
    return rc < 0 ? NULL : conf;
}

/* Prints every value with its origin, even if a value is wrong, because that is when people need it. */
static int main_common_dump(const struct main_options *options)
{
    void *conf = load_unchecked(options);

    if (conf == NULL)
        return 1;
    config_write_dump(options->table, conf, stdout);
    config_free(options->table, conf);
    return 0;
}

/* Measures the machine only, so the rest of the configuration may be incomplete. */
static int main_common_tune(const struct main_options *options)
{
    struct buf table = {0};
    struct fault fault = {0};
    void *conf = load_unchecked(options);
    int rc;

    if (conf == NULL)
        return 1;
    rc = options->tune(conf, &table, &fault);
    if (rc == 0)
        fwrite(table.data, 1, table.len_bytes, stdout);
    buf_fini(&table);
    rc = rc == 0 ? 0 : main_failed(options, conf, &fault);
    config_free(options->table, conf);
    return rc;
}

static int main_common_parse(int argc, char **argv, struct main_options *options, int *question,
                             int *status_out)
{
    int c;

    while ((c = getopt_long(argc, argv, "c:s:hV", options_long, NULL)) != -1) {
        switch (c) {
        case 'c':
            options->config_path = optarg;
            break;
        case 's':
            if (options->n_overrides == sizeof(options->overrides) / sizeof(options->overrides[0])) {
                fprintf(stderr, "%s: too many --set\n", options->table->daemon);
                *status_out = 2;
                return 0;
            }
            options->overrides[options->n_overrides++] = optarg;
            break;
        case OPT_CHECK:
        case OPT_DUMP:
            *question = c;
            break;
        case OPT_TUNE:
            if (options->tune == NULL) {
                fprintf(stderr, "%s: --tune is for workers: a router computes nothing\n",
                        options->table->daemon);
                *status_out = 2;
                return 0;
            }
            *question = c;
            break;
        case OPT_SAMPLE:
            config_write_sample(options->table, stdout);
            return 0;
        case OPT_MANUAL:
            config_write_manual(options->table, stdout);
            return 0;
        case 'h':
            main_common_print_help(options);
            return 0;
        case 'V':
            printf("%s %s\n", options->table->daemon, PACKAGE_VERSION);
            if (options->libraries != NULL)
                printf("%s\n", options->libraries());
            return 0;
        default:
            *status_out = 2;
            return 0;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "%s: unexpected argument: %s (see --help)\n", options->table->daemon, argv[optind]);
        *status_out = 2;
        return 0;
    }
    return 1;
}

int main_begin(int argc, char **argv, struct main_options *options, void **conf_out, int *status_out)
{
    static char standard[512];
    int question = 0;

    merge_at_once();
    *status_out = 0;
    signal(SIGPIPE, SIG_IGN);
    if (main_common_parse(argc, argv, options, &question, status_out) == 0)
        return 0;
    if (options->config_path == NULL) {
        snprintf(standard, sizeof(standard), "%s/%s", BATON_SYSCONFDIR, options->table->file_name);
        if (access(standard, R_OK) == 0)
            options->config_path = standard;
    }
    if (question == OPT_DUMP || question == OPT_TUNE) {
        *status_out = question == OPT_DUMP ? main_common_dump(options) : main_common_tune(options);
        return 0;
    }
    if (load_checked(options, false, &options->warnings, conf_out) < 0) {
        print_findings(&options->warnings);
        buf_fini(&options->warnings);
        *status_out = 1;
        return 0;
    }
    if (question != OPT_CHECK)
        return 1;
    print_findings(&options->warnings);
    buf_fini(&options->warnings);
    config_free(options->table, *conf_out);
    printf("%s: the configuration is fine\n", options->table->daemon);
    return 0;
}

static void log_lines(enum log_level level, const char *event, const struct buf *lines)
{
    for (size_t at = 0; at < lines->len_bytes;) {
        size_t end = bytes_find(buf_view(lines), bytes_str("\n"), at);
        char line[1280];

        end = end == SIZE_MAX ? lines->len_bytes : end;
        snprintf(line, sizeof(line), "%.*s", (int)(end - at), (const char *)lines->data + at);
        if (level == LOG_LEVEL_ERROR)
            log_error(event, LOG_STR("reason", line));
        else
            log_warn(event, LOG_STR("reason", line));
        at = end + 1;
    }
}

void main_log_warnings(struct main_options *options)
{
    log_lines(LOG_LEVEL_WARN, "config_warning", &options->warnings);
    buf_fini(&options->warnings);
}

void *main_load_again(const struct main_options *options)
{
    struct buf findings = {0};
    void *conf = NULL;

    if (load_checked(options, true, &findings, &conf) < 0) {
        log_lines(LOG_LEVEL_ERROR, "config_refused", &findings);
        conf = NULL;
    } else {
        log_lines(LOG_LEVEL_WARN, "config_warning", &findings);
    }
    buf_fini(&findings);
    return conf;
}

static void log_ignored_key(void *arg, const struct config_key *key)
{
    if (!key->is_reloadable)
        log_warn("reload_wants_restart", LOG_STR("section", key->section), LOG_STR("key", key->name));
}

void main_keep_fixed(const struct main_options *options, void *running, void *fresh)
{
    config_diff(options->table, running, fresh, log_ignored_key, NULL);
    config_keep_fixed(options->table, running, fresh);
}

struct main_changes { /* for config_diff() */
    const struct main_options *options;
    const void *running, *fresh;
    struct buf *out;
    bool has_any;
};

static void main_put_value(const struct config_key *key, const void *conf, struct buf *out)
{
    struct buf value = {0};

    config_put_value(key, conf, &value);
    json_put_str(out, buf_view(&value));
    buf_fini(&value);
}

static void main_put_change(void *arg, const struct config_key *key)
{
    struct main_changes *changes = arg;
    const struct config_table *table = changes->options->table;
    struct buf *out = changes->out;

    buf_printf(out, "%s{\"key\": \"%s.%s\", \"from\": ", changes->has_any ? ", " : "", key->section,
               key->name);
    main_put_value(key, changes->running, out);
    buf_append_str(out, ", \"to\": ");
    main_put_value(key, changes->fresh, out);
    buf_printf(out, ", \"reload\": %s, \"where\": ", key->is_reloadable ? "true" : "false");
    json_put_str(out, bytes_str(config_origin(table, changes->fresh, (size_t)(key - table->keys))));
    buf_append_str(out, "}");
    changes->has_any = true;
}

int main_diff(const struct main_options *options, const void *running, struct buf *out, struct fault *fault)
{
    struct main_changes changes = {.options = options, .running = running, .out = out};
    struct buf findings = {0};
    void *fresh = NULL;

    if (load_checked(options, true, &findings, &fresh) < 0) {
        size_t len = bytes_find(buf_view(&findings), bytes_str("\n"), 0);

        log_lines(LOG_LEVEL_ERROR, "config_refused", &findings);
        fault_set(fault, E_FORMAT, "the new configuration is refused: %.*s",
                  (int)(len == SIZE_MAX ? findings.len_bytes : len), (const char *)findings.data);
        buf_fini(&findings);
        return E_FORMAT;
    }
    changes.fresh = fresh;
    buf_printf(out, "{\"hash\": \"%012llx\", \"changes\": [",
               (unsigned long long)config_digest(options->table, running));
    config_diff(options->table, running, fresh, main_put_change, &changes);
    buf_append_str(out, "]}\n");
    config_free(options->table, fresh);
    buf_fini(&findings);
    return out->is_bad ? E_NOMEM : 0;
}

int main_failed(const struct main_options *options, const void *conf, const struct fault *fault)
{
    struct buf text = {0};

    config_put_placed(options->table, conf, fault->text[0] ? fault->text : err_text(fault->code), &text);
    fprintf(stderr, "%s: %s\n", options->table->daemon, text.is_bad ? fault->text : (const char *)text.data);
    buf_fini(&text);
    return 1;
}
