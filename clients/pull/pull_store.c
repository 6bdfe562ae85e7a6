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
#include <unistd.h>

#define SYSTEM_FOLDER "/var/lib/baton/models"

enum { MAX_DEPTH = 8 };

int pull_store_folder(const char *to_dir, struct buf *out, struct fault *fault)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

    if (to_dir != NULL)
        buf_append_str(out, to_dir);
    else if (access(SYSTEM_FOLDER, W_OK | X_OK) == 0)
        buf_append_str(out, SYSTEM_FOLDER);
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

/* Writes PATH.sha256, a convenience: a failure is harmless. */
static void write_digest(const char *path, const char *sha256)
{
    const char *slash = strrchr(path, '/');
    struct buf name = {0};
    FILE *file;

    buf_printf(&name, "%s.sha256", path);
    file = name.is_bad ? NULL : fopen((const char *)name.data, "we");
    if (file != NULL) {
        fprintf(file, "%s  %s\n", sha256, slash != NULL ? slash + 1 : path);
        fclose(file);
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

int pull_store_finish(const struct pull_opts *opts, const char *path, const char *sha256, struct fault *fault)
{
    struct buf part = {0};
    char found[65];
    int rc = 0;

    buf_printf(&part, "%s.part", path);
    if (part.is_bad)
        rc = fault_set(fault, E_NOMEM, "out of memory");
    if (rc == 0)
        rc = pull_store_compute(opts, (const char *)part.data, found, fault);
    if (rc == 0 && sha256[0] != '\0' && strcmp(found, sha256) != 0) {
        unlink((const char *)part.data);
        rc = fault_set(fault, E_MISMATCH,
                       "the bytes that came have SHA-256 %s, the hub says %s; they were thrown away", found,
                       sha256);
    }
    if (rc == 0) {
        write_digest(path, found);
        if (rename((const char *)part.data, path) != 0)
            rc = fault_set(fault, E_IO, "cannot rename to %.300s: %s", path, strerror(errno));
        sync_folder(path);
    }
    buf_fini(&part);
    return rc;
}

int pull_store_link(const char *path, const char *target, const char *sha256, struct fault *fault)
{
    struct buf name = {0};
    int rc = pull_store_make_folders(path, fault);

    buf_printf(&name, "%s.link", path);
    if (rc == 0 && name.is_bad)
        rc = fault_set(fault, E_NOMEM, "out of memory");
    if (rc == 0) {
        unlink((const char *)name.data); /* of a command that was killed */
        write_digest(path, sha256);
        if (symlink(target, (const char *)name.data) != 0 || rename((const char *)name.data, path) != 0)
            rc = fault_set(fault, E_IO, "cannot make the link %.300s: %s", path, strerror(errno));
    }
    buf_fini(&name);
    return rc;
}

void pull_store_remove(const char *path)
{
    struct buf name = {0};

    buf_printf(&name, "%s.sha256", path);
    if (!name.is_bad)
        unlink((const char *)name.data);
    unlink(path);
    buf_fini(&name);
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

void pull_store_digest(const char *path, char out[65])
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

/* True if path is a link whose target changed after PATH.sha256 was written. */
static bool is_changed(const char *path)
{
    struct stat link, target, digest;
    struct buf name = {0};
    bool is_newer;

    buf_printf(&name, "%s.sha256", path);
    is_newer =
        name.is_bad || stat((const char *)name.data, &digest) != 0 || stat(path, &target) != 0 ||
        target.st_mtim.tv_sec > digest.st_mtim.tv_sec ||
        (target.st_mtim.tv_sec == digest.st_mtim.tv_sec && target.st_mtim.tv_nsec > digest.st_mtim.tv_nsec);
    buf_fini(&name);
    return is_newer && lstat(path, &link) == 0 && S_ISLNK(link.st_mode);
}

bool pull_store_has(const char *path, const struct pull_file *expected)
{
    struct stat status;
    char kept[65];

    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode) || access(path, R_OK) != 0)
        return false;
    if (expected->size_bytes != 0 && (uint64_t)status.st_size != expected->size_bytes)
        return false;
    if (expected->sha256[0] == '\0')
        return true;
    pull_store_digest(path, kept);
    return strcmp(kept, expected->sha256) == 0 && !is_changed(path);
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
