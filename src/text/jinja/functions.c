/* SPDX-License-Identifier: Apache-2.0 */
/* The global functions of every template: range, dict, namespace, and two more that model files expect,
 * raise_exception and strftime_now. The caller of the rendering supplies the time; it is written in UTC. */
#include "text/jinja/jinja_priv.h"

#include "base/err.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static struct value function_range(struct jinja *jinja, struct value self, struct call *call)
{
    int64_t ends[3] = {0, 0, 1};
    struct value list = value_list(jinja, 0);

    (void)self;
    for (size_t i = 0; i < call->n_args && i < 3; i++) {
        if (!value_index(call->args[i], &ends[i]))
            jinja_fail(jinja, E_FORMAT, "range() wants integers, not a %s", value_type(call->args[i]));
    }
    if (call->n_args == 1) {
        ends[1] = ends[0];
        ends[0] = 0;
    }
    if (ends[2] == 0 || call->n_args > 3)
        jinja_fail(jinja, E_FORMAT, "range() takes one to three integers, the step not 0");
    for (int64_t i = ends[0]; jinja->rc == 0 && (ends[2] > 0 ? i < ends[1] : i > ends[1]);) {
        if (list.list->n == JINJA_MAX_RANGE)
            jinja_fail(jinja, E_LIMIT, "a range of more than %d numbers", JINJA_MAX_RANGE);
        list_push(jinja, list, value_int(i));
        if (__builtin_add_overflow(i, ends[2], &i))
            break;
    }
    return list;
}

static struct value function_dict(struct jinja *jinja, struct value self, struct call *call)
{
    struct value dict = value_dict(jinja);

    (void)self;
    if (call->n_args > 0 && call->args[0].kind == VALUE_DICT) {
        const struct value_dict *from = call->args[0].dict;

        for (size_t i = 0; i < from->n && jinja->rc == 0; i++)
            dict_set(jinja, dict, from->entries[i].key, from->entries[i].value);
    } else if (call->n_args > 0) {
        struct value all = value_elements(jinja, call->args[0]);

        for (size_t i = 0; jinja->rc == 0 && i < all.list->n; i++) {
            struct value both = value_elements(jinja, all.list->items[i]);

            if (jinja->rc == 0 && both.list->n != 2)
                jinja_fail(jinja, E_FORMAT, "dict() wants pairs");
            if (jinja->rc == 0)
                dict_set(jinja, dict, both.list->items[0], both.list->items[1]);
        }
    }
    for (size_t i = 0; i < call->n_keywords && jinja->rc == 0; i++)
        dict_set(jinja, dict, value_text(jinja, call->keywords[i].name), call->keywords[i].value);
    return dict;
}

static struct value function_namespace(struct jinja *jinja, struct value self, struct call *call)
{
    struct value space = function_dict(jinja, self, call);

    if (space.kind == VALUE_DICT)
        space.kind = VALUE_NAMESPACE;
    return space;
}

static struct value function_raise(struct jinja *jinja, struct value self, struct call *call)
{
    struct value message = value_to_text(jinja, call->bound[0]);
    struct text text = text_in(message);

    (void)self;
    jinja_fail(jinja, E_INVAL, "%.*s", text.len_bytes > 300 ? 300 : (int)text.len_bytes,
               text.len_bytes == 0 ? "" : (const char *)text.data);
    return value_undefined(NULL);
}

/* ---- the date ---- */

static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};
static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                   "Thursday", "Friday", "Saturday"};

static bool put_date(struct build *build, char directive, const struct tm *tm);

/* Writes a directive that stands for several; false: another one. */
static bool put_dates(struct build *build, char directive, const struct tm *tm)
{
    static const char *const several[] = {"ca b e T Y", "xm/d/y", "Dm/d/y", "XT", "RH:M", "FY-m-d", "TH:M:S"};
    const char *found = NULL;

    for (size_t i = 0; i < sizeof(several) / sizeof(several[0]); i++)
        if (several[i][0] == directive)
            found = several[i] + 1;
    for (const char *at = found; at != NULL && *at != '\0'; at++)
        if (!put_date(build, *at, tm))
            build_raw(build, at, 1, MARK_OWN);
    return found != NULL;
}

/* Writes one directive "%x"; false: unknown directive. */
static bool put_date(struct build *build, char directive, const struct tm *tm)
{
    const struct {
        char directive;
        int width, value;
    } numbers[] = {{'Y', 1, tm->tm_year + 1900},
                   {'m', 2, tm->tm_mon + 1},
                   {'d', 2, tm->tm_mday},
                   {'H', 2, tm->tm_hour},
                   {'M', 2, tm->tm_min},
                   {'S', 2, tm->tm_sec},
                   {'j', 3, tm->tm_yday + 1},
                   {'w', 1, tm->tm_wday},
                   {'y', 2, tm->tm_year % 100},
                   {'I', 2, (tm->tm_hour + 11) % 12 + 1},
                   {'u', 1, (tm->tm_wday + 6) % 7 + 1},
                   {'f', 6, 0}};
    char text[32] = "";

    if (put_dates(build, directive, tm))
        return true;

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (numbers[i].directive == directive)
            snprintf(text, sizeof(text), "%0*d", numbers[i].width, numbers[i].value);
    }
    if (directive == 'B' || directive == 'b' || directive == 'h')
        snprintf(text, sizeof(text), "%.*s", directive == 'B' ? 20 : 3, months[tm->tm_mon]);
    else if (directive == 'A' || directive == 'a')
        snprintf(text, sizeof(text), "%.*s", directive == 'A' ? 20 : 3, days[tm->tm_wday]);
    else if (directive == 'e')
        snprintf(text, sizeof(text), "%2d", tm->tm_mday);
    else if (directive == 'p')
        snprintf(text, sizeof(text), "%s", tm->tm_hour < 12 ? "AM" : "PM");
    else if (directive == 'Z')
        snprintf(text, sizeof(text), "UTC");
    else if (directive == '%')
        snprintf(text, sizeof(text), "%%");
    build_raw(build, text, strlen(text), MARK_OWN);
    return text[0] != '\0';
}

static struct value function_strftime(struct jinja *jinja, struct value self, struct call *call)
{
    struct text format = text_in(call->bound[0]);
    struct build build = build_begin(jinja);
    time_t now = (time_t)jinja->now_unix_s;
    struct tm tm;

    (void)self;
    if (gmtime_r(&now, &tm) == NULL || call->bound[0].kind != VALUE_TEXT) {
        jinja_fail(jinja, E_FORMAT, "strftime_now() wants a format");
        return value_undefined(NULL);
    }
    for (size_t at = 0; at < format.len_bytes && jinja->rc == 0; at++) {
        if (format.data[at] != '%' || at + 1 == format.len_bytes) {
            build_text(&build, text_part(format, at, at + 1));
            continue;
        }
        at += format.data[at + 1] == '-' && at + 2 < format.len_bytes; /* "%-d": without padding */
        bool is_bare = format.data[at] == '-';
        struct build one = build_begin(jinja);
        if (!put_date(&one, (char)format.data[at + 1], &tm))
            jinja_fail(jinja, E_UNSUPPORTED, "strftime_now() does not know %%%c", format.data[at + 1]);
        struct text text = text_in(build_end(&one));
        build_text(&build,
                   is_bare && text.len_bytes > 1 && text.data[0] == '0' ? text_part(text, 1, 9) : text);
        at++;
    }
    return build_end(&build);
}

const struct callable jinja_functions[] = {
    {"range", NULL, function_range, 1, false},
    {"dict", NULL, function_dict, 0, false},
    {"namespace", NULL, function_namespace, 0, false},
    {"raise_exception", "message", function_raise, 1, false},
    {"strftime_now", "format", function_strftime, 1, false},
    {NULL, NULL, NULL, 0, false},
};
