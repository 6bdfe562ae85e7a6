/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of baton-model's commands: errors that name the command and the file, reading input, and
 * checking that output arrived.
 *
 * A command that writes to a full disk or a closed pipe must not report success, so each ends in cli_done(). */
#include "clients/model/model_cli.h"

#include "base/err.h"
#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
