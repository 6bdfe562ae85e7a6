/* SPDX-License-Identifier: Apache-2.0 */
/* baton-model generate: one prompt, one answer, in this process.
 *
 * The text streams to stdout as it is drawn, whole characters only; what it cost goes to stderr at the end.
 * The answer stops at a token that ends one, at --max, at the end of the context, or at Ctrl-C (status 130,
 * with what was written so far left in place).  The same seed and prompt give the same answer, here and on
 * any worker. */
#include "clients/model/model_cli.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "clients/model/prompt.h"
#include "clients/model/rig.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char NAME[] = "generate";

static const char HELP[] = "Usage: baton-model generate [OPTIONS] MODEL.gguf\n"
                           "Continue a prompt or answer a chat turn.\n"
                           "\n"
                           "  --prompt TEXT        continue this text\n"
                           "  --chat TEXT          answer this, in the model's chat format\n"
                           "  --system TEXT        with --chat: the system's words before it\n"
                           "  --from-ids LIST      continue these token ids: 1,403,407\n"
                           "  --special            control tokens spelled out in --prompt count as such\n"
                           "  --max N              at most N tokens (default 256)\n"
                           "  --greedy             always the likeliest token\n"
                           "  --temperature X      default 0.7; 0 is --greedy\n"
                           "  --top-k N, --top-p X, --min-p X   draw among fewer tokens (default: all)\n"
                           "  --seed N             of the draw (default 0)\n"
                           "  --ids                print token ids instead of text\n"
                           "  --ignore-stop        go on after tokens that end an answer\n"
                           "  --quiet              no figures on stderr\n"
                           "  --kv TYPE            keys and values: f16 (default), f32, bf16, q8_0, q4_0\n"
                           "  --threads N          compute threads (default: all CPUs)\n"
                           "  --kernels NAME       auto, scalar, avx2 or avx512\n"
                           "  --help               this text\n";

struct generate_args {
    struct prompt_source prompt;
    struct rig_opts rig;
    struct sample_opts sample;
    uint32_t max;
    bool prints_ids;
    bool ignores_stop;
    bool is_help;
};

enum option_id {
    OPT_PROMPT = 256,
    OPT_CHAT,
    OPT_SYSTEM,
    OPT_FROM_IDS,
    OPT_SPECIAL,
    OPT_MAX,
    OPT_GREEDY,
    OPT_TEMPERATURE,
    OPT_TOP_K,
    OPT_TOP_P,
    OPT_MIN_P,
    OPT_SEED,
    OPT_IDS,
    OPT_IGNORE_STOP,
    OPT_QUIET,
    OPT_KV,
    OPT_THREADS,
    OPT_KERNELS
};

static const struct option OPTIONS[] = {{"prompt", required_argument, NULL, OPT_PROMPT},
                                        {"chat", required_argument, NULL, OPT_CHAT},
                                        {"system", required_argument, NULL, OPT_SYSTEM},
                                        {"from-ids", required_argument, NULL, OPT_FROM_IDS},
                                        {"special", no_argument, NULL, OPT_SPECIAL},
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
                                        {"kv", required_argument, NULL, OPT_KV},
                                        {"threads", required_argument, NULL, OPT_THREADS},
                                        {"kernels", required_argument, NULL, OPT_KERNELS},
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

/* Options with a number; false also for those it does not know. */
static bool take_number(int option, struct generate_args *args)
{
    switch (option) {
    case OPT_MAX:
        return rig_parse_u32(NAME, "max", optarg, 1u << 30, &args->max);
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
    case OPT_KV:
        return rig_parse_kv(NAME, optarg, &args->rig.kv_type);
    case OPT_THREADS:
        return rig_parse_u32(NAME, "threads", optarg, 1024, &args->rig.n_threads);
    default:
        return false;
    }
}

static bool take_option(int option, struct generate_args *args)
{
    struct {
        int option;
        const char **text;
    } texts[] = {{OPT_PROMPT, &args->prompt.text},
                 {OPT_CHAT, &args->prompt.chat},
                 {OPT_SYSTEM, &args->prompt.system},
                 {OPT_FROM_IDS, &args->prompt.ids},
                 {OPT_KERNELS, &args->rig.kernels}};
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
    return take_number(option, args);
}

static bool parse(int argc, char **argv, struct generate_args *args)
{
    int option;

    *args = (struct generate_args){
        .max = 256, .rig.kv_type = KV_F16, .sample = {.temperature = 0.7f, .top_p = 1}};
    while ((option = getopt_long(argc, argv, "h", OPTIONS, NULL)) != -1)
        if (!take_option(option, args))
            return false;
    if (args->is_help)
        return true;
    if (optind != argc - 1) {
        fprintf(stderr, "baton-model %s: name one model file\n", NAME);
        return false;
    }
    args->rig.path = argv[optind];
    return true;
}

/* ---- the answer ---- */

struct answer { /* one generation in progress */
    const struct generate_args *args;
    struct rig *rig;
    const struct tokenizer *tokenizer; /* NULL: ids only */
    struct detok detok;
    struct buf text; /* reused */
    uint32_t n_prompt, n_drawn;
    uint32_t n_seats; /* tokens that KV has room for */
    uint64_t prefill_ns, decode_ns;
};

static bool ends_answer(const struct answer *answer, token_id id)
{
    const token_id *stops;
    size_t n = 0;

    if (answer->args->ignores_stop || answer->tokenizer == NULL)
        return false;
    stops = tokenizer_stop_ids(answer->tokenizer, &n);
    for (size_t i = 0; i < n; i++)
        if (stops[i] == id)
            return true;
    return false;
}

static int show(struct answer *answer, token_id id)
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

static int decode(struct answer *answer, const struct sample_result *first)
{
    struct sample_result drawn = *first;
    uint64_t began_ns = clock_now_ns();
    int rc = 0;

    while (!ends_answer(answer, drawn.id)) {
        struct rig_feed feed = {.tokens = &drawn.id,
                                .n_tokens = 1,
                                .position = answer->n_prompt + answer->n_drawn,
                                .sample = &answer->args->sample};
        struct sample_result next;

        answer->n_drawn++;
        rc = show(answer, drawn.id);
        if (rc < 0 || answer->n_drawn == answer->args->max || feed.position >= answer->n_seats)
            break;
        rc = rig_feed(answer->rig, &feed, &next);
        if (rc < 0)
            break;
        drawn = next;
    }
    answer->decode_ns = clock_now_ns() - began_ns;
    return rc;
}

static void print_figures(const struct answer *answer)
{
    double prefill_s = (double)answer->prefill_ns / NS_PER_S, decode_s = (double)answer->decode_ns / NS_PER_S;
    uint32_t n_steps = answer->n_drawn > 0 ? answer->n_drawn - 1 : 0; /* the first came with the prompt */

    if (answer->args->rig.is_quiet)
        return;
    fprintf(stderr, "prompt %u tokens in %.3f s (%.1f/s), answer %u tokens in %.3f s (%.1f/s), %s\n",
            answer->n_prompt, prefill_s, answer->n_prompt / (prefill_s > 0 ? prefill_s : 1), answer->n_drawn,
            decode_s, n_steps / (decode_s > 0 ? decode_s : 1), answer->rig->engine.info.name);
}

static int run(struct answer *answer, const struct token_ids *ids, struct fault *fault)
{
    uint32_t context = model_config(answer->rig->model)->context_length;
    uint32_t max = answer->args->max;
    struct rig_seats seats = {.n_sequences = 1, .n_tokens = (uint32_t)ids->n, .batch_tokens = 512};
    struct rig_feed prompt = {
        .tokens = ids->ids, .n_tokens = (uint32_t)ids->n, .sample = &answer->args->sample};
    struct sample_result first;
    uint64_t began_ns;
    int rc;

    if (ids->n < context)
        seats.n_tokens += max < context - seats.n_tokens ? max : context - seats.n_tokens;
    rc = rig_start(answer->rig, &seats, fault);
    if (rc < 0)
        return rc;
    answer->n_prompt = (uint32_t)ids->n;
    answer->n_seats = seats.n_tokens;
    began_ns = clock_now_ns();
    rc = rig_feed(answer->rig, &prompt, &first);
    answer->prefill_ns = clock_now_ns() - began_ns;
    if (rc == 0 && max > 0)
        rc = decode(answer, &first);
    if (rc == E_INVAL)
        return fault_set(fault, rc, "the prompt has a token id beyond the model's %u",
                         answer->rig->engine.info.vocab_size);
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

    if (!parse(argc, argv, &args))
        return cli_usage(NAME, NULL);
    if (args.is_help) {
        fputs(HELP, stdout);
        return cli_done(NAME);
    }
    rig_catch_interrupt();
    rc = rig_load(&args.rig, &fault, &rig);
    if (rc == 0) {
        if (tokenizer_new(rig.gguf, NULL, &tokenizer) < 0)
            tokenizer = NULL;
        rc = prompt_read(&args.prompt, tokenizer, &fault, &ids);
    }
    if (rc == 0) {
        answer.tokenizer = tokenizer;
        if (tokenizer)
            detok_init(&answer.detok, tokenizer, args.prompt.text != NULL);
        rc = run(&answer, &ids, &fault);
    }
    buf_fini(&answer.text);
    token_ids_fini(&ids);
    tokenizer_unref(tokenizer);
    rig_close(&rig);
    if (rc == E_CANCELLED)
        return 130; /* as a shell reports SIGINT */
    return rc < 0 ? cli_failed(NAME, args.rig.path, &fault) : cli_done(NAME);
}
