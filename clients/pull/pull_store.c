/* SPDX-License-Identifier: Apache-2.0 */
/* The folder where fetched models are kept.
 *
 *     owner/name/FILE.gguf          complete
 *     owner/name/FILE.gguf.sha256   its digest, in the form that sha256sum -c reads
 *     owner/name/FILE.gguf.part     being fetched */
#include "clients/pull/pull.h"

#include "base/err.h"
#include "base/str.h"
#include "gguf/gguf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_DEPTH = 8 };

int pull_store_folder(const char *to_dir, struct buf *out, struct fault *fault)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

    if (to_dir != NULL)
        buf_append_str(out, to_dir);
    else if (access(PULL_SYSTEM_FOLDER, W_OK | X_OK) == 0)
        buf_append_str(out, PULL_SYSTEM_FOLDER);
    else if (cache != NULL && cache[0] == '/')
        buf_printf(out, "%s/baton/models", cache);
    else if (home != NULL && home[0] == '/')
        buf_printf(out, "%s/.cache/baton/models", home);
    else
        return fault_set(fault, E_NOT_FOUND, "no folder for models: set HOME, or name one with --to");
    return out->is_bad ? fault_set(fault, E_NOMEM, "out of memory") : 0;
}

int pull_store_make_folders(const char *path, struct fault *fault)
{
    char *copy = strdup(path);
    int rc = copy == NULL ? fault_set(fault, E_NOMEM, "out of memory") : 0;

    for (char *at = copy; rc == 0 && (at = strchr(at + 1, '/')) != NULL;) {
        *at = '\0';
        if (mkdir(copy, 0755) != 0 && errno != EEXIST)
            rc = fault_set(fault, E_IO, "cannot make the folder %.300s: %s", copy, strerror(errno));
        *at = '/';
    }
    free(copy);
    return rc;
}

/* ---- digests ---- */

int pull_store_compute(const struct pull_opts *opts, const char *path, char out[65], struct fault *fault)
{
    static uint8_t piece[1 << 20];
    struct pull_progress progress;
    EVP_MD_CTX *digest = EVP_MD_CTX_new();
    uint8_t raw[EVP_MAX_MD_SIZE];
    struct stat status = {0};
    uint64_t done = 0;
    FILE *file = fopen(path, "rbe");
    size_t n;
    int rc = 0;

    if (file == NULL || digest == NULL || fstat(fileno(file), &status) != 0 ||
        EVP_DigestInit_ex(digest, EVP_sha256(), NULL) != 1)
        rc = fault_set(fault, E_IO, "cannot read %.300s: %s", path, strerror(errno));
    pull_progress_start(&progress, "checking", 0, (uint64_t)status.st_size, opts->is_quiet);
    while (rc == 0 && (n = fread(piece, 1, sizeof(piece), file)) > 0) {
        EVP_DigestUpdate(digest, piece, n);
        pull_progress_show(&progress, done += n);
        if (opts->is_cancelled())
            rc = fault_set(fault, E_CANCELLED, "cancelled");
    }
    pull_progress_end(&progress);
    if (rc == 0 && ferror(file))
        rc = fault_set(fault, E_IO, "cannot read %.300s: %s", path, strerror(errno));
    if (rc == 0) {
        EVP_DigestFinal_ex(digest, raw, NULL);
        hex_encode(raw, 32, out);
    }
    if (file != NULL)
        fclose(file);
    EVP_MD_CTX_free(digest);
    return rc;
}

int pull_store_compute_still(const struct pull_opts *opts, const char *path, char out[65],
                             struct timespec *begun_out, struct fault *fault)
{
    struct stat before, after;
    int rc;

    clock_gettime(CLOCK_REALTIME_COARSE, begun_out); /* the clock that files get their times from */
    if (stat(path, &before) != 0)
        return fault_set(fault, E_IO, "cannot look at %.300s: %s", path, strerror(errno));
    rc = pull_store_compute(opts, path, out, fault);
    if (rc == 0 &&
        (stat(path, &after) != 0 || before.st_dev != after.st_dev || before.st_ino != after.st_ino ||
         before.st_size != after.st_size || before.st_ctim.tv_sec != after.st_ctim.tv_sec ||
         before.st_ctim.tv_nsec != after.st_ctim.tv_nsec))
        rc = fault_set(fault, E_IO, "%.300s changed while it was read", path);
    return rc;
}

static void drop_digest(const char *path)
{
    struct buf name = {0};

    buf_printf(&name, "%s.sha256", path);
    if (!name.is_bad)
        unlink((const char *)name.data);
    buf_fini(&name);
}

void pull_store_keep_digest(const char *path, const char *sha256, const struct timespec *begun)
{
    const struct timespec times[2] = {*begun, *begun};
    const char *slash = strrchr(path, '/');
    struct buf name = {0};
    FILE *file;

    drop_digest(path); /* another user's file takes no times from this one */
    buf_printf(&name, "%s.sha256", path);
    file = name.is_bad ? NULL : fopen((const char *)name.data, "we");
    if (file != NULL) {
        bool is_good = fprintf(file, "%s  %s\n", sha256, slash != NULL ? slash + 1 : path) > 0 &&
                       fflush(file) == 0 && futimens(fileno(file), times) == 0;
        fclose(file);
        if (!is_good)
            drop_digest(path);
    }
    buf_fini(&name);
}

static void sync_folder(const char *path)
{
    char *copy = strdup(path), *slash = copy != NULL ? strrchr(copy, '/') : NULL;
    int fd = -1;

    if (slash != NULL) {
        *slash = '\0';
        fd = open(copy, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(copy);
}

/* Gives a file of this digest the name path.  A command that is killed meanwhile leaves path without a digest, and never beside
 * that of other bytes. */
static int give_name(const char *from, const char *path, const char *sha256, const struct timespec *begun,
                     struct fault *fault)
{
    drop_digest(path);
    if (rename(from, path) != 0)
        return fault_set(fault, E_IO, "cannot rename to %.300s: %s", path, strerror(errno));
    sync_folder(path);
    pull_store_keep_digest(path, sha256, begun);
    return 0;
}

int pull_store_finish(const struct pull_opts *opts, const char *path, const char *sha256, struct fault *fault)
{
    struct timespec begun;
    struct buf part = {0};
    char found[65];
    int rc = 0;

    buf_printf(&part, "%s.part", path);
    if (part.is_bad)
        rc = fault_set(fault, E_NOMEM, "out of memory");
    clock_gettime(CLOCK_REALTIME_COARSE, &begun);
    if (rc == 0)
        rc = pull_store_compute(opts, (const char *)part.data, found, fault);
    if (rc == 0 && sha256[0] != '\0' && strcmp(found, sha256) != 0) {
        unlink((const char *)part.data);
        rc = fault_set(fault, E_MISMATCH,
                       "the bytes that came have SHA-256 %s, the hub says %s; they were thrown away", found,
                       sha256);
    }
    if (rc == 0)
        rc = give_name((const char *)part.data, path, found, &begun, fault);
    buf_fini(&part);
    return rc;
}

int pull_store_link(const char *path, const char *target, const char *sha256, const struct timespec *begun,
                    struct fault *fault)
{
    struct buf name = {0};
    int rc = pull_store_make_folders(path, fault);

    buf_printf(&name, "%s.link.%ld", path, (long)getpid());
    if (rc == 0 && name.is_bad)
        rc = fault_set(fault, E_NOMEM, "out of memory");
    if (rc == 0) {
        unlink((const char *)name.data); /* of a command that was killed */
        if (symlink(target, (const char *)name.data) != 0)
            rc = fault_set(fault, E_UNSUPPORTED, "cannot make the link %.300s: %s", path, strerror(errno));
    }
    if (rc == 0) {
        rc = give_name((const char *)name.data, path, sha256, begun, fault);
        if (rc < 0)
            unlink((const char *)name.data);
    }
    buf_fini(&name);
    return rc;
}

void pull_store_remove(const char *path)
{
    drop_digest(path);
    unlink(path);
}

int pull_store_drop_page(const char *path, struct fault *fault)
{
    FILE *file = fopen(path, "rbe");
    char magic[4] = "";
    struct gguf *gguf = NULL;
    bool is_gguf;
    int rc = 0;

    if (file == NULL)
        return fault_set(fault, E_IO, "cannot read %.300s: %s", path, strerror(errno));
    is_gguf = fread(magic, 1, sizeof(magic), file) == sizeof(magic) && memcmp(magic, "GGUF", 4) == 0;
    if (!is_gguf && ferror(file))
        rc = fault_set(fault, E_IO, "cannot read %.300s: %s", path, strerror(errno));
    fclose(file);
    if (is_gguf || rc != 0)
        return rc;
    rc = gguf_open(path, fault, &gguf); /* says what it is */
    gguf_close(gguf);
    pull_store_remove(path);
    return rc;
}

/* The digest in PATH.sha256, also if it holds no more. */
static void read_digest(const char *path, char out[65])
{
    struct buf name = {0};
    uint8_t digest[32];
    char kept[65] = "";
    FILE *file;

    buf_printf(&name, "%s.sha256", path);
    file = name.is_bad ? NULL : fopen((const char *)name.data, "re");
    if (file != NULL) {
        if (fread(kept, 1, 64, file) != 64)
            kept[0] = '\0';
        fclose(file);
    }
    buf_fini(&name);
    out[0] = '\0';
    if (hex_decode(bytes_str(kept), digest, sizeof(digest)) == 0)
        hex_encode(digest, sizeof(digest), out);
}

/* True if path is a link with a digest, whose target changed after its bytes were read for that.  Times of writing are what a
 * copy says; only the kernel sets those of changes. */
static bool is_changed(const char *path)
{
    struct stat link, target, digest;
    struct buf name = {0};
    bool has_digest;

    buf_printf(&name, "%s.sha256", path);
    has_digest = !name.is_bad && stat((const char *)name.data, &digest) == 0;
    buf_fini(&name);
    if (!has_digest || lstat(path, &link) != 0 || !S_ISLNK(link.st_mode))
        return false;
    return stat(path, &target) != 0 || target.st_ctim.tv_sec > digest.st_mtim.tv_sec ||
           (target.st_ctim.tv_sec == digest.st_mtim.tv_sec &&
            target.st_ctim.tv_nsec >= digest.st_mtim.tv_nsec);
}

void pull_store_digest(const char *path, char out[65])
{
    read_digest(path, out);
    if (is_changed(path))
        out[0] = '\0';
}

static bool pull_store_fits(const char *path, const struct pull_file *expected)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, R_OK) == 0 &&
           (expected->size_bytes == 0 || (uint64_t)status.st_size == expected->size_bytes);
}

bool pull_store_has(const char *path, const struct pull_file *expected)
{
    char kept[65];

    if (!pull_store_fits(path, expected))
        return false;
    if (expected->sha256[0] == '\0')
        return !is_changed(path);
    pull_store_digest(path, kept);
    return strcmp(kept, expected->sha256) == 0;
}

int pull_store_recheck(const struct pull_opts *opts, const char *path, const struct pull_file *expected,
                       struct fault *fault)
{
    struct timespec begun;
    char kept[65], found[65];
    const char *wanted = expected->sha256[0] != '\0' ? expected->sha256 : kept;
    int rc;

    read_digest(path, kept);
    if (wanted[0] == '\0' || (wanted != kept && kept[0] != '\0') || !pull_store_fits(path, expected))
        return 0;
    rc = pull_store_compute_still(opts, path, found, &begun, fault);
    if (rc < 0)
        return rc == E_IO ? 0 : rc;
    if (strcmp(found, wanted) != 0)
        return 0;
    pull_store_keep_digest(path, found, &begun);
    return 1;
}

/* ---- the files that are there ---- */

/* path: the folder, with room to go deeper; relative names begin at root_bytes. */
static int list_folder(struct buf *path, size_t root_bytes, int depth, struct pull_list *list)
{
    size_t len_bytes = path->len_bytes;
    DIR *folder = opendir((const char *)path->data);
    struct dirent *entry;
    int rc = 0;

    while (folder != NULL && rc == 0 && (entry = readdir(folder)) != NULL) {
        struct stat status;

        if (entry->d_name[0] == '.')
            continue;
        buf_printf(path, "/%s", entry->d_name);
        if (path->is_bad || stat((const char *)path->data, &status) != 0)
            rc = path->is_bad ? E_NOMEM : 0; /* a link to no file is none */
        else if (S_ISDIR(status.st_mode) && depth < MAX_DEPTH)
            rc = list_folder(path, root_bytes, depth + 1, list);
        else if (S_ISREG(status.st_mode) && pull_path_is_model(bytes_str(entry->d_name)))
            rc = pull_list_add(list, bytes_of(path->data + root_bytes + 1, path->len_bytes - root_bytes - 1),
                               (uint64_t)status.st_size, "");
        path->len_bytes = len_bytes;
        path->data[len_bytes] = '\0';
    }
    if (folder != NULL)
        closedir(folder);
    return rc;
}

int pull_store_list(const char *folder, struct pull_list *list)
{
    struct buf path = {0};
    int rc;

    buf_append_str(&path, folder);
    rc = path.is_bad ? E_NOMEM : list_folder(&path, path.len_bytes, 0, list);
    buf_fini(&path);
    return rc;
}
