/* SPDX-License-Identifier: Apache-2.0 */
/* Thinning draws arrivals at a changing rate: candidates come at the highest rate, and each stays with a
 * probability in proportion to the rate at its time.  A session's next turn is drawn when its answer ends, so
 * agents wait for a slow server like real agents. */
#include "fleet/sim/generate.h"

#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/rng.h"
#include "fleet/sim/agenda_priv.h"

#define BURST_PERIOD_S 60.0
#define LONGEST        8 /* times the mean */
#define MAX_CONTEXT    (1u << 20)

struct session {
    uint64_t salt, tenant;
    uint32_t context; /* tokens of the next prompt, without its new ones */
    uint32_t n_left;
    uint32_t next_free;
};

struct generate {
    struct generate_opts opts;
    struct rng rng;
    uint64_t arrival_ns; /* of the next new request or session; UINT64_MAX: no more */
    uint64_t n_made;
    bool is_other; /* the next request is of the second kind */
    struct session *sessions;
    uint32_t n_sessions, cap_sessions, free;
    struct sim_agenda turns; /* what: session */
};

static double draw_exponential(struct generate *generate, double mean)
{
    return -log(1 - rng_unit(&generate->rng)) * mean;
}

static uint32_t draw_tokens(struct generate *generate, uint32_t mean)
{
    double n = draw_exponential(generate, mean), most = (double)LONGEST * mean;

    if (generate->opts.has_equal_lengths)
        return mean;
    n = n < most ? n : most;
    return n < 1 ? 1 : (uint32_t)n;
}

/* The rates of the two kinds of requests. */
static void rates_at(const struct generate_opts *opts, double at_s, double out[2])
{
    double turn = fmod(at_s, opts->period_s) / opts->period_s;

    if (opts->kind == GENERATE_MIX) {
        out[0] = opts->rate_per_s;
        out[1] = opts->other_rate_per_s;
    } else if (opts->kind == GENERATE_STEPS) {
        out[0] = turn < 0.5 ? opts->rate_per_s : 0;
        out[1] = turn < 0.5 ? 0 : opts->other_rate_per_s;
    } else {
        out[0] = opts->rate_per_s * (1 + cos(2 * M_PI * turn));
        out[1] = opts->other_rate_per_s * (1 - cos(2 * M_PI * turn));
    }
}

/* Relative to the mean rate. */
static double rate_at(const struct generate_opts *opts, double at_s)
{
    switch (opts->kind) {
    case GENERATE_BURSTS:
        return fmod(at_s, BURST_PERIOD_S) < BURST_PERIOD_S / 10 ? 8.5 : 1.0 / 6;
    case GENERATE_DIURNAL:
        return 1 - 0.8 * cos(2 * M_PI * at_s / opts->duration_s);
    case GENERATE_POISSON:
    case GENERATE_SESSIONS:
    case GENERATE_STEPS:
    case GENERATE_TIDES:
    case GENERATE_MIX:
        break;
    }
    return 1;
}

/* The next request of two kinds; sets which kind it is. */
static double draw_of_two(struct generate *generate, double at_s)
{
    const struct generate_opts *opts = &generate->opts;
    double most = 2 * (opts->rate_per_s + opts->other_rate_per_s), rates[2], drawn;

    do {
        at_s += draw_exponential(generate, 1 / most);
        rates_at(opts, at_s, rates);
        drawn = rng_unit(&generate->rng) * most;
    } while (at_s < opts->duration_s && drawn >= rates[0] + rates[1]);
    generate->is_other = drawn >= rates[0];
    return at_s;
}

static void draw_arrival(struct generate *generate)
{
    static const double most_rates[] = {
#define X(name, text, most) [GENERATE_##name] = (most),
        GENERATE_KIND_TABLE(X)
#undef X
    };
    const struct generate_opts *opts = &generate->opts;
    double most = most_rates[opts->kind];
    double rate = opts->rate_per_s * most / (opts->kind == GENERATE_SESSIONS ? opts->turns : 1);
    double at_s = (double)generate->arrival_ns / 1e9;

    if (opts->kind == GENERATE_STEPS || opts->kind == GENERATE_TIDES || opts->kind == GENERATE_MIX) {
        at_s = draw_of_two(generate, at_s);
    } else {
        do {
            at_s += draw_exponential(generate, 1 / rate);
        } while (at_s < opts->duration_s && rng_unit(&generate->rng) * most > rate_at(opts, at_s));
    }
    generate->arrival_ns = at_s < opts->duration_s ? (uint64_t)(at_s * 1e9) : UINT64_MAX;
}

/* ---- sessions ---- */

static uint32_t session_new(struct generate *generate)
{
    uint32_t i = generate->free;

    if (i != SIM_NONE) {
        generate->free = generate->sessions[i].next_free;
    } else {
        if (generate->n_sessions == generate->cap_sessions) {
            uint32_t cap = generate->cap_sessions ? 2 * generate->cap_sessions : 256;
            struct session *sessions = realloc(generate->sessions, cap * sizeof(*sessions));

            if (sessions == NULL)
                return SIM_NONE;
            generate->sessions = sessions;
            generate->cap_sessions = cap;
        }
        i = generate->n_sessions++;
    }
    generate->sessions[i] = (struct session){
        .salt = rng_u64(&generate->rng),
        .tenant = generate->opts.n_tenants > 0 ? rng_below(&generate->rng, generate->opts.n_tenants) : 0,
        .context = generate->opts.shared_tokens,
        .n_left = (uint32_t)ceil(draw_exponential(generate, generate->opts.turns))};
    return i;
}

static void session_free(struct generate *generate, uint32_t i)
{
    generate->sessions[i].next_free = generate->free;
    generate->free = i;
}

static void generate_on_end(void *self, const struct sim_request *request, uint64_t now_ns)
{
    struct generate *generate = self;
    struct session *session;
    struct sim_event turn = {.what = request->session};

    if (generate->opts.kind != GENERATE_SESSIONS || request->session == SIM_NONE)
        return;
    session = &generate->sessions[request->session];
    session->context = request->prompt_tokens + request->answer_tokens;
    turn.at_ns = now_ns + (uint64_t)(draw_exponential(generate, generate->opts.wait_s) * 1e9);
    if (--session->n_left == 0 || session->context > MAX_CONTEXT ||
        sim_agenda_add(&generate->turns, turn) < 0)
        session_free(generate, request->session);
}

/* ---- the load ---- */

static bool generate_when(void *self, uint64_t *at_ns_out)
{
    struct generate *generate = self;
    uint64_t turn_ns;

    if (generate->opts.n_requests > 0 && generate->n_made >= generate->opts.n_requests)
        return false;
    *at_ns_out = generate->arrival_ns;
    if (sim_agenda_next(&generate->turns, &turn_ns) && turn_ns < *at_ns_out)
        *at_ns_out = turn_ns;
    return *at_ns_out != UINT64_MAX;
}

static void generate_fill(struct generate *generate, uint64_t at_ns, struct sim_request *out)
{
    const struct generate_opts *opts = &generate->opts;

    *out = (struct sim_request){
        .at_ns = at_ns,
        .prompt_tokens =
            opts->shared_tokens +
            draw_tokens(generate, generate->is_other ? opts->other_prompt_tokens : opts->prompt_tokens),
        .answer_tokens =
            draw_tokens(generate, generate->is_other ? opts->other_answer_tokens : opts->answer_tokens),
        .tenant = opts->n_tenants > 0 ? rng_below(&generate->rng, opts->n_tenants) : 0,
        .kind = opts->marks_kinds && generate->is_other ? 1 : 0,
        .routers = opts->routers[generate->is_other],
        .salt = rng_u64(&generate->rng),
        .public_salt = opts->seed,
        .n_public = opts->shared_tokens / opts->block_tokens,
        .session = SIM_NONE};
    if (opts->are_two_tenants)
        out->tenant = generate->is_other;
    out->n_blocks = out->n_public; /* blocks of one request alone are never reused */
}

static void generate_take(void *self, struct sim_request *out)
{
    struct generate *generate = self;
    uint64_t turn_ns = UINT64_MAX;
    bool has_turn = sim_agenda_next(&generate->turns, &turn_ns);
    uint32_t i;

    generate->n_made++;
    if (!has_turn || generate->arrival_ns <= turn_ns) {
        generate_fill(generate, generate->arrival_ns, out);
        draw_arrival(generate);
        if (generate->opts.kind != GENERATE_SESSIONS)
            return;
        i = session_new(generate);
        if (i == SIM_NONE)
            return;
    } else {
        i = sim_agenda_take(&generate->turns).what;
        generate_fill(generate, turn_ns, out);
    }
    out->session = i;
    out->salt = generate->sessions[i].salt;
    out->tenant = generate->sessions[i].tenant;
    out->prompt_tokens = generate->sessions[i].context + draw_tokens(generate, generate->opts.prompt_tokens);
    out->n_blocks = out->prompt_tokens / generate->opts.block_tokens;
}

int generate_new(const struct generate_opts *opts, struct generate **out)
{
    struct generate *generate = calloc(1, sizeof(*generate));

    if (generate == NULL)
        return E_NOMEM;
    generate->opts = *opts;
    generate->free = SIM_NONE;
    rng_init(&generate->rng, opts->seed ^ UINT64_C(0x6c6f6164));
    draw_arrival(generate);
    *out = generate;
    return 0;
}

void generate_free(struct generate *generate)
{
    if (generate == NULL)
        return;
    free(generate->sessions);
    sim_agenda_fini(&generate->turns);
    free(generate);
}

struct sim_load generate_load(struct generate *generate)
{
    return (struct sim_load){.self = generate,
                             .when = generate_when,
                             .take = generate_take,
                             .on_end = generate_on_end,
                             .span_ns = (uint64_t)(generate->opts.duration_s * 1e9)};
}
