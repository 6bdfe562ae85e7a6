/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, sizes and durations as text, hexadecimal, and edit distance.
 *
 * Sizes and durations share one parser: digits, an optional fraction, an optional unit from a table.  It
 * computes in 128-bit integers, never in floating point.  So "0.1s" is exactly 100,000,000 ns, and a value
 * that does not fit is refused, not wrapped.  Size units are powers of two. "KB" and "MB" are refused
 * because they are ambiguous.  A duration without unit is refused too, except 0.
 *
 * The program never sets LC_NUMERIC, so strtod() always expects a point. */
#include "base/str.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"

struct unit {
    const char *name;
    uint64_t factor;
};

/* Ascending.  The first name of a factor is the one used for output. */
static const struct unit size_units[] = {
    {"", 1},
    {"B", 1},
    {"KiB", UINT64_C(1) << 10},
    {"k", UINT64_C(1) << 10},
    {"K", UINT64_C(1) << 10},
    {"MiB", UINT64_C(1) << 20},
    {"M", UINT64_C(1) << 20},
    {"GiB", UINT64_C(1) << 30},
    {"G", UINT64_C(1) << 30},
    {"TiB", UINT64_C(1) << 40},
    {"T", UINT64_C(1) << 40},
};

static const struct unit duration_units[] = {
    {"ns", 1},
    {"us", NS_PER_US},
    {"ms", NS_PER_MS},
    {"s", NS_PER_S},
    {"min", 60 * NS_PER_S},
    {"h", 3600 * NS_PER_S},
    {"d", 86400 * NS_PER_S},
};

static bool str_is_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9';
}

int str_to_u64(struct bytes text, uint64_t *out)
{
    uint64_t value = 0;

    if (text.len_bytes == 0)
        return E_FORMAT;
    for (size_t i = 0; i < text.len_bytes; i++)
        if (!str_is_digit(text.data[i]))
            return E_FORMAT;
    for (size_t i = 0; i < text.len_bytes; i++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, text.data[i] - '0', &value))
            return E_RANGE;
    *out = value;
    return 0;
}

int str_to_i64(struct bytes text, int64_t *out)
{
    bool is_negative = text.len_bytes > 0 && text.data[0] == '-';
    uint64_t magnitude;

    if (is_negative)
        text = bytes_of(text.data + 1, text.len_bytes - 1);
    int rc = str_to_u64(text, &magnitude);
    if (rc != 0)
        return rc;
    if (magnitude > (uint64_t)INT64_MAX + (is_negative ? 1 : 0))
        return E_RANGE;
    *out = is_negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return 0;
}

int str_to_f64(struct bytes text, double *out)
{
    char copy[128];

    if (text.len_bytes == 0 || text.len_bytes >= sizeof(copy))
        return E_FORMAT;
    for (size_t i = 0; i < text.len_bytes; i++) /* refuse blanks, hexadecimal, "inf" and "nan" */
        if (text.data[i] == 0 || strchr("0123456789+-.eE", text.data[i]) == NULL)
            return E_FORMAT;
    memcpy(copy, text.data, text.len_bytes);
    copy[text.len_bytes] = '\0';

    char *end;
    double value = strtod(copy, &end);
    if (end == copy || *end != '\0')
        return E_FORMAT;
    if (!isfinite(value))
        return E_RANGE;
    *out = value;
    return 0;
}

/* Splits "12.5 GiB" into whole 12, fraction 5 of scale 10, and the unit's name. */
static int split_number(struct bytes text, uint64_t *whole, uint64_t *fraction, uint64_t *scale,
                        struct bytes *unit)
{
    size_t at = 0;

    while (at < text.len_bytes && str_is_digit(text.data[at]))
        at++;
    int rc = str_to_u64(bytes_of(text.data, at), whole);
    if (rc != 0)
        return rc;

    *fraction = 0;
    *scale = 1;
    if (at < text.len_bytes && text.data[at] == '.') {
        size_t from = ++at;

        while (at < text.len_bytes && str_is_digit(text.data[at]))
            at++;
        if (at == from || at - from > 18)
            return E_FORMAT;
        str_to_u64(bytes_of(text.data + from, at - from), fraction);
        for (size_t i = from; i < at; i++)
            *scale *= 10;
    }
    if (at < text.len_bytes && text.data[at] == ' ')
        at++;
    *unit = bytes_of(text.data + at, text.len_bytes - at);
    return 0;
}

static int with_unit(struct bytes text, const struct unit *units, size_t n_units, uint64_t *out)
{
    uint64_t whole, fraction, scale;
    struct bytes name;
    int rc = split_number(text, &whole, &fraction, &scale, &name);
    if (rc != 0)
        return rc;

    for (size_t i = 0; i < n_units; i++) {
        if (!bytes_is(name, units[i].name))
            continue;
        unsigned __int128 value = (unsigned __int128)whole * units[i].factor;
        value += ((unsigned __int128)fraction * units[i].factor + scale / 2) / scale;
        if (value > UINT64_MAX)
            return E_RANGE;
        *out = (uint64_t)value;
        return 0;
    }
    return E_FORMAT;
}

int str_to_size(struct bytes text, uint64_t *bytes_out)
{
    return with_unit(text, size_units, ARRAY_LEN(size_units), bytes_out);
}

int str_to_duration(struct bytes text, uint64_t *ns_out)
{
    if (bytes_is(text, "0")) {
        *ns_out = 0;
        return 0;
    }
    return with_unit(text, duration_units, ARRAY_LEN(duration_units), ns_out);
}

void str_from_size(uint64_t size_bytes, char out[24])
{
    for (size_t i = ARRAY_LEN(size_units); i-- > 2;) {
        uint64_t factor = size_units[i].factor;
        uint64_t rest = size_bytes % factor;

        if (size_units[i - 1].factor == factor || size_bytes < factor || rest * 4 % factor != 0)
            continue; /* skip second names, and units that do not give whole quarters */
        static const char *const quarters[] = {"", ".25", ".5", ".75"};
        snprintf(out, 24, "%" PRIu64 "%s%s", size_bytes / factor, quarters[rest * 4 / factor],
                 size_units[i].name);
        return;
    }
    snprintf(out, 24, "%" PRIu64, size_bytes);
}

void str_from_duration(uint64_t ns, char out[24])
{
    size_t i = ARRAY_LEN(duration_units) - 1;

    if (ns == 0) {
        snprintf(out, 24, "0");
        return;
    }
    while (ns % duration_units[i].factor != 0)
        i--;
    snprintf(out, 24, "%" PRIu64 "%s", ns / duration_units[i].factor, duration_units[i].name);
}

void hex_encode(const void *data, size_t len_bytes, char *out)
{
    const uint8_t *from = data;

    for (size_t i = 0; i < len_bytes; i++) {
        out[2 * i] = "0123456789abcdef"[from[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[from[i] & 15];
    }
    out[2 * len_bytes] = '\0';
}

static int str_hex_digit(uint8_t byte)
{
    if (str_is_digit(byte))
        return byte - '0';
    if (byte >= 'a' && byte <= 'f')
        return byte - 'a' + 10;
    if (byte >= 'A' && byte <= 'F')
        return byte - 'A' + 10;
    return -1;
}

int hex_decode(struct bytes text, uint8_t *out, size_t len_bytes)
{
    if (text.len_bytes / 2 != len_bytes || text.len_bytes % 2 != 0)
        return E_FORMAT;
    for (size_t i = 0; i < text.len_bytes; i++)
        if (str_hex_digit(text.data[i]) < 0)
            return E_FORMAT;
    for (size_t i = 0; i < len_bytes; i++)
        out[i] = (uint8_t)(str_hex_digit(text.data[2 * i]) << 4 | str_hex_digit(text.data[2 * i + 1]));
    return 0;
}

unsigned str_distance(const char *a, const char *b)
{
    enum { LONGEST = 64 };
    size_t a_len = strnlen(a, LONGEST), b_len = strnlen(b, LONGEST);
    unsigned row[LONGEST + 1]; /* row[j]: distance of the first i bytes of a to the first j of b */

    for (unsigned j = 0; j <= b_len; j++)
        row[j] = j;
    for (unsigned i = 1; i <= a_len; i++) {
        unsigned diagonal = row[0];

        row[0] = i;
        for (unsigned j = 1; j <= b_len; j++) {
            unsigned best = diagonal + (a[i - 1] != b[j - 1]);

            diagonal = row[j];
            if (best > row[j] + 1)
                best = row[j] + 1;
            if (best > row[j - 1] + 1)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[b_len];
}

void str_nearest_try(struct str_nearest *nearest, const char *name)
{
    unsigned distance = str_distance(nearest->text, name);

    if (distance > nearest->most || (nearest->name != NULL && distance == nearest->most))
        return;
    nearest->most = distance;
    nearest->name = name;
}

uint64_t str_digest(const char *text)
{
    uint64_t digest = UINT64_C(0xcbf29ce484222325);

    for (; *text; text++)
        digest = (digest ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    return digest != 0 ? digest : 1;
}

bool str_is_printable(struct bytes text)
{
    for (size_t i = 0; i < text.len_bytes; i++)
        if (text.data[i] < 0x20 || text.data[i] == 0x7f)
            return false;
    return true;
}

bool str_copy(char *out, size_t cap, const char *text)
{
    size_t len_bytes = strlen(text);
    bool is_whole = len_bytes < cap;

    if (cap == 0)
        return false;
    if (!is_whole)
        len_bytes = cap - 1;
    memcpy(out, text, len_bytes);
    out[len_bytes] = '\0';
    return is_whole;
}
