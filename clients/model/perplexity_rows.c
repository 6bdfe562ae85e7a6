/* SPDX-License-Identifier: Apache-2.0 */
/* The logits of the base of baton-model perplexity in a file, so that later runs need not compute them.
 *
 *     | head | row | row | ...     a row: [vocab] floats, in the order in which positions are scored
 *
 * The head says which base, text and windows they belong to; other ones are refused.  A new file is written
 * under a name of its own and gets the right one when it is complete. */
#include "clients/model/perplexity_priv.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 20 };

struct rows {
    FILE *file;
    char *path;
    char *part; /* NULL: the file is read */
};

static int rows_failed(struct fault *fault, const char *path)
{
    return fault_set(fault, E_IO, "%.200s: %s", path, errno != 0 ? strerror(errno) : "the file is cut");
}

static int rows_begin(struct rows *rows, const struct rows_head *head, struct fault *fault)
{
    struct rows_head there;

    rows->file = fopen(rows->path, "rb");
    if (rows->file != NULL) {
        errno = 0;
        if (fread(&there, sizeof(there), 1, rows->file) != 1)
            return rows_failed(fault, rows->path);
        if (memcmp(&there, head, sizeof(there)) != 0)
            return fault_set(fault, E_MISMATCH, "%.200s: of another base, text, KV type or windows",
                             rows->path);
        return 0;
    }
    if (errno != ENOENT)
        return rows_failed(fault, rows->path);
    if (asprintf(&rows->part, "%s.XXXXXX", rows->path) < 0) {
        rows->part = NULL;
        return fault_set(fault, E_NOMEM, "%s", err_text(E_NOMEM));
    }
    int fd = mkostemp(rows->part, O_CLOEXEC);
    rows->file = fd < 0 ? NULL : fdopen(fd, "wb");
    if (rows->file == NULL && fd >= 0)
        close(fd);
    if (rows->file == NULL || setvbuf(rows->file, NULL, _IOFBF, BUFFER_BYTES) != 0 ||
        fwrite(head, sizeof(*head), 1, rows->file) != 1)
        return rows_failed(fault, rows->part);
    return 0;
}

int rows_open(const char *path, const struct rows_head *head, struct fault *fault, struct rows **out)
{
    struct rows *rows = calloc(1, sizeof(*rows));

    if (rows == NULL || (rows->path = strdup(path)) == NULL) {
        free(rows);
        return fault_set(fault, E_NOMEM, "%s", err_text(E_NOMEM));
    }
    int rc = rows_begin(rows, head, fault);
    if (rc < 0) {
        rows_close(rows);
        return rc;
    }
    *out = rows;
    return 0;
}

bool rows_are_there(const struct rows *rows)
{
    return rows->part == NULL;
}

int rows_get(struct rows *rows, float *row, uint32_t vocab, struct fault *fault)
{
    errno = 0;
    return fread(row, sizeof(*row), vocab, rows->file) == vocab ? 0 : rows_failed(fault, rows->path);
}

int rows_put(struct rows *rows, const float *row, uint32_t vocab, struct fault *fault)
{
    errno = 0;
    return fwrite(row, sizeof(*row), vocab, rows->file) == vocab ? 0 : rows_failed(fault, rows->part);
}

int rows_finish(struct rows *rows, struct fault *fault)
{
    if (rows_are_there(rows))
        return 0;
    FILE *file = rows->file;

    rows->file = NULL;
    errno = 0;
    if (fclose(file) != 0 || rename(rows->part, rows->path) != 0)
        return rows_failed(fault, rows->part);
    free(rows->part);
    rows->part = NULL;
    return 0;
}

void rows_close(struct rows *rows)
{
    if (rows == NULL)
        return;
    if (rows->file != NULL)
        fclose(rows->file);
    if (rows->part != NULL)
        unlink(rows->part);
    free(rows->part);
    free(rows->path);
    free(rows);
}
