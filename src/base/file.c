/* SPDX-License-Identifier: Apache-2.0 */
/* With O_NONBLOCK, opening a named pipe returns at once.  It changes nothing for a regular file. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

FILE *file_open(const char *path, const char **why_out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat info;
    FILE *file;

    if (fd < 0) {
        *why_out = strerror(errno);
        return NULL;
    }
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        *why_out = "not a regular file";
        close(fd);
        return NULL;
    }
    file = fdopen(fd, "r");
    if (file == NULL) {
        *why_out = strerror(errno);
        close(fd);
    }
    return file;
}
