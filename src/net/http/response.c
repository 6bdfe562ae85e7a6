/* SPDX-License-Identifier: Apache-2.0 */
/* Writes heads.
 *
 * Every text in a header (a request id, a model's name, a reason) passes http_fields_add. It refuses bytes
 * that could begin a new line or end the text early, so client text cannot split a header. */
#include "net/http/response.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "net/http/parse_priv.h"

void http_fields_fini(struct http_fields *fields)
{
    buf_fini(&fields->text);
}

static bool is_value(struct bytes value)
{
    for (size_t i = 0; i < value.len_bytes; i++)
        if ((value.data[i] < ' ' && value.data[i] != '\t') || value.data[i] == 0x7f)
            return false;
    return true;
}

static bool http_response_is_name(const char *name)
{
    for (const char *c = name; *c != '\0'; c++)
        if (!http_is_token_char((uint8_t)*c))
            return false;
    return *name != '\0';
}

int http_fields_add(struct http_fields *fields, const char *name, struct bytes value)
{
    int rc;

    if (!http_response_is_name(name) || !is_value(value))
        return E_INVAL;
    rc = buf_reserve(&fields->text, strlen(name) + value.len_bytes + 5);
    if (rc < 0)
        return rc;
    buf_append_str(&fields->text, name);
    buf_append_str(&fields->text, ": ");
    buf_append(&fields->text, value.data, value.len_bytes);
    return buf_append_str(&fields->text, "\r\n");
}

int http_fields_add_str(struct http_fields *fields, const char *name, const char *value)
{
    return http_fields_add(fields, name, bytes_str(value));
}

int http_fields_addf(struct http_fields *fields, const char *name, const char *format, ...)
{
    char value[1024];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(value, sizeof(value), format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof(value))
        return E_INVAL;
    return http_fields_add(fields, name, bytes_of(value, (size_t)n));
}

int http_put_response_head(struct buf *out, int status, const struct http_fields *fields,
                           const struct http_fields *extra)
{
    buf_printf(out, "HTTP/1.1 %d %s\r\n", status, http_reason(status));
    if (fields != NULL && fields->text.len_bytes > 0)
        buf_append(out, fields->text.data, fields->text.len_bytes);
    if (extra != NULL && extra->text.len_bytes > 0)
        buf_append(out, extra->text.data, extra->text.len_bytes);
    return buf_append_str(out, "\r\n");
}

const char *http_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } table[] = {{100, "Continue"},
                 {200, "OK"},
                 {204, "No Content"},
                 {400, "Bad Request"},
                 {401, "Unauthorized"},
                 {403, "Forbidden"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {408, "Request Timeout"},
                 {409, "Conflict"},
                 {413, "Content Too Large"},
                 {414, "URI Too Long"},
                 {417, "Expectation Failed"},
                 {429, "Too Many Requests"},
                 {431, "Request Header Fields Too Large"},
                 {500, "Internal Server Error"},
                 {501, "Not Implemented"},
                 {503, "Service Unavailable"},
                 {504, "Gateway Timeout"},
                 {505, "HTTP Version Not Supported"},
                 {529, "Overloaded"}};

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].status == status)
            return table[i].reason;
    return "Unknown";
}

void http_date(uint64_t unix_s, char out[30])
{
    static const char days[] = "SunMonTueWedThuFriSat";
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t when = (time_t)unix_s;
    struct tm tm;

    /* Not strftime, which would follow the locale. */
    if (gmtime_r(&when, &tm) == NULL)
        memset(&tm, 0, sizeof(tm));
    snprintf(out, 30, "%.3s, %02u %.3s %04u %02u:%02u:%02u GMT", days + 3 * (tm.tm_wday % 7),
             (unsigned)tm.tm_mday % 100, months + 3 * (tm.tm_mon % 12), (unsigned)(tm.tm_year + 1900) % 10000,
             (unsigned)tm.tm_hour % 100, (unsigned)tm.tm_min % 100, (unsigned)tm.tm_sec % 100);
}
