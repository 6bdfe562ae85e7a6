/* SPDX-License-Identifier: Apache-2.0 */
/* The GGUF files of a repository, and the choice of one model among them. Pure.
 *
 * The hub's tree is an array of objects with path, size and, for large files, lfs.oid, which is the SHA-256. A model
 * is one file, or the parts of one (gguf_part_name). Some GGUF files beside models are none: projectors of images
 * (mmproj), importance matrices, and draft heads without a model's weights.
 *
 * Without a choice, a repository of one model gives that one, and one of several the first of `usual` that fits
 * exactly one. */
#include "clients/pull/pull.h"

#include "base/err.h"
#include "base/str.h"
#include "gguf/gguf.h"
#include "text/json/json.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_FILES = 20000 };

int pull_list_add(struct pull_list *list, struct bytes path, uint64_t size_bytes, const char *sha256)
{
    struct pull_file *files;

    if (list->n >= MAX_FILES)
        return E_LIMIT;
    files = realloc(list->files, (list->n + 1) * sizeof(*files));
    if (files == NULL)
        return E_NOMEM;
    list->files = files;
    files[list->n] = (struct pull_file){.path = strndup((const char *)path.data, path.len_bytes),
                                        .size_bytes = size_bytes};
    if (files[list->n].path == NULL)
        return E_NOMEM;
    str_copy(files[list->n].sha256, sizeof(files[list->n].sha256), sha256);
    list->n++;
    return 0;
}

void pull_list_fini(struct pull_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->files[i].path);
    free(list->files);
    *list = (struct pull_list){0};
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

static bool ends_with_word(struct bytes name, const char *word)
{
    size_t n = strlen(word);

    return name.len_bytes >= n && strncasecmp((const char *)name.data + name.len_bytes - n, word, n) == 0;
}

bool pull_path_is_model(struct bytes path)
{
    static const char *const others[] = {"imatrix", "mtp-", "eagle3-", "dflash-", "dspark-"};
    size_t from = path.len_bytes;
    struct bytes name;

    while (from > 0 && path.data[from - 1] != '/')
        from--;
    name = bytes_of(path.data + from, path.len_bytes - from);
    if (name.len_bytes <= 5 || !ends_with_word(name, ".gguf") || ends_with_word(name, "imatrix.gguf") ||
        bytes_find(name, bytes_str("mmproj"), 0) != SIZE_MAX)
        return false;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (bytes_starts_with(name, others[i]))
            return false;
    }
    return true;
}

/* Adds one entry of the tree if it is a model file. */
static int pull_list_add_entry(struct pull_list *list, const json_t *entry, struct fault *fault)
{
    struct bytes path = api_json_str(json_object_get(entry, "path"));
    const json_t *lfs = json_object_get(entry, "lfs");
    struct bytes oid = api_json_str(json_object_get(lfs, "oid"));
    const json_t *size = json_object_get(json_is_object(lfs) ? lfs : entry, "size");
    uint8_t digest[32];
    char sha256[65] = "";

    if (!bytes_is(api_json_str(json_object_get(entry, "type")), "file") || !pull_path_is_model(path))
        return 0;
    if (!pull_path_is_safe(path))
        return fault_set(fault, E_FORMAT, "the hub lists a file with an unusable name");
    if (!json_is_integer(size) || json_integer_value(size) <= 0)
        return fault_set(fault, E_FORMAT, "the hub lists no size for '%.*s'", (int)path.len_bytes, path.data);
    if (hex_decode(oid, digest, sizeof(digest)) == 0)
        hex_encode(digest, sizeof(digest), sha256);
    int rc = pull_list_add(list, path, (uint64_t)json_integer_value(size), sha256);
    return rc < 0 ? fault_set(fault, rc, "the hub's list of files: %s", err_text(rc)) : 0;
}

int pull_list_read(struct pull_list *list, struct bytes json, struct fault *fault)
{
    struct fault inner = {0};
    json_t *tree = NULL;
    int rc = api_json_load(json, &inner, &tree);

    if (rc < 0)
        return fault_set(fault, rc, "the hub's list of files: %s", inner.text);
    if (!json_is_array(tree))
        rc = fault_set(fault, E_FORMAT, "the hub's list of files is no list");
    for (size_t i = 0; rc == 0 && i < json_array_size(tree); i++)
        rc = pull_list_add_entry(list, json_array_get(tree, i), fault);
    json_decref(tree);
    return rc;
}

/* ---- the choice ---- */

/* The length of a path without part number and ending: equal for the files of one model. */
static size_t stem_bytes(const char *path)
{
    struct gguf_part part;

    return gguf_part_name(bytes_str(path), &part) ? part.prefix.len_bytes : strlen(path) - 5;
}

static bool is_same_model(const char *a, const char *b)
{
    struct gguf_part part_a, part_b;
    bool is_part = gguf_part_name(bytes_str(a), &part_a);

    if (is_part != gguf_part_name(bytes_str(b), &part_b))
        return false;
    return is_part ? part_a.count == part_b.count && bytes_equal(part_a.prefix, part_b.prefix)
                   : strcmp(a, b) == 0;
}

static bool is_edge(char byte)
{
    return byte == '\0' || strchr("-._/", byte) != NULL;
}

/* True if pick is the file's path or base name, or a whole word of its path: Q4_K is not a word of m-Q4_K_M. */
static bool pull_list_is_picked(const char *path, const char *pick)
{
    size_t stem = stem_bytes(path), n = strlen(pick);

    if (n == 0 || strcasecmp(path, pick) == 0 || strcasecmp(base_of(path), pick) == 0)
        return true;
    for (size_t i = 0; i + n <= stem; i++) {
        char behind = i + n < stem ? path[i + n] : '\0';

        if (strncasecmp(path + i, pick, n) == 0 && (i == 0 || is_edge(path[i - 1])) && is_edge(behind) &&
            behind != '_')
            return true;
    }
    return false;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct pull_file *)a)->path, ((const struct pull_file *)b)->path);
}

/* A line for each model that has a picked file: its size and name. */
static size_t put_models(const struct pull_list *list, const char *pick, size_t *chosen_out, struct buf *out)
{
    size_t n_models = 0;

    for (size_t i = 0; i < list->n; i++) {
        bool is_first = true;
        uint64_t size_bytes = 0;

        if (!pull_list_is_picked(list->files[i].path, pick))
            continue;
        for (size_t k = 0; k < list->n; k++) {
            if (!is_same_model(list->files[i].path, list->files[k].path))
                continue;
            is_first &= k >= i || !pull_list_is_picked(list->files[k].path, pick);
            size_bytes += list->files[k].size_bytes;
        }
        if (!is_first)
            continue;
        if (n_models++ == 0)
            *chosen_out = i;
        if (n_models <= 100)
            buf_printf(out, "  %8.2f GB  %s\n", (double)size_bytes / 1e9, list->files[i].path);
    }
    return n_models;
}

/* A whole path names its model also where another folder has a file of that name. */
static bool find_path(const struct pull_list *list, const char *path, size_t *chosen_out)
{
    for (size_t i = 0; i < list->n; i++) {
        if (strcmp(list->files[i].path, path) == 0) {
            *chosen_out = i;
            return true;
        }
    }
    return false;
}

/* Drops all files but those of model `chosen`, which must be complete. */
static int pull_list_keep(struct pull_list *list, size_t chosen, struct fault *fault)
{
    struct gguf_part part = {.count = 1};
    size_t n = 0;

    for (size_t i = 0; i < list->n; i++) {
        if (is_same_model(list->files[chosen].path, list->files[i].path)) {
            struct pull_file file = list->files[n];
            list->files[n] = list->files[i];
            list->files[i] = file;
            if (i == chosen)
                chosen = n;
            n++;
        }
    }
    for (size_t i = n; i < list->n; i++)
        free(list->files[i].path);
    list->n = n;
    gguf_part_name(bytes_str(list->files[0].path), &part);
    if (n != part.count)
        return fault_set(fault, E_NOT_FOUND, "%zu of %u parts of %.*s are there", n, part.count,
                         (int)part.prefix.len_bytes, part.prefix.data);
    return 0;
}

/* The usual quantisation of the repository: the first that fits exactly one model. Its model is *chosen_out. */
static const char *find_usual(const struct pull_list *list, size_t *chosen_out)
{
    static const char *const usual[] = {"Q4_K_M", "Q8_0", "Q4_0", "Q5_K_M", "Q6_K"};

    for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++) {
        struct buf unused = {0};
        size_t n_models = put_models(list, usual[i], chosen_out, &unused);

        buf_fini(&unused);
        if (n_models > 0) /* two models of one quantisation are a question for the user */
            return n_models == 1 ? usual[i] : NULL;
    }
    return NULL;
}

int pull_list_choose(struct pull_list *list, const char *pick, struct buf *options_out, struct fault *fault)
{
    size_t chosen = 0, n_models;

    list->usual = NULL;
    if (list->n == 0)
        return fault_set(fault, E_NOT_FOUND, "there is no GGUF file");
    qsort(list->files, list->n, sizeof(*list->files), by_path);
    n_models = find_path(list, pick, &chosen) ? 1 : put_models(list, pick, &chosen, options_out);
    if (n_models > 1 && pick[0] == '\0')
        list->usual = find_usual(list, &chosen);
    if (n_models == 1 || list->usual != NULL) {
        buf_clear(options_out);
        return pull_list_keep(list, chosen, fault);
    }
    if (n_models == 0) {
        put_models(list, "", &chosen, options_out);
        return fault_set(fault, E_NOT_FOUND, "no model is called '%.100s'; there are:", pick);
    }
    if (pick[0] == '\0')
        return fault_set(fault, E_NOT_FOUND, "%zu models; name one after a colon:", n_models);
    return fault_set(fault, E_NOT_FOUND, "'%.100s' fits %zu models; name a file after the colon:", pick,
                     n_models);
}
