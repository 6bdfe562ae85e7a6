/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a server sends nothing yet.  The first request usually asks for the server's model.  There a wrong
 * address, a missing key or a router without workers shows, so these messages say what to do. */
#include "clients/common/server.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "clients/common/fetch.h"

static int make_fields(struct server *server, const char *api_key)
{
    struct http_fields *fields = &server->fields;

    if (http_fields_add_str(fields, "content-type", "application/json") < 0 ||
        http_fields_add_str(fields, "anthropic-version", "2023-06-01") < 0 ||
        http_fields_addf(fields, "user-agent", "%s/%s", server->program, PACKAGE_VERSION) < 0 ||
        http_fields_add_str(fields, "baton-proof", "stream") < 0)
        return complain(server->program, "out of memory");
    if (api_key != NULL && *api_key != '\0' && http_fields_add_str(fields, "x-api-key", api_key) < 0)
        return complain(server->program, "the API key has characters that no key has");
    return EXIT_DONE;
}

static int server_open_others(struct server *server, const struct server_opts *opts)
{
    struct fault fault = {0};

    for (size_t i = 0; i < opts->n_more && i < SERVER_MAX_OTHERS; i++) {
        struct server_url url;
        struct http_client_opts client = {.loop = server->loop, .address = url.address};

        if (server_url_parse(opts->more_urls[i], &fault, &url) < 0 || strcmp(url.base, server->url.base) != 0)
            return complain_usage(opts->program, "--url %s: %s", opts->more_urls[i],
                                  fault.text[0] != '\0' ? fault.text : "another path than the first");
        if (http_client_new(&client, &fault, &server->others[i]) < 0)
            return complain(opts->program, "--url %s: %s", opts->more_urls[i], fault.text);
        server->n_others++;
    }
    return EXIT_DONE;
}

int server_open(const struct server_opts *opts, struct server *server)
{
    struct http_client_opts client = {.address = server->url.address, .max_idle_conns = opts->max_idle_conns};
    struct fault fault = {0};
    int rc;

    *server = (struct server){.program = opts->program};
    if (server_url_parse(opts->url, &fault, &server->url) < 0)
        return complain_usage(opts->program, "--url %s", fault.text);
    rc = make_fields(server, opts->api_key);
    if (rc != EXIT_DONE)
        return rc;
    rc = ev_loop_new(&server->loop);
    if (rc < 0)
        return complain(opts->program, "cannot make an event loop: %s", err_text(rc));
    client.loop = server->loop;
    rc = http_client_new(&client, &fault, &server->client);
    if (rc == E_FORMAT)
        return complain_usage(opts->program, "--url %s: %s", opts->url, fault.text);
    if (rc < 0)
        return complain(opts->program, "--url %s: %s", opts->url, fault.text);
    return server_open_others(server, opts);
}

void server_close(struct server *server)
{
    for (size_t i = 0; i < server->n_others; i++)
        http_client_free(server->others[i]);
    http_client_free(server->client);
    ev_loop_free(server->loop);
    http_fields_fini(&server->fields);
    *server = (struct server){0};
}

void server_path(const struct server *server, const char *path, char out[SERVER_PATH_BYTES])
{
    snprintf(out, SERVER_PATH_BYTES, "%s%s", server->url.base, path);
}

static int server_explain(const struct server *server, int status, const char *path,
                          const struct fault *fault)
{
    if (status == E_IO)
        return complain(server->program, "cannot connect to %s; is a daemon running there (--url)?",
                        fault->text);
    if (status < 0)
        return complain(server->program, "%s", fault->text);
    if (status == 401)
        return complain(server->program, "%s wants an API key: --api-key or $BATON_API_KEY",
                        server->url.address);
    if (status != 200)
        return complain(server->program, "%s%s answers with status %d; is this a Baton daemon's address?",
                        server->url.address, path, status);
    return complain(server->program, "%s serves no model yet; has a worker registered? (batonctl status)",
                    server->url.address);
}

static int copy_name(const struct server *server, const char *name, char **out)
{
    *out = strdup(name);
    return *out != NULL ? EXIT_DONE : complain(server->program, "out of memory");
}

int server_model(struct server *server, const char *name, char **out)
{
    char path[SERVER_PATH_BYTES];
    struct fetch_opts opts = {.loop = server->loop,
                              .client = server->client,
                              .method = HTTP_GET,
                              .path = path,
                              .fields = &server->fields,
                              .timeout_ns = 10 * NS_PER_S,
                              .max_bytes = 1 << 20};
    struct fault fault = {0};
    struct buf body = {0};
    json_t *root = NULL;
    int status;
    int rc;

    if (name != NULL)
        return copy_name(server, name, out);
    server_path(server, "/v1/models", path);
    status = fetch(&opts, &fault, &body);
    if (status == 200)
        root = json_loadb((const char *)body.data, body.len_bytes, 0, NULL);
    name = json_string_value(json_object_get(json_array_get(json_object_get(root, "data"), 0), "id"));
    rc = name != NULL ? copy_name(server, name, out) : server_explain(server, status, path, &fault);
    json_decref(root);
    buf_fini(&body);
    return rc;
}
