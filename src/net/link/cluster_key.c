/* SPDX-License-Identifier: Apache-2.0 */
/* Key files are short text, read whole and parsed line by line.
 *
 * A rotation is three steps. After each step the file goes to every host and the daemons reload it:
 *
 *     current A                 all links use A
 *     current A, next B         the daemons learn to accept B; all links still use A
 *     current B, former A       new links use B; a daemon that has not reloaded yet accepts B already
 *     current B                 A is refused */
#include "net/link/cluster_key.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/rng.h"
#include "base/str.h"

#define HEX_DIGITS (2 * CLUSTER_KEY_BYTES)
#define FORM       "not a cluster key (64 hex digits, and a rotation's lines)"

struct key_line { /* one line after the first */
    const char *word;
    uint8_t *key;
    unsigned n;
};

/* Cuts the next line off text. False: the text is empty, or its last line has no end. */
static bool key_line_cut(struct bytes *text, struct bytes *line_out)
{
    const void *end = text->len_bytes > 0 ? memchr(text->data, '\n', text->len_bytes) : NULL;
    size_t n;

    if (end == NULL)
        return false;
    n = (size_t)((const uint8_t *)end - (const uint8_t *)text->data);
    *line_out = bytes_of(text->data, n);
    *text = bytes_of((const uint8_t *)text->data + n + 1, text->len_bytes - n - 1);
    return true;
}

static bool key_digits_read(struct bytes text, uint8_t out[CLUSTER_KEY_BYTES])
{
    return text.len_bytes == HEX_DIGITS && hex_decode(text, out, CLUSTER_KEY_BYTES) == 0;
}

static bool key_line_read(struct bytes line, struct key_line *lines, size_t n_lines)
{
    for (size_t i = 0; i < n_lines; i++) {
        size_t n = strlen(lines[i].word);

        if (line.len_bytes > n && memcmp(line.data, lines[i].word, n) == 0)
            return lines[i].n++ == 0 &&
                   key_digits_read(bytes_of((const uint8_t *)line.data + n, line.len_bytes - n),
                                   lines[i].key);
    }
    return false;
}

static bool key_text_read(struct bytes text, struct cluster_keys *keys)
{
    struct key_line lines[] = {
        {.word = "next ", .key = keys->second}, {"former ", keys->second, 0}, {"data ", keys->data, 0}};
    struct bytes line;

    if (text.len_bytes == HEX_DIGITS) { /* without a newline */
        line = text;
        text = bytes_of(text.data, 0);
    } else if (!key_line_cut(&text, &line)) {
        return false;
    }
    if (!key_digits_read(line, keys->current))
        return false;
    while (key_line_cut(&text, &line))
        if (!key_line_read(line, lines, 3))
            return false;
    if (lines[2].n == 0)
        memcpy(keys->data, keys->current, sizeof(keys->data));
    keys->step = lines[0].n > 0   ? CLUSTER_STEP_NEXT
                 : lines[1].n > 0 ? CLUSTER_STEP_FORMER
                                  : CLUSTER_STEP_NONE;
    return text.len_bytes == 0 && lines[0].n + lines[1].n <= 1;
}

int cluster_keys_parse(const char *name, struct bytes text, struct fault *fault, struct cluster_keys *out)
{
    struct cluster_keys keys = {0};
    int rc = 0;

    if (text.len_bytes > CLUSTER_KEY_FILE_BYTES || !key_text_read(text, &keys))
        rc = fault_set(fault, E_FORMAT, "%s: " FORM, name);
    else if (keys.step != CLUSTER_STEP_NONE &&
             CRYPTO_memcmp(keys.current, keys.second, sizeof(keys.current)) == 0)
        rc = fault_set(fault, E_FORMAT, "%s: the second key is the current one", name);
    else
        *out = keys;
    cluster_keys_wipe(&keys);
    return rc;
}

int cluster_keys_load(const char *path, struct fault *fault, struct cluster_keys *out)
{
    char text[CLUSTER_KEY_FILE_BYTES + 1]; /* one byte more, to detect a longer file */
    int fd = file_open_secret(path, "cluster key", fault);
    ssize_t n;
    int rc;

    if (fd < 0)
        return fd;
    n = read(fd, text, sizeof(text));
    rc = n < 0 ? fault_set(fault, E_IO, "%s: %s", path, strerror(errno))
               : cluster_keys_parse(path, bytes_of(text, (size_t)n), fault, out);
    close(fd);
    OPENSSL_cleanse(text, sizeof(text));
    return rc;
}

int cluster_key_load(const char *path, struct fault *fault, uint8_t key_out[CLUSTER_KEY_BYTES])
{
    struct cluster_keys keys;
    int rc = cluster_keys_load(path, fault, &keys);

    if (rc < 0)
        return rc;
    memcpy(key_out, keys.current, CLUSTER_KEY_BYTES);
    cluster_keys_wipe(&keys);
    return 0;
}

void cluster_keys_wipe(struct cluster_keys *keys)
{
    OPENSSL_cleanse(keys, sizeof(*keys));
}

void cluster_keys_rotate(struct cluster_keys *keys)
{
    uint8_t former[CLUSTER_KEY_BYTES];

    switch (keys->step) {
    case CLUSTER_STEP_NONE:
        rng_system(keys->second, sizeof(keys->second));
        keys->step = CLUSTER_STEP_NEXT;
        break;
    case CLUSTER_STEP_NEXT:
        memcpy(former, keys->current, sizeof(former));
        memcpy(keys->current, keys->second, sizeof(keys->current));
        memcpy(keys->second, former, sizeof(keys->second));
        OPENSSL_cleanse(former, sizeof(former));
        keys->step = CLUSTER_STEP_FORMER;
        break;
    case CLUSTER_STEP_FORMER:
        OPENSSL_cleanse(keys->second, sizeof(keys->second));
        keys->step = CLUSTER_STEP_NONE;
        break;
    }
}

uint32_t cluster_key_id(const uint8_t key[CLUSTER_KEY_BYTES])
{
    uint8_t digest[CLUSTER_KEY_BYTES] = {0};

    (void)cluster_key_derive(key, "id", digest);
    return (uint32_t)digest[0] << 24 | (uint32_t)digest[1] << 16 | (uint32_t)digest[2] << 8 | digest[3];
}

/* ---- writing ---- */

static size_t key_put_line(char *out, const char *word, const uint8_t key[CLUSTER_KEY_BYTES])
{
    size_t n = strlen(word);

    memcpy(out, word, n);
    hex_encode(key, CLUSTER_KEY_BYTES, out + n);
    out[n + HEX_DIGITS] = '\n';
    return n + HEX_DIGITS + 1;
}

size_t cluster_keys_print(const struct cluster_keys *keys, char out[CLUSTER_KEY_FILE_BYTES])
{
    size_t n = key_put_line(out, "", keys->current);

    if (keys->step != CLUSTER_STEP_NONE)
        n += key_put_line(out + n, keys->step == CLUSTER_STEP_NEXT ? "next " : "former ", keys->second);
    if (memcmp(keys->data, keys->current, sizeof(keys->data)) != 0 || keys->step != CLUSTER_STEP_NONE)
        n += key_put_line(out + n, "data ", keys->data);
    return n;
}

static int key_file_write(int fd, const char *path, struct bytes text, struct fault *fault)
{
    if (write(fd, text.data, text.len_bytes) == (ssize_t)text.len_bytes && fsync(fd) == 0)
        return 0;
    return fault_set(fault, E_IO, "%s: %s", path, strerror(errno));
}

int cluster_keys_store(const char *path, const struct cluster_keys *keys, struct fault *fault)
{
    char text[CLUSTER_KEY_FILE_BYTES];
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0600);
    int err;

    if (fd < 0)
        return fault_set(fault, errno == EEXIST ? E_EXISTS : E_IO, "%s: %s", path, strerror(errno));
    err = key_file_write(fd, path, bytes_of(text, cluster_keys_print(keys, text)), fault);
    if (err != 0)
        unlink(path);
    close(fd);
    OPENSSL_cleanse(text, sizeof(text));
    return err;
}

int cluster_key_create(const char *path, struct fault *fault)
{
    struct cluster_keys keys = {0};
    int err;

    rng_system(keys.current, sizeof(keys.current));
    memcpy(keys.data, keys.current, sizeof(keys.data));
    err = cluster_keys_store(path, &keys, fault);
    cluster_keys_wipe(&keys);
    return err;
}

int cluster_keys_save(const char *path, const struct cluster_keys *keys, struct fault *fault)
{
    char text[CLUSTER_KEY_FILE_BYTES], fresh[4096];
    struct stat st;
    int fd, rc;

    if (stat(path, &st) != 0)
        return fault_set(fault, errno == ENOENT ? E_NOT_FOUND : E_IO, "%s: %s", path, strerror(errno));
    if (snprintf(fresh, sizeof(fresh), "%s.new", path) >= (int)sizeof(fresh))
        return fault_set(fault, E_IO, "%.100s...: the path is too long", path);
    unlink(fresh); /* left by a call that was killed */
    fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0600);
    if (fd < 0)
        return fault_set(fault, E_IO, "%s: %s", fresh, strerror(errno));
    rc = key_file_write(fd, fresh, bytes_of(text, cluster_keys_print(keys, text)), fault);
    OPENSSL_cleanse(text, sizeof(text));
    if (rc == 0 &&
        ((st.st_uid != geteuid() || st.st_gid != getegid()) && fchown(fd, st.st_uid, st.st_gid) != 0))
        rc = fault_set(fault, E_IO, "%s: cannot keep its owner: %s", path, strerror(errno));
    if (rc == 0 && (fchmod(fd, st.st_mode & 0770) != 0 || rename(fresh, path) != 0))
        rc = fault_set(fault, E_IO, "%s: %s", path, strerror(errno));
    close(fd);
    if (rc < 0)
        unlink(fresh);
    return rc;
}

/* ---- purposes ---- */

int cluster_key_derive(const uint8_t key[CLUSTER_KEY_BYTES], const char *label,
                       uint8_t out[CLUSTER_KEY_BYTES])
{
    unsigned len_bytes = 0;
    uint8_t mac[CLUSTER_KEY_BYTES];

    if (HMAC(EVP_sha256(), key, CLUSTER_KEY_BYTES, (const unsigned char *)label, strlen(label), mac,
             &len_bytes) == NULL ||
        len_bytes != CLUSTER_KEY_BYTES)
        return E_INTERNAL;
    memcpy(out, mac, CLUSTER_KEY_BYTES);
    OPENSSL_cleanse(mac, sizeof(mac));
    return 0;
}
