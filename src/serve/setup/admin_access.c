/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens are wiped after use; the endpoint keeps its own copy. */
#include "serve/setup/admin_access.h"

#include <openssl/crypto.h>

#include "base/err.h"
#include "net/link/addr.h"

static int admin_access_derive(const struct link_access *access, struct admin_tokens *out)
{
    uint8_t all[TLS_MAX_KEYS][CLUSTER_KEY_BYTES], metrics[TLS_MAX_KEYS][CLUSTER_KEY_BYTES];
    int n = link_access_derive(access, "admin", all);

    if (n < 0 || link_access_derive(access, "metrics", metrics) < 0)
        return E_INTERNAL;
    admin_tokens_make((const uint8_t(*)[CLUSTER_KEY_BYTES])all, (const uint8_t(*)[CLUSTER_KEY_BYTES])metrics,
                      n, out);
    OPENSSL_cleanse(all, sizeof(all));
    OPENSSL_cleanse(metrics, sizeof(metrics));
    return 0;
}

int admin_access_check(const char *listen, struct fault *fault)
{
    return addr_want_loopback(listen, "http.admin", "operate from the host itself, or through a tunnel",
                              fault);
}

int admin_access_open(const struct link_access *access, const struct admin_opts *opts, struct fault *fault,
                      struct admin **out)
{
    struct admin_tokens tokens;
    struct admin_opts own = *opts;
    int rc = admin_access_derive(access, &tokens);

    if (rc < 0)
        return fault_set(fault, rc, "key derivation failed");
    own.tokens = &tokens;
    rc = admin_access_check(opts->listen, fault);
    if (rc == 0) {
        rc = admin_new(&own, fault, out);
        if (rc < 0)
            fault_set(fault, rc, "http.admin: %s", fault->text);
    }
    OPENSSL_cleanse(&tokens, sizeof(tokens));
    return rc;
}

void admin_access_renew(const struct link_access *access, struct admin *admin)
{
    struct admin_tokens tokens;

    if (admin_access_derive(access, &tokens) == 0)
        admin_set_tokens(admin, &tokens);
    OPENSSL_cleanse(&tokens, sizeof(tokens));
}
