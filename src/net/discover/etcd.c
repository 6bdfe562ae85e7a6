/* SPDX-License-Identifier: Apache-2.0 */
/* A client of etcd's JSON gateway for one thread, over libcurl. It stays with a host while that host answers, and
 * logs in again when its token has expired. */
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "net/discover/discover_priv.h"

enum { ETCD_ANSWER_MAX = 2 << 20, ETCD_CONNECT_MS = 3000, ETCD_POLL_MS = 1000, ETCD_TOKEN_BYTES = 2048 };

struct etcd {
    const struct discover_url *url;
    const struct discover_names *names;
    struct discover_thread *thread;
    CURLM *multi;
    CURL *easy;
    unsigned host;                /* index of the host that answered last */
    char token[ETCD_TOKEN_BYTES]; /* empty: not logged in */
    struct buf answer;
    bool is_too_long;
    bool (*on_line)(void *arg, struct bytes line); /* NULL: the answer is collected whole */
    void *on_line_arg;
    bool is_line_enough; /* on_line returned true */
};

int etcd_open(const struct discover_url *url, const struct discover_names *names,
              struct discover_thread *thread, struct etcd **out)
{
    struct etcd *etcd = calloc(1, sizeof(*etcd));

    if (etcd == NULL)
        return E_NOMEM;
    *etcd = (struct etcd){.url = url, .names = names, .thread = thread};
    etcd->multi = curl_multi_init();
    etcd->easy = curl_easy_init();
    if (etcd->multi == NULL || etcd->easy == NULL) {
        etcd_close(etcd);
        return E_NOMEM;
    }
    discover_thread_set_multi(thread, etcd->multi);
    *out = etcd;
    return 0;
}

void etcd_close(struct etcd *etcd)
{
    if (etcd == NULL)
        return;
    curl_easy_cleanup(etcd->easy);
    discover_thread_set_multi(etcd->thread, NULL);
    curl_multi_cleanup(etcd->multi);
    buf_fini(&etcd->answer);
    free(etcd);
}

static void etcd_take_lines(struct etcd *etcd)
{
    while (!etcd->is_line_enough) {
        const uint8_t *end =
            etcd->answer.len_bytes ? memchr(etcd->answer.data, '\n', etcd->answer.len_bytes) : NULL;
        size_t n = end != NULL ? (size_t)(end - etcd->answer.data) : 0;

        if (end == NULL)
            return;
        etcd->is_line_enough = etcd->on_line(etcd->on_line_arg, bytes_of(etcd->answer.data, n));
        buf_consume(&etcd->answer, n + 1);
    }
}

static size_t etcd_on_data(char *data, size_t size, size_t n, void *arg)
{
    struct etcd *etcd = arg;

    if (etcd->answer.len_bytes + size * n > ETCD_ANSWER_MAX ||
        buf_append(&etcd->answer, data, size * n) < 0) {
        etcd->is_too_long = true;
        return 0;
    }
    if (etcd->on_line != NULL)
        etcd_take_lines(etcd);
    return etcd->is_line_enough ? 0 : size * n;
}

static void etcd_prepare(struct etcd *etcd, const char *address, struct bytes body, struct curl_slist *head)
{
    const struct discover_names *names = etcd->names;

    curl_easy_reset(etcd->easy);
    curl_easy_setopt(etcd->easy, CURLOPT_URL, address);
    curl_easy_setopt(etcd->easy, CURLOPT_HTTPHEADER, head);
    curl_easy_setopt(etcd->easy, CURLOPT_POSTFIELDSIZE, (long)body.len_bytes);
    curl_easy_setopt(etcd->easy, CURLOPT_POSTFIELDS, (const char *)body.data);
    curl_easy_setopt(etcd->easy, CURLOPT_WRITEFUNCTION, etcd_on_data);
    curl_easy_setopt(etcd->easy, CURLOPT_WRITEDATA, etcd);
    curl_easy_setopt(etcd->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(etcd->easy, CURLOPT_QUICK_EXIT, 1L); /* closing does not wait for a name server */
    curl_easy_setopt(etcd->easy, CURLOPT_PROXY, "");
    curl_easy_setopt(etcd->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(etcd->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)ETCD_CONNECT_MS);
    curl_easy_setopt(etcd->easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(etcd->easy, CURLOPT_TCP_KEEPIDLE, 10L);
    curl_easy_setopt(etcd->easy, CURLOPT_TCP_KEEPINTVL, 5L);
    if (names->ca != NULL)
        curl_easy_setopt(etcd->easy, CURLOPT_CAINFO, names->ca);
    if (names->certificate != NULL)
        curl_easy_setopt(etcd->easy, CURLOPT_SSLCERT, names->certificate);
    if (names->key != NULL)
        curl_easy_setopt(etcd->easy, CURLOPT_SSLKEY, names->key);
}

/* Runs the prepared call. Returns curl's result, or -1 when the time is over or the thread must end. */
static int etcd_perform(struct etcd *etcd, uint64_t until_ns)
{
    int n_running = 1, n_left, result = -1;
    uint64_t now;

    curl_multi_add_handle(etcd->multi, etcd->easy);
    while (n_running > 0 && !atomic_load(&etcd->thread->is_stopping) && (now = clock_now_ns()) < until_ns) {
        uint64_t left_ms = (until_ns - now) / NS_PER_MS + 1;

        curl_multi_perform(etcd->multi, &n_running);
        if (n_running > 0)
            curl_multi_poll(etcd->multi, NULL, 0, left_ms < ETCD_POLL_MS ? (int)left_ms : ETCD_POLL_MS, NULL);
    }
    for (CURLMsg *message; (message = curl_multi_info_read(etcd->multi, &n_left)) != NULL;)
        if (message->msg == CURLMSG_DONE)
            result = (int)message->data.result;
    curl_multi_remove_handle(etcd->multi, etcd->easy);
    return result;
}

static int etcd_judge(struct etcd *etcd, int result, struct fault *fault)
{
    const char *host = etcd->url->hosts[etcd->host];
    char text[160];
    long status = 0;

    if (etcd->is_line_enough)
        return 0;
    if (atomic_load(&etcd->thread->is_stopping))
        return E_CANCELLED;
    if (etcd->is_too_long)
        return fault_set(fault, E_LIMIT, "%s: the answer is longer than %d bytes", host, ETCD_ANSWER_MAX);
    if (result < 0)
        return etcd->on_line != NULL ? 0 : fault_set(fault, E_TIMEOUT, "%s: no answer in time", host);
    if (result != CURLE_OK)
        return fault_set(fault, E_IO, "%s: %s", host, curl_easy_strerror((CURLcode)result));
    curl_easy_getinfo(etcd->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status == 200)
        return 0;
    etcd_read_error(buf_view(&etcd->answer), text, sizeof(text));
    /* Also 400: a wrong password, or a token from before the last change of a role. */
    return fault_set(fault, status == 400 || status == 401 || status == 403 ? E_AUTH : E_IO,
                     "%s: %s (status %ld)", host, text, status);
}

/* One call to the present host. */
static int etcd_try(struct etcd *etcd, const char *path, struct bytes body, uint64_t until_ns,
                    struct fault *fault)
{
    char address[DISCOVER_NAME_BYTES + 64], field[ETCD_TOKEN_BYTES + 32];
    struct curl_slist *head = curl_slist_append(NULL, "Content-Type: application/json"), *more;
    int result;

    snprintf(address, sizeof(address), "%s://%s%s", etcd->url->is_tls ? "https" : "http",
             etcd->url->hosts[etcd->host], path);
    snprintf(field, sizeof(field), "Authorization: %s", etcd->token);
    more = head != NULL && etcd->token[0] != '\0' ? curl_slist_append(head, field) : head;
    if (more == NULL) {
        curl_slist_free_all(head);
        return fault_set(fault, E_NOMEM, "out of memory");
    }
    buf_clear(&etcd->answer);
    etcd->is_too_long = etcd->is_line_enough = false;
    etcd_prepare(etcd, address, body, more);
    result = etcd_perform(etcd, until_ns);
    result = etcd_judge(etcd, result, fault);
    curl_easy_setopt(etcd->easy, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(more);
    return result;
}

static int etcd_log_in(struct etcd *etcd, uint64_t until_ns, struct fault *fault)
{
    bool (*on_line)(void *, struct bytes) = etcd->on_line;
    struct buf body = {0};
    int rc;

    if (etcd->url->user[0] == '\0' || etcd->token[0] != '\0')
        return 0;
    etcd_put_login(&body, etcd->url->user, etcd->url->password);
    etcd->on_line = NULL;
    rc = etcd_try(etcd, "/v3/auth/authenticate", buf_view(&body), until_ns, fault);
    etcd->on_line = on_line;
    if (rc == 0 && etcd_read_token(buf_view(&etcd->answer), etcd->token, sizeof(etcd->token)) < 0)
        rc = fault_set(fault, E_FORMAT, "%s: no token in the answer to a log-in",
                       etcd->url->hosts[etcd->host]);
    buf_fini(&body);
    return rc;
}

static int etcd_ask(struct etcd *etcd, const struct etcd_post *post, struct fault *fault)
{
    uint64_t until_ns = clock_now_ns() + post->timeout_ns;
    bool has_logged_in = false;
    int rc = E_IO;

    for (unsigned i = 0; i < etcd->url->n_hosts && !atomic_load(&etcd->thread->is_stopping); i++) {
        rc = etcd_log_in(etcd, until_ns, fault);
        if (rc == 0)
            rc = etcd_try(etcd, post->path, post->body, until_ns, fault);
        if (rc == E_AUTH && etcd->token[0] != '\0' && !has_logged_in) {
            etcd->token[0] = '\0'; /* it may have expired */
            has_logged_in = true;
            i--;
            continue;
        }
        if (rc == 0 || rc == E_CANCELLED)
            return rc;
        etcd->host =
            (etcd->host + 1) % etcd->url->n_hosts; /* also after a timeout: a host may accept connections
                                                    * without answering */
        if (clock_now_ns() >= until_ns)
            return rc;
    }
    return rc;
}

int etcd_call(struct etcd *etcd, const struct etcd_post *post, struct bytes *answer, struct fault *fault)
{
    int rc;

    etcd->on_line = NULL;
    rc = etcd_ask(etcd, post, fault);
    *answer = buf_view(&etcd->answer);
    return rc;
}

int etcd_stream(struct etcd *etcd, const struct etcd_post *post,
                bool (*on_line)(void *arg, struct bytes line), void *arg, struct fault *fault)
{
    etcd->on_line = on_line;
    etcd->on_line_arg = arg;
    return etcd_ask(etcd, post, fault);
}
