/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of this folder that use libcurl. */
#ifndef CLIENTS_PULL_PULL_HTTP_PRIV_H
#define CLIENTS_PULL_PULL_HTTP_PRIV_H

#include "clients/pull/pull.h"

#include <curl/curl.h>

/* Fields of an answer; "" for those that are absent or too long. */
struct pull_heads {
    char range[80], length[24], encoding[16];
    char etag[128], linked_etag[128], linked_size[24];
    char link[PULL_URL_BYTES];
};
/* Takes one line of an answer's head; its first line starts afresh. Pure. */
void pull_heads_read(struct pull_heads *heads, struct bytes line);

struct pull_range { /* "bytes FIRST-LAST/TOTAL" */
    uint64_t first, last, total;
};
int pull_range_read(const char *text, struct pull_range *out); /* E_FORMAT. Pure. */

/* A request to url, with the token if url is the endpoint's. NULL with the fault. */
CURL *pull_http_easy(const struct pull_opts *opts, const char *url, struct fault *fault);
int pull_http_failed(const struct pull_opts *opts, const char *url, CURLcode code, struct fault *fault);

#endif
