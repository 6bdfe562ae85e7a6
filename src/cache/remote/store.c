/* SPDX-License-Identifier: Apache-2.0 */
/* See store.h. */
#include "cache/remote/store.h"

#include <stdio.h>

#include "base/check.h"
#include "base/err.h"

static const struct store_ops *const store_kinds[] = {&store_redis, &store_s3};

const struct store_ops *store_ops_of(const char *url)
{
    for (size_t i = 0; i < ARRAY_LEN(store_kinds); i++)
        if (store_kinds[i]->url_is(url))
            return store_kinds[i];
    return NULL;
}

int store_url_check(const char *url, struct fault *fault)
{
    const struct store_ops *ops = store_ops_of(url);
    char schemes[256];
    size_t len = 0;

    if (ops != NULL)
        return ops->url_check(url, fault);
    for (size_t i = 0; i < ARRAY_LEN(store_kinds) && len < sizeof(schemes); i++)
        len += (size_t)snprintf(schemes + len, sizeof(schemes) - len, "%s%s",
                                i == 0                           ? ""
                                : i + 1 < ARRAY_LEN(store_kinds) ? ", "
                                                                 : " or ",
                                store_kinds[i]->schemes);
    return fault_set(fault, E_FORMAT, "not %s", schemes);
}

void store_url_public(const char *url, char *out, size_t out_bytes)
{
    const struct store_ops *ops = store_ops_of(url);
    const char *begin = strstr(url, "://"), *query;
    const char *at =
        ops == NULL || ops->has_login ? strrchr(url, '@') : NULL; /* a password may have others */

    if (begin == NULL || at == NULL)
        snprintf(out, out_bytes, "%s", url);
    else
        snprintf(out, out_bytes, "%.*s://%s", (int)(begin - url), url, at + 1);
    query = ops != NULL && ops->has_options ? strchr(out, '?') : NULL;
    if (query != NULL)
        out[query - out - (query > out && query[-1] == '/')] = '\0';
}
