/* SPDX-License-Identifier: Apache-2.0 */
/* See redis_error.h. */
#include "net/redis/redis_error.h"

enum { REDIS_ERROR_BYTES = 200, REDIS_MOVED_BYTES = 60 };

static int redis_error_length(struct bytes error, int most)
{
    return error.len_bytes < (size_t)most ? (int)error.len_bytes : most;
}

int redis_error_fault(const struct redis_url *url, struct bytes error, int code, struct fault *fault)
{
    const char *text = (const char *)error.data;

    if (!url->is_cluster && (bytes_starts_with(error, "MOVED ") || bytes_starts_with(error, "ASK ")))
        return fault_set(fault, code,
                         "the server is part of a cluster: use redis+cluster:// (it answers %.*s)",
                         redis_error_length(error, REDIS_MOVED_BYTES), text);
    if (bytes_starts_with(error, "ERR This instance has cluster support disabled"))
        return fault_set(fault, code, "the server is not part of a cluster: use redis://");
    if (bytes_starts_with(error, "NOAUTH"))
        return fault_set(fault, code, "the server wants a password, and there is none (NOAUTH)");
    return fault_set(fault, code, "%.*s", redis_error_length(error, REDIS_ERROR_BYTES), text);
}
