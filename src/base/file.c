/* SPDX-License-Identifier: Apache-2.0 */
/* With O_NONBLOCK, opening a named pipe returns at once.  It changes nothing for a regular file. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"

/* A descriptor, or E_NOT_FOUND, E_IO, E_INVAL with the reason. */
static int file_open_regular(const char *path, struct stat *info_out, const char **why_out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    int rc = 0;

    if (fd < 0) {
        *why_out = strerror(errno);
        return errno == ENOENT ? E_NOT_FOUND : E_IO;
    }
    if (fstat(fd, info_out) != 0) {
        *why_out = strerror(errno);
        rc = E_IO;
    } else if (!S_ISREG(info_out->st_mode)) {
        *why_out = "not a regular file";
        rc = E_INVAL;
    }
    if (rc == 0)
        return fd;
    close(fd);
    return rc;
}

FILE *file_open(const char *path, const char **why_out)
{
    struct stat info;
    int fd = file_open_regular(path, &info, why_out);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");

    if (fd >= 0 && file == NULL) {
        *why_out = strerror(errno);
        close(fd);
    }
    return file;
}

int file_open_secret(const char *path, const char *secret, struct fault *fault)
{
    struct stat info;
    const char *why;
    int fd = file_open_regular(path, &info, &why);

    if (fd < 0)
        return fault_set(fault, fd, "%s: %s", path, why);
    if ((info.st_mode & S_IRWXO) == 0)
        return fd;
    close(fd);
    return fault_set(fault, E_AUTH,
                     "%s: mode %04o lets every user use the %s; chmod o-rwx makes it acceptable", path,
                     (unsigned)(info.st_mode & 07777), secret);
}

int file_read_login(const char *path, char *out, size_t out_bytes, struct fault *fault)
{
    int fd = file_open_secret(path, "store's login", fault);
    size_t n = 0;
    ssize_t got;

    if (fd < 0)
        return fd;
    while (n < out_bytes - 1 && (got = read(fd, out + n, out_bytes - 1 - n)) > 0)
        n += (size_t)got;
    close(fd);
    out[n] = '\0';
    out[strcspn(out, "\r\n")] = '\0';
    if (out[0] == '\0' || n == out_bytes - 1)
        return fault_set(fault, E_FORMAT, "%s: its first line is not user:password", path);
    return 0;
}

bool file_read_line(const char *path, char *out, size_t out_bytes)
{
    FILE *file = fopen(path, "re");
    bool is_read = file != NULL && fgets(out, (int)out_bytes, file) != NULL;

    if (file != NULL)
        fclose(file);
    if (!is_read)
        out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return is_read;
}

int file_read_rest(FILE *file, size_t max_bytes, struct buf *out)
{
    uint8_t piece[16384];
    size_t left = max_bytes, n;

    while ((n = fread(piece, 1, sizeof(piece), file)) > 0) {
        if (n > left)
            return E_LIMIT;
        if (buf_append(out, piece, n) != 0)
            return E_NOMEM;
        left -= n;
    }
    return ferror(file) ? E_IO : 0;
}
