/* SPDX-License-Identifier: Apache-2.0 */
/* The store in Redis or Valkey: one server, or a cluster of them (redis_batch.c).
 *
 * GETRANGE reads a value or a part of it, and gives nothing where there is no value; STRLEN gives 0.  Values are
 * written with SET NX: the first writer wins, and equal hashes mean equal blocks.  EXPIRE follows GET
 * in the same send, so a value lives for its lifetime after the last use.  Servers before 6.2 know these too. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "cache/remote/store_redis_priv.h"
#include "net/redis/redis_error.h"

#define TOUCH_REST_NS    (30 * NS_PER_S)
#define REDIS_PROBE_KEYS 16u        /* of as many slots: three servers hardly share them all */
#define REPLY_OVERHEAD   (1u << 20) /* beside a value: the longest other reply */

/* ---- the four operations ---- */

static void redis_has_append(struct redis_batch *batch, unsigned i)
{
    const struct bytes args[] = {bytes_str("STRLEN"), bytes_str(batch->items[i].key)};

    resp_command(&batch->store->out, args, 2);
}

static void redis_has_reply(struct redis_batch *batch, unsigned i, const struct resp_item *reply)
{
    bool is_there = reply->kind == RESP_INTEGER && reply->number > 0;

    batch->items[i].result = is_there ? 0 : E_NOT_FOUND;
    batch->items[i].value_bytes = is_there ? (uint64_t)reply->number : 0;
}

static int store_redis_has(void *arg, struct store_item *items, unsigned n, struct fault *fault)
{
    struct redis_batch batch = {.store = arg,
                                .is_read = true,
                                .items = items,
                                .n = n,
                                .append = redis_has_append,
                                .on_reply = redis_has_reply,
                                .fault = fault};

    return redis_batch_run(&batch);
}

static void redis_touch_append(struct redis_batch *batch, unsigned i)
{
    const struct bytes args[] = {bytes_str("EXPIRE"), bytes_str(batch->items[i].key),
                                 bytes_str(batch->store->lifetime_s)};

    resp_command(&batch->store->out, args, 3);
}

static void redis_touch_reply(struct redis_batch *batch, unsigned i, const struct resp_item *reply)
{
    (void)reply;
    batch->items[i].result = 0;
}

/* Notes a key whose lifetime is to be renewed. */
static void redis_store_touch(struct redis_store *store, const char *key)
{
    if (store->lifetime_s[0] == '\0' || store->n_touched >= REDIS_MAX_TOUCHED ||
        clock_now_ns() < store->untouched_until_ns)
        return;
    if (buf_append(&store->touched, key, strlen(key) + 1) == 0)
        store->n_touched++;
}

static void redis_get_append(struct redis_batch *batch, unsigned i)
{
    const struct store_item *item = &batch->items[i];
    char from[24], to[24];

    snprintf(from, sizeof(from), "%llu", (unsigned long long)item->from_bytes);
    snprintf(to, sizeof(to), "%llu", (unsigned long long)(item->from_bytes + item->len_bytes - 1));

    const struct bytes args[] = {bytes_str("GETRANGE"), bytes_str(item->key), bytes_str(from), bytes_str(to)};
    resp_command(&batch->store->out, args, 4);
}

static void redis_get_reply(struct redis_batch *batch, unsigned i, const struct resp_item *reply)
{
    batch->items[i].result = reply->kind != RESP_TEXT ? E_PROTO : reply->text.len_bytes > 0 ? 0 : E_NOT_FOUND;
    if (batch->items[i].result == 0 && batch->places[i].is_at_replica)
        redis_store_touch(batch->store, batch->items[i].key);
    if (batch->items[i].result == 0)
        batch->reader->on_value(batch->reader->arg, i, reply->text);
}

static int store_redis_get(void *arg, struct store_item *items, unsigned n, const struct store_reader *reader,
                           struct fault *fault)
{
    struct redis_store *store = arg;
    struct redis_batch batch = {.store = store,
                                .is_read = true,
                                .items = items,
                                .n = n,
                                .append = redis_get_append,
                                .on_reply = redis_get_reply,
                                .refreshes = store->lifetime_s[0] != '\0',
                                .reader = reader,
                                .fault = fault};

    return redis_batch_run(&batch);
}

/* Renews the lifetimes of values that replicas gave.  A primary that does not answer is left alone for a while: its
 * values lose some of their lifetime. */
static void store_redis_renew(void *arg)
{
    struct redis_store *store = arg;
    struct store_item items[REDIS_MAX_TOUCHED];
    struct redis_batch batch = {
        .store = store, .items = items, .append = redis_touch_append, .on_reply = redis_touch_reply};

    for (size_t at = 0; at < store->touched.len_bytes; batch.n++) {
        items[batch.n] = (struct store_item){.key = (const char *)store->touched.data + at};
        at += strlen(items[batch.n].key) + 1;
    }
    if (batch.n > 0)
        (void)redis_batch_run(&batch);
    for (unsigned i = 0; i < batch.n; i++)
        if (items[i].result < 0 && items[i].result != E_NOT_FOUND)
            store->untouched_until_ns = clock_now_ns() + TOUCH_REST_NS;
    buf_clear(&store->touched);
    store->n_touched = 0;
}

static void redis_put_append(struct redis_batch *batch, unsigned i)
{
    struct redis_store *store = batch->store;
    const struct bytes set[] = {bytes_str("SET"), bytes_str(batch->items[i].key)};
    const struct bytes options[] = {bytes_str("NX"), bytes_str("EX"), bytes_str(store->lifetime_s)};
    unsigned n_options = store->lifetime_s[0] != '\0' ? 3 : 1;

    buf_printf(&store->out, "*%u\r\n", 3 + n_options);
    resp_args(&store->out, set, 2);
    buf_printf(&store->out, "$%zu\r\n", batch->values->all[i].len_bytes);
    if (redis_batch_add_value(batch, i) < 0)
        store->out.is_bad = true;
    buf_append_str(&store->out, "\r\n");
    resp_args(&store->out, options, n_options);
}

static void redis_put_reply(struct redis_batch *batch, unsigned i, const struct resp_item *reply)
{
    batch->items[i].result = reply->kind == RESP_TEXT ? 0 : reply->kind == RESP_NULL ? E_EXISTS : E_PROTO;
}

static int store_redis_put(void *arg, struct store_item *items, const struct store_values *values, unsigned n,
                           struct fault *fault)
{
    struct redis_batch batch = {.store = arg,
                                .items = items,
                                .n = n,
                                .append = redis_put_append,
                                .on_reply = redis_put_reply,
                                .values = values,
                                .fault = fault};

    return redis_batch_run(&batch);
}

static void redis_remove_append(struct redis_batch *batch, unsigned i)
{
    const struct bytes args[] = {bytes_str("UNLINK"), bytes_str(batch->items[i].key)};

    resp_command(&batch->store->out, args, 2);
}

static int store_redis_remove(void *arg, struct store_item *item, struct fault *fault)
{
    struct redis_batch batch = {.store = arg,
                                .items = item,
                                .n = 1,
                                .append = redis_remove_append,
                                .on_reply = redis_has_reply,
                                .fault = fault};

    return redis_batch_run(&batch);
}

/* ---- the test, and advice ---- */

/* The value of "name:value" in the text of INFO; empty: not there. */
static struct bytes redis_info_value(struct bytes info, const char *name)
{
    size_t at = bytes_find(info, bytes_str(name), 0), end;

    if (at == SIZE_MAX || at + strlen(name) >= info.len_bytes)
        return bytes_of(NULL, 0);
    at += strlen(name);
    end = bytes_find(info, bytes_str("\r\n"), at);
    return bytes_of(info.data + at, (end == SIZE_MAX ? info.len_bytes : end) - at);
}

/* Settings that do not suit a cache.  A server that does not show them gets no advice. */
static int redis_store_advise(struct redis_conn *conn, struct buf *advice)
{
    struct resp_item reply, name;
    struct bytes all;
    size_t used;
    int rc = redis_conn_ask(conn, (const char *const[]){"INFO", "memory", NULL}, &reply, NULL);

    if (rc < 0)
        return rc;
    if (reply.kind == RESP_TEXT && bytes_is(redis_info_value(reply.text, "\r\nmaxmemory:"), "0"))
        buf_append_str(advice, "maxmemory is 0: the server takes all of its host's memory; ");
    if (reply.kind == RESP_TEXT && bytes_is(redis_info_value(reply.text, "maxmemory_policy:"), "noeviction"))
        buf_append_str(advice,
                       "maxmemory-policy is noeviction: a full server takes no new blocks, allkeys-lru "
                       "gives up the oldest; ");
    rc = redis_conn_ask(conn, (const char *const[]){"CONFIG", "GET", "append*", NULL}, &reply, &all);
    if (rc < 0 || reply.kind == RESP_ERROR)
        return rc;
    (void)resp_item_parse(all, &name, &used);
    if (bytes_find(all, bytes_str("appendonly\r\n$3\r\nyes"), 0) != SIZE_MAX &&
        bytes_find(all, bytes_str("appendfsync\r\n$6\r\nalways"), 0) != SIZE_MAX)
        buf_append_str(advice, "appendfsync is always: every block waits for the server's disk; ");
    return 0;
}

static int redis_probe_fill(void *arg, unsigned i, size_t len_bytes)
{
    (void)arg, (void)i, (void)len_bytes; /* the value is empty */
    return 0;
}

static void redis_probe_on_value(void *arg, unsigned i, struct bytes value)
{
    (void)arg, (void)i, (void)value;
}

static void redis_probe_on_part(void *arg, unsigned i, struct bytes beginning)
{
    (void)arg, (void)i, (void)beginning;
}

/* Runs each command of a worker, on names of no block.  Without it, a user who lacks one, or the URL of a single server
 * where there is a cluster, would only show in the first batch, and the store would come and go for ever.  An empty value
 * counts as not there, and is removed again. */
static int redis_store_probe(struct redis_store *store, struct fault *fault)
{
    static const struct bytes empty;
    static const struct store_values values = {.all = &empty, .fill = redis_probe_fill};
    static const struct store_reader reader = {.on_part = redis_probe_on_part,
                                               .on_value = redis_probe_on_value};
    char keys[REDIS_PROBE_KEYS][24];
    struct store_item items[REDIS_PROBE_KEYS];
    int rc;

    for (unsigned i = 0; i < REDIS_PROBE_KEYS; i++) {
        snprintf(keys[i], sizeof(keys[i]), "baton:test:%u", i);
        items[i] = (struct store_item){.key = keys[i], .len_bytes = 1};
    }
    rc = store_redis_has(store, items, REDIS_PROBE_KEYS, fault);
    for (unsigned i = 0; i < REDIS_PROBE_KEYS && rc == 0 && !store->url.is_cluster; i++)
        rc = items[i].result == E_NOT_FOUND ? 0 : items[i].result; /* each of a cluster's servers may fail */
    if (rc == 0)
        rc = store_redis_get(store, items, 1, &reader, fault);
    if (rc == 0)
        rc = store_redis_put(store, items, &values, 1, fault);
    return rc == 0 ? store_redis_remove(store, items, fault) : rc;
}

static int store_redis_test(void *arg, struct buf *advice, struct fault *fault)
{
    struct redis_store *store = arg;
    struct redis_peer *peer = &store->peers[0];
    struct resp_item reply;
    int rc;

    for (unsigned i = 0; i < store->n_peers; i++) { /* from before the store was given up */
        redis_conn_close(store->peers[i].conn);
        store->peers[i].conn = NULL;
        store->peers[i].rests_until_ns = 0;
    }
    if (store->url.is_cluster) { /* servers that left the cluster would keep their places for ever */
        store->n_peers = store->answered_by = 0;
        memset(store->slots, REDIS_NO_PEER, sizeof(store->slots));
        memset(store->replicas, REDIS_NO_PEER, sizeof(store->replicas));
        for (unsigned i = 0; i < store->url.n_seeds; i++)
            (void)redis_store_peer(store, &store->url.seeds[i]);
    }
    if (store->url.is_cluster && (rc = redis_store_map(store, fault)) < 0)
        return rc;
    for (unsigned i = 0; i < store->n_peers; i++) /* of a cluster; who does not answer is left out */
        if (store->url.is_cluster && redis_store_connect(store, &store->peers[i], NULL) == 0)
            peer = &store->peers[i];
    rc = redis_store_connect(store, peer, fault);
    if (rc < 0)
        return rc;
    rc = redis_conn_ask(peer->conn, (const char *const[]){"PING", NULL}, &reply, NULL);
    if (rc == 0 && reply.kind == RESP_ERROR)
        rc = redis_error_fault(&store->url, reply.text, redis_error_code(reply.text), fault);
    else if (rc < 0)
        fault_set(fault, rc, "PING: %s", err_text(rc));
    if (rc == 0 && advice != NULL)
        rc = redis_store_advise(peer->conn, advice);
    if (rc < 0)
        redis_store_fail_peer(store, peer, rc);
    return rc < 0 || advice == NULL ? rc : redis_store_probe(store, fault);
}

/* ---- open and close ---- */

static void store_redis_close(void *arg)
{
    struct redis_store *store = arg;

    if (store == NULL)
        return;
    for (unsigned i = 0; i < store->n_peers; i++)
        redis_conn_close(store->peers[i].conn);
    buf_fini(&store->touched);
    redis_tls_free(store->conn_opts.tls);
    buf_fini(&store->out);
    free(store->gaps);
    explicit_bzero(&store->url, sizeof(store->url));
    free(store);
}

static int store_redis_open(const struct store_opts *opts, struct fault *fault, void **out)
{
    struct redis_store *store = calloc(1, sizeof(*store));
    int rc;

    if (store == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    rc = redis_url_parse(opts->url, fault, &store->url);
    if (rc == 0 && store->url.password[0] == '\0' && opts->login != NULL && opts->login[0] != '\0')
        rc = redis_url_login(&store->url, opts->login, fault);
    store->conn_opts = (struct redis_conn_opts){.url = &store->url,
                                                .stall_ns = opts->stall_ns,
                                                .max_reply_bytes = opts->value_bytes + REPLY_OVERHEAD,
                                                .is_ending = opts->is_ending};
    store->reads_replicas = store->conn_opts.reads_replicas = store->url.reads_replicas && !opts->writes;
    store->number = opts->number;
    if (rc == 0 && store->url.is_tls)
        rc = redis_tls_new(opts->ca_path, fault, &store->conn_opts.tls);
    if (rc < 0) {
        store_redis_close(store);
        return rc;
    }
    if (opts->lifetime_s > 0)
        snprintf(store->lifetime_s, sizeof(store->lifetime_s), "%llu", (unsigned long long)opts->lifetime_s);
    memset(store->slots, REDIS_NO_PEER, sizeof(store->slots));
    memset(store->replicas, REDIS_NO_PEER, sizeof(store->replicas));
    store->wants_map = store->url.is_cluster;
    for (unsigned i = 0; i < store->url.n_seeds; i++)
        (void)redis_store_peer(store, &store->url.seeds[i]);
    *out = store;
    return 0;
}

static int store_redis_url_check(const char *url, struct fault *fault)
{
    struct redis_url parsed;

    return redis_url_parse(url, fault, &parsed);
}

const struct store_ops store_redis = {.kind = "redis",
                                      .schemes = "redis://, rediss://, redis+cluster://, rediss+cluster://",
                                      .url_is = redis_url_is,
                                      .url_check = store_redis_url_check,
                                      .has_login = true,
                                      .has_options = true,
                                      .keys_per_s = 50e3,
                                      .open = store_redis_open,
                                      .close = store_redis_close,
                                      .test = store_redis_test,
                                      .has = store_redis_has,
                                      .get = store_redis_get,
                                      .put = store_redis_put,
                                      .renew = store_redis_renew,
                                      .remove = store_redis_remove};
