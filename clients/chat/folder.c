/* SPDX-License-Identifier: Apache-2.0 */
/* Every path is walked from the folder's own descriptor, one name at a time, with O_NOFOLLOW.  So a link can
 * never lead outside, even one that is made during the walk. */
#include "clients/chat/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/str.h"

#define MAX_NAME_BYTES 255
#define MAX_DEPTH      8
#define MAX_FILES      1000

int folder_open(const char *path, struct fault *fault, struct folder *out)
{
    out->fd = -1;
    if (strlen(path) >= sizeof(out->path))
        return fault_set(fault, E_RANGE, "the path is too long");
    str_copy(out->path, sizeof(out->path), path);
    out->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return out->fd < 0 ? fault_set(fault, E_IO, "%s: %s", path, strerror(errno)) : 0;
}

void folder_close(struct folder *folder)
{
    if (folder->fd >= 0)
        close(folder->fd);
    folder->fd = -1;
}

/* ---- the way to a file ---- */

/* Gives the next name of a path, skipping "." and empty ones; false at the end. */
static bool next_name(struct bytes *rest, struct bytes *name_out)
{
    while (rest->len_bytes > 0) {
        const uint8_t *slash = memchr(rest->data, '/', rest->len_bytes);
        size_t n = slash == NULL ? rest->len_bytes : (size_t)(slash - rest->data);

        *name_out = bytes_of(rest->data, n);
        n += slash != NULL;
        *rest = bytes_of(rest->data + n, rest->len_bytes - n);
        if (name_out->len_bytes > 0 && !bytes_is(*name_out, "."))
            return true;
    }
    return false;
}

static int check_path(struct bytes path, struct fault *fault)
{
    struct bytes rest = path;
    struct bytes name;
    unsigned depth = 0;

    if (path.len_bytes > 0 && path.data[0] == '/')
        return fault_set(fault, E_FORMAT, "paths are relative to the folder");
    if (path.len_bytes > 0 && memchr(path.data, '\0', path.len_bytes) != NULL)
        return fault_set(fault, E_FORMAT, "a path has no NUL in it");
    while (next_name(&rest, &name)) {
        if (bytes_is(name, ".."))
            return fault_set(fault, E_FORMAT, "a path does not lead out of the folder");
        if (name.len_bytes > MAX_NAME_BYTES || ++depth > MAX_DEPTH)
            return fault_set(fault, E_FORMAT, "the path is too long or too deep");
    }
    return 0;
}

static int folder_fail(struct bytes path, struct fault *fault)
{
    int rc = errno == ENOENT || errno == ENOTDIR ? E_NOT_FOUND : errno == ENOMEM ? E_NOMEM : E_IO;

    return fault_set(fault, rc, "%.*s: %s", (int)path.len_bytes, (const char *)path.data,
                     errno == ELOOP ? "symbolic links are not followed" : strerror(errno));
}

/* Steps from one folder into the next and closes fd.  makes: creates the next one when it is missing. */
static int folder_step_into(int fd, const char *name, bool makes)
{
    int into = -1;

    if (!makes || mkdirat(fd, name, 0777) == 0 || errno == EEXIST)
        into = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int why = errno;
    close(fd);
    errno = why;
    return into;
}

/* Returns a new descriptor of the folder that holds the path's last name.  last gets that name; it is empty
 * when the path is the folder itself. */
static int open_parent(const struct folder *folder, struct bytes path, bool makes, struct fault *fault,
                       char last[MAX_NAME_BYTES + 1])
{
    struct bytes rest = path;
    struct bytes name;
    int rc = check_path(path, fault);
    int fd;

    if (rc < 0)
        return rc;
    last[0] = '\0';
    fd = fcntl(folder->fd, F_DUPFD_CLOEXEC, 0);
    while (fd >= 0 && next_name(&rest, &name)) {
        if (last[0] != '\0')
            fd = folder_step_into(fd, last, makes);
        memcpy(last, name.data, name.len_bytes);
        last[name.len_bytes] = '\0';
    }
    return fd >= 0 ? fd : folder_fail(path, fault);
}

/* ---- files ---- */

static int folder_read_all(int fd, struct bytes path, struct fault *fault, struct buf *out)
{
    struct stat facts;
    uint8_t chunk[4096];
    ssize_t n;

    if (fstat(fd, &facts) < 0)
        return folder_fail(path, fault);
    if (!S_ISREG(facts.st_mode))
        return fault_set(fault, E_FORMAT, "%.*s: not a file", (int)path.len_bytes, (const char *)path.data);
    while ((n = read(fd, chunk, sizeof(chunk))) > 0) {
        if (out->len_bytes + (size_t)n > FOLDER_MAX_FILE_BYTES)
            return fault_set(fault, E_LIMIT, "%.*s: larger than %u bytes", (int)path.len_bytes,
                             (const char *)path.data, FOLDER_MAX_FILE_BYTES);
        if (buf_append(out, chunk, (size_t)n) < 0)
            return fault_set(fault, E_NOMEM, "out of memory");
    }
    return n < 0 ? folder_fail(path, fault) : 0;
}

int folder_read(const struct folder *folder, struct bytes path, struct fault *fault, struct buf *out)
{
    char last[MAX_NAME_BYTES + 1];
    int parent = open_parent(folder, path, false, fault, last);
    int fd;
    int rc;

    if (parent < 0)
        return parent;
    fd = openat(parent, last[0] == '\0' ? "." : last, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    rc = fd < 0 ? folder_fail(path, fault) : folder_read_all(fd, path, fault, out);
    if (fd >= 0)
        close(fd);
    close(parent);
    return rc;
}

static bool folder_write_all(int fd, struct bytes text)
{
    for (size_t at = 0; at < text.len_bytes;) {
        ssize_t n = write(fd, text.data + at, text.len_bytes - at);

        if (n < 0 && errno != EINTR)
            return false;
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Creates a file that is to take the place of another one, whose owner, group and permissions it gets.  Without
 * one there, the umask decides. */
static int folder_create(int parent, const char *name, const char *replaced)
{
    struct stat facts;
    bool replaces = fstatat(parent, replaced, &facts, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(facts.st_mode);
    int fd =
        openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, replaces ? 0600 : 0666);

    if (fd < 0 || !replaces)
        return fd;
    /* Another user's file becomes this user's.  Where it loses its group too, no group gets a permission. */
    if (fchown(fd, facts.st_uid, facts.st_gid) < 0 && fchown(fd, (uid_t)-1, facts.st_gid) < 0)
        facts.st_mode &= ~(mode_t)S_IRWXG;
    (void)fchmod(fd, facts.st_mode & (S_IRWXU | S_IRWXG | S_IRWXO));
    return fd;
}

int folder_write(const struct folder *folder, struct bytes path, struct bytes text, struct fault *fault)
{
    static const char temporary[] = ".baton-chat-new";
    char last[MAX_NAME_BYTES + 1];
    int parent = open_parent(folder, path, true, fault, last);
    bool is_written;
    int rc = 0;
    int fd;

    if (parent < 0)
        return parent;
    if (last[0] == '\0') {
        close(parent);
        return fault_set(fault, E_FORMAT, "the path names no file");
    }
    unlinkat(parent, temporary, 0);
    fd = folder_create(parent, temporary, last);
    is_written = fd >= 0 && folder_write_all(fd, text);
    if (fd >= 0)
        is_written = close(fd) == 0 && is_written;
    if (!is_written || renameat(parent, temporary, parent, last) < 0) {
        rc = folder_fail(path, fault);
        unlinkat(parent, temporary, 0);
    }
    close(parent);
    return rc;
}

/* ---- all files ---- */

struct walk {
    folder_call each;
    void *arg;
    struct fault *fault;
    unsigned n_files;
};

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int walk_into(struct walk *walk, int parent, const char *name, struct buf *path, unsigned depth);

static int folder_visit(struct walk *walk, int fd, const char *name, struct buf *path, unsigned depth)
{
    size_t before = path->len_bytes;
    struct stat facts;
    int rc = 0;

    if (fstatat(fd, name, &facts, AT_SYMLINK_NOFOLLOW) < 0)
        return 0; /* gone since it was listed */
    if (before > 0)
        buf_append_str(path, "/");
    if (buf_append_str(path, name) < 0)
        return fault_set(walk->fault, E_NOMEM, "out of memory");
    if (S_ISDIR(facts.st_mode))
        rc = depth < MAX_DEPTH ? walk_into(walk, fd, name, path, depth + 1) : 0;
    else if (S_ISREG(facts.st_mode) && walk->n_files++ < MAX_FILES)
        rc = walk->each(walk->arg, buf_view(path));
    path->len_bytes = before;
    return rc;
}

static int walk_into(struct walk *walk, int parent, const char *name, struct buf *path, unsigned depth)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct dirent **entries = NULL;
    int rc = 0;
    int n;

    if (fd < 0)
        return folder_fail(buf_view(path), walk->fault);
    n = scandirat(fd, ".", &entries, is_shown, by_name);
    for (int i = 0; i < n; i++) {
        if (rc == 0)
            rc = folder_visit(walk, fd, entries[i]->d_name, path, depth);
        free(entries[i]);
    }
    free(entries);
    close(fd);
    return n < 0 ? fault_set(walk->fault, E_IO, "the folder cannot be listed") : rc;
}

int folder_walk(const struct folder *folder, struct bytes path, struct fault *fault, folder_call each,
                void *arg)
{
    struct walk walk = {.each = each, .arg = arg, .fault = fault};
    char last[MAX_NAME_BYTES + 1];
    struct bytes rest = path;
    struct bytes name;
    struct buf begin = {0};
    int parent = open_parent(folder, path, false, fault, last);
    int rc;

    if (parent < 0)
        return parent;
    while (next_name(&rest, &name)) {
        if (begin.len_bytes > 0)
            buf_append_str(&begin, "/");
        buf_append(&begin, name.data, name.len_bytes);
    }
    rc = begin.is_bad ? fault_set(fault, E_NOMEM, "out of memory")
                      : walk_into(&walk, parent, last[0] == '\0' ? "." : last, &begin, 1);
    buf_fini(&begin);
    close(parent);
    return rc;
}
