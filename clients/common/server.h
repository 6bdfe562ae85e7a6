/* SPDX-License-Identifier: Apache-2.0 */
/* Access to a Messages endpoint: a loop, a client on it, and the fields that every request carries. */
#ifndef CLIENTS_COMMON_SERVER_H
#define CLIENTS_COMMON_SERVER_H

#include "clients/common/cli.h"
#include "net/http/client.h"

#define SERVER_MAX_OTHERS 7

struct server {
    const char *program; /* for error messages */
    struct ev_loop *loop;
    struct http_client *client;
    struct http_client *others[SERVER_MAX_OTHERS]; /* [n_others] */
    size_t n_others;
    struct http_fields fields;
    struct server_url url;
};

struct server_opts {
    const char *program;
    const char *url;
    const char *const *more_urls; /* [n_more]: other routers of the cluster, which can continue a stream */
    size_t n_more;
    const char *api_key;     /* NULL or "": none */
    uint32_t max_idle_conns; /* 0: the client's default */
};

/* Both print errors on stderr and return an exit status, EXIT_DONE on success.  Close server in any case. */
int server_open(const struct server_opts *opts, struct server *server);
void server_close(struct server *server);
/* Gives name, or the first model that the server lists when name is NULL.  The caller frees it. */
int server_model(struct server *server, const char *name, char **out);

/* Writes base path + path into a buffer that is large enough for all paths of the commands. */
#define SERVER_PATH_BYTES 320
void server_path(const struct server *server, const char *path, char out[SERVER_PATH_BYTES]);

#endif
