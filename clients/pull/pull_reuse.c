/* SPDX-License-Identifier: Apache-2.0 */
/* Models that are on this machine already, in folders that this command reads and does not write.
 *
 *     /var/lib/baton/models/owner/name/FILE.gguf      an administrator's: used where it stands if FILE.gguf.sha256 is beside it
 *
 *     $HF_HUB_CACHE/models--owner--name/              the cache of the hub's own libraries
 *         refs/main                                   the revision that they fetched last
 *         snapshots/REVISION/FILE.gguf -> ../../blobs/DIGEST
 *         blobs/DIGEST                                large files are named after their SHA-256
 *
 * The libraries do not compare a blob with its name.  So its bytes are read once; then the folder of models gets a link to it,
 * with the digest.  A file of the system without a digest is treated in the same way. */
#include "clients/pull/pull.h"

#include "base/err.h"
#include "base/str.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool pull_reuse_system(struct buf *out)
{
    if (access(PULL_SYSTEM_FOLDER, R_OK | X_OK) != 0)
        return false;
    buf_append_str(out, PULL_SYSTEM_FOLDER);
    return !out->is_bad;
}

bool pull_reuse_revision(struct bytes text, char out[65])
{
    size_t n = 0;

    while (n < text.len_bytes && n < 64 && isxdigit(text.data[n]))
        n++;
    for (size_t i = n; i < text.len_bytes; i++)
        if (!isspace(text.data[i]))
            return false;
    memcpy(out, text.data, n);
    out[n] = '\0';
    return n >= 7;
}

bool pull_reuse_digest(struct bytes target, char out[65])
{
    uint8_t digest[32];
    size_t n = target.len_bytes;

    if (n < 65 || target.data[n - 65] != '/' ||
        hex_decode(bytes_of(target.data + n - 64, 64), digest, sizeof(digest)) != 0)
        return false;
    hex_encode(digest, sizeof(digest), out);
    return true;
}

/* The folder of the hub's libraries. */
static bool put_cache(struct buf *out)
{
    static const char *const names[][2] = {{"HF_HUB_CACHE", ""},
                                           {"HUGGINGFACE_HUB_CACHE", ""},
                                           {"HF_HOME", "/hub"},
                                           {"XDG_CACHE_HOME", "/huggingface/hub"},
                                           {"HOME", "/.cache/huggingface/hub"}};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i][0]);

        if (value == NULL || value[0] == '\0')
            continue;
        buf_printf(out, "%s%s", value, names[i][1]);
        return value[0] == '/' && !out->is_bad;
    }
    return false;
}

bool pull_reuse_cache(const struct pull_name *name, struct buf *out)
{
    if (!name->is_hub || !put_cache(out))
        return false;
    buf_printf(out, "/models--%s--%s", name->owner, name->repo);
    return !out->is_bad && access((const char *)out->data, R_OK | X_OK) == 0;
}

bool pull_reuse_snapshot(const char *cache, struct buf *out)
{
    char path[PULL_URL_BYTES], text[256], revision[65];
    FILE *file;
    size_t n;

    snprintf(path, sizeof(path), "%s/refs/main", cache);
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    n = fread(text, 1, sizeof(text), file);
    fclose(file);
    if (!pull_reuse_revision(bytes_of(text, n), revision))
        return false;
    buf_printf(out, "%s/snapshots/%s", cache, revision);
    return !out->is_bad;
}

bool pull_reuse_digests(const char *snapshot, struct pull_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        char path[PULL_URL_BYTES + PULL_PATH_BYTES], target[PULL_URL_BYTES];
        ssize_t n;

        snprintf(path, sizeof(path), "%s/%s", snapshot, list->files[i].path);
        n = readlink(path, target, sizeof(target));
        if (n < 0 || !pull_reuse_digest(bytes_of(target, (size_t)n), list->files[i].sha256))
            return false;
    }
    return true;
}

/* Links path to a file that has the expected size and digest. 1: done; 0: it is another file. */
static int reuse_file(const struct pull_opts *opts, const char *from, const char *path,
                      const struct pull_file *expected, struct fault *fault)
{
    struct timespec begun;
    struct stat status;
    char found[65];
    int rc;

    if (stat(from, &status) != 0 || !S_ISREG(status.st_mode) || access(from, R_OK) != 0 ||
        (expected->size_bytes != 0 && (uint64_t)status.st_size != expected->size_bytes))
        return 0;
    rc = pull_store_compute_still(opts, from, found, &begun, fault);
    if (rc == E_IO) {
        fprintf(stderr, "%s; it is not used\n", fault->text);
        return 0;
    }
    if (rc < 0)
        return rc;
    if (strcmp(found, expected->sha256) != 0) {
        fprintf(stderr, "%s is not used: it has SHA-256 %s, and not %s\n", from, found, expected->sha256);
        return 0;
    }
    rc = pull_store_link(path, from, found, &begun, fault);
    if (rc == E_UNSUPPORTED) { /* a file system without links: the bytes can be fetched */
        fprintf(stderr, "%s is not used: %s\n", from, fault->text);
        return 0;
    }
    if (rc == 0 && !opts->is_quiet)
        fprintf(stderr, "%s is used, and not fetched again\n", from);
    return rc < 0 ? rc : 1;
}

int pull_reuse(const struct pull_opts *opts, const struct pull_reuse *places, const char *path,
               const struct pull_file *expected, struct fault *fault)
{
    struct buf from = {0};
    int rc = pull_store_recheck(opts, path, expected, fault);

    if (rc != 0 || expected->sha256[0] == '\0')
        return rc;
    if (places->system != NULL) {
        char kept[65];

        buf_printf(&from, "%s/%s", places->system, expected->path);
        if (!from.is_bad)
            pull_store_digest((const char *)from.data, kept);
        /* A kept digest is that of another version, or of a part: the whole model is not there. */
        if (!from.is_bad && (kept[0] == '\0' || strcmp(kept, expected->sha256) == 0))
            rc = reuse_file(opts, (const char *)from.data, path, expected, fault);
    }
    buf_clear(&from);
    if (rc == 0 && places->cache != NULL) {
        buf_printf(&from, "%s/blobs/%s", places->cache, expected->sha256);
        if (!from.is_bad)
            rc = reuse_file(opts, (const char *)from.data, path, expected, fault);
    }
    buf_fini(&from);
    return rc;
}
