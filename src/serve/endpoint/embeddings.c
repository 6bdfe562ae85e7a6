/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/embeddings: one choice for each input, whose only result is a vector.
 *
 *     on_tokens -> take: kept in the choice
 *     all over  -> finish -> render_part ... : cut, scaled to length 1, rendered into request.body
 *
 * Rendering 4,096 numbers takes three milliseconds and a request may have 2,048 inputs, so each turn of the
 * loop renders for a fraction of a millisecond. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "serve/api/render_embeddings.h"
#include "serve/endpoint/output_priv.h"

#define TURN_NS      (NS_PER_MS / 4)
#define PACKED_BYTES 6u  /* at most, of a number in base64 ... */
#define PLAIN_BYTES  17u /* ... and in digits */
#define HEAD_BYTES   96u
#define MAX_RESERVED ((size_t)1 << 30)
#define SLICE        (8 * API_EMBEDDING_PIECE) /* numbers between two readings of the clock */

static void fail_short(struct request *request, uint32_t n_dims)
{
    struct api_error error;

    api_fail(&error, 400, "dimensions: the embeddings of %s have %u numbers", request->model->name, n_dims);
    request_fail(request, &error);
}

static void embeddings_take(struct choice *choice, const struct gen_tokens *tokens)
{
    struct request *request = choice->request;

    if (tokens->n_dims < request->gen.embedding_dims) {
        fail_short(request, tokens->n_dims);
        return;
    }
    free(choice->embedding);
    choice->n_dims = request->gen.embedding_dims > 0 ? request->gen.embedding_dims : tokens->n_dims;
    choice->embedding = malloc(choice->n_dims * sizeof(*choice->embedding));
    if (choice->embedding == NULL)
        request_fail_no_memory(request);
    else
        memcpy(choice->embedding, tokens->embedding, choice->n_dims * sizeof(*choice->embedding));
}

/* Reserves memory for the whole answer, because copying fifty megabytes while the body grows would block the loop.
 * Pages are touched only when they are written.  If this fails, a later append fails. */
static void embeddings_finish(struct request *request)
{
    size_t number_bytes = request->gen.embedding_is_base64 ? PACKED_BYTES : PLAIN_BYTES;
    size_t n_bytes = request->n_choices * (HEAD_BYTES + number_bytes * request->choices[0].n_dims);

    (void)buf_reserve(&request->body, n_bytes < MAX_RESERVED ? n_bytes : MAX_RESERVED);
    request->body.is_bad = false;
    ev_timer_start(request->later, 0);
}

/* Scales a vector to length 1.  A vector of zeros stays as it is. */
static void embedding_normalise(float *numbers, uint32_t n)
{
    double sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += (double)numbers[i] * (double)numbers[i];
    for (uint32_t i = 0; i < n && sum > 0; i++)
        numbers[i] = (float)((double)numbers[i] / sqrt(sum));
}

/* Appends the next numbers of the choice's embedding to the body.  E_INTERNAL: the worker sent none.  E_NOMEM. */
static int render_some(struct choice *choice)
{
    struct request *request = choice->request;
    const struct api_embedding embedding = {.index = choice->index,
                                            .numbers = choice->embedding,
                                            .n_dims = choice->n_dims,
                                            .is_base64 = request->gen.embedding_is_base64};
    uint32_t from = choice->n_rendered, rest = choice->n_dims - from;

    if (choice->embedding == NULL)
        return E_INTERNAL;
    if (from == 0)
        embedding_normalise(choice->embedding, choice->n_dims);
    choice->n_rendered += rest < SLICE ? rest : SLICE;
    return api_put_embedding(&request->body, &embedding, from, choice->n_rendered);
}

/* Frees a rendered choice now, because freeing two thousand at the end would take milliseconds. */
static void release_rendered(struct choice *choice)
{
    free(choice->embedding);
    choice->embedding = NULL;
    answer_free(choice->answer);
    choice->answer = NULL;
    choice->request->n_rendered++;
}

static void embeddings_render_part(struct request *request)
{
    uint64_t begun_ns = clock_now_ns();
    struct api_error error;
    int rc = 0;

    while (rc == 0 && request->n_rendered < request->n_choices && clock_now_ns() - begun_ns < TURN_NS) {
        struct choice *choice = &request->choices[request->n_rendered];

        rc = render_some(choice);
        if (rc == 0 && choice->n_rendered == choice->n_dims)
            release_rendered(choice);
    }
    if (rc == E_INTERNAL) {
        api_fail(&error, 500, "the worker sent no embedding");
        request_fail(request, &error);
    } else if (rc < 0) {
        request_fail_no_memory(request);
    } else if (request->n_rendered < request->n_choices) {
        ev_timer_start(request->later, 0);
    } else {
        request_finish(request);
    }
}

/* ---- the dialect ---- */

static int embeddings_whole(struct request *request, struct buf *body)
{
    uint64_t n_tokens = 0;

    *body = request->body;
    request->body = (struct buf){0};
    for (size_t i = 0; i < request_n_prompts(request); i++)
        n_tokens += request_prompt(request, i)->ids.n;
    return api_put_embeddings_end(body, request->gen.model, n_tokens);
}

const struct output_dialect output_embeddings = {.id_prefix = "embd-",
                                                 .whole = embeddings_whole,
                                                 .take = embeddings_take,
                                                 .finish = embeddings_finish,
                                                 .render_part = embeddings_render_part};
