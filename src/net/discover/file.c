/* SPDX-License-Identifier: Apache-2.0 */
/* A file of addresses, read again when it changes. The watch is on the folder, because editors and configuration
 * management replace files by renaming. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "net/discover/discover_priv.h"

enum { FILE_SOURCE_MAX_BYTES = 128 << 10, FILE_SOURCE_RECHECK_MS = 30000 };

static void file_source_read(struct source *source)
{
    struct endpoints *list = calloc(1, sizeof(*list));
    struct fault fault = {0};
    struct buf text = {0};
    const char *why = NULL;
    FILE *file;

    if (list == NULL)
        return;
    file = file_open(source->url.path, &why);
    if (file == NULL || file_read_rest(file, FILE_SOURCE_MAX_BYTES, &text) < 0) {
        fault_set(&fault, E_IO, "%s", file == NULL ? why : "cannot be read, or is longer than 128 KiB");
        free(list);
        list = NULL;
    } else {
        endpoints_read(list, buf_view(&text));
    }
    if (file != NULL)
        fclose(file);
    source_report(source, list, &fault);
    buf_fini(&text);
}

static int file_source_watch(const char *path)
{
    char folder[DISCOVER_PATH_BYTES];
    char *slash;
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

    memcpy(folder, path, strlen(path) + 1);
    slash = strrchr(folder, '/');
    slash[slash == folder] = '\0';
    if (fd >= 0 && inotify_add_watch(fd, folder, IN_CLOSE_WRITE | IN_MOVED_TO | IN_CREATE | IN_DELETE) < 0) {
        close(fd); /* the folder does not exist yet: the timer tries again */
        fd = -1;
    }
    return fd;
}

static void file_source_wait(struct source *source, int watch)
{
    struct pollfd fds[2] = {{.fd = source->thread.stop_fd, .events = POLLIN},
                            {.fd = watch, .events = POLLIN}};
    char events[4096];

    if (poll(fds, 2, FILE_SOURCE_RECHECK_MS) > 0 && watch >= 0)
        while (read(watch, events, sizeof(events)) > 0) {
        }
}

void *file_source_run(void *arg)
{
    struct source *source = arg;
    int watch = -1;

    while (!atomic_load(&source->thread.is_stopping)) {
        if (watch < 0)
            watch = file_source_watch(source->url.path);
        file_source_read(source);
        file_source_wait(source, watch);
    }
    if (watch >= 0)
        close(watch);
    return NULL;
}
