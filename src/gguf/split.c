/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a model that lies in several files.
 *
 *     model-00001-of-00003.gguf   all keys, split.no = 0    tensors a b
 *     model-00002-of-00003.gguf   split.no = 1              tensors c d e
 *     model-00003-of-00003.gguf   split.no = 2              tensors f
 *
 * Every part is a complete GGUF file with a directory of its own. split.count is in all of them; so is
 * split.tensors.count, the tensors of the whole model.  The caller may name any part; the others have their names
 * in the same folder.  A link to a part may have another name or lie in another folder; then the others are searched
 * beside the target.  The caller gets the first part, with its keys and the tensors of all parts.
 *
 * The parts must belong together: equal counts, each number once and equal to the one in the file's name, no tensor
 * twice, and the declared number of tensors.  No key may differ from the first part's.  A fault in a part that the
 * caller did not name gives that part's number. */
#include "gguf/gguf_priv.h"

#include "base/err.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS 5

_Static_assert(GGUF_PART_TAIL_BYTES == sizeof("-00001-of-00005.gguf") - 1, "a part's name");

/* Exactly DIGITS digits. */
static bool gguf_split_read_number(const uint8_t *at, uint32_t *out)
{
    uint32_t value = 0;

    for (int i = 0; i < DIGITS; i++) {
        if (at[i] < '0' || at[i] > '9')
            return false;
        value = value * 10 + (uint32_t)(at[i] - '0');
    }
    *out = value;
    return true;
}

bool gguf_part_name(struct bytes name, struct gguf_part *out)
{
    struct gguf_part part;

    if (name.len_bytes <= GGUF_PART_TAIL_BYTES)
        return false;
    part.prefix = bytes_of(name.data, name.len_bytes - GGUF_PART_TAIL_BYTES);

    const uint8_t *tail = name.data + part.prefix.len_bytes;
    if (tail[0] != '-' || !gguf_split_read_number(tail + 1, &part.number) ||
        memcmp(tail + 6, "-of-", 4) != 0 || !gguf_split_read_number(tail + 10, &part.count) ||
        memcmp(tail + 15, ".gguf", 5) != 0)
        return false;
    if (part.number == 0 || part.number > part.count || part.prefix.data[part.prefix.len_bytes - 1] == '/')
        return false;
    *out = part;
    return true;
}

void gguf_part_path(const struct gguf_part *part, uint32_t number, struct buf *out)
{
    buf_append(out, part->prefix.data, part->prefix.len_bytes);
    buf_printf(out, "-%05u-of-%05u.gguf", number, part->count);
}

/* ---- keys of one file ---- */

int gguf_split_read(const struct gguf *gguf, struct gguf_split *out, struct fault *fault)
{
    struct gguf_split split = {0};
    int rc = gguf_get_u64(gguf, "split.count", fault, &split.count);

    if (rc == E_NOT_FOUND || (rc == 0 && split.count <= 1)) {
        *out = (struct gguf_split){.count = 1};
        return 0;
    }
    if (rc == 0 && split.count > GGUF_MAX_PARTS)
        return fault_set(fault, E_LIMIT, "key 'split.count': %llu parts, the limit is %d",
                         (unsigned long long)split.count, GGUF_MAX_PARTS);
    if (rc == 0)
        rc = gguf_get_u64(gguf, "split.no", fault, &split.number);
    if (rc == 0)
        rc = gguf_get_u64(gguf, "split.tensors.count", fault, &split.n_tensors);
    if (rc != 0)
        return rc;
    if (split.number >= split.count)
        return fault_set(fault, E_RANGE, "key 'split.no': %llu, but 'split.count' is %llu",
                         (unsigned long long)split.number, (unsigned long long)split.count);
    if (split.n_tensors > GGUF_MAX_TENSORS)
        return fault_set(fault, E_LIMIT, "key 'split.tensors.count': %llu tensors, the limit is %u",
                         (unsigned long long)split.n_tensors, GGUF_MAX_TENSORS);
    *out = split;
    return 0;
}

/* ---- parts that lie in memory ---- */

/* Puts the number of a part before the text of a fault. */
static int fail_part(uint32_t number, uint32_t count, int rc, struct fault *fault)
{
    if (fault == NULL)
        return rc;
    struct fault inner = *fault;
    return fault_set(fault, rc, "part %u of %u: %.400s", number + 1, count, inner.text);
}

/* Later parts repeat some of the first part's keys or none. Only split.no may differ. */
static int gguf_split_check_keys(const struct gguf *first, const struct gguf *part, struct fault *fault)
{
    for (uint32_t i = 0; i < part->n_keys; i++) {
        const struct gguf_key *key = &part->keys[i];
        const struct gguf_key *same = gguf_find_key(first, key->name);

        if (bytes_is(key->name, "split.no") || bytes_is(key->name, "general.alignment"))
            continue;
        if (same != NULL && !bytes_equal(same->entry, key->entry))
            return fault_set(fault, E_FORMAT,
                             "key '%.*s' differs from the first part's: it belongs to another model",
                             SHOWN(key->name));
    }
    return 0;
}

static int check_part(const struct gguf *first, const struct gguf_split *whole, const struct gguf *part,
                      uint32_t number, struct fault *fault)
{
    struct gguf_split split = {0};
    int rc = gguf_split_read(part, &split, fault);

    if (rc != 0)
        return rc;
    if (split.count != whole->count)
        return fault_set(fault, E_FORMAT, "it is one of %llu parts, the first one of %llu",
                         (unsigned long long)split.count, (unsigned long long)whole->count);
    if (split.number != number)
        return fault_set(fault, E_FORMAT, "key 'split.no' says that it is part %llu",
                         (unsigned long long)split.number + 1);
    if (split.n_tensors != whole->n_tensors)
        return fault_set(fault, E_FORMAT,
                         "its model has %llu tensors, the first part's %llu: it belongs to another model",
                         (unsigned long long)split.n_tensors, (unsigned long long)whole->n_tensors);
    return number == 0 ? 0 : gguf_split_check_keys(first, part, fault);
}

static struct bytes gguf_split_tensor_name(const struct gguf *gguf, uint32_t number)
{
    return gguf->tensors[number].name;
}

/* Appends a part's tensors to the first part's, which has room for them. */
static int add_tensors(struct gguf *first, const struct gguf *part, struct fault *fault)
{
    for (uint32_t i = 0; i < part->n_tensors; i++) {
        const struct gguf_tensor *tensor = &part->tensors[i];

        first->tensors[first->n_tensors] = *tensor;
        if (gguf_index_add(&first->tensor_index, first, gguf_split_tensor_name, first->n_tensors) != 0)
            return fault_set(fault, E_FORMAT, "tensor '%.*s' is in an earlier part too", SHOWN(tensor->name));
        first->n_tensors++;
    }
    return 0;
}

/* Room for n tensors in the first part's table and index. */
static int gguf_split_make_room(struct gguf *first, uint32_t n, struct fault *fault)
{
    struct gguf_tensor *tensors = realloc(first->tensors, ((size_t)n + 1) * sizeof(*tensors));
    struct gguf_index index;

    if (tensors != NULL)
        first->tensors = tensors;
    if (tensors == NULL || gguf_index_init(&index, n) != 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    for (uint32_t i = 0; i < first->n_tensors; i++)
        gguf_index_add(&index, first, gguf_split_tensor_name, i);
    gguf_index_fini(&first->tensor_index);
    first->tensor_index = index;
    return 0;
}

int gguf_join(struct gguf **parts, uint32_t n, struct fault *fault)
{
    struct gguf *first = parts[0];
    struct gguf_split whole = {0};
    uint64_t n_tensors = 0;
    int rc = gguf_split_read(first, &whole, fault);

    if (rc == 0 && whole.count != n)
        rc = fault_set(fault, E_FORMAT, "it is one of %llu parts, not of %u", (unsigned long long)whole.count,
                       n);
    if (rc != 0)
        return fail_part(0, n, rc, fault);
    for (uint32_t i = 0; i < n; i++) {
        rc = check_part(first, &whole, parts[i], i, fault);
        if (rc != 0)
            return fail_part(i, n, rc, fault);
        n_tensors += parts[i]->n_tensors;
    }
    if (n_tensors != whole.n_tensors)
        return fault_set(fault, E_FORMAT,
                         "the parts have %llu tensors together; key 'split.tensors.count' says %llu",
                         (unsigned long long)n_tensors, (unsigned long long)whole.n_tensors);
    rc = gguf_split_make_room(first, (uint32_t)n_tensors, fault);
    for (uint32_t i = 1; i < n && rc == 0; i++) {
        rc = add_tensors(first, parts[i], fault);
        if (rc != 0)
            return fail_part(i, n, rc, fault);
    }
    if (rc != 0)
        return rc;
    first->parts = parts;
    first->n_parts = n;
    return 0;
}

/* ---- parts that are files ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

/* Opens part `number` (from 0) beside the named one. */
static int gguf_split_open_part(const struct gguf_part *name, uint32_t number, struct fault *fault,
                                struct gguf **out)
{
    struct buf path = {0};

    gguf_part_path(name, number + 1, &path);
    buf_append_byte(&path, '\0');
    if (path.is_bad)
        return fault_set(fault, E_NOMEM, "out of memory");

    struct fault inner = {0};
    int rc = gguf_open_file((const char *)path.data, &inner, out);
    if (rc != 0)
        fault_set(fault, rc, "part '%.200s': %.250s", base_name((const char *)path.data), inner.text);
    buf_fini(&path);
    return rc;
}

/* Opens all parts; *named is one of them, open already, and becomes the first. */
static int gguf_split_open_parts(const struct gguf_part *name, struct gguf **named, struct fault *fault)
{
    struct gguf **parts = calloc(name->count, sizeof(struct gguf *));
    int rc = 0;

    if (parts == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    parts[name->number - 1] = *named;
    for (uint32_t i = 0; i < name->count && rc == 0; i++) {
        if (parts[i] == NULL)
            rc = gguf_split_open_part(name, i, fault, &parts[i]);
    }
    if (rc == 0)
        rc = gguf_join(parts, name->count, fault);
    if (rc == 0) {
        *named = parts[0];
        return 0;
    }
    for (uint32_t i = 0; i < name->count; i++) {
        if (parts[i] != *named)
            gguf_close(parts[i]);
    }
    free(parts);
    return rc;
}

static int gguf_split_check_name(const char *path, const struct gguf_split *split, struct gguf_part *out,
                                 struct fault *fault)
{
    if (!gguf_part_name(bytes_str(path), out))
        return fault_set(fault, E_FORMAT,
                         "it is part %llu of %llu, so its name must end in -%05llu-of-%05llu.gguf",
                         (unsigned long long)split->number + 1, (unsigned long long)split->count,
                         (unsigned long long)split->number + 1, (unsigned long long)split->count);
    if (out->number != split->number + 1 || out->count != split->count)
        return fault_set(fault, E_FORMAT, "it is part %llu of %llu, but its name says %u of %u",
                         (unsigned long long)split->number + 1, (unsigned long long)split->count, out->number,
                         out->count);
    return 0;
}

/* The other parts lie beside the name that the caller gave, or, if that is a link, beside the file it leads to. */
static int gguf_split_open_others(const char *path, const struct gguf_split *split, struct gguf **named,
                                  struct fault *fault)
{
    struct gguf_part name;
    int rc = gguf_split_check_name(path, split, &name, fault), of_target;
    bool has_name = rc == 0;

    if (has_name)
        rc = gguf_split_open_parts(&name, named, fault);
    if (has_name && rc != E_NOT_FOUND)
        return rc;
    char *target = realpath(path, NULL);
    if (target != NULL && gguf_split_check_name(target, split, &name, NULL) == 0) {
        of_target = gguf_split_open_parts(&name, named, has_name ? NULL : fault);
        rc = of_target == 0 || !has_name ? of_target : rc;
    }
    free(target);
    return rc;
}

int gguf_open(const char *path, struct fault *fault, struct gguf **out)
{
    struct gguf *gguf = NULL;
    struct gguf_split split = {0};
    int rc = gguf_open_file(path, fault, &gguf);

    if (rc != 0)
        return rc;
    rc = gguf_split_read(gguf, &split, fault);
    if (rc == 0 && split.count > 1)
        rc = gguf_split_open_others(path, &split, &gguf, fault);
    if (rc != 0) {
        gguf_close(gguf);
        return rc;
    }
    *out = gguf;
    return 0;
}

/* Clients send the name in JSON and scripts quote it: a file's bytes that are no UTF-8, control characters, quotes and
 * backslashes become "_". */
static void put_clean_name(struct bytes name, char *out, size_t room_bytes)
{
    size_t at = 0, n = 0, len = 1;

    for (; at < name.len_bytes; at += len) {
        uint32_t point = utf8_next(name, at, &len);
        bool is_odd = point < 0x20 || (point >= 0x7f && point < 0xa0) || point == '"' || point == '\\' ||
                      (point == 0xfffd && len == 1);

        if (n + (is_odd ? 1 : len) >= room_bytes)
            break;
        memcpy(out + n, is_odd ? "_" : (const char *)name.data + at, is_odd ? 1 : len);
        n += is_odd ? 1 : len;
    }
    out[n] = '\0';
}

void gguf_model_name(const char *path, char *out, size_t room_bytes)
{
    const char *base = base_name(path);
    size_t len_bytes = strlen(base);
    struct gguf_part part;

    if (gguf_part_name(bytes_str(base), &part))
        len_bytes = part.prefix.len_bytes;
    else if (len_bytes > 5 && bytes_ends_with(bytes_str(base), ".gguf"))
        len_bytes -= 5;
    put_clean_name(bytes_of(base, len_bytes), out, room_bytes);
}
