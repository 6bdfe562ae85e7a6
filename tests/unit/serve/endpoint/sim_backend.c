/* SPDX-License-Identifier: Apache-2.0 */
/* The scripted backend.  A job is a timer and a list of tokens; each firing sends one token. */
#include "sim_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/list.h"
#include "base/str.h"
#include "serve/endpoint/handle.h"

#define MAX_CACHED     64
#define FLOOD_PER_TURN 64
#define MAX_AT_ONCE    16

enum script { SAY, HANG, WAIT, BREAK, FLOOD };

struct sim_job {
    struct gen_handle handle; /* its outbox is unused: the timer calls the front */
    struct list node;
    struct sim *sim;
    struct gen_events events;
    void *arg;
    struct ev_timer *timer;
    enum script script;
    struct token_ids answer;
    size_t n_given;
    uint32_t max_new;
    uint32_t room; /* tokens that the context leaves */
    size_t break_at;
    uint32_t n_prompt;
    uint32_t n_cached;
    bool is_accepted;
    bool is_paused;
    bool wants_logprob;
    uint32_t n_top;
    uint64_t submitted_ns;
    uint64_t first_ns;
};

struct sim {
    struct sim_opts opts;
    struct list jobs;
    struct token_ids cached[MAX_CACHED];
    unsigned next_cached;
    unsigned n_overloads;
    struct sim_counts counts;
};

static void job_free(struct sim_job *job)
{
    list_remove(&job->node);
    ev_timer_free(job->timer);
    token_ids_fini(&job->answer);
    job->sim->counts.n_running--;
    free(job);
}

static void fill_serving(const struct sim_job *job, struct gen_serving *serving)
{
    memset(serving, 0, sizeof(*serving));
    serving->prompt_tokens = job->n_prompt;
    serving->reused_tokens = job->n_cached;
    serving->computed_tokens = job->n_prompt - job->n_cached;
    serving->transferred_tokens = job->n_prompt;
    serving->drawn_tokens = (uint32_t)job->n_given;
    serving->drafted_tokens = 8;
    serving->accepted_tokens = 6;
    serving->prefill_ns = job->first_ns > 0 ? job->first_ns - job->submitted_ns : 0;
    serving->decode_ns = job->first_ns > 0 ? clock_now_ns() - job->first_ns : 0;
    snprintf(serving->prefill_worker, sizeof(serving->prefill_worker), "sim-p");
    snprintf(serving->decode_worker, sizeof(serving->decode_worker), "sim-d");
    snprintf(serving->transport, sizeof(serving->transport), "shm");
}

static void end_job(struct sim_job *job, enum work_end end)
{
    struct gen_events events = job->events;
    void *arg = job->arg;
    struct gen_serving serving;

    fill_serving(job, &serving);
    job->sim->counts.n_ended++;
    job_free(job);
    events.on_end(arg, end, &serving);
}

static void break_job(struct sim_job *job)
{
    struct gen_failure failure = {529, "overloaded_error", "the sim broke on request", 1};
    struct gen_events events = job->events;
    void *arg = job->arg;
    struct gen_serving serving;

    fill_serving(job, &serving);
    job_free(job);
    events.on_failure(arg, &failure, &serving);
}

/* Sets token n's logprob to -n/8.  The likeliest tokens are it and the ids after it, one less each. */
static void fill_draw(const struct sim_job *job, token_id id, struct sample_result *draw)
{
    uint32_t vocab_size = tokenizer_vocab_size(job->sim->opts.model->tokenizer);

    memset(draw, 0, sizeof(*draw));
    draw->id = id;
    draw->logprob = -(float)(job->n_given % 64) / 8;
    draw->n_top = job->n_top;
    for (uint32_t i = 0; i < job->n_top; i++)
        draw->top[i] = (struct sample_top){(id + i) % vocab_size, draw->logprob - (float)i};
}

/* True if another token follows in this event, which has n. */
static bool goes_on(const struct sim_job *job, size_t n)
{
    return n < job->sim->opts.tokens_at_once && n < MAX_AT_ONCE && job->n_given < job->answer.n &&
           job->n_given < job->max_new && !(job->script == BREAK && job->n_given == job->break_at);
}

/* Sends one token, or as many as the sim gives at once.  False: the job is over, or was cancelled inside the call. */
static bool give_tokens(struct sim_job *job)
{
    struct sim *sim = job->sim;
    unsigned cancelled = sim->counts.n_cancelled;
    token_id ids[MAX_AT_ONCE];
    struct sample_result draws[MAX_AT_ONCE];
    struct gen_tokens tokens = {.ids = ids, .draws = job->wants_logprob ? draws : NULL};

    if (job->n_given == 0)
        job->first_ns = clock_now_ns();
    do {
        ids[tokens.n] = job->answer.ids[job->n_given % job->answer.n];
        if (job->wants_logprob)
            fill_draw(job, ids[tokens.n], &draws[tokens.n]);
        tokens.n++;
        job->n_given++;
        sim->counts.n_tokens++;
    } while (goes_on(job, tokens.n));
    for (unsigned step = 0; step < GEN_SOON_STEPS; step++)
        job->events.on_soon(job->arg, step);
    job->events.on_tokens(job->arg, &tokens);
    return sim->counts.n_cancelled == cancelled;
}

static void on_timer(void *arg)
{
    struct sim_job *job = arg;
    struct sim *sim = job->sim;

    if (!job->is_accepted) {
        if (job->script == WAIT)
            return;
        job->is_accepted = true;
        job->events.on_accepted(job->arg, job->n_cached);
    } else if (job->script == FLOOD) {
        for (int i = 0; i < FLOOD_PER_TURN && !job->is_paused; i++)
            if (!give_tokens(job))
                return;
    } else if (!job->is_paused) {
        if (job->script == BREAK && job->n_given == job->break_at) {
            break_job(job);
            return;
        }
        if (job->n_given == job->answer.n) {
            end_job(job, WORK_END_STOP_TOKEN);
            return;
        }
        if (!give_tokens(job))
            return;
        if (job->n_given == job->max_new) {
            end_job(job, job->n_given == job->room ? WORK_END_CONTEXT : WORK_END_LENGTH);
            return;
        }
    }
    if (job->script != HANG)
        ev_timer_start(job->timer, job->is_paused ? NS_PER_MS : sim->opts.token_ns);
}

/* ---- scripts ---- */

/* Returns the text of the last user turn. */
static void last_user_text(const struct sim *sim, const struct work_order *job, struct buf *out)
{
    static const char begin[] = "<|im_start|>user\n";
    struct buf all = {0};
    size_t at = 0;
    size_t from = 0;
    size_t to;

    for (uint32_t i = 0; i < job->n_tokens; i++) {
        struct bytes piece = tokenizer_piece(sim->opts.model->tokenizer, job->tokens[i]);

        buf_append(&all, piece.data, piece.len_bytes);
    }
    while ((at = bytes_find(buf_view(&all), bytes_str(begin), at)) != SIZE_MAX)
        from = at += sizeof(begin) - 1;
    to = bytes_find(buf_view(&all), bytes_str("<|im_end|>"), from);
    if (to == SIZE_MAX)
        to = all.len_bytes;
    buf_append(out, all.data + from, to - from);
    buf_append_byte(out, '\0');
    buf_fini(&all);
}

static int set_answer(struct sim_job *job, const char *text)
{
    return tokenizer_encode(job->sim->opts.model->tokenizer, bytes_str(text), TOKEN_PARSE_SPECIAL,
                            SIZE_MAX / 8, &job->answer);
}

static int set_count(struct sim_job *job, unsigned n)
{
    struct buf text = {0};
    int rc;

    for (unsigned i = 1; i <= n; i++)
        buf_printf(&text, "%s%u", i == 1 ? "" : " ", i);
    rc = set_answer(job, (const char *)text.data);
    buf_fini(&text);
    return rc;
}

/* Finds the script: agents put their own text before the user's, and then a script begins a paragraph. */
static const char *find_script(const char *user)
{
    const char *found = strstr(user, "\n\ncall ");

    if (strncmp(user, "<", 1) != 0)
        return user;
    return found != NULL ? found + 2 : user;
}

static int choose_script(struct sim_job *job, const char *user)
{
    struct buf text = {0};
    int rc;

    user = find_script(user);

    job->script = SAY;
    if (strncmp(user, "say ", 4) == 0)
        return set_answer(job, user + 4);
    if (strncmp(user, "call ", 5) == 0)
        return set_answer(job, user + 5);
    if (strncmp(user, "count ", 6) == 0)
        return set_count(job, (unsigned)atoi(user + 6));
    if (strncmp(user, "hang", 4) == 0)
        job->script = HANG;
    else if (strncmp(user, "wait", 4) == 0)
        job->script = WAIT;
    else if (strncmp(user, "flood", 5) == 0)
        job->script = FLOOD;
    else if (strncmp(user, "break ", 6) == 0)
        job->script = BREAK;
    job->break_at = job->script == BREAK ? (size_t)atoi(user + 6) : 0;
    buf_printf(&text, "You said: %s", user);
    rc = set_answer(job, (const char *)text.data);
    buf_fini(&text);
    return rc;
}

/* Returns whole blocks that an earlier prompt has, too; at least one token is left to compute. */
static uint32_t find_cached(struct sim *sim, const struct work_order *job)
{
    uint32_t block = sim->opts.model->block_tokens;
    struct token_ids *slot = &sim->cached[sim->next_cached++ % MAX_CACHED];
    size_t best = 0;

    for (unsigned i = 0; i < MAX_CACHED; i++) {
        size_t n = 0;

        while (n < sim->cached[i].n && n + 1 < job->n_tokens && sim->cached[i].ids[n] == job->tokens[n])
            n++;
        best = n > best ? n : best;
    }
    slot->n = 0;
    token_ids_append(slot, job->tokens, job->n_tokens);
    return (uint32_t)(best / block * block);
}

/* ---- the interface ---- */

static const struct gen_model *sim_model(void *self, const char *name)
{
    struct sim *sim = self;

    if (sim->counts.knows_nothing)
        return NULL;
    return name == NULL || strcmp(name, sim->opts.model->name) == 0 ? sim->opts.model : NULL;
}

static const struct gen_model *sim_model_at(void *self, size_t index)
{
    struct sim *sim = self;

    return index == 0 && !sim->counts.knows_nothing ? sim->opts.model : NULL;
}

static void sim_model_keep(void *self, const struct gen_model *model)
{
    ((struct sim *)self)->counts.n_kept++;
}

static void sim_model_drop(void *self, const struct gen_model *model)
{
    ((struct sim *)self)->counts.n_kept--;
}

static int refuse(struct sim *sim, struct work_order *job, struct gen_failure *failure)
{
    work_order_fini(job);
    *failure = (struct gen_failure){529, "overloaded_error", "Overloaded", 1};
    return E_OVERLOADED;
}

static int sim_submit(void *self, const struct gen_start *start, struct gen_handle **out,
                      struct gen_failure *failure_out)
{
    struct sim *sim = self;
    struct work_order *spec = start->order;
    struct sim_job *job = calloc(1, sizeof(*job));
    struct buf user = {0};
    int rc;

    last_user_text(sim, spec, &user);
    sim->counts.n_submitted++;
    if (strncmp((const char *)user.data, "overload", 8) == 0 && sim->n_overloads++ % 3 < 2) {
        buf_fini(&user);
        free(job);
        return refuse(sim, spec, failure_out);
    }
    if (sim->opts.max_running > 0 && sim->counts.n_running >= sim->opts.max_running) {
        buf_fini(&user);
        free(job);
        return refuse(sim, spec, failure_out);
    }
    job->sim = sim;
    job->events = *start->events;
    job->arg = start->arg;
    job->max_new = spec->work.max_new_tokens;
    job->wants_logprob = spec->work.sample.wants_logprob;
    job->n_top = spec->work.sample.n_top;
    job->room = start->model->context_length - spec->n_tokens;
    job->n_prompt = spec->n_tokens;
    job->n_cached = find_cached(sim, spec);
    job->submitted_ns = clock_now_ns();
    work_order_fini(spec);
    list_push_back(&sim->jobs, &job->node);
    sim->counts.n_running++;
    rc = choose_script(job, (const char *)user.data);
    buf_fini(&user);
    if (rc < 0 || ev_timer_new(sim->opts.loop, on_timer, job, &job->timer) < 0) {
        job_free(job);
        return E_NOMEM;
    }
    ev_timer_start(job->timer, sim->opts.accept_ns);
    *out = &job->handle;
    return 0;
}

static void sim_cancel(void *self, struct gen_handle *handle, struct gen_serving *serving_out)
{
    struct sim *sim = self;
    struct sim_job *job = container_of(handle, struct sim_job, handle);

    if (serving_out != NULL)
        fill_serving(job, serving_out);
    sim->counts.n_cancelled++;
    job_free(job);
}

static void sim_pause(void *self, struct gen_handle *handle, bool is_paused)
{
    struct sim *sim = self;

    container_of(handle, struct sim_job, handle)->is_paused = is_paused;
    if (is_paused)
        sim->counts.n_pauses++;
    else
        sim->counts.n_resumes++;
}

static bool sim_is_ready(void *self, struct buf *detail)
{
    struct sim *sim = self;

    if (detail != NULL)
        buf_printf(detail, "sim: %s\n", sim->counts.is_unready ? "told not to be" : "ok");
    return !sim->counts.is_unready;
}

static const char *sim_why_not_yet(void *self, const char *name)
{
    struct sim *sim = self;

    return sim->counts.knows_nothing ? "sim: nothing is known yet" : NULL;
}

static const struct backend_ops ops = {.model = sim_model,
                                       .model_at = sim_model_at,
                                       .model_keep = sim_model_keep,
                                       .model_drop = sim_model_drop,
                                       .submit = sim_submit,
                                       .cancel = sim_cancel,
                                       .pause = sim_pause,
                                       .is_ready = sim_is_ready,
                                       .why_not_yet = sim_why_not_yet};

int sim_new(const struct sim_opts *opts, struct sim **out)
{
    struct sim *sim = calloc(1, sizeof(*sim));

    if (sim == NULL)
        return E_NOMEM;
    sim->opts = *opts;
    list_init(&sim->jobs);
    *out = sim;
    return 0;
}

void sim_free(struct sim *sim)
{
    if (sim == NULL)
        return;
    list_for_each_safe (node, spare, &sim->jobs)
        job_free(container_of(node, struct sim_job, node));
    for (unsigned i = 0; i < MAX_CACHED; i++)
        token_ids_fini(&sim->cached[i]);
    free(sim);
}

struct backend sim_backend(struct sim *sim)
{
    return (struct backend){&ops, sim};
}

struct sim_counts *sim_counts(struct sim *sim)
{
    return &sim->counts;
}
