/* SPDX-License-Identifier: Apache-2.0 */
/* Passes the shared keys of [http] on to the options of TLS and of the endpoint.  Each key is copied in one place. */
#include "serve/setup/http_conf.h"

struct https_conf http_conf_https(const struct http_conf *conf)
{
    return (struct https_conf){conf->tls_certificate, conf->tls_key, conf->tls_min, conf->http2,
                               conf->congestion_control};
}

void http_conf_fill(const struct http_conf *conf, struct front_opts *opts)
{
    opts->keys_path = conf->api_keys[0] != '\0' ? conf->api_keys : NULL;
    opts->has_h2c = conf->h2c;
    opts->congestion = conf->congestion_control;
    opts->origins = (const char *const *)conf->cors_origin.items;
    opts->n_origins = conf->cors_origin.n;
    opts->has_metrics = conf->metrics_for == FRONT_METRICS_CLIENTS;
}
