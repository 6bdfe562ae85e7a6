/* SPDX-License-Identifier: Apache-2.0 */
/* baton-model quantize: copies a model file with its matrices in a smaller type.
 *
 *     plan      each tensor's type (quantize_mix.c), declared to the writer with all keys of the source
 *     write     tensor by tensor: rows of the map -> floats -> qblks, a range of rows per thread
 *     report    sizes, bits per weight, error against the source
 *
 * The result gets its name only when it is complete.  Each row is quantised separately, and errors are summed
 * in order.  So the number of threads changes neither a byte nor a figure. */
#include "clients/model/quantize_priv.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/progress.h"
#include "base/team.h"
#include "clients/model/model_cli.h"
#include "clients/model/rig.h"
#include "gguf/qblk_write.h"
#include "gguf/write.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char NAME[] = "quantize";

static const char HELP[] =
    "Usage: baton-model quantize [OPTIONS] IN.gguf OUT.gguf\n"
    "Write a model with its matrices in a smaller type.\n"
    "\n"
    "  --type NAME            Q4_K_M (default), Q4_K_S, Q5_K_M, Q5_K_S, Q6_K, Q8_0,\n"
    "                         Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K_S, Q3_K_M, Q3_K_L,\n"
    "                         F16, BF16 or F32\n"
    "  --output-type TYPE     of the output head, in place of the usual one\n"
    "  --embedding-type TYPE  of the token embedding\n"
    "  --imatrix FILE         weigh errors by an importance matrix (baton-model imatrix)\n"
    "  --pure                 the same type for every matrix\n"
    "  --threads N            compute threads (default: all CPUs)\n"
    "  --verbose              a line for each tensor\n"
    "  --force                overwrite OUT.gguf\n"
    "  --help                 this text\n";

enum { CHUNK_WEIGHTS = 1 << 22 }; /* quantised between two writes */

struct quantize_args {
    struct mix_opts mix;
    uint32_t n_threads;
    const char *from, *to, *imatrix;
    bool is_verbose, is_forced, is_help;
};

struct job { /* a chunk of rows of one tensor */
    const struct gguf_tensor *tensor;
    enum dtype type;
    uint64_t first, n_rows;
    size_t row_bytes_in, row_bytes_out;
    float *factors; /* [dims[2]][dims[0]] importance, or NULL */
    float *scales;  /* [dims[2]] of NVFP4, or NULL */
    char *out;      /* [n_rows][row_bytes_out] */
    double *errors; /* [n_rows] sum of squared differences */
    double *squares;
    float *scratch; /* [n_ranks][2][dims[0]] */
    int *rcs;       /* [n_ranks] */
};

struct quantizing {
    const struct quantize_args *args;
    struct gguf *gguf;
    struct team *team;
    enum dtype *types;  /* [n_tensors] */
    enum dtype *wanted; /* [n_tensors] */
    uint64_t *kept;     /* [n_kept] tensors of the result */
    uint64_t n_kept;
    struct imatrix *imatrix; /* NULL: none */
    uint64_t n_matrices, n_important;
    struct job job;
    uint64_t in_bytes, done_bytes, out_bytes, n_weights;
    double error, squares; /* over all matrices whose type changed */
    uint64_t n_changed;    /* weights in them */
    struct progress progress;
    const char *at; /* the file that a failure is about */
};

/* ---- the command line ---- */

enum option_id {
    OPT_TYPE = 256,
    OPT_OUTPUT,
    OPT_EMBEDDING,
    OPT_IMATRIX,
    OPT_PURE,
    OPT_THREADS,
    OPT_VERBOSE,
    OPT_FORCE
};

static const struct option OPTIONS[] = {{"type", required_argument, NULL, OPT_TYPE},
                                        {"output-type", required_argument, NULL, OPT_OUTPUT},
                                        {"embedding-type", required_argument, NULL, OPT_EMBEDDING},
                                        {"imatrix", required_argument, NULL, OPT_IMATRIX},
                                        {"pure", no_argument, NULL, OPT_PURE},
                                        {"threads", required_argument, NULL, OPT_THREADS},
                                        {"verbose", no_argument, NULL, OPT_VERBOSE},
                                        {"force", no_argument, NULL, OPT_FORCE},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};

static bool can_write(int type)
{
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16 ||
           (type >= 0 && qblk_can_write((enum dtype)type));
}

static bool take_dtype(const char *option, int *out)
{
    int type = dtype_from_name(optarg);

    if (!can_write(type)) {
        fprintf(stderr, "baton-model %s: --%s is one tensor type such as Q6_K, not \"%s\"\n", NAME, option,
                optarg);
        return false;
    }
    *out = type;
    return true;
}

static bool cmd_quantize_take_option(int option, struct quantize_args *args)
{
    switch (option) {
    case OPT_TYPE:
        args->mix.mix = mix_find(optarg);
        if (args->mix.mix == NULL)
            fprintf(stderr, "baton-model %s: --type is one of %s, not \"%s\"\n", NAME, mix_names(), optarg);
        return args->mix.mix != NULL;
    case OPT_OUTPUT:
        return take_dtype("output-type", &args->mix.output_type);
    case OPT_EMBEDDING:
        return take_dtype("embedding-type", &args->mix.embedding_type);
    case OPT_IMATRIX:
        args->imatrix = optarg;
        return true;
    case OPT_PURE:
        args->mix.is_pure = true;
        return true;
    case OPT_THREADS:
        return rig_parse_u32(NAME, "threads", optarg, 1024, &args->n_threads);
    case OPT_VERBOSE:
        args->is_verbose = true;
        return true;
    case OPT_FORCE:
        args->is_forced = true;
        return true;
    case 'h':
        args->is_help = true;
        return true;
    default:
        return false;
    }
}

static bool cmd_quantize_parse(int argc, char **argv, struct quantize_args *args)
{
    int option;

    *args =
        (struct quantize_args){.mix = {.mix = mix_find("Q4_K_M"), .output_type = -1, .embedding_type = -1}};
    while ((option = getopt_long(argc, argv, "h", OPTIONS, NULL)) != -1)
        if (!cmd_quantize_take_option(option, args))
            return false;
    if (args->is_help)
        return true;
    if (optind != argc - 2) {
        fprintf(stderr, "baton-model %s: name the file to read and the file to write\n", NAME);
        return false;
    }
    args->from = argv[optind];
    args->to = argv[optind + 1];
    return true;
}

/* ---- plan ---- */

static bool is_float(enum dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16;
}

/* A coarse tensor is not quantised a second time, but may be written as floats. */
static bool may_become(enum dtype from, enum dtype to)
{
    return is_float(from) || from == DTYPE_Q8_0 || from == to || (qblk_form(from) != NULL && is_float(to));
}

static size_t row_bytes(enum dtype type, uint64_t cols)
{
    return (size_t)(cols / dtype_info(type)->qblk_weights * dtype_info(type)->qblk_bytes);
}

static int choose_type(struct quantizing *q, uint64_t i, struct fault *fault)
{
    const struct gguf_tensor *tensor = gguf_tensor_at(q->gguf, i);
    float *scales;
    int rc;

    if (mix_is_matrix(tensor)) {
        q->types[i] = mix_type(&q->args->mix, tensor, &q->wanted[i]);
        if (!may_become(tensor->type, q->types[i]))
            return fault_set(
                fault, E_UNSUPPORTED,
                "tensor '%.*s' is %s already; a source has F32, F16, BF16 or Q8_0 (or, for --type F32, "
                "F16 and BF16, any type that is known)",
                (int)tensor->name.len_bytes, (const char *)tensor->name.data, dtype_info(tensor->type)->name);
        if (q->types[i] == tensor->type)
            return 0;
        rc = scales_read(q->gguf, tensor, &scales, fault);
        free(scales);
        if (rc == 0 && q->imatrix)
            rc = imatrix_check(q->imatrix, tensor, fault);
        return rc < 0 ? rc : 0;
    } else {
        q->types[i] = q->wanted[i] = is_float(tensor->type) ? DTYPE_F32 : tensor->type;
    }
    return 0;
}

/* The scales of a tensor whose type changes are in its weights. */
static bool is_dropped(const struct quantizing *q, const struct gguf_tensor *tensor)
{
    const struct gguf_tensor *owner = scales_owner(q->gguf, tensor);

    for (uint64_t i = 0; owner != NULL && i < gguf_tensor_count(q->gguf); i++)
        if (gguf_tensor_at(q->gguf, i) == owner)
            return q->types[i] != owner->type;
    return false;
}

static int cmd_quantize_declare(struct quantizing *q, struct gguf_writer *writer, uint64_t i)
{
    const struct gguf_tensor *tensor = gguf_tensor_at(q->gguf, i);
    char name[1032];

    if (is_dropped(q, tensor))
        return 0;
    q->kept[q->n_kept++] = i;
    snprintf(name, sizeof(name), "%.*s", (int)tensor->name.len_bytes, (const char *)tensor->name.data);
    q->in_bytes += tensor->len_bytes;
    return gguf_declare_tensor(writer, name, q->types[i], tensor->n_dims, tensor->dims);
}

static int cmd_quantize_plan(struct quantizing *q, struct gguf_writer *writer, struct fault *fault)
{
    uint64_t n = gguf_tensor_count(q->gguf);
    int rc = gguf_put_u32(writer, "general.file_type", q->args->mix.mix->file_type);

    q->types = calloc(n + 1, sizeof(*q->types));
    q->wanted = calloc(n + 1, sizeof(*q->wanted));
    q->kept = calloc(n + 1, sizeof(*q->kept));
    if (q->types == NULL || q->wanted == NULL || q->kept == NULL)
        rc = E_NOMEM;
    if (rc == 0)
        rc = gguf_put_u32(writer, "general.quantization_version", 2);
    if (rc == 0 && q->imatrix)
        rc = imatrix_put_keys(q->imatrix, q->args->imatrix, writer);
    if (rc == 0)
        rc = gguf_put_keys_of(writer, q->gguf, "");
    if (rc < 0)
        return fault_set(fault, rc, "%s", err_text(rc));
    for (uint64_t i = 0; i < n && rc == 0; i++)
        rc = choose_type(q, i, fault);
    for (uint64_t i = 0; i < n && rc == 0; i++)
        if ((rc = cmd_quantize_declare(q, writer, i)) < 0)
            fault_set(fault, rc, "%s", err_text(rc));
    return rc;
}

/* ---- write ---- */

/* The factors of a row's matrix: those of its expert. */
static const float *factors_of(const struct job *job, uint64_t row)
{
    return job->factors ? job->factors + (job->first + row) / job->tensor->dims[1] * job->tensor->dims[0]
                        : NULL;
}

static int quantize_row(const struct job *job, uint64_t row, float *x, float *back)
{
    uint64_t cols = job->tensor->dims[0];
    const char *in = (const char *)job->tensor->data + (job->first + row) * job->row_bytes_in;
    char *out = job->out + row * job->row_bytes_out;
    double error = 0, squares = 0;

    int rc = qblk_row_f32(job->tensor->type, in, cols, x);
    float scale = job->scales ? job->scales[(job->first + row) / job->tensor->dims[1]] : 1.0f;

    for (uint64_t i = 0; i < cols && rc == 0 && job->scales != NULL; i++)
        x[i] *= scale;
    if (rc == 0)
        rc = qblk_from_f32_important(job->type, x, factors_of(job, row), cols, out);
    if (rc == 0)
        rc = qblk_row_f32(job->type, out, cols, back);
    for (uint64_t i = 0; i < cols && rc == 0; i++) {
        double off = (double)back[i] - (double)x[i];

        error += off * off;
        squares += (double)x[i] * (double)x[i];
    }
    job->errors[row] = error;
    job->squares[row] = squares;
    return rc;
}

static void quantize_share(void *arg, unsigned rank, unsigned n_ranks)
{
    const struct job *job = arg;
    float *x = job->scratch + (size_t)rank * 2 * job->tensor->dims[0];

    const struct team_range range = team_split(job->n_rows, 1, rank, n_ranks);
    job->rcs[rank] = 0;
    for (uint64_t row = range.from; row < range.to && job->rcs[rank] == 0 && !rig_is_interrupted(); row++)
        job->rcs[rank] = quantize_row(job, row, x, x + job->tensor->dims[0]);
}

static void cmd_quantize_show(struct quantizing *q, size_t more_bytes)
{
    q->done_bytes += more_bytes;
    progress_show(&q->progress, q->done_bytes);
}

static int run_chunk(struct quantizing *q, struct gguf_writer *writer, double *error, double *squares)
{
    struct job *job = &q->job;

    team_run(q->team, quantize_share, job);
    if (rig_is_interrupted())
        return E_CANCELLED;
    for (unsigned rank = 0; rank < team_size(q->team); rank++)
        if (job->rcs[rank] != 0)
            return job->rcs[rank];
    for (uint64_t row = 0; row < job->n_rows; row++) {
        *error += job->errors[row];
        *squares += job->squares[row];
    }
    cmd_quantize_show(q, job->n_rows * job->row_bytes_in);
    return gguf_writer_data(writer, job->out, job->n_rows * job->row_bytes_out);
}

static int cmd_quantize_convert(struct quantizing *q, struct gguf_writer *writer, double *error,
                                double *squares)
{
    struct job *job = &q->job;
    const struct gguf_tensor *tensor = job->tensor;
    uint64_t rows = tensor->dims[1] * tensor->dims[2] * tensor->dims[3];
    uint64_t step = CHUNK_WEIGHTS / tensor->dims[0] + 1;
    size_t n_ranks = team_size(q->team);
    int rc = E_NOMEM;

    if (step > rows)
        step = rows;
    job->row_bytes_in = row_bytes(tensor->type, tensor->dims[0]);
    job->row_bytes_out = row_bytes(job->type, tensor->dims[0]);
    job->out = malloc(step * job->row_bytes_out);
    job->errors = calloc(step, sizeof(double));
    job->squares = calloc(step, sizeof(double));
    job->scratch = malloc(n_ranks * 2 * tensor->dims[0] * sizeof(float));
    job->rcs = calloc(n_ranks, sizeof(int));
    if (job->out && job->errors && job->squares && job->scratch && job->rcs)
        rc = 0;
    for (job->first = 0; job->first < rows && rc == 0; job->first += step) {
        job->n_rows = rows - job->first < step ? rows - job->first : step;
        rc = run_chunk(q, writer, error, squares);
    }
    free(job->out);
    free(job->errors);
    free(job->squares);
    free(job->scratch);
    free(job->rcs);
    return rc;
}

static void print_tensor(const struct quantizing *q, uint64_t i, double error, double squares, uint64_t n)
{
    const struct gguf_tensor *tensor = gguf_tensor_at(q->gguf, i);

    printf("%-36.*s %-5s -> %-5s", (int)tensor->name.len_bytes, (const char *)tensor->name.data,
           dtype_info(tensor->type)->name, dtype_info(q->types[i])->name);
    if (q->types[i] != tensor->type)
        printf("  mse %.3e  relative error %.4f", error / (double)n,
               squares > 0 ? sqrt(error / squares) : 0.0);
    putchar('\n');
}

static int cmd_quantize_fill(void *arg, uint64_t number, struct gguf_writer *writer)
{
    struct quantizing *q = arg;
    uint64_t index = q->kept[number];
    const struct gguf_tensor *tensor = gguf_tensor_at(q->gguf, index);
    uint64_t n = tensor->dims[0] * tensor->dims[1] * tensor->dims[2] * tensor->dims[3];
    double error = 0, squares = 0;
    struct fault fault; /* the plan has checked the scales */
    int rc;

    q->n_weights += n;
    q->out_bytes += n / tensor->dims[0] * row_bytes(q->types[index], tensor->dims[0]);
    if (q->types[index] == tensor->type) {
        cmd_quantize_show(q, tensor->len_bytes);
        rc = rig_is_interrupted() ? E_CANCELLED : gguf_writer_data(writer, tensor->data, tensor->len_bytes);
    } else {
        q->job = (struct job){.tensor = tensor, .type = q->types[index]};
        rc = scales_read(q->gguf, tensor, &q->job.scales, &fault);
        if (rc == 0 && q->imatrix)
            rc = imatrix_factors(q->imatrix, tensor, &q->job.factors);
        if (rc == 0)
            rc = cmd_quantize_convert(q, writer, &error, &squares);
        q->n_matrices++;
        q->n_important += q->job.factors != NULL;
        free(q->job.factors);
        free(q->job.scales);
        q->error += error;
        q->squares += squares;
        q->n_changed += n;
    }
    if (rc == 0 && q->args->is_verbose)
        print_tensor(q, index, error, squares, n);
    return rc;
}

/* ---- report ---- */

/* "6 tensors are Q5_0 in place of Q4_K: their rows of 704 are not whole 256s". */
static void print_replaced(const struct quantizing *q)
{
    uint64_t n = gguf_tensor_count(q->gguf);

    for (uint64_t i = 0; i < n; i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(q->gguf, i);
        uint64_t same = 0;
        bool is_first = true;

        for (uint64_t k = 0; k < n && q->types[i] != q->wanted[i]; k++) {
            if (q->types[k] != q->types[i] || q->wanted[k] != q->wanted[i] ||
                gguf_tensor_at(q->gguf, k)->dims[0] != tensor->dims[0])
                continue;
            is_first = is_first && k >= i;
            same++;
        }
        if (same > 0 && is_first)
            printf("%llu tensor%s %s in place of %s: rows of %llu are not whole blocks of %u\n",
                   (unsigned long long)same, same == 1 ? " is" : "s are", dtype_info(q->types[i])->name,
                   dtype_info(q->wanted[i])->name, (unsigned long long)tensor->dims[0],
                   dtype_info(q->wanted[i])->qblk_weights);
    }
}

static void cmd_quantize_print_report(const struct quantizing *q, uint64_t began_ns)
{
    print_replaced(q);
    printf("%s: %.2f MiB of %s from %.2f MiB, %.3f bits a weight\n", q->args->to,
           (double)q->out_bytes / (1 << 20), q->args->mix.mix->name, (double)q->in_bytes / (1 << 20),
           (double)q->out_bytes * 8 / (double)(q->n_weights ? q->n_weights : 1));
    if (q->n_changed > 0)
        printf("mean squared error %.4e, relative error %.5f\n", q->error / (double)q->n_changed,
               q->squares > 0 ? sqrt(q->error / q->squares) : 0.0);
    if (q->imatrix)
        printf("importance for %llu of %llu matrices\n", (unsigned long long)q->n_important,
               (unsigned long long)q->n_matrices);
    fprintf(stderr, "%.1f s\n", (double)(clock_now_ns() - began_ns) / NS_PER_S);
}

static void look_at(struct quantizing *q, struct quantize_args *args)
{
    struct bytes arch = bytes_str("");
    uint64_t n_layers = 0;
    char key[128];

    gguf_get_str(q->gguf, "general.architecture", NULL, &arch);
    snprintf(key, sizeof(key), "%.*s.block_count", (int)(arch.len_bytes < 64 ? arch.len_bytes : 64),
             (const char *)arch.data);
    gguf_get_u64(q->gguf, key, NULL, &n_layers);
    args->mix.n_layers = n_layers < 1u << 16 ? (uint32_t)n_layers : 0;
    args->mix.is_tied = gguf_tensor_find(q->gguf, "output.weight") == NULL;
}

static int model_cmd_quantize(struct quantizing *q, struct quantize_args *args, struct fault *fault)
{
    struct gguf_writer *writer = NULL;
    int rc = gguf_open(args->from, fault, &q->gguf);

    if (rc < 0)
        return rc;
    look_at(q, args);
    if (args->imatrix) {
        q->at = args->imatrix;
        rc = imatrix_open(args->imatrix, fault, &q->imatrix);
        if (rc < 0)
            return rc;
        q->at = args->from;
    }
    rc = team_new(&(struct team_opts){.n_threads = args->n_threads}, &q->team);
    if (rc == 0)
        rc = gguf_writer_new(&writer);
    if (rc < 0)
        fault_set(fault, rc, "%s", err_text(rc));
    else
        rc = cmd_quantize_plan(q, writer, fault);
    if (rc == 0) {
        q->at = args->to;
        progress_begin(&q->progress, "quantising", q->in_bytes);
        rc = gguf_writer_save(writer, args->to, cmd_quantize_fill, q, fault);
        progress_end(&q->progress);
    }
    gguf_writer_free(writer);
    return rc;
}

int cmd_quantize(int argc, char **argv)
{
    struct quantize_args args;
    struct quantizing q = {.args = &args};
    struct fault fault = {0};
    uint64_t began_ns = clock_now_ns();

    if (!cmd_quantize_parse(argc, argv, &args))
        return cli_usage(NAME, NULL);
    if (args.is_help) {
        fputs(HELP, stdout);
        return cli_done(NAME);
    }
    if (cli_may_write(args.to, args.is_forced, &fault) < 0 || cli_is_other(args.to, args.from, &fault) < 0 ||
        cli_is_other(args.to, args.imatrix, &fault) < 0)
        return cli_failed(NAME, args.to, &fault);
    rig_catch_interrupt();
    q.at = args.from;
    int rc = model_cmd_quantize(&q, &args, &fault);
    if (rc == 0)
        cmd_quantize_print_report(&q, began_ns);
    free(q.types);
    free(q.wanted);
    free(q.kept);
    team_free(q.team);
    imatrix_close(q.imatrix);
    gguf_close(q.gguf);
    if (rc == E_CANCELLED)
        return rig_interrupt_status();
    return rc < 0 ? cli_failed(NAME, q.at, &fault) : cli_done(NAME);
}
