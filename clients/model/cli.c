/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of baton-model's commands: errors that name the command and the file, reading input, and
 * checking that output arrived.
 *
 * A command that writes to a full disk or a closed pipe must not report success, so each ends in cli_done(). */
#include "clients/model/model_cli.h"

#include "base/err.h"
#include "base/file.h"
#include "gguf/gguf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_PARTS = 4096 };

int cli_failed(const char *command, const char *subject, const struct fault *fault)
{
    fprintf(stderr, "baton-model %s: %s%s%s\n", command, subject == NULL ? "" : subject,
            subject == NULL ? "" : ": ", fault->text);
    return CLI_FAILED;
}

int cli_failed_code(const char *command, const char *subject, int code)
{
    struct fault fault = {0};

    fault_set(&fault, code, "%s", err_text(code));
    return cli_failed(command, subject, &fault);
}

int cli_usage(const char *command, const char *complaint)
{
    if (complaint != NULL)
        fprintf(stderr, "baton-model %s: %s\n", command, complaint);
    fprintf(stderr, "Try 'baton-model %s --help'.\n", command);
    return CLI_USAGE;
}

int cli_done(const char *command)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return CLI_OK;
    fprintf(stderr, "baton-model %s: cannot write the output: %s\n", command, strerror(errno));
    return CLI_FAILED;
}

int cli_may_write(const char *path, bool is_forced, struct fault *fault)
{
    if (!is_forced && access(path, F_OK) == 0)
        return fault_set(fault, E_EXISTS, "exists already; --force overwrites it");
    return 0;
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat of_a, of_b;

    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

/* True if path is source or another part of the same model, which lies beside source. */
static bool is_part_of(const char *path, const char *source)
{
    struct gguf_part part = {0};
    bool is_same = is_same_file(path, source);

    if (!gguf_part_name(bytes_str(source), &part))
        return is_same;
    for (uint32_t i = 1; i <= part.count && i <= MOST_PARTS && !is_same; i++) {
        struct buf name = {0};

        gguf_part_path(&part, i, &name);
        buf_append_byte(&name, '\0');
        is_same = !name.is_bad && is_same_file(path, (const char *)name.data);
        buf_fini(&name);
    }
    return is_same;
}

int cli_is_other(const char *path, const char *source, struct fault *fault)
{
    char *target = source != NULL ? realpath(source, NULL) : NULL; /* parts may lie beside a link's target */
    bool is_same =
        source != NULL && (is_part_of(path, source) || (target != NULL && is_part_of(path, target)));

    free(target);
    if (is_same)
        return fault_set(fault, E_EXISTS, "is a file that the command reads; name another to write");
    return 0;
}

static int cli_read_all(FILE *file, size_t limit_bytes, struct fault *fault, struct buf *out)
{
    int rc = file_read_rest(file, limit_bytes, out);

    if (rc == E_LIMIT)
        fault_set(fault, rc, "more than %zu bytes of input", limit_bytes);
    else if (rc != 0)
        fault_set(fault, rc, rc == E_IO ? "cannot read: %s" : "%s",
                  rc == E_IO ? strerror(errno) : err_text(rc));
    return rc;
}

int cli_read(const char *path, size_t limit_bytes, struct fault *fault, struct buf *out)
{
    if (strcmp(path, "-") == 0)
        return cli_read_all(stdin, limit_bytes, fault, out);

    FILE *file = fopen(path, "rbe");
    if (file == NULL)
        return fault_set(fault, E_IO, "cannot open: %s", strerror(errno));
    int rc = cli_read_all(file, limit_bytes, fault, out);
    fclose(file);
    return rc;
}
