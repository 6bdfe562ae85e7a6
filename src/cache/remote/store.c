/* SPDX-License-Identifier: Apache-2.0 */
/* See store.h. */
#include "cache/remote/store.h"

#include <stdio.h>

#include "base/err.h"
#include "net/redis/redis_url.h"
#include "net/s3/s3_url.h"

const struct store_ops *store_ops_of(const char *url)
{
    return redis_url_is(url) ? &store_redis : s3_url_is(url) ? &store_s3 : NULL;
}

int store_url_check(const char *url, struct fault *fault)
{
    struct redis_url redis;
    struct s3_url s3;

    if (s3_url_is(url))
        return s3_url_parse(url, fault, &s3);
    if (redis_url_is(url))
        return redis_url_parse(url, fault, &redis);
    return fault_set(fault, E_FORMAT,
                     "not redis://, rediss://, redis+cluster://, rediss+cluster:// or s3://");
}

void store_url_public(const char *url, char *out, size_t out_bytes)
{
    const char *begin = strstr(url, "://"), *at = strrchr(url, '@'), *query;

    if (begin == NULL || at == NULL)
        snprintf(out, out_bytes, "%s", url);
    else
        snprintf(out, out_bytes, "%.*s://%s", (int)(begin - url), url, at + 1);
    query = redis_url_is(out) ? strchr(out, '?') : NULL;
    if (query != NULL) /* how the store is read, and not which one it is */
        out[query - out - (query > out && query[-1] == '/')] = '\0';
}
