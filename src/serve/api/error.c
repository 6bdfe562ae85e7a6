/* SPDX-License-Identifier: Apache-2.0 */
/* Error answers in the API's format.  One table maps status to type, and only statuses in it are used.  A
 * 5xx makes clients retry, so it must mean that a retry may succeed. */
#include "serve/api/error.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

const char *api_error_type(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 409:
        return "conflict_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 408:
    case 504:
        return "timeout_error";
    case 529:
        return "overloaded_error";
    default:
        return status >= 500 && status != 501 && status != 505 ? "api_error" : "invalid_request_error";
    }
}

int api_fail(struct api_error *error, int status, const char *format, ...)
{
    va_list args;

    memset(error, 0, sizeof(*error));
    error->status = status;
    error->type = api_error_type(status);
    va_start(args, format);
    vsnprintf(error->message, sizeof(error->message), format, args);
    va_end(args);
    return E_FORMAT;
}

int api_put_error(struct buf *out, const struct api_error *error, const char *request_id)
{
    buf_printf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", error->type);
    json_put_str(out, bytes_str(error->message));
    if (error->code != NULL) {
        buf_printf(out, ",\"details\":{\"error_code\":\"%s\"", error->code);
        if (error->names_thread)
            buf_append_str(out, ",\"unsupported\":[\"thread\"]");
        buf_append_byte(out, '}');
    }
    buf_append_byte(out, '}');
    if (request_id != NULL) {
        buf_append_str(out, ",\"request_id\":");
        json_put_str(out, bytes_str(request_id));
    }
    buf_append_byte(out, '}');
    return out->is_bad ? E_NOMEM : 0;
}

/* ---- OpenAI's format ---- */

static const char *openai_type(int status)
{
    if (status == 429)
        return "rate_limit_error";
    return status >= 500 && status != 501 && status != 505 ? "server_error" : "invalid_request_error";
}

static const char *openai_code(const struct api_error *error)
{
    if (error->code != NULL)
        return error->code;
    switch (error->status) {
    case 401:
        return "invalid_api_key";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_exceeded";
    case 529:
        return "overloaded";
    default:
        return NULL;
    }
}

/* Returns the length of the path that the message begins with.  0: the message begins with words. */
static size_t path_length(const char *message)
{
    size_t n = 0;

    while ((message[n] >= 'a' && message[n] <= 'z') || (message[n] >= 'A' && message[n] <= 'Z') ||
           (message[n] >= '0' && message[n] <= '9') ||
           (message[n] != '\0' && strchr("_.$-", message[n]) != NULL))
        n++;
    return message[n] == ':' && message[n + 1] == ' ' ? n : 0;
}

/* "messages.0.content.1" -> "messages[0].content[1]" */
void api_put_openai_path(struct buf *out, const char *path, size_t len_bytes)
{
    struct buf text = {0};

    for (size_t at = 0; at < len_bytes;) {
        size_t n = strcspn(path + at, ".:");
        bool is_index = n > 0 && strspn(path + at, "0123456789") == n;

        if (is_index)
            buf_append_byte(&text, '[');
        else if (at > 0)
            buf_append_byte(&text, '.');
        buf_append(&text, path + at, n);
        if (is_index)
            buf_append_byte(&text, ']');
        at += n + 1;
    }
    json_put_str(out, buf_view(&text));
    buf_fini(&text);
}

int api_put_openai_error(struct buf *out, const struct api_error *error)
{
    const char *code = openai_code(error);
    size_t n_path = error->status == 400 || error->status == 404 ? path_length(error->message) : 0;

    buf_append_str(out, "{\"error\":{\"message\":");
    json_put_str(out, bytes_str(error->message));
    buf_printf(out, ",\"type\":\"%s\",\"param\":", openai_type(error->status));
    if (n_path == 0)
        buf_append_str(out, "null");
    else
        api_put_openai_path(out, error->message, n_path);
    if (code == NULL)
        buf_append_str(out, ",\"code\":null}}");
    else
        buf_printf(out, ",\"code\":\"%s\"}}", code);
    return out->is_bad ? E_NOMEM : 0;
}
