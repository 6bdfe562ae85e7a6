/* SPDX-License-Identifier: Apache-2.0 */
/* The store in an object store with Amazon's S3 interface, through libcurl: a value is an object, below the prefix
 * of the URL.
 *
 *     a call --> up to PARALLEL requests at once, each on a connection that libcurl keeps --> results
 *
 * An object is named as the key, with "/" for ":".  has() is HEAD, get() is GET, put() is PUT, remove() is DELETE.  Bodies are not signed (UNSIGNED-PAYLOAD): a record's
 * own tag tells whether it is right.  Reads ask for a range, since a run may be needed in part.  Objects are written
 * whole: a value has about 4 MB, or one block, and the least part of a multipart upload is 5 MiB.  Their lifetime is a rule of the bucket, which workers cannot renew.
 *
 * A server whose clock differs refuses a signature (403).  The request is then signed anew with the server's time,
 * and so are later ones.  A call fails as a whole when no request got an answer, or all are refused. */
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "cache/remote/store.h"
#include "net/s3/s3_url.h"
#include "net/s3/sigv4.h"

#define PARALLEL        16u
#define WAIT_MS         100
#define SKEW_LEAST_S    60
#define TRIES           2
#define ERROR_BYTES     8192u /* of an answer that is no object; the rest is dropped */
#define ANSWER_OVERSIZE 1024u
#define HTTP_PARTIAL    206
#define HTTP_BEYOND     416 /* the object ends before the range */

struct s3_transfer { /* one request */
    CURL *easy;
    struct curl_slist *headers;
    struct buf body;
    size_t max_bytes;
    struct bytes upload;
    size_t uploaded_bytes;
    int64_t server_unix_s; /* of the Date header; 0: none */
    char region[64];       /* where Amazon says that the bucket is; empty: it does not say */
    unsigned item, n_tries;
    bool is_busy;
    uint64_t *progress_ns; /* of the store: when a byte came or went */
};

struct s3_store {
    struct s3_url url;
    struct store_opts opts; /* url, login and ca_path are not used after open */
    char access_key[256], secret_key[256];
    char *ca_path;
    CURLM *multi;
    struct s3_transfer transfers[PARALLEL];
    int64_t skew_s; /* server's clock minus ours */
    uint64_t progress_ns;
};

struct s3_call {
    struct s3_store *store;
    const char *method;
    struct store_item *items;
    const struct store_values *values;
    unsigned n, n_sent, n_busy, n_answered;
    void (*on_value)(void *arg, unsigned i, struct bytes value);
    void *arg;
    struct fault *fault;
    int rc; /* of the first request that got no answer */
};

/* ---- libcurl's callbacks ---- */

static size_t s3_on_body(char *data, size_t size, size_t n, void *arg)
{
    struct s3_transfer *transfer = arg;

    *transfer->progress_ns = clock_now_ns();
    if (transfer->body.len_bytes + size * n > transfer->max_bytes)
        return transfer->max_bytes == ERROR_BYTES ? size * n /* the rest of an error is dropped */
                                                  : 0;       /* longer than any record: the request fails */
    return buf_append(&transfer->body, data, size * n) == 0 ? size * n : 0;
}

/* Copies the value of a header line, if the line has this name. */
static bool s3_header_is(const char *name, struct bytes line, char *out, size_t cap)
{
    size_t n_name = strlen(name), n;

    while (line.len_bytes > 0 && line.data[line.len_bytes - 1] <= ' ')
        line.len_bytes--;
    n = line.len_bytes > n_name ? line.len_bytes - n_name : 0;
    if (n == 0 || n >= cap || strncasecmp((const char *)line.data, name, n_name) != 0)
        return false;
    memcpy(out, line.data + n_name, n);
    out[n] = '\0';
    return true;
}

static size_t s3_on_header(char *data, size_t size, size_t n, void *arg)
{
    struct s3_transfer *transfer = arg;
    char date[64];
    struct bytes line = bytes_of(data, size * n);

    *transfer->progress_ns = clock_now_ns();
    if (s3_header_is("date: ", line, date, sizeof(date)))
        transfer->server_unix_s = curl_getdate(date, NULL);
    (void)s3_header_is("x-amz-bucket-region: ", line, transfer->region, sizeof(transfer->region));
    return size * n;
}

static size_t s3_on_upload(char *to, size_t size, size_t n, void *arg)
{
    struct s3_transfer *transfer = arg;
    size_t left = transfer->upload.len_bytes - transfer->uploaded_bytes,
           len = size * n < left ? size * n : left;

    *transfer->progress_ns = clock_now_ns();
    memcpy(to, transfer->upload.data + transfer->uploaded_bytes, len);
    transfer->uploaded_bytes += len;
    return len;
}

/* ---- a request ---- */

/* Signs the request and sets its headers. */
static int s3_transfer_sign(const struct s3_call *call, struct s3_transfer *transfer, const char *path)
{
    struct s3_store *store = call->store;
    char when[SIGV4_TIME_BYTES], line[320];
    const struct sigv4_header headers[] = {
        {"host", store->url.host}, {"x-amz-content-sha256", "UNSIGNED-PAYLOAD"}, {"x-amz-date", when}};
    const struct sigv4_request request = {.access_key = store->access_key,
                                          .secret_key = store->secret_key,
                                          .region = store->url.region,
                                          .method = call->method,
                                          .path = path,
                                          .query = "",
                                          .headers = headers,
                                          .n_headers = 3,
                                          .payload_hash = "UNSIGNED-PAYLOAD",
                                          .time = when};
    struct buf text = {0};
    int rc;

    sigv4_time((uint64_t)((int64_t)(clock_unix_ns() / NS_PER_S) + store->skew_s), when);
    buf_append_str(&text, "Authorization: ");
    rc = store->access_key[0] != '\0' ? sigv4_sign(&request, &text) : 0;
    curl_slist_free_all(transfer->headers);
    transfer->headers = curl_slist_append(NULL, "Expect:"); /* no round trip before a body */
    for (unsigned i = 1; i < 3 && rc == 0 && store->access_key[0] != '\0'; i++) {
        snprintf(line, sizeof(line), "%s: %s", headers[i].name, headers[i].value);
        transfer->headers = curl_slist_append(transfer->headers, line);
    }
    if (rc == 0 && store->access_key[0] != '\0' && !text.is_bad)
        transfer->headers = curl_slist_append(transfer->headers, (const char *)text.data);
    buf_fini(&text);
    return rc < 0 ? rc : transfer->headers != NULL ? 0 : E_NOMEM;
}

static void s3_transfer_set_method(const struct s3_call *call, struct s3_transfer *transfer)
{
    CURL *easy = transfer->easy;

    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L); /* the end does not wait for a name server */
    curl_easy_setopt(easy, CURLOPT_NOBODY, strcmp(call->method, "HEAD") == 0 ? 1L : 0L);
    curl_easy_setopt(easy, CURLOPT_UPLOAD, call->values != NULL ? 1L : 0L);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, strcmp(call->method, "DELETE") == 0 ? "DELETE" : NULL);
    if (call->values != NULL) {
        transfer->upload = call->values->all[transfer->item];
        curl_easy_setopt(easy, CURLOPT_READFUNCTION, s3_on_upload);
        curl_easy_setopt(easy, CURLOPT_READDATA, transfer);
        curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)transfer->upload.len_bytes);
    }
    transfer->max_bytes =
        call->on_value != NULL ? call->store->opts.value_bytes + ANSWER_OVERSIZE : ERROR_BYTES;
}

static void s3_transfer_set_range(struct s3_transfer *transfer, const struct store_item *item)
{
    char range[48];

    snprintf(range, sizeof(range), "%llu-%llu", (unsigned long long)item->from_bytes,
             (unsigned long long)(item->from_bytes + item->len_bytes - 1));
    curl_easy_setopt(transfer->easy, CURLOPT_RANGE, range);
}

/* Sends the item's request. */
static int s3_transfer_begin(struct s3_call *call, struct s3_transfer *transfer)
{
    struct s3_store *store = call->store;
    struct buf path = {0}, url = {0};
    int rc = E_NOMEM;

    curl_easy_reset(transfer->easy);
    buf_clear(&transfer->body);
    transfer->uploaded_bytes = 0;
    transfer->server_unix_s = 0;
    transfer->region[0] = '\0';
    buf_append_str(&path, store->url.prefix);
    for (const char *c = call->items[transfer->item].key; *c != '\0'; c++)
        buf_append_byte(&path, (uint8_t)(*c == ':' ? '/' : *c)); /* all else in a key needs no encoding */
    if (!path.is_bad)
        rc = buf_printf(&url, "%s%s", store->url.base, (const char *)path.data);
    if (rc == 0)
        rc = s3_transfer_sign(call, transfer, (const char *)path.data);
    if (rc == 0 && call->values != NULL)
        rc = call->values->fill(call->values->arg, transfer->item,
                                call->values->all[transfer->item].len_bytes);
    if (rc == 0) {
        CURL *easy = transfer->easy;

        curl_easy_setopt(easy, CURLOPT_URL, (const char *)url.data);
        if (call->on_value != NULL)
            s3_transfer_set_range(transfer, &call->items[transfer->item]);
        curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
        curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
        curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
        curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)(store->opts.stall_ns / NS_PER_MS));
        curl_easy_setopt(easy, CURLOPT_HTTPHEADER, transfer->headers);
        curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer);
        curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, s3_on_body);
        curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer);
        curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, s3_on_header);
        curl_easy_setopt(easy, CURLOPT_HEADERDATA, transfer);
        if (store->ca_path != NULL)
            curl_easy_setopt(easy, CURLOPT_CAINFO, store->ca_path);
        s3_transfer_set_method(call, transfer);
        rc = curl_multi_add_handle(store->multi, easy) == CURLM_OK ? 0 : E_NOMEM;
    }
    buf_fini(&path);
    buf_fini(&url);
    transfer->is_busy = rc == 0;
    call->n_busy += rc == 0;
    return rc;
}

static int s3_result(const struct s3_call *call, CURLcode code, long status)
{
    if (code == CURLE_PEER_FAILED_VERIFICATION)
        return E_AUTH;
    if (code == CURLE_OPERATION_TIMEDOUT)
        return E_TIMEOUT;
    if (code != CURLE_OK)
        return code == CURLE_WRITE_ERROR ? E_PROTO : E_IO;
    if ((status >= 200 && status < 300) || status == HTTP_BEYOND)
        return 0;
    if (status == 404)
        return call->values == NULL ? E_NOT_FOUND : E_PROTO; /* an object; when it is written, the bucket */
    if (status == 507)
        return E_FULL;
    return status == 401 || status == 403 ? E_AUTH : status == 429 || status >= 500 ? E_AGAIN : E_PROTO;
}

/* The server's clock differs: true, and the request can be signed anew. */
static bool s3_learns_time(struct s3_store *store, const struct s3_transfer *transfer, long status)
{
    int64_t skew_s = transfer->server_unix_s - (int64_t)(clock_unix_ns() / NS_PER_S),
            change_s = skew_s - store->skew_s;

    if (status != 403 || transfer->server_unix_s <= 0 || transfer->n_tries >= TRIES ||
        (change_s < SKEW_LEAST_S && change_s > -SKEW_LEAST_S))
        return false;
    store->skew_s = skew_s;
    return true;
}

static void s3_note_length(const struct s3_transfer *transfer, struct store_item *item)
{
    curl_off_t len_bytes = 0;

    curl_easy_getinfo(transfer->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &len_bytes);
    item->value_bytes = len_bytes > 0 ? (uint64_t)len_bytes : 0;
    if (item->value_bytes == 0)
        item->result = E_NOT_FOUND;
}

/* The part that was asked for.  Servers may answer a range with the whole object. */
static struct bytes s3_part(const struct s3_transfer *transfer, const struct store_item *item, long status)
{
    struct bytes body = buf_view(&transfer->body);
    size_t from = status == HTTP_PARTIAL ? 0 : item->from_bytes, left;

    if (status == HTTP_BEYOND || from > body.len_bytes)
        return bytes_of(body.data, 0);
    left = body.len_bytes - from;
    return bytes_of(body.data + from, left < item->len_bytes ? left : item->len_bytes);
}

/* The server refused: says why, by its own code ("NoSuchBucket") if the answer has one. */
static void s3_fault_refused(const struct s3_call *call, const struct s3_transfer *transfer, int result,
                             long status)
{
    const struct s3_url *url = &call->store->url;
    struct bytes body = buf_view(&transfer->body);
    size_t from = bytes_find(body, bytes_str("<Code>"), 0), to = SIZE_MAX;

    if (transfer->region[0] != '\0' && strcmp(transfer->region, url->region) != 0) {
        fault_set(call->fault, result, "%s: HTTP status %ld: the bucket is in region %s, the URL says %s",
                  call->method, status, transfer->region, url->region);
        return;
    }
    if (from != SIZE_MAX)
        to = bytes_find(body, bytes_str("</Code>"), from += 6);
    if (to == SIZE_MAX || to - from > 64)
        fault_set(call->fault, result, "%s: HTTP status %ld", call->method, status);
    else
        fault_set(call->fault, result, "%s: HTTP status %ld, %.*s", call->method, status, (int)(to - from),
                  (const char *)body.data + from);
}

/* A request has ended. */
static void s3_transfer_end(struct s3_call *call, struct s3_transfer *transfer, CURLcode code)
{
    struct store_item *item = &call->items[transfer->item];
    long status = 0;

    curl_multi_remove_handle(call->store->multi, transfer->easy);
    transfer->is_busy = false;
    call->n_busy--;
    curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_OK && s3_learns_time(call->store, transfer, status)) {
        transfer->n_tries++;
        if (s3_transfer_begin(call, transfer) == 0)
            return;
    }
    item->result = s3_result(call, code, status);
    if (item->result == 0 && strcmp(call->method, "HEAD") == 0)
        s3_note_length(transfer, item);
    if (code != CURLE_OK) {
        call->rc = call->rc == 0 ? item->result : call->rc;
        fault_set(call->fault, item->result, "%s: %s", call->method, curl_easy_strerror(code));
        return;
    }
    call->n_answered++;
    if (item->result < 0 && item->result != E_NOT_FOUND)
        s3_fault_refused(call, transfer, item->result, status);
    if (item->result == 0 && call->on_value != NULL)
        call->on_value(call->arg, transfer->item, s3_part(transfer, item, status));
}

/* ---- a call ---- */

static void s3_call_send(struct s3_call *call)
{
    struct s3_store *store = call->store;

    for (unsigned i = 0; i < PARALLEL && call->n_sent < call->n; i++) {
        struct s3_transfer *transfer = &store->transfers[i];

        if (transfer->is_busy)
            continue;
        transfer->item = call->n_sent++;
        transfer->n_tries = 1;
        if (s3_transfer_begin(call, transfer) < 0)
            call->items[transfer->item].result = E_NOMEM;
    }
}

/* Ends all requests under way. */
static void s3_call_stop(struct s3_call *call, int result)
{
    for (unsigned i = 0; i < PARALLEL; i++) {
        struct s3_transfer *transfer = &call->store->transfers[i];

        if (!transfer->is_busy)
            continue;
        curl_multi_remove_handle(call->store->multi, transfer->easy);
        transfer->is_busy = false;
        call->items[transfer->item].result = result;
    }
    call->n_busy = 0;
    for (; call->n_sent < call->n; call->n_sent++)
        call->items[call->n_sent].result = result;
    call->rc = result;
    fault_set(call->fault, result, "%s: %s", call->method, err_text(result));
}

static bool s3_is_refused(const struct s3_call *call)
{
    for (unsigned i = 0; i < call->n; i++) {
        int result = call->items[i].result;

        if (result >= 0 || result == E_NOT_FOUND || result == E_FULL)
            return false;
    }
    return call->n > 0;
}

static int s3_call_run(struct s3_call *call)
{
    struct s3_store *store = call->store;

    store->progress_ns = clock_now_ns();
    for (s3_call_send(call); call->n_busy > 0; s3_call_send(call)) {
        const CURLMsg *message;
        int n_running, n_left;

        if (curl_multi_perform(store->multi, &n_running) != CURLM_OK)
            s3_call_stop(call, E_INTERNAL);
        while ((message = curl_multi_info_read(store->multi, &n_left)) != NULL) {
            struct s3_transfer *transfer = NULL;
            CURLcode code = message->data.result;

            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
            store->progress_ns = clock_now_ns();
            s3_transfer_end(call, transfer, code);
        }
        if (atomic_load_explicit(store->opts.is_ending, memory_order_relaxed))
            s3_call_stop(call, E_CANCELLED);
        else if (call->n_busy > 0 && clock_now_ns() - store->progress_ns > store->opts.stall_ns)
            s3_call_stop(call, E_TIMEOUT);
        else if (call->n_busy > 0 && call->n_sent == call->n)
            curl_multi_poll(store->multi, NULL, 0, WAIT_MS, NULL);
        else if (call->n_busy == PARALLEL)
            curl_multi_poll(store->multi, NULL, 0, WAIT_MS, NULL);
    }
    if (call->n_answered == 0 && call->n > 0)
        return call->rc < 0 ? call->rc : E_IO;
    return s3_is_refused(call) ? call->items[0].result : 0;
}

static int store_s3_has(void *arg, struct store_item *items, unsigned n, struct fault *fault)
{
    struct s3_call call = {.store = arg, .method = "HEAD", .items = items, .n = n, .fault = fault};

    return s3_call_run(&call);
}

static int store_s3_get(void *arg, struct store_item *items, unsigned n, const struct store_reader *reader,
                        struct fault *fault)
{
    struct s3_call call = {.store = arg,
                           .method = "GET",
                           .items = items,
                           .n = n,
                           .on_value = reader->on_value,
                           .arg = reader->arg,
                           .fault = fault};

    return s3_call_run(&call);
}

static int store_s3_put(void *arg, struct store_item *items, const struct store_values *values, unsigned n,
                        struct fault *fault)
{
    struct s3_call call = {
        .store = arg, .method = "PUT", .items = items, .values = values, .n = n, .fault = fault};

    return s3_call_run(&call);
}

static int store_s3_remove(void *arg, struct store_item *item, struct fault *fault)
{
    struct s3_call call = {.store = arg, .method = "DELETE", .items = item, .n = 1, .fault = fault};

    return s3_call_run(&call);
}

static int s3_test_fill(void *arg, unsigned i, size_t len_bytes)
{
    (void)arg, (void)i, (void)len_bytes; /* the object is empty */
    return 0;
}

/* An object that need not be there: "not found" is an answer, and a refused signature is none.  A bucket that does not
 * exist answers the same, so the first test also writes the object, which is empty.  S3 has no settings to advise on. */
/* Each connection asks anew, and each of its first requests is refused: better that both clocks are right. */
static void s3_advise(const struct s3_store *store, struct buf *advice)
{
    long long skew_s = store->skew_s, minutes = ((skew_s < 0 ? -skew_s : skew_s) + 30) / 60;

    if (minutes > 0)
        (void)buf_printf(advice, "the store's clock is %lld min %s this host's: set the wrong one right; ",
                         minutes, skew_s > 0 ? "ahead of" : "behind");
}

static int store_s3_test(void *arg, struct buf *advice, struct fault *fault)
{
    static const struct bytes empty;
    static const struct store_values values = {.all = &empty, .fill = s3_test_fill};
    struct store_item item = {.key = "baton:test"};
    int rc = store_s3_has(arg, &item, 1, fault);

    if (rc == 0 && advice != NULL)
        rc = store_s3_put(arg, &item, &values, 1, fault);
    if (rc == 0 && advice != NULL)
        s3_advise(arg, advice);
    return rc;
}

/* ---- open and close ---- */

static void store_s3_close(void *arg)
{
    struct s3_store *store = arg;

    if (store == NULL)
        return;
    for (unsigned i = 0; i < PARALLEL; i++) {
        curl_easy_cleanup(store->transfers[i].easy);
        curl_slist_free_all(store->transfers[i].headers);
        buf_fini(&store->transfers[i].body);
    }
    curl_multi_cleanup(store->multi);
    free(store->ca_path);
    explicit_bzero(store->secret_key, sizeof(store->secret_key));
    free(store);
}

/* "access key:secret key"; empty: requests are not signed, for buckets that are open to this host. */
static int s3_login_parse(struct s3_store *store, const char *login, struct fault *fault)
{
    const char *colon = strchr(login, ':');

    if (login[0] == '\0')
        return 0;
    if (colon == NULL || (size_t)(colon - login) >= sizeof(store->access_key) ||
        strlen(colon + 1) >= sizeof(store->secret_key))
        return fault_set(fault, E_FORMAT, "the login is not access-key:secret-key");
    memcpy(store->access_key, login, (size_t)(colon - login));
    strcpy(store->secret_key, colon + 1);
    return 0;
}

static int store_s3_open(const struct store_opts *opts, struct fault *fault, void **out)
{
    struct s3_store *store = calloc(1, sizeof(*store));
    int rc;

    if (store == NULL || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        free(store);
        return fault_set(fault, E_NOMEM, "out of memory");
    }
    store->opts = *opts;
    rc = s3_url_parse(opts->url, fault, &store->url);
    if (rc == 0)
        rc = s3_login_parse(store, opts->login != NULL ? opts->login : "", fault);
    store->multi = curl_multi_init();
    if (opts->ca_path != NULL && opts->ca_path[0] != '\0')
        store->ca_path = strdup(opts->ca_path);
    for (unsigned i = 0; i < PARALLEL; i++) {
        store->transfers[i].easy = curl_easy_init();
        store->transfers[i].progress_ns = &store->progress_ns;
        if (rc == 0 && (store->multi == NULL || store->transfers[i].easy == NULL))
            rc = fault_set(fault, E_NOMEM, "out of memory");
    }
    if (rc < 0) {
        store_s3_close(store);
        return rc;
    }
    *out = store;
    return 0;
}

static int store_s3_url_check(const char *url, struct fault *fault)
{
    struct s3_url parsed;

    return s3_url_parse(url, fault, &parsed);
}

const struct store_ops store_s3 = {.kind = "s3",
                                   .schemes = "s3://",
                                   .url_is = s3_url_is,
                                   .url_check = store_s3_url_check,
                                   .keys_per_s = 200,
                                   .open = store_s3_open,
                                   .close = store_s3_close,
                                   .test = store_s3_test,
                                   .has = store_s3_has,
                                   .get = store_s3_get,
                                   .put = store_s3_put,
                                   .remove = store_s3_remove};
