/* SPDX-License-Identifier: Apache-2.0 */
/* See tls_ctx.h. */
#include "net/link/tls_ctx.h"

SSL_CTX *tls_ctx_new(const SSL_METHOD *method, const struct tls_ctx_opts *opts)
{
    SSL_CTX *ctx = SSL_CTX_new(method);

    if (ctx == NULL)
        return NULL;
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_IGNORE_UNEXPECTED_EOF |
                                 (opts->n_tickets == 0 ? SSL_OP_NO_TICKET : 0) | opts->more_options);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    if (SSL_CTX_set_min_proto_version(ctx, opts->min_version) == 1 &&
        SSL_CTX_set1_groups_list(ctx, opts->groups) == 1 &&
        SSL_CTX_set_num_tickets(ctx, opts->n_tickets) == 1 && SSL_CTX_set_max_early_data(ctx, 0) == 1)
        return ctx;
    SSL_CTX_free(ctx);
    return NULL;
}
