/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a key's rule, each parsed by a pure function.  An unknown word is an error that names the
 * word, so that a misspelt limit is never taken for no limit. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/fair.h"
#include "base/name.h"
#include "base/str.h"
#include "serve/access/auth.h"

#define MAX_NUMBER UINT64_C(1000000000000000)

static const struct {
    const char *name;
    size_t offset;
    uint64_t max;
} numbers[] = {
#define ROW(kind, word, name, noun) {word, offsetof(struct auth_rule, per_min[LIMIT_##kind]), MAX_NUMBER},
    AUTH_LIMITS(ROW)
#undef ROW
        {"concurrent", offsetof(struct auth_rule, concurrent), MAX_NUMBER},
    {"weight", offsetof(struct auth_rule, weight), FAIR_MAX_WEIGHT},
};

const char *auth_limit_word(enum limit_kind kind)
{
    return numbers[kind].name; /* the first rows are the kinds, in their order */
}

static int auth_rule_parse_number(const char *text, uint64_t max, uint64_t *out)
{
    size_t n = strlen(text);
    uint64_t unit = 1;
    uint64_t value;

    if (n > 0 && (text[n - 1] == 'k' || text[n - 1] == 'm'))
        unit = text[--n] == 'k' ? 1000 : 1000000;
    if (str_to_u64(bytes_of(text, n), &value) < 0 || value == 0 || value > max / unit)
        return E_FORMAT;
    *out = value * unit;
    return 0;
}

/* Parses two decimal digits. */
static int auth_rule_two(const char *at, unsigned low, unsigned high, unsigned *out)
{
    if (at[0] < '0' || at[0] > '9' || at[1] < '0' || at[1] > '9')
        return E_FORMAT;
    *out = (unsigned)(at[0] - '0') * 10 + (unsigned)(at[1] - '0');
    return *out >= low && *out <= high ? 0 : E_FORMAT;
}

static bool is_leap(unsigned year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

static uint64_t days_before(unsigned year, unsigned month)
{
    static const unsigned before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    uint64_t days = 0;

    for (unsigned y = 1970; y < year; y++)
        days += is_leap(y) ? 366 : 365;
    return days + before[month - 1] + (month > 2 && is_leap(year));
}

/* Parses "2027-01-31" or "2027-01-31T12:00:00Z", UTC. */
static int auth_rule_parse_time(const char *text, uint64_t *out)
{
    static const char shape[] = "....-..-..T..:..:..Z";
    static const unsigned lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    size_t n = strlen(text);
    unsigned century, year, month, day;
    unsigned hour = 0, minute = 0, second = 0;

    if (n != 10 && n != 20)
        return E_FORMAT;
    for (size_t i = 0; i < n; i++)
        if (shape[i] != '.' && text[i] != shape[i])
            return E_FORMAT;
    if (auth_rule_two(text, 19, 29, &century) < 0 || auth_rule_two(text + 2, 0, 99, &year) < 0 ||
        auth_rule_two(text + 5, 1, 12, &month) < 0 || auth_rule_two(text + 8, 1, 31, &day) < 0)
        return E_FORMAT;
    year += century * 100;
    if (year < 1970 || day > lengths[month - 1] + (month == 2 && is_leap(year)))
        return E_FORMAT;
    if (n == 20 &&
        (auth_rule_two(text + 11, 0, 23, &hour) < 0 || auth_rule_two(text + 14, 0, 59, &minute) < 0 ||
         auth_rule_two(text + 17, 0, 59, &second) < 0))
        return E_FORMAT;
    *out = ((days_before(year, month) + day - 1) * 24 + hour) * 3600 + minute * 60 + second;
    return 0;
}

/* Checks only the form: the router knows the classes. */
static bool is_class_name(const char *text)
{
    return name_is_valid(bytes_str(text), SIZE_MAX);
}

/* True if no name of the list is empty and '*' stands only at a name's end. */
static bool is_model_list(const char *text)
{
    bool is_begin = true;

    for (const char *at = text; *at != '\0'; at++) {
        if (*at == ',' && is_begin)
            return false;
        if (*at == '*' && at[1] != ',' && at[1] != '\0')
            return false;
        if (*at < ' ' || *at == 0x7f)
            return false;
        is_begin = *at == ',';
    }
    return !is_begin;
}

static bool auth_rule_has(const struct auth_rule *rule, struct bytes name)
{
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        if (bytes_is(name, numbers[i].name))
            return *(const uint64_t *)((const char *)rule + numbers[i].offset) != 0;
    return (bytes_is(name, "expires") && rule->expires_unix_s != 0) ||
           (bytes_is(name, "class") && rule->class_name[0] != '\0') ||
           (bytes_is(name, "models") && rule->models[0] != '\0');
}

int auth_rule_parse(struct auth_rule *rule, const char *word, struct fault *fault)
{
    const char *value = strchr(word, '=');
    size_t n = value == NULL ? 0 : (size_t)(value - word);

    if (n == 0)
        return fault_set(fault, E_FORMAT, "%.60s: a rule is written name=value", word);
    if (auth_rule_has(rule, bytes_of(word, n)))
        return fault_set(fault, E_FORMAT, "%.60s: this rule is there twice", word);
    value++;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        if (!bytes_is(bytes_of(word, n), numbers[i].name))
            continue;
        if (auth_rule_parse_number(value, numbers[i].max, (uint64_t *)((char *)rule + numbers[i].offset)) ==
            0)
            return 0;
        if (numbers[i].max < MAX_NUMBER)
            return fault_set(fault, E_FORMAT, "%.60s: a whole number from 1 to %u is wanted", word,
                             (unsigned)numbers[i].max);
        return fault_set(fault, E_FORMAT, "%.60s: a whole number from 1 is wanted, such as 60, 40k or 2m",
                         word);
    }
    if (bytes_is(bytes_of(word, n), "expires"))
        return auth_rule_parse_time(value, &rule->expires_unix_s) == 0
                   ? 0
                   : fault_set(fault, E_FORMAT, "%.60s: a time is written 2027-01-31 or 2027-01-31T12:00:00Z",
                               word);
    if (bytes_is(bytes_of(word, n), "class"))
        return is_class_name(value) && str_copy(rule->class_name, sizeof(rule->class_name), value)
                   ? 0
                   : fault_set(fault, E_FORMAT,
                               "%.60s: a class is a name of at most %d letters, digits, '.', '_', '-'", word,
                               AUTH_CLASS_BYTES - 1);
    if (bytes_is(bytes_of(word, n), "models"))
        return is_model_list(value) && str_copy(rule->models, sizeof(rule->models), value)
                   ? 0
                   : fault_set(fault, E_FORMAT,
                               "%.60s: models are written NAME,NAME,BEGIN*, at most %d bytes in all", word,
                               AUTH_MODELS_BYTES - 1);
#define WORD(kind, word, name, noun) word ", "
    return fault_set(fault, E_FORMAT,
                     "%.*s: no such rule (" AUTH_LIMITS(WORD) "concurrent, weight, class, models, expires)",
                     n > 60 ? 60 : (int)n, word);
#undef WORD
}

bool auth_rule_allows(const struct auth_rule *rule, const char *model)
{
    const char *at = rule->models;

    if (*at == '\0')
        return true;
    while (*at != '\0') {
        size_t n = strcspn(at, ",");
        bool is_open = at[n - 1] == '*';
        size_t fixed = is_open ? n - 1 : n;

        if (strncmp(at, model, fixed) == 0 && (is_open || model[fixed] == '\0'))
            return true;
        at += n;
        at += *at == ',';
    }
    return false;
}
