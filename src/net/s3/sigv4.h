/* SPDX-License-Identifier: Apache-2.0 */
/* Signature Version 4 of Amazon's services, for requests to S3: the Authorization header of a request.
 *
 *     canonical request = method, path, query, headers, names of headers, hash of the body; a line each
 *     text to sign      = "AWS4-HMAC-SHA256", time, scope, SHA-256(canonical request)
 *     key               = HMAC chain over date, region, "s3", "aws4_request" from the secret
 *     signature         = HMAC-SHA-256(key, text to sign)
 *
 * Pure; any thread. */
#ifndef NET_S3_SIGV4_H
#define NET_S3_SIGV4_H

#include "base/bytes.h"

enum { SIGV4_TIME_BYTES = 17, SIGV4_MAX_HEADERS = 8 };

struct sigv4_header {
    const char *name, *value; /* name in lower case, value without blanks at its ends */
};

struct sigv4_request {
    const char *access_key, *secret_key, *region;
    const char *method, *path,
        *query; /* both encoded; the query's names are sorted; the query may be empty */
    const struct sigv4_header
        *headers; /* sorted by name; include "host", "x-amz-content-sha256" and "x-amz-date" */
    unsigned n_headers;
    const char *payload_hash; /* hexadecimal SHA-256 of the body, or "UNSIGNED-PAYLOAD" */
    const char *time;         /* as in "x-amz-date" */
};

void sigv4_time(uint64_t unix_s, char out[SIGV4_TIME_BYTES]); /* "20130524T000000Z" */
/* Appends the value of the Authorization header.  E_NOMEM, E_INTERNAL. */
int sigv4_sign(const struct sigv4_request *request, struct buf *out);
/* Appends a path as S3 encodes it: all but letters, digits, "-._~" and "/" as %XX. */
int sigv4_encode_path(struct bytes path, struct buf *out);

#endif
