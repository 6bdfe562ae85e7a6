/* SPDX-License-Identifier: Apache-2.0 */
/* baton-model generate: one prompt, one answer, in this process.
 *
 * The text streams to stdout as it is sampled, in whole characters.  The statistics go to stderr at the end.
 * The answer stops at an end token, at --max, at the end of the context, or at Ctrl-C (status 130; the text so
 * far stays).  The same seed and prompt give the same answer, here and on any worker. */
#include "clients/model/model_cli.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "clients/model/prompt.h"
#include "clients/model/rig.h"
#include "compute/sched/sched.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char NAME[] = "generate";

enum { BATCH_TOKENS = 512, DRAFTS_MAX = 24 };

static const char HELP[] =
    "Usage: baton-model generate [OPTIONS] MODEL.gguf\n"
    "Continue a prompt or answer a chat turn.\n"
    "\n"
    "  -m, --model FILE         the model, in place of the argument\n"
    "  -p, --prompt TEXT        continue this text\n"
    "      --chat TEXT          answer this, in the model's chat format\n"
    "  -s, --system TEXT        with --chat: the system's words before it\n"
    "      --from-ids LIST      continue these token ids: 1,403,407\n"
    "      --special            control tokens spelled out in --prompt count as such\n"
    "  -n, --max-tokens N       at most N tokens (default 256; --max is the same)\n"
    "      --greedy             always the likeliest token\n"
    "      --temperature X      default 0.7; 0 is --greedy\n"
    "      --top-k N            draw among the N likeliest tokens (default: all)\n"
    "      --top-p X            among the likeliest with this probability together\n"
    "      --min-p X            among those with this share of the likeliest one's probability\n"
    "      --seed N             of the draw (default 0)\n"
    "      --ids                print token ids instead of text\n"
    "      --ignore-stop        go on after tokens that end an answer\n"
    "      --quiet              no figures on stderr\n"
    "      --speculate HOW      draft tokens and verify several at once: off, auto (default) or always\n"
    "      --draft-model FILE   draft also with this smaller model of the same vocabulary\n"
    "      --kv TYPE            keys and values: " RIG_KV_TYPES "\n"
    "  -t, --threads N          compute threads (default: all CPUs)\n"
    "      --kernels NAME       " RIG_KERNELS "\n"
    "      --bf16 MATH          BF16 weights times BF16 activations: tiles or dots, or F32: exact\n"
    "                           (default: auto, tiles with AMX, else dots)\n"
    "      --convert-f16 T      bf16: F16 weights are rounded to BF16 (default: no)\n"
    "  -h, --help               this text\n";

struct generate_args {
    struct prompt_source prompt;
    struct rig_opts rig;
    struct sample_opts sample;
    uint32_t max;
    enum sched_speculate speculate;
    const char *draft_path; /* NULL: no draft model */
    bool prints_ids;
    bool ignores_stop;
    bool is_help;
};

enum option_id {
    OPT_PROMPT = 'p',
    OPT_SYSTEM = 's',
    OPT_MAX = 'n',
    OPT_CHAT = 256,
    OPT_FROM_IDS,
    OPT_SPECIAL,
    OPT_GREEDY,
    OPT_TEMPERATURE,
    OPT_TOP_K,
    OPT_TOP_P,
    OPT_MIN_P,
    OPT_SEED,
    OPT_IDS,
    OPT_IGNORE_STOP,
    OPT_QUIET,
    OPT_SPECULATE,
    OPT_DRAFT_MODEL
};

static const struct option OPTIONS[] = {{"prompt", required_argument, NULL, OPT_PROMPT},
                                        {"chat", required_argument, NULL, OPT_CHAT},
                                        {"system", required_argument, NULL, OPT_SYSTEM},
                                        {"from-ids", required_argument, NULL, OPT_FROM_IDS},
                                        {"special", no_argument, NULL, OPT_SPECIAL},
                                        {"max-tokens", required_argument, NULL, OPT_MAX},
                                        {"max", required_argument, NULL, OPT_MAX},
                                        {"greedy", no_argument, NULL, OPT_GREEDY},
                                        {"temperature", required_argument, NULL, OPT_TEMPERATURE},
                                        {"top-k", required_argument, NULL, OPT_TOP_K},
                                        {"top-p", required_argument, NULL, OPT_TOP_P},
                                        {"min-p", required_argument, NULL, OPT_MIN_P},
                                        {"seed", required_argument, NULL, OPT_SEED},
                                        {"ids", no_argument, NULL, OPT_IDS},
                                        {"ignore-stop", no_argument, NULL, OPT_IGNORE_STOP},
                                        {"quiet", no_argument, NULL, OPT_QUIET},
                                        {"speculate", required_argument, NULL, OPT_SPECULATE},
                                        {"draft-model", required_argument, NULL, OPT_DRAFT_MODEL},
                                        RIG_OPTIONS,
                                        RIG_WEIGHT_OPTIONS,
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};

/* ---- the command line ---- */

static bool take_seed(struct generate_args *args)
{
    if (str_to_u64(bytes_str(optarg), &args->sample.seed) == 0)
        return true;
    fprintf(stderr, "baton-model %s: --seed wants a number, not \"%s\"\n", NAME, optarg);
    return false;
}

static bool take_speculate(struct generate_args *args)
{
    static const char *const HOW[] = {
        [SPECULATE_OFF] = "off", [SPECULATE_AUTO] = "auto", [SPECULATE_ALWAYS] = "always"};

    for (size_t i = 0; i < sizeof(HOW) / sizeof(HOW[0]); i++) {
        if (strcmp(optarg, HOW[i]) == 0) {
            args->speculate = (enum sched_speculate)i;
            return true;
        }
    }
    fprintf(stderr, "baton-model %s: --speculate is off, auto or always, not \"%s\"\n", NAME, optarg);
    return false;
}

/* Options with a number, and the rig's; false also for unknown ones. */
static bool cmd_generate_take_number(int option, struct generate_args *args)
{
    switch (option) {
    case OPT_MAX:
        return rig_parse_u32(NAME, "max-tokens", optarg, 1u << 30, &args->max);
    case OPT_TEMPERATURE:
        return rig_parse_f32(NAME, "temperature", optarg, &args->sample.temperature);
    case OPT_TOP_K:
        return rig_parse_u32(NAME, "top-k", optarg, 1u << 30, &args->sample.top_k);
    case OPT_TOP_P:
        return rig_parse_f32(NAME, "top-p", optarg, &args->sample.top_p);
    case OPT_MIN_P:
        return rig_parse_f32(NAME, "min-p", optarg, &args->sample.min_p);
    case OPT_SEED:
        return take_seed(args);
    default:
        return rig_take_option(NAME, option, &args->rig);
    }
}

static bool cmd_generate_take_option(int option, struct generate_args *args)
{
    struct {
        int option;
        const char **text;
    } texts[] = {{OPT_PROMPT, &args->prompt.text},
                 {OPT_CHAT, &args->prompt.chat},
                 {OPT_SYSTEM, &args->prompt.system},
                 {OPT_DRAFT_MODEL, &args->draft_path},
                 {OPT_FROM_IDS, &args->prompt.ids}};
    struct {
        int option;
        bool *flag;
    } flags[] = {{OPT_SPECIAL, &args->prompt.parses_special},
                 {OPT_IDS, &args->prints_ids},
                 {OPT_IGNORE_STOP, &args->ignores_stop},
                 {OPT_QUIET, &args->rig.is_quiet},
                 {'h', &args->is_help}};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (option == texts[i].option) {
            *texts[i].text = optarg;
            return true;
        }
    }
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        if (option == flags[i].option) {
            *flags[i].flag = true;
            return true;
        }
    }
    if (option == OPT_GREEDY) {
        args->sample.temperature = 0;
        return true;
    }
    return option == OPT_SPECULATE ? take_speculate(args) : cmd_generate_take_number(option, args);
}

static bool cmd_generate_parse(int argc, char **argv, struct generate_args *args)
{
    int option;

    *args = (struct generate_args){.max = 256,
                                   .speculate = SPECULATE_AUTO,
                                   .rig.kv_type = KV_F16,
                                   .sample = {.temperature = 0.7f, .top_p = 1}};
    while ((option = getopt_long(argc, argv, RIG_SHORT_OPTIONS "p:s:n:", OPTIONS, NULL)) != -1)
        if (!cmd_generate_take_option(option, args))
            return false;
    return args->is_help || rig_take_path(NAME, argc, argv, &args->rig);
}

/* ---- the answer ---- */

struct answer { /* one generation in progress */
    const struct generate_args *args;
    struct rig *rig;
    struct rig draft;                  /* zeroed: no draft model */
    const struct tokenizer *tokenizer; /* NULL: ids only */
    struct detok detok;
    struct buf text; /* reused */
    struct kv_pool *pool;
    struct sched *sched;
    uint32_t n_prompt, n_drawn;
    bool is_done;
    int rc; /* the first that went wrong while showing */
    struct seq_stats stats;
};

static int cmd_generate_show(struct answer *answer, token_id id)
{
    int rc;

    if (answer->args->prints_ids || answer->tokenizer == NULL) {
        printf("%s%u", answer->n_drawn > 1 ? " " : "", id);
        fflush(stdout);
        return 0;
    }
    buf_clear(&answer->text);
    rc = detok_push(&answer->detok, id, &answer->text);
    if (rc == 0 && answer->text.len_bytes > 0) {
        fwrite(answer->text.data, 1, answer->text.len_bytes, stdout);
        fflush(stdout);
    }
    return rc;
}

/* Called for each token; accepted drafts give several in one step. */
static void on_token(void *arg, struct seq *seq, const struct sample_result *token)
{
    struct answer *answer = arg;

    answer->n_drawn++;
    if (answer->rc == 0)
        answer->rc = cmd_generate_show(answer, token->id);
    if (answer->rc < 0)
        sched_cancel(answer->sched, seq);
}

static void cmd_generate_on_done(void *arg, struct seq *seq, enum seq_finish finish)
{
    struct answer *answer = arg;

    answer->is_done = true;
    answer->stats = *seq_stats(seq);
    if (finish == SEQ_FINISH_SPOILT && answer->rc == 0)
        answer->rc = E_NUMERICS;
    if (finish == SEQ_FINISH_FAILED && answer->rc == 0)
        answer->rc = E_INTERNAL;
}

static void print_figures(const struct answer *answer)
{
    const struct seq_stats *stats = &answer->stats;
    double prefill_s = (double)stats->prefill_ns / NS_PER_S, decode_s = (double)stats->decode_ns / NS_PER_S;
    uint32_t n_decoded = answer->n_drawn > 0 ? answer->n_drawn - 1 : 0; /* the first came with the prompt */

    if (answer->args->rig.is_quiet)
        return;
    fprintf(stderr, "prompt %u tokens in %.3f s (%.1f/s), answer %u tokens in %.3f s (%.1f/s), %s\n",
            answer->n_prompt, prefill_s, answer->n_prompt / (prefill_s > 0 ? prefill_s : 1), answer->n_drawn,
            decode_s, n_decoded / (decode_s > 0 ? decode_s : 1), answer->rig->engine.info.name);
    if (stats->n_drafted > 0)
        fprintf(stderr, "drafted %u tokens, %u accepted: %u steps saved\n", stats->n_drafted,
                stats->n_accepted, stats->n_accepted);
}

/* One sequence on a scheduler of its own, to its end or to Ctrl-C. */
static int run_steps(struct answer *answer, const struct token_ids *ids)
{
    size_t n_stops = 0;
    bool stops = !answer->args->ignores_stop && answer->tokenizer != NULL;
    struct seq_spec spec = {.tokens = ids->ids,
                            .n_tokens = (uint32_t)ids->n,
                            .n_prompt = (uint32_t)ids->n,
                            .work.max_new_tokens = answer->args->max,
                            .stop_ids = stops ? tokenizer_stop_ids(answer->tokenizer, &n_stops) : NULL,
                            .work.sample = answer->args->sample};
    struct seq *seq;
    int rc;

    spec.n_stop_ids = (uint32_t)n_stops;
    rc = sched_submit(answer->sched, &spec, &seq);
    while (rc >= 0 && !answer->is_done) {
        rc = sched_run_step(answer->sched);
        if (rc >= 0 && !answer->is_done && rig_is_interrupted()) {
            answer->rc = E_CANCELLED;
            sched_cancel(answer->sched, seq);
        }
    }
    return rc < 0 ? rc : answer->rc;
}

/* Loads the draft model on the same threads. */
static int cmd_generate_start_draft(struct answer *answer, const struct rig_seats *seats, struct fault *fault)
{
    struct rig_opts opts = answer->args->rig;
    struct rig_seats own = *seats;
    struct fault why = {0};
    int rc;

    opts.path = answer->args->draft_path;
    opts.team = answer->rig->team;
    rc = rig_load(&opts, &why, &answer->draft);
    if (rc == 0 && model_config(answer->draft.model)->context_length < own.n_tokens)
        own.n_tokens = model_config(answer->draft.model)->context_length;
    own.n_draws = SCHED_DRAFT_SEQS;
    if (rc == 0)
        rc = rig_start(&answer->draft, &own, &why);
    return rc < 0 ? fault_set(fault, rc, "%s: %s", opts.path, why.text) : 0;
}

static int cmd_generate_start(struct answer *answer, uint32_t n_prompt, struct fault *fault)
{
    uint32_t context = model_config(answer->rig->model)->context_length, max = answer->args->max;
    struct rig_seats seats = {
        .n_sequences = 1, .n_tokens = n_prompt, .batch_tokens = BATCH_TOKENS, .n_draws = 1 + DRAFTS_MAX};
    struct sched_opts opts = {.engine = &answer->rig->engine,
                              .max_seqs = 1,
                              .max_queue = 1,
                              .chunk_tokens = BATCH_TOKENS,
                              .speculate = answer->args->speculate,
                              .max_drafts = DRAFTS_MAX,
                              .events = {.on_token = on_token, .on_done = cmd_generate_on_done},
                              .events_arg = answer};
    int rc;

    if (n_prompt < context)
        seats.n_tokens += max < context - n_prompt ? max : context - n_prompt;
    rc = rig_start(answer->rig, &seats, fault);
    if (rc == 0 && answer->args->draft_path != NULL)
        rc = cmd_generate_start_draft(answer, &seats, fault);
    if (rc < 0)
        return rc;
    if (answer->args->draft_path != NULL) {
        opts.draft_engine = &answer->draft.engine;
        opts.draft_blocks = answer->draft.per_sequence;
    }
    rc = kv_pool_new(&(struct kv_pool_opts){.n_blocks = answer->rig->per_sequence + answer->rig->n_state,
                                            .block_tokens = answer->rig->engine.info.layout.block_tokens},
                     &answer->pool);
    opts.pool = answer->pool;
    if (rc == 0)
        rc = sched_new(&opts, &answer->sched);
    if (rc == E_MISMATCH || rc == E_UNSUPPORTED)
        return fault_set(fault, rc, "%s: %s", answer->args->draft_path,
                         rc == E_MISMATCH ? "its vocabulary is not that of the model"
                                          : "it has recurrent layers; a draft model has attention only");
    return rc < 0 ? fault_set(fault, rc, "%s", err_text(rc)) : 0;
}

static int cmd_generate_run(struct answer *answer, const struct token_ids *ids, struct fault *fault)
{
    int rc = cmd_generate_start(answer, (uint32_t)ids->n, fault);

    if (rc < 0)
        return rc;
    answer->n_prompt = (uint32_t)ids->n;
    rc = run_steps(answer, ids);
    if (rc == E_INVAL)
        return fault_set(fault, rc, "the prompt has a token id beyond the model's %u",
                         answer->rig->engine.info.vocab_size);
    if (rc == E_LIMIT)
        return fault_set(fault, rc, "the prompt's %u tokens leave no room for an answer in the context of %u",
                         answer->n_prompt, model_config(answer->rig->model)->context_length);
    if (rc < 0 && rc != E_CANCELLED)
        return fault_set(fault, rc, "%s", err_text(rc));
    putchar('\n');
    fflush(stdout);
    print_figures(answer);
    return rc;
}

int cmd_generate(int argc, char **argv)
{
    struct generate_args args;
    struct rig rig = {0};
    struct tokenizer *tokenizer = NULL;
    struct token_ids ids = {0};
    struct fault fault = {0};
    struct answer answer = {.args = &args, .rig = &rig};
    int rc;

    if (!cmd_generate_parse(argc, argv, &args))
        return cli_usage(NAME, NULL);
    if (args.is_help) {
        fputs(HELP, stdout);
        return cli_done(NAME);
    }
    rig_catch_interrupt();
    rc = rig_load(&args.rig, &fault, &rig);
    if (rc == 0) {
        if (tokenizer_new(rig.gguf, &args.prompt.refusal, &tokenizer) < 0)
            tokenizer = NULL;
        rc = prompt_read(&args.prompt, tokenizer, &fault, &ids);
    }
    if (rc == 0) {
        answer.tokenizer = tokenizer;
        if (tokenizer)
            detok_init(&answer.detok, tokenizer, args.prompt.text != NULL);
        rc = cmd_generate_run(&answer, &ids, &fault);
    }
    sched_free(answer.sched);
    kv_pool_free(answer.pool);
    buf_fini(&answer.text);
    token_ids_fini(&ids);
    tokenizer_unref(tokenizer);
    rig_close(&answer.draft);
    rig_close(&rig);
    if (rc == E_CANCELLED)
        return rig_interrupt_status();
    return rc < 0 ? cli_failed(NAME, args.rig.path, &fault) : cli_done(NAME);
}
