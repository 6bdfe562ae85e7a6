/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the hub: a page of text, and the search for a file's bytes.
 *
 * This file follows redirects itself, without libcurl, so that one place decides which requests carry the token:
 * only those to the endpoint's own scheme, host and port. A redirect from https to http is refused.
 *
 * A page that fails in a way that may pass is asked for again, after a pause that doubles: MAX_TRIES times, or twice
 * if the caller can do without it. */
#include "clients/pull/pull_http_priv.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum {
    MAX_REDIRECTS = 8,
    PAGE_BYTES = 32 << 20,
    REDIRECT_BYTES = 1 << 20,
    CONNECT_S = 20,
    MAX_TRIES = 4,
    BRIEF_S = 5
};
#define FIRST_WAIT_NS (200 * NS_PER_MS)
#define MAX_WAIT_NS   (30 * NS_PER_S)
#define SHORT_WAIT_NS (2 * NS_PER_S) /* of a caller that can do without the page */

int pull_http_init(void)
{
    return curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? 0 : E_NOMEM;
}

/* The scheme, host and port of an address; a missing port is the scheme's. */
static bool read_origin(const char *url, char **scheme, char **host, char **port)
{
    CURLU *parts = curl_url();
    bool is_good = parts != NULL && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
                   curl_url_get(parts, CURLUPART_SCHEME, scheme, 0) == CURLUE_OK &&
                   curl_url_get(parts, CURLUPART_HOST, host, 0) == CURLUE_OK &&
                   curl_url_get(parts, CURLUPART_PORT, port, CURLU_DEFAULT_PORT) == CURLUE_OK;

    curl_url_cleanup(parts);
    return is_good;
}

bool pull_is_same_origin(const char *a, const char *b)
{
    char *of_a[3] = {0}, *of_b[3] = {0};
    bool is_same =
        read_origin(a, &of_a[0], &of_a[1], &of_a[2]) && read_origin(b, &of_b[0], &of_b[1], &of_b[2]);

    for (int i = 0; i < 3; i++) {
        is_same = is_same && strcasecmp(of_a[i], of_b[i]) == 0;
        curl_free(of_a[i]);
        curl_free(of_b[i]);
    }
    return is_same;
}

static bool is_loopback(const char *url)
{
    return strncmp(url, "http://127.0.0.1", 16) == 0 || strncmp(url, "http://localhost", 16) == 0 ||
           strncmp(url, "http://[::1]", 12) == 0;
}

static int pull_http_on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    const struct pull_opts *opts = arg;

    return opts->is_cancelled() ? 1 : 0;
}

CURL *pull_http_easy(const struct pull_opts *opts, const char *url, struct fault *fault)
{
    bool has_token =
        opts->token != NULL && opts->token[0] != '\0' && pull_is_same_origin(opts->endpoint, url);
    CURL *easy;

    if (has_token && strncmp(url, "https://", 8) != 0 && !is_loopback(url)) {
        fault_set(fault, E_INVAL, "HF_TOKEN would travel unencrypted to %.200s; unset it or use https",
                  opts->endpoint);
        return NULL;
    }
    easy = curl_easy_init();
    if (easy == NULL) {
        fault_set(fault, E_NOMEM, "out of memory");
        return NULL;
    }
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "baton/" PACKAGE_VERSION);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, opts->is_brief ? (long)BRIEF_S : (long)CONNECT_S);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME,
                     opts->is_brief && opts->stall_s > BRIEF_S ? (long)BRIEF_S : (long)opts->stall_s);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, pull_http_on_progress);
    curl_easy_setopt(easy, CURLOPT_XFERINFODATA, (void *)opts);
    if (has_token) {
        curl_easy_setopt(easy, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        curl_easy_setopt(easy, CURLOPT_XOAUTH2_BEARER, opts->token);
    }
    return easy;
}

int pull_http_status(const struct pull_opts *opts, const char *url, long status, bool *retry_out,
                     struct fault *fault)
{
    bool has_token = opts->token != NULL && opts->token[0] != '\0';

    *retry_out = status == 408 || status == 429 || status >= 500;
    if (status == 401)
        return fault_set(fault, E_AUTH, "%s (401): %.300s",
                         has_token ? "the token is not accepted" : "a token is needed: set HF_TOKEN", url);
    if (status == 403)
        return fault_set(fault, E_AUTH, "no access (403): %.300s%s", url,
                         has_token ? "; the model's page may ask for consent"
                                   : "; set HF_TOKEN if the model is gated");
    if (status == 404)
        return fault_set(fault, E_NOT_FOUND, "not found (404): %.300s", url);
    if (status == 429)
        return fault_set(fault, E_OVERLOADED, "too many requests (429): %.300s", url);
    return fault_set(fault, *retry_out ? E_PEER : E_PROTO, "status %ld: %.300s", status, url);
}

int pull_http_failed(const struct pull_opts *opts, const char *url, CURLcode code, struct fault *fault)
{
    if (opts->is_cancelled())
        return fault_set(fault, E_CANCELLED, "cancelled");
    return fault_set(fault, code == CURLE_OPERATION_TIMEDOUT ? E_TIMEOUT : E_PEER, "%s: %.300s",
                     curl_easy_strerror(code), url);
}

/* ---- one answer ---- */

struct answer {
    struct buf *body;
    size_t most_bytes;
    CURL *easy;  /* of the request under way */
    bool is_cut; /* the rest of the body is not wanted */
    long status;
    curl_off_t wait_s;             /* Retry-After; 0: none */
    char next[PULL_URL_BYTES * 4]; /* where a redirect leads, or "" */
    struct pull_heads heads;
};

static void keep_head(struct bytes line, const char *name, char *out, size_t room)
{
    size_t n = strlen(name);

    if (line.len_bytes <= n || strncasecmp((const char *)line.data, name, n) != 0 || line.data[n] != ':')
        return;
    line = bytes_of(line.data + n + 1, line.len_bytes - n - 1);
    while (line.len_bytes > 0 && (line.data[0] == ' ' || line.data[0] == '\t'))
        line = bytes_of(line.data + 1, line.len_bytes - 1);
    while (line.len_bytes > 0 && line.data[line.len_bytes - 1] <= ' ')
        line.len_bytes--;
    if (line.len_bytes >= room || memchr(line.data, '\0', line.len_bytes) != NULL)
        return; /* too long to be used */
    memcpy(out, line.data, line.len_bytes);
    out[line.len_bytes] = '\0';
}

void pull_heads_read(struct pull_heads *heads, struct bytes line)
{
    if (bytes_starts_with(line, "HTTP/"))
        *heads = (struct pull_heads){0};
    keep_head(line, "content-range", heads->range, sizeof(heads->range));
    keep_head(line, "content-length", heads->length, sizeof(heads->length));
    keep_head(line, "content-encoding", heads->encoding, sizeof(heads->encoding));
    keep_head(line, "etag", heads->etag, sizeof(heads->etag));
    keep_head(line, "x-linked-etag", heads->linked_etag, sizeof(heads->linked_etag));
    keep_head(line, "x-linked-size", heads->linked_size, sizeof(heads->linked_size));
    keep_head(line, "link", heads->link, sizeof(heads->link));
}

static size_t pull_http_on_head(char *data, size_t size, size_t n, void *arg)
{
    struct answer *answer = arg;

    pull_heads_read(&answer->heads, bytes_of(data, n));
    return n;
}

static size_t pull_http_on_body(char *data, size_t size, size_t n, void *arg)
{
    struct answer *answer = arg;
    size_t most_bytes = answer->most_bytes;
    long status = 0;

    /* libcurl gives the next address only at the end of a redirect's body. */
    curl_easy_getinfo(answer->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 300 && status < 400 && most_bytes < REDIRECT_BYTES)
        most_bytes = REDIRECT_BYTES;
    if (answer->body->len_bytes + n > most_bytes || buf_append(answer->body, data, n) != 0) {
        answer->is_cut = true;
        return 0; /* libcurl ends the transfer */
    }
    return n;
}

/* One request; follows no redirect. Fills in the answer's status and next. */
static int pull_http_ask(const struct pull_opts *opts, const char *url, const char *range,
                         struct answer *answer, struct fault *fault)
{
    CURL *easy = pull_http_easy(opts, url, fault);
    char *next = NULL;

    if (easy == NULL)
        return fault != NULL ? fault->code : E_NOMEM;
    answer->easy = easy;
    answer->is_cut = false;
    answer->body->len_bytes = 0;
    curl_easy_setopt(easy, CURLOPT_RANGE, range);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, pull_http_on_head);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, answer);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, pull_http_on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, answer);

    CURLcode code = curl_easy_perform(easy);
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &answer->status);
    curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &answer->wait_s);
    curl_easy_getinfo(easy, CURLINFO_REDIRECT_URL, &next);
    bool has_room = next == NULL || strlen(next) < sizeof(answer->next);
    answer->next[0] = '\0';
    if (next != NULL && has_room && answer->status >= 300 && answer->status < 400)
        strcpy(answer->next, next);
    curl_easy_cleanup(easy);
    if (!has_room)
        return fault_set(fault, E_LIMIT, "a redirect's address is too long: %.300s", url);
    if (code == CURLE_OK || (answer->is_cut && range != NULL))
        return 0;
    if (answer->is_cut)
        return fault_set(fault, E_LIMIT, "more than %zu bytes: %.300s", answer->most_bytes, url);
    return pull_http_failed(opts, url, code, fault);
}

static int check_redirect(const char *from, const char *to, int n, struct fault *fault)
{
    if (n >= MAX_REDIRECTS)
        return fault_set(fault, E_LIMIT, "more than %d redirects: %.300s", MAX_REDIRECTS, to);
    if (strncasecmp(to, "https://", 8) != 0 &&
        (strncasecmp(from, "https://", 8) == 0 || strncasecmp(to, "http://", 7) != 0))
        return fault_set(fault, E_PROTO, "refused a redirect from https to %.300s", to);
    return 0;
}

/* ---- pages ---- */

/* The address in <...>; rel="next" of a Link field, on the same host. */
static void find_next(const char *url, const char *link, char next_out[PULL_URL_BYTES])
{
    const char *from = strchr(link, '<'), *end = from != NULL ? strchr(from, '>') : NULL;

    next_out[0] = '\0';
    if (end == NULL || strstr(end, "rel=\"next\"") == NULL || end - from - 1 >= PULL_URL_BYTES)
        return;
    memcpy(next_out, from + 1, (size_t)(end - from - 1));
    next_out[end - from - 1] = '\0';
    if (!pull_is_same_origin(url, next_out))
        next_out[0] = '\0';
}

/* Asks once, and follows redirects; at becomes their last address. retry_out: the same request may succeed later. */
static int ask_page(const struct pull_opts *opts, char at[PULL_URL_BYTES * 4], struct answer *answer,
                    bool *retry_out, struct fault *fault)
{
    for (int i = 0;; i++) {
        int rc = pull_http_ask(opts, at, NULL, answer, fault);

        *retry_out = rc == E_PEER || rc == E_TIMEOUT;
        if (rc == 0 && answer->next[0] != '\0')
            rc = check_redirect(at, answer->next, i, fault);
        if (rc != 0)
            return rc;
        if (answer->next[0] == '\0')
            break;
        strcpy(at, answer->next);
    }
    return answer->status == 200 ? 0 : pull_http_status(opts, at, answer->status, retry_out, fault);
}

/* The pause before the next try; sleeps in short pieces. A server that asks for a longer one is not asked again: the
 * fault stays. */
static int wait_for_retry(const struct pull_opts *opts, const struct answer *answer, int n_tries,
                          struct fault *fault)
{
    uint64_t wait_ns = FIRST_WAIT_NS << (n_tries - 1), most_ns = opts->is_brief ? SHORT_WAIT_NS : MAX_WAIT_NS;
    uint64_t asked_ns = answer->wait_s > 0 ? (uint64_t)answer->wait_s * NS_PER_S : 0;

    if (asked_ns > most_ns)
        return fault->code;
    wait_ns = asked_ns > wait_ns ? asked_ns : wait_ns;
    if (!opts->is_quiet && wait_ns >= NS_PER_S)
        fprintf(stderr, "%s; next try in %llu s\n", fault->text, (unsigned long long)(wait_ns / NS_PER_S));
    for (uint64_t until_ns = clock_now_ns() + wait_ns; clock_now_ns() < until_ns;) {
        if (opts->is_cancelled())
            return fault_set(fault, E_CANCELLED, "cancelled");
        usleep(20000);
    }
    return 0;
}

int pull_http_page(const struct pull_opts *opts, const char *url, struct buf *body,
                   char next_out[PULL_URL_BYTES], struct fault *fault)
{
    struct answer answer = {.body = body, .most_bytes = PAGE_BYTES};
    int most = opts->is_brief ? 2 : MAX_TRIES, rc;
    char at[PULL_URL_BYTES * 4];
    bool may_retry;

    for (int n_tries = 1;; n_tries++) {
        answer.wait_s = 0;
        if (!str_copy(at, sizeof(at), url))
            return fault_set(fault, E_LIMIT, "the address is too long");
        rc = ask_page(opts, at, &answer, &may_retry, fault);
        if (rc == 0 || !may_retry || n_tries == most)
            break;
        rc = wait_for_retry(opts, &answer, n_tries, fault);
        if (rc != 0)
            break;
    }
    if (rc == 0)
        find_next(at, answer.heads.link, next_out);
    return rc;
}

/* ---- files ---- */

int pull_range_read(const char *text, struct pull_range *out)
{
    struct bytes view = bytes_str(text);
    size_t minus = bytes_find(view, bytes_str("-"), 0), slash = bytes_find(view, bytes_str("/"), 0);

    if (strncasecmp(text, "bytes ", 6) != 0 || minus == SIZE_MAX || slash == SIZE_MAX || minus < 6 ||
        slash < minus)
        return E_FORMAT;
    if (str_to_u64(bytes_of(view.data + 6, minus - 6), &out->first) != 0 ||
        str_to_u64(bytes_of(view.data + minus + 1, slash - minus - 1), &out->last) != 0 ||
        str_to_u64(bytes_of(view.data + slash + 1, view.len_bytes - slash - 1), &out->total) != 0)
        return E_FORMAT;
    return out->first <= out->last && out->last < out->total ? 0 : E_FORMAT;
}

/* Takes the hub's facts about the file from the answers of the first host. */
static void take_linked(const struct pull_heads *heads, struct pull_source *source)
{
    const char *etag = heads->linked_etag;
    size_t n = strlen(etag);
    uint8_t digest[32];

    if (n >= 2 && etag[0] == '"' && etag[n - 1] == '"')
        etag++, n -= 2;
    if (hex_decode(bytes_of(etag, n), digest, sizeof(digest)) == 0)
        hex_encode(digest, sizeof(digest), source->sha256);
    str_to_u64(bytes_str(heads->linked_size), &source->size_bytes);
}

static int take_length(const struct pull_heads *heads, long status, struct pull_source *source,
                       struct fault *fault)
{
    struct pull_range range;
    uint64_t size_bytes = 0;

    source->has_ranges = status == 206;
    if (status == 206 && pull_range_read(heads->range, &range) == 0)
        size_bytes = range.total;
    else if (status == 200 && heads->encoding[0] == '\0')
        str_to_u64(bytes_str(heads->length), &size_bytes);
    if (size_bytes == 0)
        return fault_set(fault, E_PROTO, "the server does not say how long the file is: %.300s", source->url);
    if (source->size_bytes != 0 && source->size_bytes != size_bytes)
        return fault_set(fault, E_MISMATCH, "the hub says %llu bytes, the server of the file %llu: %.200s",
                         (unsigned long long)source->size_bytes, (unsigned long long)size_bytes, source->url);
    source->size_bytes = size_bytes;
    if (strncmp(heads->etag, "W/", 2) != 0)
        str_copy(source->etag, sizeof(source->etag), heads->etag);
    return 0;
}

int pull_http_find(const struct pull_opts *opts, const char *url, struct pull_source *out,
                   struct fault *fault)
{
    struct pull_source source = {0};
    struct buf body = {0};
    struct answer answer = {.body = &body, .most_bytes = 1};
    bool may_retry;
    int rc = str_copy(source.url, sizeof(source.url), url)
                 ? 0
                 : fault_set(fault, E_LIMIT, "the address is too long");

    for (int i = 0; rc == 0; i++) {
        rc = pull_http_ask(opts, source.url, "0-0", &answer, fault);
        if (rc == 0 && pull_is_same_origin(source.url, url))
            take_linked(&answer.heads, &source);
        if (rc != 0 || answer.next[0] == '\0')
            break;
        rc = check_redirect(source.url, answer.next, i, fault);
        strcpy(source.url, answer.next);
    }
    buf_fini(&body);
    if (rc == 0 && answer.status != 200 && answer.status != 206) {
        rc = pull_http_status(opts, source.url, answer.status, &may_retry, fault);
        if (may_retry)
            rc = E_AGAIN;
    }
    if (rc == 0)
        rc = take_length(&answer.heads, answer.status, &source, fault);
    if (rc == 0)
        *out = source;
    return rc;
}
