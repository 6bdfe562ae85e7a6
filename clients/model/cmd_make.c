/* SPDX-License-Identifier: Apache-2.0 */
/* baton-model make: a model of given dimensions with random weights.
 *
 * For measurements and tests: speed depends on a model's dimensions, not on its training.  The result is a
 * complete GGUF with tokeniser and chat template.  It can be served, handed off and loaded like a trained
 * model; its answers are noise.  The vocabulary is made up (make_vocab.c) or copied from another file. */
#include "clients/model/make_priv.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "clients/model/model_cli.h"
#include "clients/model/rig.h"
#include "compute/model/model.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char NAME[] = "make";

/* The types that --type takes, in three lines of the help. */
#define TYPES_PLAIN       "F32, F16, BF16, Q4_0 to Q8_0, Q2_K to Q6_K,"
#define TYPES_OF_FEW_BITS "IQ1_S to IQ4_XS, TQ1_0, TQ2_0, MXFP4, NVFP4,"
#define TYPES_LAST        "Q1_0 or Q2_0"

static const char HELP[] = "Usage: baton-model make [OPTIONS] OUT.gguf\n"
                           "Write a model of a given shape with random weights.\n"
                           "\n"
                           "  --arch NAME            llama (default) or another that is known\n"
                           "  --layers N             default 22\n"
                           "  --hidden N             default 2048\n"
                           "  --heads N              default 32\n"
                           "  --kv-heads N           default: as many as heads\n"
                           "  --head-dim N           default: hidden / heads\n"
                           "  --ffn N                default 5632\n"
                           "  --vocab N              default 32000, at least 259\n"
                           "  --vocab-from FILE.gguf take the tokeniser of another model\n"
                           "  --context N            default 4096\n"
                           "  --type TYPE            " TYPES_PLAIN "\n"
                           "                         " TYPES_OF_FEW_BITS "\n"
                           "                         " TYPES_LAST "; default Q8_0\n"
                           "  --tied                 no output head of its own\n"
                           "  --with NAME            write optional tensors whose name has this in it;\n"
                           "                         may be given up to 8 times\n"
                           "  --set KEY=VALUE        a key of the architecture, without its name\n"
                           "                         (rope.freq_base=500000.0); up to 32 times\n"
                           "  --seed N               default 0; the same seed gives the same file\n"
                           "  --help                 this text\n";

enum { MAX_OPTIONAL = 8, MAX_SET = 32 };

struct make_args {
    struct make_shape shape;
    uint32_t seed;
    const char *vocab_from;
    const char *path;
    bool is_help;
    const char *optional[MAX_OPTIONAL + 1]; /* NULL-ended, as the next */
    const char *set[MAX_SET + 1];
};

enum option_id {
    OPT_ARCH = 256,
    OPT_LAYERS,
    OPT_HIDDEN,
    OPT_HEADS,
    OPT_KV_HEADS,
    OPT_HEAD_DIM,
    OPT_FFN,
    OPT_VOCAB,
    OPT_VOCAB_FROM,
    OPT_CONTEXT,
    OPT_TYPE,
    OPT_TIED,
    OPT_WITH,
    OPT_SET,
    OPT_SEED
};

static const struct option OPTIONS[] = {{"arch", required_argument, NULL, OPT_ARCH},
                                        {"layers", required_argument, NULL, OPT_LAYERS},
                                        {"hidden", required_argument, NULL, OPT_HIDDEN},
                                        {"heads", required_argument, NULL, OPT_HEADS},
                                        {"kv-heads", required_argument, NULL, OPT_KV_HEADS},
                                        {"head-dim", required_argument, NULL, OPT_HEAD_DIM},
                                        {"ffn", required_argument, NULL, OPT_FFN},
                                        {"vocab", required_argument, NULL, OPT_VOCAB},
                                        {"vocab-from", required_argument, NULL, OPT_VOCAB_FROM},
                                        {"context", required_argument, NULL, OPT_CONTEXT},
                                        {"type", required_argument, NULL, OPT_TYPE},
                                        {"tied", no_argument, NULL, OPT_TIED},
                                        {"with", required_argument, NULL, OPT_WITH},
                                        {"set", required_argument, NULL, OPT_SET},
                                        {"seed", required_argument, NULL, OPT_SEED},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};

/* ---- the command line ---- */

static bool take_type(struct make_args *args)
{
    int type = dtype_from_name(optarg);

    if (type < 0 || !make_can((enum dtype)type)) {
        fprintf(stderr,
                "baton-model %s: --type is " TYPES_PLAIN " " TYPES_OF_FEW_BITS " " TYPES_LAST
                ", not \"%s\"\n",
                NAME, optarg);
        return false;
    }
    args->shape.type = (enum dtype)type;
    return true;
}

static bool cmd_make_take_number(int option, struct make_args *args)
{
    struct make_shape *shape = &args->shape;
    const struct {
        int option;
        const char *name;
        uint32_t max;
        uint32_t *out;
    } numbers[] = {
        {OPT_LAYERS, "layers", 4096, &shape->n_layers},
        {OPT_HIDDEN, "hidden", 1u << 20, &shape->hidden},
        {OPT_HEADS, "heads", 4096, &shape->n_heads},
        {OPT_KV_HEADS, "kv-heads", 4096, &shape->n_kv_heads},
        {OPT_HEAD_DIM, "head-dim", 1024, &shape->head_dim},
        {OPT_FFN, "ffn", 1u << 22, &shape->ffn},
        {OPT_VOCAB, "vocab", 1u << 24, &shape->vocab},
        {OPT_CONTEXT, "context", 1u << 30, &shape->context},
        {OPT_SEED, "seed", UINT32_MAX, &args->seed},
    };

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (option == numbers[i].option)
            return rig_parse_u32(NAME, numbers[i].name, optarg, numbers[i].max, numbers[i].out);
    return false;
}

static bool cmd_make_take_text(const char *name, const char **list, size_t max)
{
    size_t n = 0;

    while (n < max && list[n])
        n++;
    if (n == max) {
        fprintf(stderr, "baton-model %s: --%s may be given %zu times\n", NAME, name, max);
        return false;
    }
    list[n] = optarg;
    return true;
}

static bool cmd_make_is_known(const char *arch)
{
    const char *name;

    for (uint32_t i = 0; (name = model_arch_at(i)) != NULL; i++)
        if (strcmp(name, arch) == 0)
            return true;
    fprintf(stderr, "baton-model %s: --arch is one of", NAME);
    for (uint32_t i = 0; (name = model_arch_at(i)) != NULL; i++)
        fprintf(stderr, " %s", name);
    fprintf(stderr, ", not \"%s\"\n", arch);
    return false;
}

static bool cmd_make_take_option(int option, struct make_args *args)
{
    switch (option) {
    case OPT_ARCH:
        args->shape.arch = optarg;
        return cmd_make_is_known(optarg);
    case OPT_VOCAB_FROM:
        args->vocab_from = optarg;
        return true;
    case OPT_TYPE:
        return take_type(args);
    case OPT_TIED:
        args->shape.is_tied = true;
        return true;
    case OPT_WITH:
        return cmd_make_take_text("with", args->optional, MAX_OPTIONAL);
    case OPT_SET:
        return cmd_make_take_text("set", args->set, MAX_SET);
    case 'h':
        args->is_help = true;
        return true;
    default:
        return cmd_make_take_number(option, args);
    }
}

/* NULL when a model can have this shape. */
static const char *wrong_with(const struct make_shape *shape)
{
    const struct dtype_info *info = dtype_info(shape->type);

    if (shape->n_layers == 0 || shape->hidden == 0 || shape->n_heads == 0 || shape->n_kv_heads == 0 ||
        shape->ffn == 0 || shape->context == 0)
        return "a shape of zero";
    if (shape->head_dim == 0)
        return "--hidden must be a multiple of --heads";
    if (shape->head_dim % 2 != 0)
        return "heads must have an even width";
    if (shape->n_heads % shape->n_kv_heads != 0)
        return "--heads must be a multiple of --kv-heads";
    if (shape->hidden % info->qblk_weights != 0 || shape->ffn % info->qblk_weights != 0 ||
        (uint64_t)shape->n_heads * shape->head_dim % info->qblk_weights != 0)
        return "this type needs --hidden, --ffn and heads together to be multiples of 32 (K types: of 256)";
    return NULL;
}

static bool cmd_make_parse(int argc, char **argv, struct make_args *args)
{
    struct make_shape *shape = &args->shape;
    const char *wrong;
    int option;

    *args = (struct make_args){.shape = {.arch = "llama",
                                         .n_layers = 22,
                                         .hidden = 2048,
                                         .n_heads = 32,
                                         .ffn = 5632,
                                         .context = 4096,
                                         .type = DTYPE_Q8_0}};
    while ((option = getopt_long(argc, argv, "h", OPTIONS, NULL)) != -1)
        if (!cmd_make_take_option(option, args))
            return false;
    if (args->is_help)
        return true;
    if (optind != argc - 1) {
        fprintf(stderr, "baton-model %s: name one file to write\n", NAME);
        return false;
    }
    args->path = argv[optind];
    shape->seed = args->seed;
    shape->optional = args->optional;
    if (shape->n_kv_heads == 0)
        shape->n_kv_heads = shape->n_heads;
    if (shape->head_dim == 0 && shape->n_heads > 0 && shape->hidden % shape->n_heads == 0)
        shape->head_dim = shape->hidden / shape->n_heads;
    wrong = wrong_with(shape);
    if (wrong)
        fprintf(stderr, "baton-model %s: %s\n", NAME, wrong);
    return wrong == NULL;
}

/* ---- the file ---- */

/* Copies the tokeniser of another model; the vocabulary gets its size. */
static int copy_vocabulary(struct gguf_writer *writer, struct make_args *args, struct fault *fault)
{
    struct gguf *from;
    enum gguf_kind kind;
    uint64_t n = 0;
    int rc = gguf_open(args->vocab_from, fault, &from);

    if (rc < 0)
        return rc;
    if (gguf_array_len(from, "tokenizer.ggml.tokens", &kind, &n) < 0 || kind != GGUF_STRING || n == 0 ||
        n > 1u << 24)
        rc = fault_set(fault, E_FORMAT, "%s has no vocabulary", args->vocab_from);
    else if (args->shape.vocab != 0 && args->shape.vocab < n)
        rc = fault_set(fault, E_INVAL, "--vocab %u is less than the %llu tokens of %s", args->shape.vocab,
                       (unsigned long long)n, args->vocab_from);
    else
        rc = gguf_put_keys_of(writer, from, "tokenizer.");
    if (rc == 0 && args->shape.vocab == 0)
        args->shape.vocab = (uint32_t)n;
    gguf_close(from);
    return rc;
}

static int make_up_vocabulary(struct gguf_writer *writer, struct make_args *args, struct fault *fault)
{
    int rc;

    if (args->shape.vocab == 0)
        args->shape.vocab = 32000;
    if (args->shape.vocab < MAKE_MIN_VOCAB || args->shape.vocab > make_max_vocab())
        return fault_set(fault, E_INVAL, "--vocab must be %u to %u, or come with --vocab-from",
                         MAKE_MIN_VOCAB, make_max_vocab());
    rc = make_vocabulary(writer, args->shape.vocab);
    return rc < 0 ? fault_set(fault, rc, "%s", err_text(rc)) : 0;
}

static int model_cmd_make(struct make_args *args, struct fault *fault, uint64_t *bytes_out)
{
    struct gguf_writer *writer;
    int rc = gguf_writer_new(&writer);

    if (rc < 0)
        return fault_set(fault, rc, "%s", err_text(rc));
    rc = args->vocab_from ? copy_vocabulary(writer, args, fault) : make_up_vocabulary(writer, args, fault);
    if (rc == 0) {
        rc = make_keys(writer, &args->shape, args->set, fault);
    }
    if (rc == 0)
        rc = make_weights(writer, &args->shape, args->path, fault, bytes_out);
    gguf_writer_free(writer);
    return rc;
}

int cmd_make(int argc, char **argv)
{
    struct make_args args;
    struct fault fault = {0};
    uint64_t began_ns = clock_now_ns(), len_bytes = 0;
    char size[24];
    int rc;

    if (!cmd_make_parse(argc, argv, &args))
        return cli_usage(NAME, NULL);
    if (args.is_help) {
        fputs(HELP, stdout);
        return cli_done(NAME);
    }
    if (cli_is_other(args.path, args.vocab_from, &fault) < 0)
        return cli_failed(NAME, args.path, &fault);
    rig_catch_interrupt();
    rc = model_cmd_make(&args, &fault, &len_bytes);
    if (rc == E_CANCELLED)
        return rig_interrupt_status();
    if (rc < 0)
        return cli_failed(NAME, args.path, &fault);
    snprintf(size, sizeof(size), "%.2f GiB", (double)len_bytes / (1u << 30));
    fprintf(stderr, "%s: %s of weights in %.1f s\n", args.path, size,
            (double)(clock_now_ns() - began_ns) / NS_PER_S);
    return cli_done(NAME);
}
