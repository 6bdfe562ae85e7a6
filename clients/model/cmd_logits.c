/* SPDX-License-Identifier: Apache-2.0 */
/* baton-model logits: the model's logits for the next token.
 *
 * Feeds a prompt and prints the highest logits after its last token, with their probabilities and spellings.
 * --out writes all logits as raw little-endian float32; --every writes one row of them after each token of the
 * prompt.  The command serves to compare implementations: printed floats read back exactly. */
#include "clients/model/model_cli.h"

#include "base/err.h"
#include "base/str.h"
#include "clients/model/prompt.h"
#include "clients/model/rig.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char NAME[] = "logits";

enum { BATCH_TOKENS = 512 }; /* at most: each has its activations in memory */

static const char HELP[] =
    "Usage: baton-model logits [OPTIONS] MODEL.gguf\n"
    "Print the logits after a prompt.\n"
    "\n"
    "      --ids LIST       the prompt as token ids: 1,403,407\n"
    "      --prompt TEXT    the prompt as text\n"
    "      --special        control tokens spelled out in TEXT count as such\n"
    "      --top N          how many to print, best first (default 10, 0: none)\n"
    "      --out FILE.f32   write the logits as raw little-endian float32\n"
    "      --every          with --out: a row after each token, not only the last\n"
    "      --kv TYPE        keys and values: " RIG_KV_TYPES "\n"
    "  -t, --threads N      compute threads (default: all CPUs)\n"
    "      --kernels NAME   " RIG_KERNELS "\n"
    "      --bf16 MATH      BF16 weights times BF16 activations: tiles or dots, or F32: exact\n"
    "                       (default: auto, tiles with AMX, else dots)\n"
    "      --convert-f16 T  bf16: F16 weights are rounded to BF16 (default: no)\n"
    "  -h, --help           this text\n";

struct logits_args {
    struct prompt_source prompt;
    struct rig_opts rig;
    const char *out_path;
    uint32_t top;
    bool is_every;
    bool is_help;
};

enum option_id { OPT_IDS = 256, OPT_PROMPT, OPT_SPECIAL, OPT_TOP, OPT_OUT, OPT_EVERY };

static const struct option OPTIONS[] = {{"ids", required_argument, NULL, OPT_IDS},
                                        {"prompt", required_argument, NULL, OPT_PROMPT},
                                        {"special", no_argument, NULL, OPT_SPECIAL},
                                        {"top", required_argument, NULL, OPT_TOP},
                                        {"out", required_argument, NULL, OPT_OUT},
                                        {"every", no_argument, NULL, OPT_EVERY},
                                        RIG_OPTIONS,
                                        RIG_WEIGHT_OPTIONS,
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};

static bool cmd_logits_take_option(int option, struct logits_args *args)
{
    switch (option) {
    case OPT_IDS:
        args->prompt.ids = optarg;
        return true;
    case OPT_PROMPT:
        args->prompt.text = optarg;
        return true;
    case OPT_SPECIAL:
        args->prompt.parses_special = true;
        return true;
    case OPT_TOP:
        return rig_parse_u32(NAME, "top", optarg, 1u << 24, &args->top);
    case OPT_OUT:
        args->out_path = optarg;
        return true;
    case OPT_EVERY:
        args->is_every = true;
        return true;
    case 'h':
        args->is_help = true;
        return true;
    default:
        return rig_take_option(NAME, option, &args->rig);
    }
}

static bool cmd_logits_parse(int argc, char **argv, struct logits_args *args)
{
    int option;

    *args = (struct logits_args){.top = 10, .rig.kv_type = KV_F16};
    while ((option = getopt_long(argc, argv, RIG_SHORT_OPTIONS, OPTIONS, NULL)) != -1)
        if (!cmd_logits_take_option(option, args))
            return false;
    return args->is_help || rig_take_path(NAME, argc, argv, &args->rig);
}

/* ---- output ---- */

struct ranked {
    float logit;
    uint32_t id;
};

static int by_logit(const void *a, const void *b)
{
    const struct ranked *left = a, *right = b;

    if (left->logit != right->logit)
        return left->logit < right->logit ? 1 : -1;
    return left->id < right->id ? -1 : left->id > right->id;
}

static int print_top(const float *logits, uint32_t vocab, uint32_t top, const struct tokenizer *tokenizer)
{
    struct ranked *ranked = calloc(vocab, sizeof(*ranked));
    struct buf spelling = {0};
    double sum = 0;

    if (ranked == NULL)
        return E_NOMEM;
    for (uint32_t i = 0; i < vocab; i++)
        ranked[i] = (struct ranked){.logit = logits[i], .id = i};
    qsort(ranked, vocab, sizeof(*ranked), by_logit);
    for (uint32_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - ranked[0].logit);
    printf("%8s  %16s  %11s  %s\n", "id", "logit", "probability", tokenizer ? "token" : "");
    for (uint32_t i = 0; i < top && i < vocab; i++) {
        buf_clear(&spelling);
        if (tokenizer && ranked[i].id < tokenizer_vocab_size(tokenizer))
            json_put_str(&spelling, tokenizer_piece(tokenizer, ranked[i].id));
        printf("%8u  %16.9g  %11.6f  %s\n", ranked[i].id, (double)ranked[i].logit,
               exp((double)ranked[i].logit - ranked[0].logit) / sum,
               spelling.data ? (char *)spelling.data : "");
    }
    buf_fini(&spelling);
    free(ranked);
    return 0;
}

static int put_row(FILE *file, const float *logits, uint32_t vocab)
{
    uint8_t bytes[4];

    for (uint32_t i = 0; i < vocab; i++) {
        uint32_t word;

        memcpy(&word, &logits[i], sizeof(word));
        put_u32(bytes, word);
        if (fwrite(bytes, 1, sizeof(bytes), file) != sizeof(bytes))
            return E_IO;
    }
    return 0;
}

/* ---- the work ---- */

static int feed_and_write(struct rig *rig, const struct logits_args *args, const struct token_ids *ids,
                          FILE *file)
{
    uint32_t vocab = rig->engine.info.vocab_size, n = (uint32_t)ids->n;
    uint32_t each = file && args->is_every ? 1 : n; /* tokens between two rows of logits */
    const struct sample_opts greedy = {.top_p = 1};
    struct sample_result drawn;
    int rc = 0;

    for (uint32_t at = 0; at < n && rc == 0; at += each) {
        struct rig_feed feed = {.tokens = ids->ids + at, .n_tokens = each, .position = at, .sample = &greedy};

        rc = rig_feed(rig, &feed, &drawn);
        if (rc == 0 && file)
            rc = put_row(file, rig->engine.ops->logits(rig->engine.self, 0), vocab);
        if (rc == 0 && drawn.is_spoilt)
            rc = E_NUMERICS; /* the file holds the rows up to this one */
    }
    return rc;
}

static int cmd_logits_run(const struct logits_args *args, struct rig *rig, const struct tokenizer *tokenizer,
                          const struct token_ids *ids, struct fault *fault)
{
    uint32_t n = (uint32_t)ids->n;
    struct rig_seats seats = {
        .n_sequences = 1, .n_tokens = n, .batch_tokens = n < BATCH_TOKENS ? n : BATCH_TOKENS};
    FILE *file = NULL;
    int rc = rig_start(rig, &seats, fault);

    if (rc < 0)
        return rc;
    if (args->out_path && (file = fopen(args->out_path, "wb")) == NULL)
        return fault_set(fault, E_IO, "%s: %s", args->out_path, strerror(errno));
    rc = feed_and_write(rig, args, ids, file);
    if (file && fclose(file) != 0 && rc == 0)
        rc = E_IO;
    if (rc == 0 && args->top > 0)
        rc = print_top(rig->engine.ops->logits(rig->engine.self, 0), rig->engine.info.vocab_size, args->top,
                       tokenizer);
    if (rc == E_INVAL)
        return fault_set(fault, rc, "the prompt has a token id beyond the model's %u",
                         rig->engine.info.vocab_size);
    return rc < 0 ? fault_set(fault, rc, "%s", err_text(rc)) : 0;
}

int cmd_logits(int argc, char **argv)
{
    struct logits_args args;
    struct rig rig = {0};
    struct tokenizer *tokenizer = NULL;
    struct token_ids ids = {0};
    struct fault fault = {0};
    int rc;

    if (!cmd_logits_parse(argc, argv, &args))
        return cli_usage(NAME, NULL);
    if (args.is_help) {
        fputs(HELP, stdout);
        return cli_done(NAME);
    }
    if (args.out_path != NULL && cli_is_other(args.out_path, args.rig.path, &fault) < 0)
        return cli_failed(NAME, args.out_path, &fault);
    rig_catch_interrupt();
    rc = rig_load(&args.rig, &fault, &rig);
    if (rc == 0) { /* a file without a tokeniser still has logits */
        if (tokenizer_new(rig.gguf, &args.prompt.refusal, &tokenizer) < 0)
            tokenizer = NULL;
        rc = prompt_read(&args.prompt, tokenizer, &fault, &ids);
    }
    if (rc == 0)
        rc = cmd_logits_run(&args, &rig, tokenizer, &ids, &fault);
    token_ids_fini(&ids);
    tokenizer_unref(tokenizer);
    rig_close(&rig);
    return rc < 0 ? cli_failed(NAME, args.rig.path, &fault) : cli_done(NAME);
}
