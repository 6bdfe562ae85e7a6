/* SPDX-License-Identifier: Apache-2.0 */
/* The build writes the files of share/console as the rows of console.inc.
 *
 * An answer borrows its text from the binary, so a client that does not read costs only the memory of its head.
 * The content security policy lets the page load files from and send requests to its own origin only: no inline
 * scripts, no other origins, no embedding in a frame. */
#include "serve/endpoint/console_priv.h"

#include "base/check.h"
#include "net/http/response.h"
#include "net/http/server.h"
#include "serve/api/ids.h"

struct console_file {
    const char *path, *type, *text;
};

static const struct console_file console_files[] = {
#include "serve/endpoint/console.inc"
};

static const struct console_file *console_find(struct bytes path)
{
    for (size_t i = 0; i < ARRAY_LEN(console_files); i++)
        if (bytes_is(path, console_files[i].path))
            return &console_files[i];
    return NULL;
}

bool console_has(struct bytes path)
{
    return console_find(path) != NULL;
}

static void console_release(void *arg)
{
    /* the text is part of the binary */
}

void console_reply(struct http_exchange *exchange)
{
    const struct console_file *file = console_find(http_exchange_path(exchange));
    const struct http_held held = {.body = bytes_str(file->text), .release = console_release};
    struct http_fields fields = {0};
    char id[IDS_BYTES];

    ids_make("req_", id);
    (void)http_fields_add_str(&fields, "content-type", file->type);
    (void)http_fields_add_str(&fields, "request-id", id);
    (void)http_fields_add_str(&fields, "cache-control", "no-cache");
    (void)http_fields_add_str(
        &fields, "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    (void)http_fields_add_str(&fields, "x-content-type-options", "nosniff");
    (void)http_fields_add_str(&fields, "x-frame-options", "DENY");
    (void)http_fields_add_str(&fields, "referrer-policy", "no-referrer");
    (void)http_fields_add_str(&fields, "cross-origin-opener-policy", "same-origin");
    http_reply_held(exchange, 200, &fields, &held);
    http_fields_fini(&fields);
}
