/* SPDX-License-Identifier: Apache-2.0 */
/* The work on a request that grows with its content: decode and parse the body, make and tokenise the prompt.
 *
 *     body ──request_parse_work──> gen, answers in it ──request_tokenise_work──> prompts, or the answer's body
 *
 * request.c runs both on the loop if the body is small, else on a job thread, which then owns the request.
 * Each ends early once the request is abandoned, and leaves its result in work_rc and error. */
#include <stdlib.h>

#include "base/err.h"
#include "serve/access/unzip.h"
#include "serve/endpoint/front_priv.h"
#include "serve/endpoint/responses_priv.h"

#define MAX_UNZIPPED_BYTES ((size_t)32 << 20) /* used if the caller sets no other limit */
#define MAX_ECHOED_BYTES   (32u << 20)

/* Replaces the body by its decoded form. */
static int request_unpack(struct request *request)
{
    size_t max_bytes = request->front->opts.limits.max_body_bytes;
    struct buf plain = {0};
    int rc;

    if (!request->is_gzip)
        return 0;
    request->is_gzip = false;
    rc = unzip_body(buf_view(&request->body), max_bytes > 0 ? max_bytes : MAX_UNZIPPED_BYTES, &plain);
    buf_fini(&request->body);
    request->body = plain;
    if (rc == E_NOMEM) {
        api_fail(&request->error, 503, "out of memory");
    } else if (rc == E_RANGE) {
        api_fail(&request->error, 413, "the decoded request body is too large");
        request->error.code = "request_body_too_large_after_decoding";
    } else if (rc < 0) {
        api_fail(&request->error, 400, "the request body is not valid gzip");
        request->error.code = "request_body_encoding_invalid";
    }
    return rc;
}

bool request_awaits_conversation(const struct request *request)
{
    if (request->gen.response != NULL)
        return request->gen.response->n_wanted > 0;
    return request->gen.thread == GEN_THREAD_CONTINUE && request->history == NULL;
}

static int request_parse_recalled(struct request *request, struct bytes body)
{
    struct buf history = {0};
    int rc = responses_put_recalled(&request->recalled, &history);

    if (rc == 0)
        rc = api_parse_continued(body, buf_view(&history), request->call, &request->gen, &request->error);
    else
        api_fail(&request->error, 503, "out of memory");
    buf_fini(&history);
    return rc;
}

static int request_parse_body(struct request *request)
{
    struct bytes body = buf_view(&request->body);

    if (request->recalled.texts != NULL)
        return request_parse_recalled(request, body);
    return request->history == NULL ? api_parse_request(body, request->call, &request->gen, &request->error)
                                    : api_parse_continued(body, kept_text_view(request->history),
                                                          request->call, &request->gen, &request->error);
}

void request_parse_work(void *arg)
{
    struct request *request = arg;

    if (!atomic_load(&request->is_abandoned))
        request->work_rc = request_unpack(request);
    if (!atomic_load(&request->is_abandoned) && request->work_rc == 0)
        request->work_rc = resume_digest_body(request);
    if (!atomic_load(&request->is_abandoned) && request->work_rc == 0)
        request->work_rc = request_parse_body(request);
    if (request->work_rc < 0 || !request_awaits_conversation(request)) {
        if (request->work_rc == 0 && request->front->answer_cache != NULL &&
            !atomic_load(&request->is_abandoned))
            replay_read(&request->gen, &request->replay); /* on failure no answers are found */
        buf_fini(&request->body);
    }
    atomic_store(&request->is_working, false);
}

static int tokenise_prompts(struct request *request)
{
    size_t n = request->gen.n_prompts;
    size_t echoed_bytes = 0;
    int rc = 0;

    if (n > 1) {
        request->more_prompts = calloc(n - 1, sizeof(*request->more_prompts));
        if (request->more_prompts == NULL) {
            api_fail(&request->error, 503, "out of memory");
            return E_NOMEM;
        }
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct prompt *prompt = request_prompt(request, i);

        rc = prompt_make_raw(request->model, &request->gen, i, prompt, &request->error);
        if (rc == 0 && prompt->ids.n == 0 && api_call_generates(request->call))
            rc = api_fail(&request->error, 400, "%s: at least one token is needed",
                          api_call_embeds(request->call) ? "input" : "prompt");
        echoed_bytes += prompt->text.len_bytes;
    }
    if (rc == 0 && echoed_bytes > MAX_ECHOED_BYTES / (request->gen.n_choices + 1))
        rc = api_fail(&request->error, 400, "echo: more than %u bytes would be repeated", MAX_ECHOED_BYTES);
    return rc;
}

static int check_bias(struct request *request)
{
    uint32_t vocab_size = tokenizer_vocab_size(request->model->tokenizer);
    const struct sample_opts *sample = &request->gen.work.sample;

    if (sample->n_bias > 0 && sample->bias[sample->n_bias - 1].id >= vocab_size)
        return api_fail(&request->error, 400, "logit_bias: token %u is not in the model's vocabulary of %u",
                        sample->bias[sample->n_bias - 1].id, vocab_size);
    return 0;
}

/* Large stop strings take milliseconds, so they are made ready where the prompt is, and once for all choices. */
static int make_stops(struct request *request)
{
    const struct gen_request *gen = &request->gen;

    if (gen->n_stop_sequences == 0 || !api_call_generates(request->call))
        return 0;
    if (stop_set_new(gen->stop_sequences, gen->n_stop_sequences, &request->stops) == 0)
        return 0;
    api_fail(&request->error, 503, "out of memory");
    return E_NOMEM;
}

/* E_AGAIN: another thread renders the public beginnings; nothing was done. */
static int request_tokenise(struct request *request)
{
    const struct gen_model *model = request->model;
    struct public_prefix *prefix = api_call_generates(request->call) ? request->front->public_prefix : NULL;
    int rc = check_bias(request);

    if (rc < 0)
        return rc;
    if (prefix != NULL && public_prefix_prepare(prefix, model) == E_AGAIN)
        return E_AGAIN;
    shared_take_answers(request);
    if (request->front->answer_cache != NULL)
        replay_find(&request->replay, request->front->answer_cache, request->owner, model->fingerprint,
                    api_call_generates(request->call));
    if (request->call == API_DETOKENIZE)
        return prompt_put_detokenized(model, &request->gen, &request->body, &request->error);
    rc = request->gen.n_prompts > 0
             ? tokenise_prompts(request)
             : prompt_make(model, &request->gen, &request->replay, &request->prompt, &request->error);
    if (rc == 0)
        rc = responses_truncate(request);
    if (rc == 0)
        rc = make_stops(request);
    for (size_t i = 0; rc == 0 && i < request_n_prompts(request); i++)
        request_prompt(request, i)->public_tokens =
            public_prefix_tokens(prefix, model, &request_prompt(request, i)->ids);
    if (rc == 0 && request->call == API_TOKENIZE)
        rc = prompt_put_tokens(model, &request->prompt, &request->body, &request->error);
    return rc;
}

void request_tokenise_work(void *arg)
{
    struct request *request = arg;

    if (!atomic_load(&request->is_abandoned))
        request->work_rc = request_tokenise(request);
    atomic_store(&request->is_working, false);
}
