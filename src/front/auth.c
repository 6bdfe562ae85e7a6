/* SPDX-License-Identifier: Apache-2.0 */
/* Checking API keys.
 *
 * Keys are 256 random bits, so a fast hash is the right one: there is nothing to guess from it.  A presented
 * key is hashed and compared with every known hash, each comparison to its end, and the scan too: neither how
 * close a guess is nor which key it is shows in the time. */
#include "front/auth.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/str.h"

#define HASH_BYTES     32
#define MAX_KEYS       100000
#define MAX_FILE_BYTES (32u << 20)
#define MAX_LINE_BYTES 1024
#define MAX_KEY_BYTES  1024

struct entry {
    uint8_t hash[HASH_BYTES];
    struct auth_key who;
};

struct auth_keys {
    struct entry *entries;
    size_t n;
    size_t cap;
};

static void hash_key(struct bytes key, uint8_t out[HASH_BYTES])
{
    unsigned len = HASH_BYTES;

    memset(out, 0, HASH_BYTES);
    EVP_Digest(key.data == NULL ? (const void *)"" : key.data, key.len_bytes, out, &len, EVP_sha256(), NULL);
}

void auth_key_hash(struct bytes key, char out[65])
{
    uint8_t hash[HASH_BYTES];

    hash_key(key, hash);
    hex_encode(hash, HASH_BYTES, out);
}

static bool is_name(const char *text)
{
    size_t n = strlen(text);

    return n >= 1 && n <= 63 &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == n;
}

static int add_entry(struct auth_keys *keys, const struct entry *entry)
{
    if (keys->n == MAX_KEYS)
        return E_LIMIT;
    if (keys->n == keys->cap) {
        size_t cap = keys->cap == 0 ? 16 : keys->cap * 2;
        struct entry *grown = realloc(keys->entries, cap * sizeof(*grown));

        if (grown == NULL)
            return E_NOMEM;
        keys->entries = grown;
        keys->cap = cap;
    }
    keys->entries[keys->n++] = *entry;
    return 0;
}

static int parse_line(struct auth_keys *keys, char *line, struct fault *fault, const char *place)
{
    static const char blanks[] = " \t\r";
    struct entry entry = {0};
    char *rest = NULL;
    const char *hash = strtok_r(line, blanks, &rest);
    const char *tenant;
    const char *name;

    if (hash == NULL || hash[0] == '#')
        return 0;
    tenant = strtok_r(NULL, blanks, &rest);
    name = strtok_r(NULL, blanks, &rest);
    if (strlen(hash) != 2 * HASH_BYTES || hex_decode(bytes_str(hash), entry.hash, HASH_BYTES) < 0)
        return fault_set(fault, E_FORMAT, "%s: the first word must be a SHA-256 in 64 hex digits", place);
    if (tenant == NULL || !is_name(tenant))
        return fault_set(fault, E_FORMAT, "%s: the second word must name a tenant ([A-Za-z0-9._-]{1,63})",
                         place);
    if (name != NULL && !is_name(name))
        return fault_set(fault, E_FORMAT, "%s: the third word must name the key ([A-Za-z0-9._-]{1,63})",
                         place);
    if (strtok_r(NULL, blanks, &rest) != NULL)
        return fault_set(fault, E_FORMAT, "%s: more than three words", place);
    str_copy(entry.who.tenant, sizeof(entry.who.tenant), tenant);
    str_copy(entry.who.name, sizeof(entry.who.name), name == NULL ? "" : name);
    if (add_entry(keys, &entry) < 0)
        return fault_set(fault, E_LIMIT, "%s: too many keys", place);
    return 0;
}

int auth_keys_parse(const char *name, struct bytes text, struct fault *fault, struct auth_keys **out)
{
    struct auth_keys *keys = calloc(1, sizeof(*keys));
    size_t at = 0;
    int rc = 0;

    if (keys == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    for (unsigned number = 1; at < text.len_bytes && rc == 0; number++) {
        const uint8_t *lf = memchr(text.data + at, '\n', text.len_bytes - at);
        size_t end = lf == NULL ? text.len_bytes : (size_t)(lf - text.data);
        char line[MAX_LINE_BYTES];
        char place[512];

        snprintf(place, sizeof(place), "%s:%u", name, number);
        if (end - at >= sizeof(line) || memchr(text.data + at, '\0', end - at) != NULL) {
            rc = fault_set(fault, E_FORMAT, "%s: not a line of a key file", place);
            break;
        }
        memcpy(line, text.data + at, end - at);
        line[end - at] = '\0';
        rc = parse_line(keys, line, fault, place);
        at = end + 1;
    }
    if (rc < 0)
        auth_keys_free(keys);
    else
        *out = keys;
    return rc;
}

static int read_file(const char *path, struct fault *fault, struct buf *out)
{
    FILE *file = fopen(path, "re");
    struct stat info;
    char piece[4096];
    size_t n;
    int rc = 0;

    if (file == NULL)
        return fault_set(fault, E_IO, "%s: %s", path, strerror(errno));
    if (fstat(fileno(file), &info) == 0 && (info.st_mode & S_IROTH) != 0)
        rc = fault_set(fault, E_AUTH, "%s: readable by everybody (chmod o-r it)", path);
    while (rc == 0 && (n = fread(piece, 1, sizeof(piece), file)) > 0)
        rc = buf_append(out, piece, n) < 0 || out->len_bytes > MAX_FILE_BYTES
                 ? fault_set(fault, E_LIMIT, "%s: too large", path)
                 : 0;
    if (rc == 0 && ferror(file))
        rc = fault_set(fault, E_IO, "%s: %s", path, strerror(errno));
    fclose(file);
    return rc;
}

int auth_keys_load(const char *path, struct fault *fault, struct auth_keys **out)
{
    struct buf text = {0};
    int rc = read_file(path, fault, &text);

    if (rc == 0)
        rc = auth_keys_parse(path, buf_view(&text), fault, out);
    buf_fini(&text);
    return rc;
}

void auth_keys_free(struct auth_keys *keys)
{
    if (keys == NULL)
        return;
    free(keys->entries);
    free(keys);
}

size_t auth_keys_count(const struct auth_keys *keys)
{
    return keys->n;
}

int auth_check(const struct auth_keys *keys, struct bytes key, struct auth_key *out)
{
    uint8_t hash[HASH_BYTES];
    size_t found = SIZE_MAX;

    if (key.len_bytes > MAX_KEY_BYTES)
        key.len_bytes = MAX_KEY_BYTES; /* no key is that long; hash no more of it */
    hash_key(key, hash);
    for (size_t i = 0; i < keys->n; i++) {
        size_t is_same = (size_t)(CRYPTO_memcmp(hash, keys->entries[i].hash, HASH_BYTES) == 0);

        found = (found & (is_same - 1)) | (i & (0 - is_same));
    }
    if (key.len_bytes == 0 || found == SIZE_MAX)
        return E_AUTH;
    *out = keys->entries[found].who;
    return 0;
}
