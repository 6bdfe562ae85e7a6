/* SPDX-License-Identifier: Apache-2.0 */
/* The types of configuration values: text into a struct's member and back.
 *
 * Each type has one parser (config_bind) and one writer (config_text).  The writer's output parses to the
 * same value. --dump-config, the reload's comparison and the fuzz target rely on that.
 *
 * An error says which value was expected.  A comment behind a value, the most frequent mistake, gets its own
 * message. */
#include "base/config/config_priv.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

#include "base/check.h"
#include "base/cpu.h"
#include "base/err.h"
#include "base/str.h"

enum { MAX_CPUS_LISTED = 8192, MAX_CHOICES = 32, MAX_CHOICE_BYTES = 32 };

static void *config_bind_member(const struct config_key *key, const void *config)
{
    return (char *)config + key->offset;
}

const char *config_shown(struct bytes text, char out[64])
{
    size_t len_bytes = text.len_bytes;

    if (len_bytes > 60) {
        len_bytes = utf8_valid_prefix(bytes_of(text.data, 57));
        memcpy(out, text.data, len_bytes);
        memcpy(out + len_bytes, "...", 4);
        return out;
    }
    if (len_bytes > 0)
        memcpy(out, text.data, len_bytes);
    out[len_bytes] = '\0';
    return out;
}

const char *config_nearest(const char *text, const char *const *words, size_t n)
{
    struct str_nearest nearest = {.text = text, .most = 3};

    if (strlen(text) / 3 + 1 < nearest.most) /* a short word with 3 other letters is another word */
        nearest.most = (unsigned)strlen(text) / 3 + 1;
    for (size_t i = 0; i < n; i++)
        str_nearest_try(&nearest, words[i]);
    return nearest.name;
}

/* Splits "fast|safe" into words; returns their number. */
static size_t split_choices(const char *choices, char words[MAX_CHOICES][MAX_CHOICE_BYTES])
{
    size_t n = 0;

    for (const char *at = choices; *at != '\0'; at += *at == '|') {
        size_t len_bytes = strcspn(at, "|");

        ASSERT(n < MAX_CHOICES && len_bytes < MAX_CHOICE_BYTES);
        memcpy(words[n], at, len_bytes);
        words[n++][len_bytes] = '\0';
        at += len_bytes;
    }
    return n;
}

static int config_bind_refuse(struct buf *why, struct bytes value, const char *expected)
{
    char shown[64];

    buf_printf(why, "'%s' is not %s", config_shown(value, shown), expected);
    if (bytes_find(value, bytes_str(" #"), 0) != SIZE_MAX ||
        bytes_find(value, bytes_str(" ;"), 0) != SIZE_MAX)
        buf_append_str(why, " (comments stand on lines of their own)");
    return E_FORMAT;
}

/* Formats a limit of the table for a message. */
static void config_bind_put_number(const struct config_key *key, double value, struct buf *out)
{
    char text[24];

    if (key->type == CONFIG_SIZE)
        str_from_size((uint64_t)value, text);
    else if (key->type == CONFIG_DURATION)
        str_from_duration((uint64_t)value, text);
    else
        snprintf(text, sizeof(text), "%.15g", value);
    buf_append_str(out, text);
}

static void config_bind_limits_of(const struct config_key *key, double *min, double *max)
{
    bool is_open = key->type == CONFIG_F64;

    *min = key->min;
    *max = key->max > key->min ? key->max : INFINITY;
    if (key->min == 0 && key->max == 0) {
        *min = is_open ? -INFINITY : 0;
        *max = key->type == CONFIG_RATIO ? 1 : INFINITY;
    }
}

void config_describe_range(const struct config_key *key, struct buf *out)
{
    double min, max;

    if (key->type != CONFIG_U64 && key->type != CONFIG_F64 && key->type != CONFIG_RATIO &&
        key->type != CONFIG_SIZE && key->type != CONFIG_DURATION)
        return;
    config_bind_limits_of(key, &min, &max);
    if (isfinite(min) && isfinite(max)) {
        buf_append_str(out, "between ");
        config_bind_put_number(key, min, out);
        buf_append_str(out, " and ");
        config_bind_put_number(key, max, out);
    } else if (isfinite(max)) {
        buf_append_str(out, "at most ");
        config_bind_put_number(key, max, out);
    } else if (isfinite(min) && min != 0) {
        buf_append_str(out, "at least ");
        config_bind_put_number(key, min, out);
    }
}

static int check_range(const struct config_key *key, double number, struct bytes value, struct buf *why)
{
    double min, max;
    char shown[64];

    config_bind_limits_of(key, &min, &max);
    if (number >= min && number <= max)
        return 0;
    buf_printf(why, "'%s' is out of range: it must be ", config_shown(value, shown));
    config_describe_range(key, why);
    return E_RANGE;
}

static int bind_bool(struct bytes value, bool *out, struct buf *why)
{
    static const char *const words[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (value.len_bytes == strlen(words[i]) &&
            strncasecmp((const char *)value.data, words[i], value.len_bytes) == 0) {
            *out = i % 2 == 1;
            return 0;
        }
    return config_bind_refuse(why, value, "yes or no");
}

static int bind_u64(const struct config_key *key, struct bytes value, uint64_t *out, struct buf *why)
{
    uint64_t number;
    int rc = key->type == CONFIG_SIZE       ? str_to_size(value, &number)
             : key->type == CONFIG_DURATION ? str_to_duration(value, &number)
                                            : str_to_u64(value, &number);

    if (rc == E_RANGE) {
        buf_append_str(why, "the number is too large");
        return rc;
    }
    if (rc != 0)
        return config_bind_refuse(why, value,
                                  key->type == CONFIG_SIZE       ? "a size (like 512, 64KiB, 1.5GiB)"
                                  : key->type == CONFIG_DURATION ? "a duration (like 500ms, 30s, 5min, 1h)"
                                                                 : "a whole number");
    rc = check_range(key, (double)number, value, why);
    if (rc == 0)
        *out = number;
    return rc;
}

static int bind_f64(const struct config_key *key, struct bytes value, double *out, struct buf *why)
{
    bool is_percent =
        key->type == CONFIG_RATIO && value.len_bytes > 0 && value.data[value.len_bytes - 1] == '%';
    double number;

    if (str_to_f64(bytes_of(value.data, value.len_bytes - is_percent), &number) != 0)
        return config_bind_refuse(why, value,
                                  key->type == CONFIG_RATIO ? "a share (like 0.25 or 25%)" : "a number");
    if (is_percent)
        number /= 100;
    int rc = check_range(key, number, value, why);
    if (rc == 0)
        *out = number;
    return rc;
}

static int bind_enum(const struct config_key *key, struct bytes value, int *out, struct buf *why)
{
    char words[MAX_CHOICES][MAX_CHOICE_BYTES], shown[64];
    const char *names[MAX_CHOICES];
    size_t n = split_choices(key->choices, words);

    for (size_t i = 0; i < n; i++) {
        names[i] = words[i];
        if (bytes_is(value, words[i])) {
            *out = (int)i;
            return 0;
        }
    }
    buf_printf(why, "'%s' is not one of %s", config_shown(value, shown), key->choices);
    const char *nearest = config_nearest(shown, names, n);
    if (nearest != NULL)
        buf_printf(why, "; did you mean '%s'?", nearest);
    return E_FORMAT;
}

static bool is_host(struct bytes host)
{
    if (bytes_is(host, "*")) /* to listen on all addresses of both families */
        return true;
    for (size_t i = 0; i < host.len_bytes; i++) {
        uint8_t byte = host.data[i];
        bool is_letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');

        if (!is_letter && !(byte >= '0' && byte <= '9') && byte != '.' && byte != '-' && byte != '_')
            return false;
    }
    return host.len_bytes > 0 && host.len_bytes <= 253;
}

static bool is_v6(struct bytes host)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr address;
    size_t zone = bytes_find(host, bytes_str("%"), 0); /* fe80::1%eth0 */
    size_t len_bytes = zone == SIZE_MAX ? host.len_bytes : zone;

    if (len_bytes >= sizeof(text))
        return false;
    memcpy(text, host.data, len_bytes);
    text[len_bytes] = '\0';
    return inet_pton(AF_INET6, text, &address) == 1;
}

static int check_address(struct bytes value, struct buf *why)
{
    const struct sockaddr_un *unix_address;
    struct bytes host = value;
    uint64_t port;

    if (value.len_bytes == 0)
        return 0;
    if (bytes_starts_with(value, "unix:")) {
        if (value.len_bytes < 7 || value.data[5] != '/')
            return config_bind_refuse(why, value, "a socket's address: unix: wants an absolute path");
        if (value.len_bytes - 5 >= sizeof(unix_address->sun_path))
            return config_bind_refuse(why, value, "a socket's address: the path is too long");
        return 0;
    }
    while (host.len_bytes > 0 && host.data[host.len_bytes - 1] != ':')
        host.len_bytes--;
    struct bytes digits = bytes_of(value.data + host.len_bytes, value.len_bytes - host.len_bytes);
    if (host.len_bytes == 0 || str_to_u64(digits, &port) != 0 || port > 65535)
        return config_bind_refuse(why, value, "an address with a port (host:port, [v6]:port, unix:/path)");
    host.len_bytes--;
    bool is_right = host.len_bytes > 2 && host.data[0] == '[' && host.data[host.len_bytes - 1] == ']'
                        ? is_v6(bytes_of(host.data + 1, host.len_bytes - 2))
                        : is_host(host);
    return is_right ? 0 : config_bind_refuse(why, value, "an address (host:port, [v6]:port, unix:/path)");
}

static int config_bind_check_cpus(struct bytes value, struct buf *why)
{
    if (value.len_bytes == 0)
        return 0;
    int *cpus = calloc(MAX_CPUS_LISTED, sizeof(*cpus));
    if (cpus == NULL)
        return E_NOMEM;
    int n = cpu_list_parse(value, cpus, MAX_CPUS_LISTED);
    free(cpus);
    return n > 0 ? 0 : config_bind_refuse(why, value, "a list of CPUs (like 0-3,8)");
}

static int bind_str(const struct config_key *key, struct bytes value, char **out, struct buf *why)
{
    int rc = key->type == CONFIG_ADDRESS ? check_address(value, why)
             : key->type == CONFIG_CPUS  ? config_bind_check_cpus(value, why)
                                         : 0;
    if (rc != 0)
        return rc;

    char *copy = strndup(value.len_bytes == 0 ? "" : (const char *)value.data, value.len_bytes);
    if (copy == NULL)
        return E_NOMEM;
    free(*out);
    *out = copy;
    return 0;
}

static int bind_list(struct bytes value, struct config_list *list)
{
    if (value.len_bytes == 0)
        return 0; /* load.c empties the list */

    char *copy = strndup((const char *)value.data, value.len_bytes);
    char **items = copy == NULL ? NULL : realloc(list->items, (list->n + 1) * sizeof(*items));
    if (items == NULL) {
        free(copy);
        return E_NOMEM;
    }
    items[list->n++] = copy;
    list->items = items;
    return 0;
}

int config_bind(const struct config_key *key, struct bytes value, void *config, struct buf *why)
{
    void *to = config_bind_member(key, config);

    switch (key->type) {
    case CONFIG_BOOL:
        return bind_bool(value, to, why);
    case CONFIG_U64:
    case CONFIG_SIZE:
    case CONFIG_DURATION:
        return bind_u64(key, value, to, why);
    case CONFIG_F64:
    case CONFIG_RATIO:
        return bind_f64(key, value, to, why);
    case CONFIG_ENUM:
        return bind_enum(key, value, to, why);
    case CONFIG_STR:
    case CONFIG_ADDRESS:
    case CONFIG_PATH:
    case CONFIG_CPUS:
        return bind_str(key, value, to, why);
    case CONFIG_LIST:
        return bind_list(value, to);
    }
    return E_INTERNAL;
}

size_t config_member_bytes(enum config_type type)
{
    switch (type) {
    case CONFIG_BOOL:
        return sizeof(bool);
    case CONFIG_U64:
    case CONFIG_SIZE:
    case CONFIG_DURATION:
        return sizeof(uint64_t);
    case CONFIG_F64:
    case CONFIG_RATIO:
        return sizeof(double);
    case CONFIG_ENUM:
        return sizeof(int);
    case CONFIG_STR:
    case CONFIG_ADDRESS:
    case CONFIG_PATH:
    case CONFIG_CPUS:
        return sizeof(char *);
    case CONFIG_LIST:
        return sizeof(struct config_list);
    }
    return 0;
}

static bool config_bind_is_text(enum config_type type)
{
    return type == CONFIG_STR || type == CONFIG_ADDRESS || type == CONFIG_PATH || type == CONFIG_CPUS;
}

void config_unbind(const struct config_key *key, void *config)
{
    void *at = config_bind_member(key, config);

    if (config_bind_is_text(key->type)) {
        free(*(char **)at);
    } else if (key->type == CONFIG_LIST) {
        struct config_list *list = at;

        for (size_t i = 0; i < list->n; i++)
            free(list->items[i]);
        free(list->items);
    }
    memset(at, 0, config_member_bytes(key->type));
}

bool config_same(const struct config_key *key, const void *a, const void *b)
{
    const void *one = config_bind_member(key, a), *two = config_bind_member(key, b);

    if (config_bind_is_text(key->type))
        return strcmp(*(char *const *)one, *(char *const *)two) == 0;
    if (key->type != CONFIG_LIST)
        return memcmp(one, two, config_member_bytes(key->type)) == 0;

    const struct config_list *list = one, *other = two;
    if (list->n != other->n)
        return false;
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i], other->items[i]) != 0)
            return false;
    return true;
}

/* Writes the shortest decimal number that reads back as the same value. */
static int put_f64(double value, struct buf *out)
{
    char text[40];

    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return buf_append_str(out, text);
}

int config_text(const struct config_key *key, const void *config, size_t item, struct buf *out)
{
    const void *at = config_bind_member(key, config);
    char words[MAX_CHOICES][MAX_CHOICE_BYTES], text[24];

    switch (key->type) {
    case CONFIG_BOOL:
        return buf_append_str(out, *(const bool *)at ? "yes" : "no");
    case CONFIG_U64:
        return buf_printf(out, "%" PRIu64, *(const uint64_t *)at);
    case CONFIG_SIZE:
        str_from_size(*(const uint64_t *)at, text);
        return buf_append_str(out, text);
    case CONFIG_DURATION:
        str_from_duration(*(const uint64_t *)at, text);
        return buf_append_str(out, text);
    case CONFIG_F64:
    case CONFIG_RATIO:
        return put_f64(*(const double *)at, out);
    case CONFIG_ENUM:
        split_choices(key->choices, words);
        return buf_append_str(out, words[*(const int *)at]);
    case CONFIG_STR:
    case CONFIG_ADDRESS:
    case CONFIG_PATH:
    case CONFIG_CPUS:
        return buf_append_str(out, *(char *const *)at);
    case CONFIG_LIST:
        return item < ((const struct config_list *)at)->n
                   ? buf_append_str(out, ((const struct config_list *)at)->items[item])
                   : E_NOT_FOUND;
    }
    return E_INTERNAL;
}

void config_describe(const struct config_key *key, struct buf *out)
{
    switch (key->type) {
    case CONFIG_STR:
        buf_append_str(out, "text");
        return;
    case CONFIG_BOOL:
        buf_append_str(out, "yes|no");
        return;
    case CONFIG_U64:
    case CONFIG_F64:
        buf_append_str(out, "number");
        return;
    case CONFIG_RATIO:
        buf_append_str(out, "share");
        return;
    case CONFIG_SIZE:
        buf_append_str(out, "size");
        return;
    case CONFIG_DURATION:
        buf_append_str(out, "duration");
        return;
    case CONFIG_ENUM:
        buf_append_str(out, key->choices);
        return;
    case CONFIG_ADDRESS:
        buf_append_str(out, "address");
        return;
    case CONFIG_PATH:
        buf_append_str(out, "path");
        return;
    case CONFIG_CPUS:
        buf_append_str(out, "cpus");
        return;
    case CONFIG_LIST:
        buf_append_str(out, "text, may be repeated");
        return;
    }
}
