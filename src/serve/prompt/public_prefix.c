/* SPDX-License-Identifier: Apache-2.0 */
/* The declared beginnings, as tokens of each model.
 *
 * Each beginning is rendered with two different questions after it.  The tokens that both prompts share
 * are the beginning's fixed tokens, for any use of tools and system texts in the template.  Templates
 * may begin differently with thinking on or off, so each beginning is rendered for each setting.
 *
 * The lock covers the list of models alone.  One thread renders at a time, without the lock. */
#include "serve/prompt/public_prefix.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/json/json.h"
#include "serve/api/parse.h"
#include "base/err.h"
#include "base/file.h"
#include "base/str.h"
#include "serve/prompt/prompt.h"

#define MAX_FILE_BYTES (8u << 20)
#define MAX_BEGINNINGS 64
#define MAX_MODELS     64
#define N_SETTINGS     3 /* settings of thinking */

struct rendered { /* beginnings rendered for one model; counted, under the lock */
    char fingerprint[33];
    unsigned n_refs;
    struct token_ids ids[MAX_BEGINNINGS * N_SETTINGS];
    size_t n;
};

struct public_prefix {
    json_t *beginnings; /* a list of objects */
    pthread_mutex_t lock;
    bool is_rendering;                   /* a thread renders */
    struct rendered *models[MAX_MODELS]; /* the least recently used first */
    size_t n_models;
};

/* ---- the file ---- */

static int public_prefix_read_file(const char *path, struct fault *fault, struct buf *out)
{
    const char *why;
    FILE *file = file_open(path, &why);
    int rc;

    if (file == NULL)
        return fault_set(fault, E_IO, "%s: %s", path, why);
    rc = file_read_rest(file, MAX_FILE_BYTES, out);
    fclose(file);
    if (rc == E_LIMIT)
        return fault_set(fault, rc, "%s: more than %u bytes", path, MAX_FILE_BYTES);
    return rc != 0 ? fault_set(fault, rc, "%s: %s", path, rc == E_IO ? "cannot be read" : err_text(rc)) : 0;
}

/* Parses the beginning, followed by a question, as a request. */
static int parse_with(const json_t *beginning, const char *question, struct gen_request *out,
                      struct api_error *error)
{
    json_t *root = json_pack("{s:s,s:[{s:s,s:s}],s:O*,s:O*}", "model", "m", "messages", "role", "user",
                             "content", question, "system", json_object_get(beginning, "system"), "tools",
                             json_object_get(beginning, "tools"));
    struct buf body = {0};
    int rc = E_NOMEM;

    api_fail(error, 503, "out of memory");
    if (root != NULL && api_json_put(&body, root) == 0)
        rc = api_parse_request(buf_view(&body), API_COUNT_TOKENS, out, error);
    json_decref(root);
    buf_fini(&body);
    return rc;
}

static int public_prefix_check(const json_t *beginnings, const char *path, struct fault *fault)
{
    if (json_array_size(beginnings) > MAX_BEGINNINGS)
        return fault_set(fault, E_LIMIT, "%s: more than %d beginnings", path, MAX_BEGINNINGS);
    for (size_t i = 0; i < json_array_size(beginnings); i++) {
        const json_t *one = json_array_get(beginnings, i);
        struct gen_request request;
        struct api_error error;
        int rc;

        if (!json_is_object(one) ||
            (json_object_get(one, "system") == NULL && json_object_get(one, "tools") == NULL))
            return fault_set(fault, E_FORMAT, "%s: number %zu is no object with system or tools", path,
                             i + 1);
        rc = parse_with(one, "a", &request, &error);
        if (rc < 0)
            return fault_set(fault, rc, "%s: number %zu: %s", path, i + 1, error.message);
        gen_request_fini(&request);
    }
    return 0;
}

static int prompt_public_prefix_load(const char *path, struct fault *fault, struct public_prefix *prefix)
{
    struct fault inner = {0};
    struct buf text = {0};
    json_t *root = NULL;
    int rc = public_prefix_read_file(path, fault, &text);

    if (rc == 0 && (rc = api_json_load(buf_view(&text), &inner, &root)) < 0)
        rc = fault_set(fault, rc, "%s: %s", path, inner.text);
    buf_fini(&text);
    if (rc < 0)
        return rc;
    prefix->beginnings = json_is_array(root) ? json_incref(root) : json_pack("[O]", root);
    json_decref(root);
    if (prefix->beginnings == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    return public_prefix_check(prefix->beginnings, path, fault);
}

int public_prefix_load(const char *path, struct fault *fault, struct public_prefix **out)
{
    struct public_prefix *prefix = calloc(1, sizeof(*prefix));
    int rc;

    if (prefix == NULL)
        return fault_set(fault, E_NOMEM, "out of memory");
    pthread_mutex_init(&prefix->lock, NULL);
    rc = prompt_public_prefix_load(path, fault, prefix);
    if (rc < 0)
        public_prefix_free(prefix);
    else
        *out = prefix;
    return rc;
}

static void rendered_unref(struct rendered *rendered)
{
    if (--rendered->n_refs > 0)
        return;
    for (size_t i = 0; i < rendered->n; i++)
        token_ids_fini(&rendered->ids[i]);
    free(rendered);
}

void public_prefix_free(struct public_prefix *prefix)
{
    if (prefix == NULL)
        return;
    for (size_t i = 0; i < prefix->n_models; i++)
        rendered_unref(prefix->models[i]);
    json_decref(prefix->beginnings);
    pthread_mutex_destroy(&prefix->lock);
    free(prefix);
}

/* ---- for a model ---- */

static size_t public_prefix_common(const struct token_ids *a, const struct token_ids *b)
{
    size_t n = 0;

    while (n < a->n && n < b->n && a->ids[n] == b->ids[n])
        n++;
    return n;
}

static int render_with(const json_t *beginning, const char *question, enum gen_thinking thinking,
                       const struct gen_model *model, struct prompt *out)
{
    struct gen_request request;
    struct api_error error;
    int rc = parse_with(beginning, question, &request, &error);

    if (rc < 0)
        return rc;
    request.thinking = thinking;
    rc = prompt_make(model, &request, NULL, out, &error);
    gen_request_fini(&request);
    return rc;
}

/* If the template cannot render this beginning, no prompt that starts with it is public. */
static void public_prefix_render(const json_t *beginning, enum gen_thinking thinking,
                                 const struct gen_model *model, struct rendered *rendered)
{
    struct prompt a = {0}, b = {0};

    if (render_with(beginning, "a", thinking, model, &a) == 0 &&
        render_with(beginning, "b", thinking, model, &b) == 0 &&
        token_ids_append(&rendered->ids[rendered->n], a.ids.ids, public_prefix_common(&a.ids, &b.ids)) == 0)
        rendered->n++;
    prompt_fini(&a);
    prompt_fini(&b);
}

/* NULL: not rendered for this model.  Otherwise it becomes the most recently used.  Under the lock. */
static struct rendered *rendered_find(struct public_prefix *prefix, const struct gen_model *model)
{
    struct rendered **models = prefix->models;
    size_t i = 0;

    while (i < prefix->n_models && strcmp(models[i]->fingerprint, model->fingerprint) != 0)
        i++;
    if (i == prefix->n_models)
        return NULL;
    struct rendered *found = models[i];
    memmove(&models[i], &models[i + 1], (prefix->n_models - i - 1) * sizeof(*models));
    models[prefix->n_models - 1] = found;
    return found;
}

/* Takes rendered.  Models come and go; the least recently used one makes room.  Under the lock. */
static void rendered_keep(struct public_prefix *prefix, struct rendered *rendered)
{
    if (prefix->n_models == MAX_MODELS) {
        rendered_unref(prefix->models[0]);
        memmove(&prefix->models[0], &prefix->models[1], --prefix->n_models * sizeof(prefix->models[0]));
    }
    prefix->models[prefix->n_models++] = rendered;
}

static struct rendered *rendered_new(const struct public_prefix *prefix, const struct gen_model *model)
{
    static const enum gen_thinking settings[N_SETTINGS] = {GEN_THINKING_UNSAID, GEN_THINKING_ON,
                                                           GEN_THINKING_OFF};
    struct rendered *rendered = calloc(1, sizeof(*rendered));

    if (rendered == NULL)
        return NULL;
    rendered->n_refs = 1;
    str_copy(rendered->fingerprint, sizeof(rendered->fingerprint), model->fingerprint);
    for (size_t i = 0; i < json_array_size(prefix->beginnings); i++)
        for (size_t k = 0; k < N_SETTINGS; k++)
            public_prefix_render(json_array_get(prefix->beginnings, i), settings[k], model, rendered);
    return rendered;
}

/* Under the lock. */
static enum public_prefix_state state_for(struct public_prefix *prefix, const struct gen_model *model)
{
    return rendered_find(prefix, model) != NULL ? PUBLIC_PREFIX_READY
           : prefix->is_rendering               ? PUBLIC_PREFIX_RENDERING
                                                : PUBLIC_PREFIX_NONE;
}

enum public_prefix_state public_prefix_state(struct public_prefix *prefix, const struct gen_model *model)
{
    enum public_prefix_state state;

    pthread_mutex_lock(&prefix->lock);
    state = state_for(prefix, model);
    pthread_mutex_unlock(&prefix->lock);
    return state;
}

int public_prefix_prepare(struct public_prefix *prefix, const struct gen_model *model)
{
    enum public_prefix_state state;
    struct rendered *rendered;

    pthread_mutex_lock(&prefix->lock);
    state = state_for(prefix, model);
    prefix->is_rendering |= state == PUBLIC_PREFIX_NONE;
    pthread_mutex_unlock(&prefix->lock);
    if (state != PUBLIC_PREFIX_NONE)
        return state == PUBLIC_PREFIX_READY ? 0 : E_AGAIN;
    rendered = rendered_new(prefix, model);
    pthread_mutex_lock(&prefix->lock);
    prefix->is_rendering = false;
    if (rendered != NULL)
        rendered_keep(prefix, rendered);
    pthread_mutex_unlock(&prefix->lock);
    return rendered == NULL ? E_NOMEM : 0;
}

uint32_t public_prefix_tokens(struct public_prefix *prefix, const struct gen_model *model,
                              const struct token_ids *prompt)
{
    struct rendered *rendered;
    size_t most = 0;

    if (prefix == NULL)
        return 0;
    pthread_mutex_lock(&prefix->lock);
    rendered = rendered_find(prefix, model);
    if (rendered != NULL)
        rendered->n_refs++;
    pthread_mutex_unlock(&prefix->lock);
    if (rendered == NULL)
        return 0;
    for (size_t i = 0; i < rendered->n; i++) {
        size_t n = public_prefix_common(&rendered->ids[i], prompt);

        most = n > most ? n : most;
    }
    pthread_mutex_lock(&prefix->lock);
    rendered_unref(rendered);
    pthread_mutex_unlock(&prefix->lock);
    return (uint32_t)(most - most % model->block_tokens);
}
