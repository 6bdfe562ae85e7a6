/* SPDX-License-Identifier: Apache-2.0 */
/* baton-model perplexity: the perplexity of a text, and the divergence from another file of the same model.
 *
 * The text is read through windows of the context's length; each begins one stride after the last.  A token
 * counts once, in the first window that holds it.  So all tokens but those of the first window are predicted
 * from at least context - stride tokens:
 *
 *     |1111111111111111|
 *             ........|22222222|          . read again, for context only
 *                      ........|33333333|
 *
 * Perplexity is exp of the mean of -ln p(token); its standard error is that of the mean, times perplexity.
 * With --kl a second file, usually the unquantised one, reads the same windows.  Its distribution p and the
 * model's q give the divergence sum p ln(p / q) at each position, and how often both have the same best token.
 *
 * To get logits at every position in large steps, a step holds many items of the same sequence, one token
 * each.  All their keys are stored before any of them attends. */
#include "clients/model/model_cli.h"
#include "clients/model/perplexity_priv.h"
#include "clients/model/rig.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "text/token/tokenizer.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

static const char NAME[] = "perplexity";

static const char HELP[] =
    "Usage: baton-model perplexity [OPTIONS] MODEL.gguf\n"
    "Measure how well a model foretells a text.\n"
    "\n"
    "      --text FILE      the text (default: one that comes with Baton; -: stdin)\n"
    "      --special        control tokens spelled out in it count as such\n"
    "      --context N      tokens of a window (default 512)\n"
    "      --stride N       tokens between windows (default: half a window)\n"
    "      --windows N      stop after N windows\n"
    "      --kl BASE.gguf   compare with this file of the same model too\n"
    "      --kl-keep FILE   read the logits of BASE from this file, or write them to it\n"
    "      --kl-kv TYPE     keys and values of BASE (default: those of --kv)\n"
    "      --kv TYPE        keys and values: " RIG_KV_TYPES "\n"
    "  -t, --threads N      compute threads (default: all CPUs)\n"
    "      --kernels NAME   " RIG_KERNELS "\n"
    "      --json           print one JSON object\n"
    "  -h, --help           this text\n";

enum { MAX_TEXT_BYTES = 64 << 20, BATCH = 512, ROWS = 64 /* places foretold in one step */ };

struct perplexity_args {
    struct rig_opts rig;
    struct rig_text text;  /* without a path: the bundled one */
    const char *base_path; /* NULL: no comparison */
    enum kv_type base_kv;  /* KV_N_TYPES: that of rig */
    const char *rows_path; /* NULL: the base is computed */
    uint32_t stride;
    bool is_json, is_help;
};

struct measuring {
    const struct perplexity_args *args;
    struct rig model, base; /* base: empty without --kl */
    struct tokenizer *tokenizer;
    struct token_ids ids;
    token_id bos; /* TOKEN_NONE: windows begin without */
    uint32_t context, stride;
    uint64_t n_windows, window;
    token_id *tokens;  /* [context] of the window, BOS included */
    float *kept;       /* [ROWS][vocab] logits of the base */
    struct rows *rows; /* NULL: not kept */
    struct score score;
    uint64_t began_ns, fed;
    const char *at; /* the file that a failure is about */
};

/* ---- the command line ---- */

enum option_id { OPT_STRIDE = 256, OPT_KL, OPT_KL_KV, OPT_KL_KEEP, OPT_JSON };

static const struct option OPTIONS[] = {RIG_TEXT_OPTIONS,
                                        {"stride", required_argument, NULL, OPT_STRIDE},
                                        {"kl", required_argument, NULL, OPT_KL},
                                        {"kl-kv", required_argument, NULL, OPT_KL_KV},
                                        {"kl-keep", required_argument, NULL, OPT_KL_KEEP},
                                        RIG_OPTIONS,
                                        {"json", no_argument, NULL, OPT_JSON},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};

static bool cmd_perplexity_take_option(int option, struct perplexity_args *args)
{
    switch (option) {
    case OPT_STRIDE:
        return rig_parse_u32(NAME, "stride", optarg, 1u << 24, &args->stride);
    case OPT_KL:
        args->base_path = optarg;
        return true;
    case OPT_KL_KEEP:
        args->rows_path = optarg;
        return true;
    case OPT_KL_KV:
        return rig_parse_kv(NAME, "kl-kv", optarg, &args->base_kv);
    case OPT_JSON:
        args->is_json = true;
        return true;
    case 'h':
        args->is_help = true;
        return true;
    default:
        return rig_take_text_option(NAME, option, &args->text, &args->rig);
    }
}

static bool cmd_perplexity_parse(int argc, char **argv, struct perplexity_args *args)
{
    int option;

    *args = (struct perplexity_args){.rig.kv_type = KV_F16, .base_kv = KV_N_TYPES};
    while ((option = getopt_long(argc, argv, RIG_SHORT_OPTIONS, OPTIONS, NULL)) != -1)
        if (!cmd_perplexity_take_option(option, args))
            return false;
    if (!args->is_help && args->base_path == NULL &&
        (args->rows_path != NULL || args->base_kv != KV_N_TYPES)) {
        fprintf(stderr, "baton-model %s: --%s says more about --kl, which is missing\n", NAME,
                args->rows_path != NULL ? "kl-keep" : "kl-kv");
        return false;
    }
    return args->is_help || rig_take_path(NAME, argc, argv, &args->rig);
}

/* ---- the text ---- */

static int cmd_perplexity_read_text(struct measuring *m, struct fault *fault)
{
    const char *path = m->args->text.path;
    struct buf text = {0};
    unsigned flags = m->args->text.is_special ? TOKEN_PARSE_SPECIAL : 0;

    if (path == NULL)
        path = access(BATON_DATADIR "/perplexity.txt", R_OK) == 0 ? BATON_DATADIR "/perplexity.txt"
                                                                  : "share/perplexity.txt";
    m->at = path;
    int rc = cli_read(path, MAX_TEXT_BYTES, fault, &text);
    if (rc < 0) {
        struct fault why = *fault;

        buf_fini(&text);
        return m->args->text.path != NULL ? rc : fault_set(fault, rc, "%s; name one with --text", why.text);
    }
    rc = tokenizer_encode(m->tokenizer, bytes_of(text.data, text.len_bytes), flags, SIZE_MAX, &m->ids);
    buf_fini(&text);
    if (rc < 0)
        return fault_set(fault, rc, "%s", err_text(rc));
    m->at = m->args->rig.path;
    return 0;
}

static int plan_windows(struct measuring *m, struct fault *fault)
{
    uint32_t most = model_config(m->model.model)->context_length;

    m->bos = tokenizer_adds_bos(m->tokenizer) ? tokenizer_bos(m->tokenizer) : TOKEN_NONE;
    m->context = m->args->text.context ? m->args->text.context : most < 512 ? most : 512;
    m->stride = m->args->stride ? m->args->stride : m->context / 2;
    uint32_t capacity = m->context - (m->bos != TOKEN_NONE);
    if (m->context < 2 || m->stride == 0 || m->stride > capacity)
        return fault_set(fault, E_INVAL, "a context of %u with a stride of %u leaves tokens out", m->context,
                         m->stride);
    if (m->ids.n < 2)
        return fault_set(fault, E_INVAL, "the text has fewer than two tokens");
    m->n_windows = m->ids.n <= capacity ? 1 : (m->ids.n - capacity + m->stride - 1) / m->stride + 1;
    if (m->args->text.max_windows != 0 && m->n_windows > m->args->text.max_windows)
        m->n_windows = m->args->text.max_windows;
    return 0;
}

/* ---- windows ---- */

/* The tokens of one window; *from_out is the first that counts, *n_out the number of tokens. */
static void fill_window(struct measuring *m, uint32_t *from_out, uint32_t *n_out)
{
    uint32_t n_bos = m->bos != TOKEN_NONE, capacity = m->context - n_bos;
    uint64_t begin = m->window * m->stride, left = m->ids.n - begin;
    uint32_t n = left < capacity ? (uint32_t)left : capacity;

    if (n_bos)
        m->tokens[0] = m->bos;
    memcpy(m->tokens + n_bos, m->ids.ids + begin, n * sizeof(*m->tokens));
    *from_out = m->window == 0 ? 1 : n_bos + capacity - m->stride;
    *n_out = n_bos + n;
}

/* Feeds n tokens from position `at`, each as its own item; items 0..n-1 then have their logits.  With recurrent
 * state n must be 1, because each token needs the state of the one before. */
static int cmd_perplexity_foretell(struct rig *rig, const token_id *tokens, uint32_t at, uint32_t n)
{
    struct engine_item items[ROWS];
    struct sample_result drawn[ROWS];
    struct kv_state_cut cut;

    for (uint32_t i = 0; i < n; i++)
        items[i] = (struct engine_item){.tokens = tokens + at + i,
                                        .n_tokens = 1,
                                        .position = at + i,
                                        .blocks = rig->blocks,
                                        .n_blocks = rig->per_sequence * ROWS,
                                        .wants_token = true,
                                        .sample.top_p = 1};
    rig_put_state(rig, 0, &items[0], &cut);
    return engine_step(&rig->engine, &(struct engine_batch){.items = items, .n_items = n}, drawn);
}

/* The n tokens that come before. */
static int feed_context(struct rig *rig, const token_id *tokens, uint32_t n)
{
    struct sample_result drawn;
    int rc = 0;

    for (uint32_t at = 0; at < n && rc == 0; at += BATCH) {
        struct engine_item item = {.tokens = tokens + at,
                                   .n_tokens = n - at < BATCH ? n - at : BATCH,
                                   .position = at,
                                   .blocks = rig->blocks,
                                   .n_blocks = rig->per_sequence * ROWS};
        struct kv_state_cut cut;

        rig_put_state(rig, 0, &item, &cut);
        rc = engine_step(&rig->engine, &(struct engine_batch){.items = &item, .n_items = 1}, &drawn);
    }
    return rc;
}

static bool computes_base(const struct measuring *m)
{
    return m->args->base_path != NULL && (m->rows == NULL || !rows_are_there(m->rows));
}

/* The base's logits after n tokens from `at` on, computed or from the file. */
static int base_rows(struct measuring *m, uint32_t at, uint32_t n, struct fault *fault)
{
    uint32_t vocab = m->model.engine.info.vocab_size;
    int rc = 0;

    if (computes_base(m))
        rc = cmd_perplexity_foretell(&m->base, m->tokens, at, n);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        float *row = m->kept + (size_t)i * vocab;

        if (!computes_base(m)) {
            rc = rows_get(m->rows, row, vocab, fault);
            continue;
        }
        memcpy(row, m->base.engine.ops->logits(m->base.engine.self, i), vocab * sizeof(float));
        if (m->rows != NULL)
            rc = rows_put(m->rows, row, vocab, fault);
    }
    return rc;
}

static int score_rows(struct measuring *m, uint32_t at, uint32_t n, struct fault *fault)
{
    uint32_t vocab = m->model.engine.info.vocab_size;
    int rc = 0;

    if (m->args->base_path != NULL)
        rc = base_rows(m, at, n, fault);
    if (rc == 0)
        rc = cmd_perplexity_foretell(&m->model, m->tokens, at, n);
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        rc = score_add(&m->score, m->model.engine.ops->logits(m->model.engine.self, i),
                       m->args->base_path != NULL ? m->kept + (size_t)i * vocab : NULL, vocab,
                       m->tokens[at + i + 1]);
    return rc;
}

static void cmd_perplexity_show(const struct measuring *m)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\rwindow %llu of %llu: perplexity %.4f%s", (unsigned long long)m->window + 1,
                (unsigned long long)m->n_windows, score_perplexity(&m->score),
                m->window + 1 == m->n_windows ? "\r\033[K" : "");
}

static int run_window(struct measuring *m, struct fault *fault)
{
    uint32_t from, n, rows = m->model.n_state > 0 || m->base.n_state > 0 ? 1 : ROWS;

    fill_window(m, &from, &n);
    int rc = feed_context(&m->model, m->tokens, from - 1);
    if (rc == 0 && computes_base(m))
        rc = feed_context(&m->base, m->tokens, from - 1);
    for (uint32_t at = from - 1; at + 1 < n && rc == 0; at += rows) {
        rc = score_rows(m, at, n - 1 - at < rows ? n - 1 - at : rows, fault);
        if (rig_is_interrupted())
            rc = E_CANCELLED;
    }
    m->fed += n - 1;
    return rc;
}

static int cmd_perplexity_run(struct measuring *m, struct fault *fault)
{
    /* ROWS items at once, and blocks for one context among them all. */
    struct rig_seats seats = {
        .n_sequences = ROWS, .n_tokens = (m->context + ROWS - 1) / ROWS, .batch_tokens = BATCH};
    int rc = rig_start(&m->model, &seats, fault);

    if (rc == 0 && computes_base(m))
        rc = rig_start(&m->base, &seats, fault);
    if (rc < 0)
        return rc;
    uint32_t most = model_config(m->model.model)->context_length;
    if (m->context > most)
        return fault_set(fault, E_RANGE, "a context of %u is more than the model's %u", m->context, most);
    m->tokens = calloc(m->context, sizeof(*m->tokens));
    m->kept = calloc((size_t)ROWS * m->model.engine.info.vocab_size, sizeof(float));
    if (m->tokens == NULL || m->kept == NULL)
        return fault_set(fault, E_NOMEM, "%s", err_text(E_NOMEM));
    fault->text[0] = '\0'; /* from here on only rows have a text of their own */
    m->began_ns = clock_now_ns();
    for (m->window = 0; m->window < m->n_windows && rc == 0; m->window++) {
        rc = run_window(m, fault);
        if (rc == 0)
            cmd_perplexity_show(m);
    }
    if (rc == 0 && m->rows != NULL)
        rc = rows_finish(m->rows, fault);
    return rc < 0 && fault->text[0] == '\0' ? fault_set(fault, rc, "%s", err_text(rc)) : rc;
}

/* ---- the result ---- */

static void cmd_perplexity_print_text(const struct measuring *m, double rate)
{
    const struct score *s = &m->score;

    printf("perplexity %.4f +/- %.4f over %llu tokens in %llu windows of %u, stride %u; %.0f tokens/s\n",
           score_perplexity(s), score_perplexity(s) * score_error(&s->nll), (unsigned long long)s->nll.n,
           (unsigned long long)m->n_windows, m->context, m->stride, rate);
    if (m->args->base_path == NULL)
        return;
    printf("base       %.4f; ratio %.5f\n", exp(score_mean(&s->base_nll)),
           exp(score_mean(&s->nll) - score_mean(&s->base_nll)));
    printf("divergence %.6f +/- %.6f, largest %.4f; same first choice %.2f %%\n", score_mean(&s->kl),
           score_error(&s->kl), s->kl_most, 100.0 * (double)s->n_same / (double)s->kl.n);
}

static void cmd_perplexity_print_json(const struct measuring *m, double rate)
{
    const struct score *s = &m->score;
    struct buf out = {0};

    buf_printf(&out, "{\"model\":");
    json_put_str(&out, bytes_str(m->args->rig.path));
    buf_printf(&out,
               ",\"tokens\":%zu,\"scored\":%llu,\"windows\":%llu,\"context\":%u,\"stride\":%u,"
               "\"nll\":%.9g,\"perplexity\":%.9g,\"standard_error\":%.9g,\"tokens_per_s\":%.1f",
               m->ids.n, (unsigned long long)s->nll.n, (unsigned long long)m->n_windows, m->context,
               m->stride, score_mean(&s->nll), score_perplexity(s),
               score_perplexity(s) * score_error(&s->nll), rate);
    if (m->args->base_path != NULL) {
        buf_printf(&out, ",\"kl\":{\"base\":");
        json_put_str(&out, bytes_str(m->args->base_path));
        buf_printf(&out,
                   ",\"base_perplexity\":%.9g,\"mean\":%.9g,\"standard_error\":%.9g,\"most\":%.9g,"
                   "\"same_first\":%.6f}",
                   exp(score_mean(&s->base_nll)), score_mean(&s->kl), score_error(&s->kl), s->kl_most,
                   (double)s->n_same / (double)s->kl.n);
    }
    buf_printf(&out, "}");
    printf("%.*s\n", (int)out.len_bytes, (const char *)out.data);
    buf_fini(&out);
}

/* ---- the base ---- */

static int open_rows(struct measuring *m, const struct rig_opts *base, struct fault *fault)
{
    struct rows_head head = {.magic = ROWS_MAGIC,
                             .text = XXH3_64bits(m->ids.ids, m->ids.n * sizeof(*m->ids.ids)),
                             .n_windows = m->n_windows,
                             .kv = (uint32_t)base->kv_type,
                             .vocab = model_config(m->model.model)->vocab,
                             .context = m->context,
                             .stride = m->stride};
    struct gguf *gguf;
    int rc = gguf_open(base->path, fault, &gguf);

    if (rc < 0)
        return fault_set(fault, rc, "--kl %s: %s", base->path, fault->text);
    gguf_fingerprint(gguf, head.fingerprint);
    gguf_close(gguf);
    return rows_open(m->args->rows_path, &head, fault, &m->rows);
}

static int open_base(struct measuring *m, struct fault *fault)
{
    struct rig_opts base = m->args->rig;
    int rc = 0;

    base.path = m->args->base_path;
    if (m->args->base_kv != KV_N_TYPES)
        base.kv_type = m->args->base_kv;
    if (m->args->rows_path != NULL)
        rc = open_rows(m, &base, fault);
    if (rc < 0 || !computes_base(m))
        return rc;
    rc = rig_load(&base, fault, &m->base);
    if (rc < 0)
        return fault_set(fault, rc, "--kl %s: %s", m->args->base_path, fault->text);
    if (model_config(m->base.model)->vocab != model_config(m->model.model)->vocab)
        return fault_set(fault, E_MISMATCH, "--kl %s: another vocabulary", m->args->base_path);
    return 0;
}

static int cmd_perplexity_measure(struct measuring *m, struct fault *fault)
{
    int rc = rig_load(&m->args->rig, fault, &m->model);

    if (rc == 0)
        rc = tokenizer_new(m->model.gguf, fault, &m->tokenizer);
    if (rc == 0)
        rc = cmd_perplexity_read_text(m, fault);
    if (rc == 0)
        rc = plan_windows(m, fault);
    if (rc == 0 && m->args->base_path != NULL)
        rc = open_base(m, fault);
    return rc == 0 ? cmd_perplexity_run(m, fault) : rc;
}

int cmd_perplexity(int argc, char **argv)
{
    struct perplexity_args args;
    struct measuring m = {.args = &args};
    struct fault fault = {0};

    if (!cmd_perplexity_parse(argc, argv, &args))
        return cli_usage(NAME, NULL);
    if (args.is_help) {
        fputs(HELP, stdout);
        return cli_done(NAME);
    }
    rig_catch_interrupt();
    m.at = args.rig.path;
    int rc = cmd_perplexity_measure(&m, &fault);
    if (rc == 0) {
        double rate = (double)m.fed * NS_PER_S / (double)(clock_now_ns() - m.began_ns + 1);

        if (args.is_json)
            cmd_perplexity_print_json(&m, rate);
        else
            cmd_perplexity_print_text(&m, rate);
    }
    rig_close(&m.model);
    rig_close(&m.base);
    rows_close(m.rows);
    tokenizer_unref(m.tokenizer);
    token_ids_fini(&m.ids);
    free(m.tokens);
    free(m.kept);
    if (rc == E_CANCELLED)
        return rig_interrupt_status();
    return rc < 0 ? cli_failed(NAME, m.at, &fault) : cli_done(NAME);
}
