/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of a head: of the server's answers and of our client's requests. Only these functions put text
 * into a head; they refuse every byte that could end a line early. */
#ifndef NET_HTTP_RESPONSE_H
#define NET_HTTP_RESPONSE_H

#include "base/bytes.h"

struct http_fields { /* a zeroed one is empty and ready */
    struct buf text; /* "name: value\r\n" lines */
};

void http_fields_fini(struct http_fields *fields);
/* E_INVAL: name is not a token, or value holds CR, LF, NUL or another control byte; nothing is added.
 * E_NOMEM. */
int http_fields_add(struct http_fields *fields, const char *name, struct bytes value);
int http_fields_add_str(struct http_fields *fields, const char *name, const char *value);
__attribute__((format(printf, 3, 4))) int http_fields_addf(struct http_fields *fields, const char *name,
                                                           const char *format, ...);

/* Writes the status line, the fields and the empty line. extra (may be NULL): more fields. */
int http_put_response_head(struct buf *out, int status, const struct http_fields *fields,
                           const struct http_fields *extra);
const char *http_reason(int status); /* "OK"; "Unknown" for other codes */
/* Writes "Fri, 20 Nov 2026 22:53:11 GMT" and a NUL. */
void http_date(uint64_t unix_s, char out[30]);

#endif
