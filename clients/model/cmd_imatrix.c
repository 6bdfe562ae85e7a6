/* SPDX-License-Identifier: Apache-2.0 */
/* baton-model imatrix: measures the inputs of a model's matrices while it reads a text.
 *
 *     window of tokens -> engine -> inputs of every matrix -> sums of squares, by column (and by expert)
 *
 * The file has the form of llama-imatrix: NAME.in_sum2 and NAME.counts for each matrix NAME. quantize --imatrix
 * weighs the error of each weight by the mean square of the inputs that it multiplies. */
#include "clients/model/model_cli.h"
#include "clients/model/rig.h"
#include "compute/model/watch.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/progress.h"
#include "gguf/write.h"
#include "text/token/tokenizer.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char NAME[] = "imatrix";

static const char HELP[] = "Usage: baton-model imatrix [OPTIONS] --text FILE MODEL.gguf OUT.gguf\n"
                           "Measure which weights of a model matter for a text.\n"
                           "\n"
                           "  --text FILE      the text (-: stdin)\n"
                           "  --special        control tokens spelled out in it count as such\n"
                           "  --context N      tokens of a window (default 512)\n"
                           "  --windows N      stop after N windows\n"
                           "  --threads N      compute threads (default: all CPUs)\n"
                           "  --kernels NAME   " RIG_KERNELS "\n"
                           "  --force          overwrite OUT.gguf\n"
                           "  --help           this text\n";

enum { MAX_TEXT_BYTES = 64 << 20, BATCH = 64 /* the limit of a watched model */ };

struct imatrix_args {
    struct rig_opts rig;
    struct rig_text text;
    const char *to;
    bool is_forced, is_help;
};

struct watched { /* the matrices of one group of one layer */
    uint32_t n_cols, n_experts;
    double *sums;     /* [n_experts][n_cols] */
    uint64_t *counts; /* [n_experts] */
};

struct imatrix_run {
    const struct imatrix_args *args;
    struct rig rig;
    struct tokenizer *tokenizer;
    struct token_ids ids;
    struct watched *watched; /* [n_layers][MODEL_INPUT_GROUPS] */
    uint32_t n_layers, n_windows, n_tensors;
    bool has_no_memory;
    const char *at; /* the file that a failure is about */
    struct {
        const struct watched *from;
        bool is_counts;
    } * tensors; /* of the file, in order */
};

/* ---- the command line ---- */

enum option_id { OPT_FORCE = 256 };

static const struct option OPTIONS[] = {RIG_TEXT_OPTIONS,
                                        RIG_OPTIONS,
                                        {"force", no_argument, NULL, OPT_FORCE},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};

static bool take_option(int option, struct imatrix_args *args)
{
    switch (option) {
    case OPT_FORCE:
        args->is_forced = true;
        return true;
    case 'h':
        args->is_help = true;
        return true;
    default:
        return rig_take_text_option(NAME, option, &args->text, &args->rig);
    }
}

static bool imatrix_parse(int argc, char **argv, struct imatrix_args *args)
{
    int option;

    *args = (struct imatrix_args){.rig.kv_type = KV_F16};
    while ((option = getopt_long(argc, argv, "h", OPTIONS, NULL)) != -1)
        if (!take_option(option, args))
            return false;
    if (args->is_help)
        return true;
    if (optind != argc - 2 || args->text.path == NULL) {
        fprintf(stderr, "baton-model %s: name --text, the model and the file to write\n", NAME);
        return false;
    }
    args->rig.path = argv[optind];
    args->to = argv[optind + 1];
    return true;
}

/* ---- measuring ---- */

static bool make_room(struct watched *w, const struct model_input *input)
{
    if (input->expert < w->n_experts)
        return true;
    uint32_t n = input->expert + 1;
    double *sums = realloc(w->sums, (size_t)n * input->n_cols * sizeof(*sums));

    if (sums == NULL)
        return false;
    w->sums = sums;
    uint64_t *counts = realloc(w->counts, n * sizeof(*counts));
    if (counts == NULL)
        return false;
    w->counts = counts;
    w->n_cols = input->n_cols;
    memset(sums + (size_t)w->n_experts * w->n_cols, 0,
           (size_t)(n - w->n_experts) * w->n_cols * sizeof(*sums));
    memset(counts + w->n_experts, 0, (n - w->n_experts) * sizeof(*counts));
    w->n_experts = n;
    return true;
}

static void on_input(void *arg, const struct model_input *input)
{
    struct imatrix_run *run = arg;
    struct watched *w = &run->watched[input->layer * MODEL_INPUT_GROUPS + input->group];

    if (run->has_no_memory || !make_room(w, input)) {
        run->has_no_memory = true;
        return;
    }
    double *sums = w->sums + (size_t)input->expert * w->n_cols;
    for (uint32_t row = 0; row < input->n_rows; row++) {
        const float *x = input->x + row * input->stride;

        for (uint32_t i = 0; i < w->n_cols; i++)
            sums[i] += (double)x[i] * (double)x[i];
    }
    w->counts[input->expert] += input->n_rows;
}

static int read_text(struct imatrix_run *run, struct fault *fault)
{
    struct buf text = {0};
    unsigned flags = run->args->text.is_special ? TOKEN_PARSE_SPECIAL : 0;
    int rc;

    run->at = run->args->text.path;
    rc = cli_read(run->at, MAX_TEXT_BYTES, fault, &text);
    if (rc == 0) {
        rc =
            tokenizer_encode(run->tokenizer, bytes_of(text.data, text.len_bytes), flags, SIZE_MAX, &run->ids);
        if (rc < 0)
            fault_set(fault, rc, "%s", err_text(rc));
    }
    buf_fini(&text);
    if (rc == 0 && run->ids.n == 0)
        rc = fault_set(fault, E_INVAL, "the text is empty");
    if (rc < 0)
        return rc;
    run->at = run->args->rig.path;
    return 0;
}

/* Reads one window, after a BOS where the model wants one. */
static int read_window(struct imatrix_run *run, token_id *tokens, uint32_t context, size_t from)
{
    uint32_t n_bos = tokenizer_adds_bos(run->tokenizer) ? 1 : 0;
    struct sample_result drawn;
    size_t left = run->ids.n - from, n = left < context - n_bos ? left : context - n_bos;

    tokens[0] = tokenizer_bos(run->tokenizer);
    memcpy(tokens + n_bos, run->ids.ids + from, n * sizeof(*tokens));
    return rig_feed(&run->rig, &(struct rig_feed){.tokens = tokens, .n_tokens = (uint32_t)n + n_bos}, &drawn);
}

static int imatrix_measure(struct imatrix_run *run, struct fault *fault)
{
    const struct imatrix_args *args = run->args;
    uint32_t most = model_config(run->rig.model)->context_length;
    uint32_t context = args->text.context ? args->text.context : most < 512 ? most : 512;
    struct progress progress;
    token_id *tokens;
    int rc = 0;

    if (context < 2 || context > most)
        return fault_set(fault, E_RANGE, "a context of %u; the model has %u", context, most);
    rc = rig_start(&run->rig,
                   &(struct rig_seats){.n_sequences = 1, .n_tokens = context, .batch_tokens = BATCH}, fault);
    if (rc < 0)
        return rc;
    tokens = calloc(context, sizeof(*tokens));
    if (tokens == NULL)
        return fault_set(fault, E_NOMEM, "%s", err_text(E_NOMEM));
    progress_begin(&progress, "window", 0);
    for (size_t from = 0; from < run->ids.n && rc == 0;
         from += context - tokenizer_adds_bos(run->tokenizer)) {
        if (args->text.max_windows != 0 && run->n_windows >= args->text.max_windows)
            break;
        rc = read_window(run, tokens, context, from);
        run->n_windows++;
        if (rc == 0 && run->has_no_memory)
            rc = E_NOMEM;
        progress_show(&progress, run->n_windows);
    }
    progress_end(&progress);
    free(tokens);
    return rc < 0 ? fault_set(fault, rc, "%s", err_text(rc)) : 0;
}

/* ---- the file ---- */

static int imatrix_declare(struct imatrix_run *run, struct gguf_writer *writer, const char *name,
                           const struct watched *w)
{
    uint64_t dims[2] = {w->n_cols, w->n_experts}, one[2] = {1, w->n_experts};
    char part[96];
    void *grown = realloc(run->tensors, (run->n_tensors + 2) * sizeof(*run->tensors));
    int rc;

    if (grown == NULL)
        return E_NOMEM;
    run->tensors = grown;
    snprintf(part, sizeof(part), "%s.in_sum2", name);
    rc = gguf_declare_tensor(writer, part, DTYPE_F32, 2, dims);
    if (rc < 0)
        return rc;
    run->tensors[run->n_tensors].from = w;
    run->tensors[run->n_tensors++].is_counts = false;
    snprintf(part, sizeof(part), "%s.counts", name);
    rc = gguf_declare_tensor(writer, part, DTYPE_F32, 2, one);
    run->tensors[run->n_tensors].from = w;
    run->tensors[run->n_tensors++].is_counts = true;
    return rc;
}

static int declare_all(struct imatrix_run *run, struct gguf_writer *writer)
{
    char name[64];
    int rc = 0;

    for (uint32_t layer = 0; layer < run->n_layers; layer++)
        for (uint32_t group = 0; group < MODEL_INPUT_GROUPS; group++) {
            struct watched *w = &run->watched[layer * MODEL_INPUT_GROUPS + group];

            for (uint32_t i = 0;
                 w->n_experts != 0 && rc == 0 && model_input_tensor(run->rig.model, layer, group, i, name);
                 i++) {
                const struct gguf_tensor *tensor = gguf_tensor_find(run->rig.gguf, name);

                if (tensor == NULL || tensor->dims[0] != w->n_cols || tensor->dims[2] < w->n_experts)
                    continue;
                /* Experts that no token chose have room, too. */
                if (!make_room(w, &(struct model_input){.expert = (uint32_t)tensor->dims[2] - 1,
                                                        .n_cols = w->n_cols}))
                    return E_NOMEM;
                rc = imatrix_declare(run, writer, name, w);
            }
        }
    return rc;
}

static int imatrix_fill(void *arg, uint64_t index, struct gguf_writer *writer)
{
    const struct imatrix_run *run = arg;
    const struct watched *w = run->tensors[index].from;
    size_t n = run->tensors[index].is_counts ? w->n_experts : (size_t)w->n_experts * w->n_cols;
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++) {
        float value = run->tensors[index].is_counts ? (float)w->counts[i] : (float)w->sums[i];
        uint8_t bytes[4];
        uint32_t word;

        memcpy(&word, &value, sizeof(word));
        put_u32(bytes, word);
        rc = gguf_writer_data(writer, bytes, sizeof(bytes));
    }
    return rc;
}

static int imatrix_save(struct imatrix_run *run, struct fault *fault)
{
    struct gguf_writer *writer = NULL;
    struct bytes text = bytes_str(run->args->text.path);
    int rc = gguf_writer_new(&writer);

    if (rc == 0)
        rc = gguf_put_str(writer, "general.type", bytes_str("imatrix"));
    if (rc == 0)
        rc = gguf_put_str_array(writer, "imatrix.datasets", &text, 1);
    if (rc == 0)
        rc = gguf_put_u32(writer, "imatrix.chunk_count", run->n_windows);
    if (rc == 0)
        rc = gguf_put_u32(writer, "imatrix.chunk_size",
                          run->args->text.context ? run->args->text.context : 512);
    if (rc == 0)
        rc = declare_all(run, writer);
    if (rc < 0)
        fault_set(fault, rc, "%s", err_text(rc));
    else
        rc = gguf_writer_save(writer, run->args->to, imatrix_fill, run, fault);
    gguf_writer_free(writer);
    return rc;
}

static int imatrix_work(struct imatrix_run *run, struct fault *fault)
{
    int rc = rig_load(&run->args->rig, fault, &run->rig);

    if (rc == 0)
        rc = tokenizer_new(run->rig.gguf, fault, &run->tokenizer);
    if (rc == 0)
        rc = read_text(run, fault);
    if (rc < 0)
        return rc;
    run->n_layers = model_config(run->rig.model)->n_layers;
    run->watched = calloc((size_t)run->n_layers * MODEL_INPUT_GROUPS, sizeof(*run->watched));
    if (run->watched == NULL ||
        model_watch_inputs(run->rig.model, &(struct model_watch){.on_input = on_input, .arg = run}) < 0)
        return fault_set(fault, E_NOMEM, "%s", err_text(E_NOMEM));
    rc = imatrix_measure(run, fault);
    if (rc < 0)
        return rc;
    run->at = run->args->to;
    return imatrix_save(run, fault);
}

static void imatrix_fini(struct imatrix_run *run)
{
    for (size_t i = 0; run->watched && i < (size_t)run->n_layers * MODEL_INPUT_GROUPS; i++) {
        free(run->watched[i].sums);
        free(run->watched[i].counts);
    }
    free(run->watched);
    free(run->tensors);
    rig_close(&run->rig);
    tokenizer_unref(run->tokenizer);
    token_ids_fini(&run->ids);
}

int cmd_imatrix(int argc, char **argv)
{
    struct imatrix_args args;
    struct imatrix_run run = {.args = &args};
    struct fault fault = {0};
    int rc;

    if (!imatrix_parse(argc, argv, &args))
        return cli_usage(NAME, NULL);
    if (args.is_help) {
        fputs(HELP, stdout);
        return cli_done(NAME);
    }
    if (cli_may_write(args.to, args.is_forced, &fault) < 0 ||
        cli_is_other(args.to, args.rig.path, &fault) < 0 || cli_is_other(args.to, args.text.path, &fault) < 0)
        return cli_failed(NAME, args.to, &fault);
    rig_catch_interrupt();
    run.at = args.rig.path;
    rc = imatrix_work(&run, &fault);
    if (rc == 0)
        printf("%s: %u matrices, %u windows\n", args.to, run.n_tensors / 2, run.n_windows);
    imatrix_fini(&run);
    if (rc == E_CANCELLED)
        return rig_interrupt_status();
    return rc < 0 ? cli_failed(NAME, run.at, &fault) : cli_done(NAME);
}
