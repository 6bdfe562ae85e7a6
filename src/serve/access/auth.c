/* SPDX-License-Identifier: Apache-2.0 */
/* Checking API keys.
 *
 * Keys are 256 random bits, so a fast hash is enough: an attacker cannot guess a key from its hash.  The server
 * hashes a presented key and looks the hash up in a table with a secret seed, so a request costs the same
 * beside ten keys and beside 100,000.  The time depends on a few bits of a seeded hash of the SHA-256.  It
 * tells nothing about a key: even the SHA-256 of a key does not reveal the key. */
#include "serve/access/auth.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/file.h"
#include "base/hashmap.h"
#include "base/name.h"
#include "base/str.h"

#define HASH_BYTES     AUTH_HASH_BYTES
#define BLANKS         " \t\r"
#define MAX_KEYS       100000
#define MAX_FILE_BYTES (32u << 20)
#define MAX_LINE_BYTES 2048
#define MAX_KEY_BYTES  1024

struct entry {
    uint8_t hash[HASH_BYTES];
    char tenant[64];
    char name[64];
    struct auth_rule *rule; /* NULL: none */
};

struct entries {
    struct entry *items;
    size_t n;
    size_t cap;
};

struct auth_keys {
    struct hashmap *by_hash; /* -> index in keys, plus one */
    struct entries keys;
    struct entries tenants; /* tenants that have a line of their own */
};

static void auth_hash_key(struct bytes key, uint8_t out[HASH_BYTES])
{
    unsigned len = HASH_BYTES;

    memset(out, 0, HASH_BYTES);
    EVP_Digest(key.data == NULL ? (const void *)"" : key.data, key.len_bytes, out, &len, EVP_sha256(), NULL);
}

void auth_key_hash(struct bytes key, char out[65])
{
    uint8_t hash[HASH_BYTES];

    auth_hash_key(key, hash);
    hex_encode(hash, HASH_BYTES, out);
}

static int auth_add_entry(struct entries *list, const struct entry *entry)
{
    if (list->n == MAX_KEYS)
        return E_LIMIT;
    if (list->n == list->cap) {
        size_t cap = list->cap == 0 ? 16 : list->cap * 2;
        struct entry *grown = realloc(list->items, cap * sizeof(*grown));

        if (grown == NULL)
            return E_NOMEM;
        list->items = grown;
        list->cap = cap;
    }
    list->items[list->n++] = *entry;
    return 0;
}

static void drop_entries(struct entries *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->items[i].rule);
    free(list->items);
}

/* Parses the words after the names.  An entry without such words gets no rule. */
static int parse_rule(struct entry *entry, const char *word, char **rest, struct fault *fault,
                      const char *place)
{
    struct auth_rule rule = {0};
    struct fault why = {0};

    if (word == NULL)
        return 0;
    for (; word != NULL; word = strtok_r(NULL, BLANKS, rest))
        if (auth_rule_parse(&rule, word, &why) < 0)
            return fault_set(fault, E_FORMAT, "%s: %s", place, why.text);
    entry->rule = malloc(sizeof(rule));
    if (entry->rule == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    *entry->rule = rule;
    return 0;
}

static int auth_parse_line(struct auth_keys *keys, char *line, struct fault *fault, const char *place)
{
    struct entry entry = {0};
    char *rest = NULL;
    const char *hash = strtok_r(line, BLANKS, &rest);
    const char *tenant;
    const char *word;
    bool is_tenant;

    if (hash == NULL || hash[0] == '#')
        return 0;
    is_tenant = strcmp(hash, "tenant") == 0;
    tenant = strtok_r(NULL, BLANKS, &rest);
    word = strtok_r(NULL, BLANKS, &rest);
    if (!is_tenant &&
        (strlen(hash) != 2 * HASH_BYTES || hex_decode(bytes_str(hash), entry.hash, HASH_BYTES) < 0))
        return fault_set(fault, E_FORMAT,
                         "%s: the first word must be a SHA-256 in 64 hex digits, or \"tenant\"", place);
    if (tenant == NULL || !name_fits(tenant))
        return fault_set(fault, E_FORMAT, "%s: the second word must name a tenant ([A-Za-z0-9._-]{1,63})",
                         place);
    if (!is_tenant && word != NULL && strchr(word, '=') == NULL) {
        if (!name_fits(word))
            return fault_set(fault, E_FORMAT, "%s: the third word must name the key ([A-Za-z0-9._-]{1,63})",
                             place);
        str_copy(entry.name, sizeof(entry.name), word);
        word = strtok_r(NULL, BLANKS, &rest);
    }
    str_copy(entry.tenant, sizeof(entry.tenant), tenant);
    int rc = parse_rule(&entry, word, &rest, fault, place);

    if (rc < 0)
        return rc;
    if (auth_add_entry(is_tenant ? &keys->tenants : &keys->keys, &entry) < 0) {
        free(entry.rule);
        return fault_set(fault, E_LIMIT, "%s: too many keys", place);
    }
    /* of two lines of one key, the last one counts */
    if (!is_tenant && hashmap_put(keys->by_hash, entry.hash, (void *)(uintptr_t)keys->keys.n, NULL) < 0)
        return fault_set(fault, E_NOMEM, "out of memory");
    return 0;
}

int auth_keys_parse(const char *name, struct bytes text, struct fault *fault, struct auth_keys **out)
{
    struct auth_keys *keys = calloc(1, sizeof(*keys));
    size_t at = 0;
    int rc = 0;

    if (keys == NULL || hashmap_new(HASH_BYTES, &keys->by_hash) < 0) {
        free(keys);
        return fault_set(fault, E_NOMEM, "out of memory");
    }
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
        rc = auth_parse_line(keys, line, fault, place);
        at = end + 1;
    }
    if (rc < 0)
        auth_keys_free(keys);
    else
        *out = keys;
    return rc;
}

static int auth_read_file(const char *path, struct fault *fault, struct buf *out)
{
    const char *why;
    FILE *file = file_open(path, &why);
    struct stat info;
    int rc = 0;

    if (file == NULL)
        return fault_set(fault, E_IO, "%s: %s", path, why);
    if (fstat(fileno(file), &info) == 0 && (info.st_mode & S_IROTH) != 0)
        rc = fault_set(fault, E_AUTH, "%s: readable by all users (chmod o-r it)", path);
    if (rc == 0 && (rc = file_read_rest(file, MAX_FILE_BYTES, out)) != 0)
        fault_set(fault, rc, "%s: %s", path,
                  rc == E_LIMIT ? "too large"
                  : rc == E_IO  ? strerror(errno)
                                : err_text(rc));
    fclose(file);
    return rc;
}

int auth_keys_load(const char *path, struct fault *fault, struct auth_keys **out)
{
    struct buf text = {0};
    int rc = auth_read_file(path, fault, &text);

    if (rc == 0)
        rc = auth_keys_parse(path, buf_view(&text), fault, out);
    buf_fini(&text);
    return rc;
}

void auth_keys_free(struct auth_keys *keys)
{
    if (keys == NULL)
        return;
    hashmap_free(keys->by_hash);
    drop_entries(&keys->keys);
    drop_entries(&keys->tenants);
    free(keys);
}

size_t auth_keys_count(const struct auth_keys *keys)
{
    return keys->keys.n;
}

static bool entry_at(const struct entries *list, size_t index, struct auth_entry *out)
{
    const struct entry *entry;

    if (index >= list->n)
        return false;
    entry = &list->items[index];
    *out = (struct auth_entry){
        .hash = entry->hash, .tenant = entry->tenant, .name = entry->name, .rule = entry->rule};
    return true;
}

bool auth_key_at(const struct auth_keys *keys, size_t index, struct auth_entry *out)
{
    return entry_at(&keys->keys, index, out);
}

bool auth_tenant_at(const struct auth_keys *keys, size_t index, struct auth_entry *out)
{
    bool is_there = entry_at(&keys->tenants, index, out);

    if (is_there)
        out->hash = NULL;
    return is_there;
}

int auth_check(const struct auth_keys *keys, struct bytes key, struct auth_key *out)
{
    uint8_t hash[HASH_BYTES];
    size_t number;

    if (key.len_bytes > MAX_KEY_BYTES)
        key.len_bytes = MAX_KEY_BYTES; /* no key is longer, so limit the work of hashing */
    auth_hash_key(key, hash);
    number = (uintptr_t)hashmap_get(keys->by_hash, hash);
    if (key.len_bytes == 0 || number == 0)
        return E_AUTH;
    memset(out, 0, sizeof(*out));
    out->index = number - 1;
    memcpy(out->tenant, keys->keys.items[out->index].tenant, sizeof(out->tenant));
    memcpy(out->name, keys->keys.items[out->index].name, sizeof(out->name));
    return 0;
}
