/* SPDX-License-Identifier: Apache-2.0 */
/* Applies the rules of limits.c and failed_logins.c and turns refusals into answers.
 *
 * Known and unknown keys take the same path: hash and compare.  Only an address that has presented too many
 * different wrong keys is refused earlier.  Metrics and access log list a request that a limit refused like
 * any other, so that the key's owner sees it. A metric also counts such refusals by tenant and reason. */
#include "serve/endpoint/admit_priv.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"

static struct bytes admit_bearer(struct bytes value)
{
    static const char scheme[] = "bearer ";
    size_t n = sizeof(scheme) - 1;

    if (value.len_bytes <= n)
        return bytes_of(NULL, 0);
    for (size_t i = 0; i < n; i++)
        if ((value.data[i] | (i + 1 < n ? 0x20 : 0)) != (uint8_t)scheme[i])
            return bytes_of(NULL, 0);
    while (n < value.len_bytes && value.data[n] == ' ')
        n++;
    return bytes_of(value.data + n, value.len_bytes - n);
}

static void count_refusal(struct front *front, const char *tenant, const char *reason)
{
    const char *labels[2] = {tenant, reason};

    metric_add(metric_series(front->metrics.limit_refusals, labels), 1);
}

int admit_key(struct front *front, const struct http_exchange *exchange, struct auth_key *who,
              struct api_error *error)
{
    struct bytes keys[2] = {http_exchange_field(exchange, "x-api-key"),
                            admit_bearer(http_exchange_field(exchange, "authorization"))};
    const char *peer = http_exchange_peer(exchange);
    uint64_t now_ns = clock_now_ns();
    uint32_t wait_s;

    memset(who, 0, sizeof(*who));
    if (front->keys == NULL)
        return 0;
    wait_s = failed_logins_wait_s(front->failed_logins, peer, now_ns);
    if (wait_s > 0) {
        count_refusal(front, "", "failed_logins");
        api_fail(error, 429, "too many wrong API keys from this address");
        error->retry_after_s = wait_s;
        return E_LIMIT;
    }
    if (auth_check(front->keys->auth, keys[0], who) < 0 && auth_check(front->keys->auth, keys[1], who) < 0) {
        failed_logins_note(front->failed_logins, peer, keys[0], now_ns);
        failed_logins_note(front->failed_logins, peer, keys[1], now_ns);
        metric_add(front->metrics.auth_failures, 1);
        api_fail(error, 401, "invalid x-api-key or authorization");
        return E_AUTH;
    }
    limits_find(front->keys->limits, who);
    if (limits_expired(who->account, clock_unix_ns() / NS_PER_S)) {
        count_refusal(front, who->tenant, "expired");
        api_fail(error, 401, "this API key has expired");
        return E_AUTH;
    }
    return 0;
}

static int admit_refuse(struct request *request, const struct limit_refusal *refusal, struct api_error *error)
{
    const char *whose = refusal->tenant == NULL ? "this API key's" : "this tenant's";

    count_refusal(request->front, request->who.tenant, limits_kind_names(refusal->kind)->name);
    api_fail(error, 429, "%s limit of %llu %s %s", whose, (unsigned long long)refusal->limit,
             limits_kind_names(refusal->kind)->noun,
             refusal->kind == LIMIT_CONCURRENT ? "is reached" : "per minute would be exceeded");
    error->retry_after_s = refusal->retry_after_s;
    return E_LIMIT;
}

static int admit_count(struct request *request, struct limit_account *account, struct api_error *error)
{
    struct limit_refusal refusal;
    int rc = (request->resume.is_again ? limits_resume : limits_begin)(&request->lease, account,
                                                                       clock_now_ns(), &refusal);

    return rc < 0 ? admit_refuse(request, &refusal, error) : 0;
}

int admit_begin(struct request *request, struct api_error *error)
{
    request->is_unadmitted = limits_await_others(request->who.account);
    if (!request->is_unadmitted)
        return admit_count(request, request->who.account, error);
    limits_hold(&request->lease, request->who.account);
    return 0;
}

bool admit_is_early(const struct request *request)
{
    return request->is_unadmitted && limits_await_others(request->lease.account);
}

int admit_late(struct request *request, struct api_error *error)
{
    struct limit_account *account = request->lease.account;

    if (!request->is_unadmitted)
        return 0;
    request->is_unadmitted = false;
    limits_settle(&request->lease, 0, 0, clock_now_ns());
    return admit_count(request, account, error);
}

int admit_model(struct request *request, const char *model, struct api_error *error)
{
    if (limits_allow_model(request->lease.account, model))
        return 0;
    count_refusal(request->front, request->who.tenant, "model");
    api_fail(error, 403, "this API key may not use the model %s", model);
    return E_AUTH;
}

void admit_bound_answer(struct request *request)
{
    uint32_t most = request->front->opts.bounds.max_tokens;

    if (most > 0 && request->gen.work.max_new_tokens > most)
        request->gen.work.max_new_tokens = most;
}

static int admit_tokens(struct request *request, struct api_error *error)
{
    uint64_t n_choices = request->gen.n_choices > 1 ? request->gen.n_choices : 1;
    uint64_t n_all = 0;
    uint64_t most = 0;
    struct limit_refusal refusal;

    for (size_t i = 0; i < request_n_prompts(request); i++) {
        uint64_t n = request_prompt(request, i)->ids.n;
        uint64_t room = request->model->context_length > n ? request->model->context_length - n : 0;

        n_all += n;
        most += request->gen.work.max_new_tokens < room ? request->gen.work.max_new_tokens : room;
    }
    if (limits_reserve(&request->lease, n_all, most * n_choices, clock_now_ns(), &refusal) < 0)
        return admit_refuse(request, &refusal, error);
    return 0;
}

int admit_reserve(struct request *request, struct api_error *error)
{
    return request->resume.is_again ? 0 : admit_tokens(request, error);
}

void admit_found(struct request *request)
{
    limits_take_back(&request->lease, clock_now_ns());
}

int admit_anew(struct request *request, struct api_error *error)
{
    struct limit_account *account = request->lease.account;
    uint64_t now_ns = clock_now_ns();
    struct limit_refusal refusal;

    limits_settle(&request->lease, 0, 0, now_ns); /* its place is free for the check */
    if (limits_begin(&request->lease, account, now_ns, &refusal) < 0)
        return admit_refuse(request, &refusal, error);
    return admit_tokens(request, error);
}

/* The reservation of a stream that has moved pays for the part that it sends elsewhere.  A request for the rest of a stream
 * whose search ends here without a result, such as 503, counts no more. */
void admit_settle(struct request *request)
{
    const struct api_usage *usage = &request->usage;
    const struct resume *resume = &request->resume;
    uint64_t input = (uint64_t)usage->input_tokens + api_usage_created(usage), output = request->n_output;
    uint64_t now_ns = clock_now_ns();

    if (request->status / 100 != 4)
        limits_take_back(&request->lease, now_ns);
    if (resume->has_moved) {
        input = request->lease.input_tokens;
        output = request->lease.output_tokens;
    }
    limits_settle(&request->lease, input, output, now_ns);
}

/* ---- fields ---- */

static enum limit_dialect dialect_of(const struct http_exchange *exchange)
{
    return api_path_is_openai(http_exchange_path(exchange)) ? LIMIT_OPENAI : LIMIT_MESSAGES;
}

void admit_put_fields_of(const struct http_exchange *exchange, const struct auth_key *who,
                         struct http_fields *fields)
{
    if (who->account != NULL)
        limits_put_fields(who->account, dialect_of(exchange), clock_now_ns(), clock_unix_ns(), fields);
}

void admit_put_fields(const struct http_exchange *exchange, struct http_fields *fields)
{
    const struct request *request = http_exchange_user(exchange);

    if (request != NULL && request->lease.account != NULL)
        limits_put_fields(request->lease.account, dialect_of(exchange), clock_now_ns(), clock_unix_ns(),
                          fields);
}
