/* SPDX-License-Identifier: Apache-2.0 */
/* The cache file of tune.c: the choices made on each machine, so that the next start takes no time.
 *
 * The file is an untrusted hint: it may be missing, cut off, or written by another program. Reading is
 * bounded. A record counts only if every word of it names a valid choice. The worst effect of a false
 * record is a slower variant. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/str.h"
#include "compute/kernels/kern.h"
#include "compute/tensor/tune_priv.h"

static const char HEAD[] = "baton-tune 1\n", FOR[] = " for ";

void tune_key(const struct kern_table *table, unsigned n_ranks, char out[TUNE_KEY_BYTES])
{
    snprintf(out, TUNE_KEY_BYTES, "version=%s kernels=%s ranks=%u cpu=%08x %s", PACKAGE_VERSION, table->name,
             n_ranks, cpu_features_get()->model, cpu_model_name());
    for (char *at = out; *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || (unsigned char)*at > '~')
            *at = '?';
}

/* ---- text ---- */

/* Takes text up to and including a byte, or all of it. */
static struct bytes tune_file_cut(struct bytes *rest, char end)
{
    struct bytes piece = *rest;
    const void *at = rest->len_bytes > 0 ? memchr(rest->data, end, rest->len_bytes) : NULL;

    if (at != NULL)
        piece.len_bytes = (size_t)((const uint8_t *)at - rest->data);
    size_t taken_bytes = piece.len_bytes + (at != NULL);
    *rest = bytes_of(rest->data + taken_bytes, rest->len_bytes - taken_bytes);
    return piece;
}

/* "name=value": the value, or an empty view. */
static struct bytes value_of(struct bytes word, const char *name)
{
    struct bytes given = tune_file_cut(&word, '=');

    return bytes_is(given, name) ? word : bytes_of(NULL, 0);
}

static bool read_variant(struct bytes word, enum kern_field field, uint8_t *variant_out)
{
    struct bytes value = value_of(word, kern_choice_field_name(field));

    for (uint32_t variant = 0; variant < kern_choice_n_variants(field); variant++)
        if (bytes_is(value, kern_choice_variant_name(field, variant))) {
            *variant_out = (uint8_t)variant;
            return true;
        }
    return false;
}

static const struct mem_copy_method *read_copy(struct bytes word)
{
    struct bytes value = value_of(word, "copy");
    const struct mem_copy_method *method;

    for (uint32_t i = 0; (method = mem_copy_method_at(i)) != NULL; i++)
        if (bytes_is(value, method->name))
            return method;
    return NULL;
}

/* All fields, each once and in order. */
static bool read_choices(struct bytes text, struct kern_choice *choice_out,
                         const struct mem_copy_method **copy_out)
{
    struct kern_choice choice = {{0}};
    const struct mem_copy_method *copy = read_copy(tune_file_cut(&text, ' '));

    if (copy == NULL || text.len_bytes == 0 || text.data[text.len_bytes - 1] == ' ')
        return false;
    for (int field = 0; field < KERN_N_FIELDS; field++)
        if (!read_variant(tune_file_cut(&text, ' '), (enum kern_field)field, &choice.at[field]))
            return false;
    if (text.len_bytes > 0)
        return false;
    *choice_out = choice;
    *copy_out = copy;
    return true;
}

/* The choices of a line and its key; false: not a record. */
static bool split_record(struct bytes line, struct bytes *choices_out, struct bytes *key_out)
{
    size_t at = bytes_find(line, bytes_str(FOR), 0);

    if (at == SIZE_MAX)
        return false;
    *choices_out = bytes_of(line.data, at);
    at += sizeof(FOR) - 1;
    *key_out = bytes_of(line.data + at, line.len_bytes - at);
    return key_out->len_bytes > 0 && key_out->len_bytes < TUNE_KEY_BYTES;
}

static bool open_text(struct bytes *text)
{
    if (text->len_bytes > TUNE_FILE_BYTES || !bytes_starts_with(*text, HEAD))
        return false;
    tune_file_cut(text, '\n');
    return true;
}

bool tune_record_find(struct bytes text, const char *key, struct kern_choice *choice_out,
                      const struct mem_copy_method **copy_out)
{
    struct bytes choices, whom;

    if (!open_text(&text))
        return false;
    while (text.len_bytes > 0)
        if (split_record(tune_file_cut(&text, '\n'), &choices, &whom) && bytes_is(whom, key))
            return read_choices(choices, choice_out, copy_out);
    return false;
}

/* True if a line is printable and not too long; its choices may be of another processor or version. */
static bool tune_file_is_plain(struct bytes line)
{
    for (size_t i = 0; i < line.len_bytes; i++)
        if (line.data[i] < ' ' || line.data[i] > '~')
            return false;
    return line.len_bytes < 2 * TUNE_KEY_BYTES;
}

void tune_record_put(struct bytes text, const char *key, const struct tuned *tuned, struct buf *out)
{
    struct bytes choices, whom;
    int n = 1;

    buf_append_str(out, HEAD);
    tuned_line(tuned, out);
    buf_printf(out, "%s%s\n", FOR, key);
    if (!open_text(&text))
        return;
    while (text.len_bytes > 0 && n < TUNE_MAX_RECORDS) {
        struct bytes line = tune_file_cut(&text, '\n');

        if (!tune_file_is_plain(line) || !split_record(line, &choices, &whom) || bytes_is(whom, key))
            continue;
        buf_append(out, line.data, line.len_bytes);
        buf_append_byte(out, '\n');
        n++;
    }
}

/* ---- files ---- */

void tune_file_path(char *out, size_t cap_bytes)
{
    static const struct {
        const char *variable, *below;
    } places[] = {{"BATON_TUNE_FILE", ""},
                  {"CACHE_DIRECTORY", "/tune"},
                  {"XDG_CACHE_HOME", "/baton/tune"},
                  {"HOME", "/.cache/baton/tune"}};

    out[0] = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        const char *value = getenv(places[i].variable);

        if (value == NULL || (i > 0 && value[0] != '/'))
            continue;
        /* systemd separates several folders by colons; use the first. */
        int n_bytes = (int)(i == 1 ? strcspn(value, ":") : strlen(value));
        int n = snprintf(out, cap_bytes, "%.*s%s", n_bytes, value, places[i].below);
        if (n < 0 || (size_t)n >= cap_bytes)
            out[0] = '\0';
        return;
    }
}

void tune_file_read(const char *path, struct buf *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat stat;
    char some[4096];
    ssize_t n = 0;

    buf_clear(out);
    if (fd < 0)
        return;
    if (fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode))
        while (out->len_bytes <= TUNE_FILE_BYTES && (n = read(fd, some, sizeof(some))) > 0)
            buf_append(out, some, (size_t)n);
    close(fd);
    if (n < 0 || out->is_bad || out->len_bytes > TUNE_FILE_BYTES)
        buf_clear(out);
}

/* Creates the parent folder of a path, and before it that folder's parent, if possible. */
static void tune_file_make_folders(const char *path, int levels)
{
    char folder[512];
    char *slash;

    if (!str_copy(folder, sizeof(folder), path) || (slash = strrchr(folder, '/')) == NULL || slash == folder)
        return;
    *slash = '\0';
    if (mkdir(folder, 0700) < 0 && errno == ENOENT && levels > 1) {
        tune_file_make_folders(folder, levels - 1);
        (void)mkdir(folder, 0700);
    }
}

static bool tune_file_write_all(int fd, struct bytes text)
{
    while (text.len_bytes > 0) {
        ssize_t n = write(fd, text.data, text.len_bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        text = bytes_of(text.data + n, text.len_bytes - (size_t)n);
    }
    return true;
}

bool tune_file_write(const char *path, struct bytes text)
{
    char fresh[512 + 8];
    int fd;

    tune_file_make_folders(path, 2);
    snprintf(fresh, sizeof(fresh), "%s.XXXXXX", path);
    fd = mkostemp(fresh, O_CLOEXEC);
    if (fd < 0)
        return false;
    bool is_written = tune_file_write_all(fd, text);
    is_written = close(fd) == 0 && is_written && rename(fresh, path) == 0;
    if (!is_written)
        (void)unlink(fresh);
    return is_written;
}
