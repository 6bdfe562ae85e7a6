/* SPDX-License-Identifier: Apache-2.0 */
/* baton-model tokenize and detokenize: text to token ids and back, with a model file's own vocabulary.
 *
 *     $ baton-model tokenize MODEL.gguf 'Hello world'
 *     9707 1879
 *     $ baton-model tokenize MODEL.gguf 'Hello world' | baton-model detokenize MODEL.gguf
 *     Hello world
 *
 * The text is an argument, a file or stdin, byte for byte: the commands neither add nor remove a newline. */
#include "clients/model/model_cli.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "gguf/gguf.h"
#include "text/token/tokenizer.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_INPUT_BYTES ((size_t)256 << 20)

static const char TOKENIZE_HELP[] =
    "Usage: baton-model tokenize [OPTIONS] MODEL.gguf [TEXT]\n"
    "Print the token ids of TEXT, of a file, or of stdin.\n"
    "\n"
    "  --file FILE    read the text from FILE (-: stdin)\n"
    "  --special      control tokens spelled out in the text count as such\n"
    "  --bos          begin with the BOS token if the model wants one\n"
    "  --pieces       one line for each token: its id and its text\n"
    "  --count        print only how many\n"
    "  --time         say on stderr how long the text took, the quickest of five runs\n"
    "  --help         this text\n";

static const char DETOKENIZE_HELP[] =
    "Usage: baton-model detokenize [OPTIONS] MODEL.gguf [ID...]\n"
    "Print the text of token ids, given as arguments or on stdin, apart by blanks or commas.\n"
    "\n"
    "  --special      spell out control tokens instead of leaving them out\n"
    "  --continue     the text continues another: keep a first blank\n"
    "  --help         this text\n";

struct tokens_args {
    const char *model;
    const char *text_path; /* NULL: the text is an argument */
    const char *text;
    bool takes_special, adds_bos, shows_pieces, shows_count, shows_time, continues;
};

static int open_tokenizer(const char *command, const char *path, struct tokenizer **out)
{
    struct fault fault = {0};
    struct gguf *gguf;

    int rc = gguf_open(path, &fault, &gguf);
    if (rc == 0) {
        rc = tokenizer_new(gguf, &fault, out);
        gguf_close(gguf);
    }
    return rc == 0 ? CLI_OK : cli_failed(command, path, &fault);
}

/* ---- tokenize ---- */

static void print_pieces(const struct tokenizer *tokenizer, const struct token_ids *ids)
{
    struct buf line = {0};

    for (size_t i = 0; i < ids->n; i++) {
        buf_clear(&line);
        buf_printf(&line, "%u\t", ids->ids[i]);
        json_put_str(&line, tokenizer_piece(tokenizer, ids->ids[i]));
        buf_append_byte(&line, '\n');
        if (!line.is_bad)
            fwrite(line.data, 1, line.len_bytes, stdout);
    }
    buf_fini(&line);
}

/* Measures encoding alone: the vocabulary is already loaded, as in a server. */
static int time_runs(const struct tokenizer *tokenizer, struct bytes text, unsigned flags)
{
    uint64_t best_ns = UINT64_MAX;
    struct token_ids ids = {0};
    int rc = 0;

    for (int i = 0; i < 5 && rc == 0; i++) {
        uint64_t began_ns = clock_now_ns();

        ids.n = 0;
        rc = tokenizer_encode(tokenizer, text, flags, SIZE_MAX, &ids);
        uint64_t took_ns = clock_now_ns() - began_ns;
        best_ns = took_ns < best_ns ? took_ns : best_ns;
    }
    if (rc == 0)
        fprintf(stderr, "%zu bytes, %zu tokens: %.2f ms, %.1f MB/s\n", text.len_bytes, ids.n,
                (double)best_ns / NS_PER_MS, (double)text.len_bytes * 1e3 / (double)(best_ns + 1));
    token_ids_fini(&ids);
    return rc;
}

static int print_tokens(const struct tokens_args *args, const struct tokenizer *tokenizer, struct bytes text)
{
    unsigned flags = (args->takes_special ? TOKEN_PARSE_SPECIAL : 0) | (args->adds_bos ? TOKEN_ADD_BOS : 0);
    struct token_ids ids = {0};

    int rc = tokenizer_encode(tokenizer, text, flags, SIZE_MAX, &ids);
    if (rc == 0 && args->shows_time)
        rc = time_runs(tokenizer, text, flags);
    if (rc != 0) {
        token_ids_fini(&ids);
        return cli_failed_code("tokenize", NULL, rc);
    }
    if (args->shows_count) {
        printf("%zu\n", ids.n);
    } else if (args->shows_pieces) {
        print_pieces(tokenizer, &ids);
    } else {
        for (size_t i = 0; i < ids.n; i++)
            printf("%s%u", i == 0 ? "" : " ", ids.ids[i]);
        printf("\n");
    }
    token_ids_fini(&ids);
    return cli_done("tokenize");
}

static int cmd_tokens_tokenize(const struct tokens_args *args)
{
    struct tokenizer *tokenizer = NULL;
    struct fault fault = {0};
    struct buf input = {0};
    int status = open_tokenizer("tokenize", args->model, &tokenizer);

    if (status == CLI_OK && args->text == NULL &&
        cli_read(args->text_path, MAX_INPUT_BYTES, &fault, &input) != 0)
        status = cli_failed("tokenize", args->text_path, &fault);
    if (status == CLI_OK)
        status = print_tokens(args, tokenizer, args->text != NULL ? bytes_str(args->text) : buf_view(&input));
    buf_fini(&input);
    tokenizer_unref(tokenizer);
    return status;
}

int cmd_tokenize(int argc, char **argv)
{
    static const struct option options[] = {
        {"file", required_argument, NULL, 'f'}, {"special", no_argument, NULL, 's'},
        {"bos", no_argument, NULL, 'b'},        {"pieces", no_argument, NULL, 'p'},
        {"count", no_argument, NULL, 'c'},      {"time", no_argument, NULL, 't'},
        {"help", no_argument, NULL, 'h'},       {NULL, 0, NULL, 0}};
    struct tokens_args args = {0};
    int option;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(TOKENIZE_HELP, stdout);
            return cli_done("tokenize");
        }
        if (option == '?')
            return cli_usage("tokenize", NULL);
        if (option == 'f')
            args.text_path = optarg;
        args.takes_special |= option == 's';
        args.adds_bos |= option == 'b';
        args.shows_pieces |= option == 'p';
        args.shows_count |= option == 'c';
        args.shows_time |= option == 't';
    }
    if (optind == argc || argc - optind > 2)
        return cli_usage("tokenize", "name one model file and at most one text");
    args.model = argv[optind];
    args.text = optind + 1 < argc ? argv[optind + 1] : NULL;
    if (args.text != NULL && args.text_path != NULL)
        return cli_usage("tokenize", "give the text or a file, not both");
    if (args.text_path == NULL)
        args.text_path = "-";
    return cmd_tokens_tokenize(&args);
}

/* ---- detokenize ---- */

static bool is_between(uint8_t c)
{
    return c == ' ' || c == ',' || c == '\t' || c == '\n' || c == '\r';
}

static int cmd_tokens_read_ids(struct bytes text, const struct tokenizer *tokenizer, struct token_ids *out,
                               struct fault *fault)
{
    for (size_t at = 0; at < text.len_bytes;) {
        size_t end = at;
        uint64_t id;

        while (end < text.len_bytes && !is_between(text.data[end]))
            end++;
        struct bytes word = bytes_of(text.data + at, end - at);
        at = end + 1;
        if (word.len_bytes == 0)
            continue;
        if (str_to_u64(word, &id) != 0 || id >= tokenizer_vocab_size(tokenizer))
            return fault_set(fault, E_FORMAT, "'%.*s' is not a token id; they go from 0 to %u",
                             word.len_bytes > 40 ? 40 : (int)word.len_bytes, (const char *)word.data,
                             tokenizer_vocab_size(tokenizer) - 1);
        if (token_ids_push(out, (token_id)id) != 0)
            return fault_set(fault, E_NOMEM, "out of memory");
    }
    return 0;
}

static int cmd_tokens_print_text(const struct tokens_args *args, const struct tokenizer *tokenizer,
                                 const struct token_ids *ids)
{
    struct detok detok;
    struct buf text = {0};

    detok_init(&detok, tokenizer, args->continues);
    for (size_t i = 0; i < ids->n; i++) {
        detok_push(&detok, ids->ids[i], &text);
        if (args->takes_special && tokenizer_is_control(tokenizer, ids->ids[i])) {
            struct bytes piece = tokenizer_piece(tokenizer, ids->ids[i]);
            buf_append(&text, piece.data, piece.len_bytes);
        }
    }
    detok_finish(&detok);
    if (text.is_bad)
        return cli_failed_code("detokenize", NULL, E_NOMEM);
    fwrite(text.data, 1, text.len_bytes, stdout);
    if (isatty(STDOUT_FILENO))
        putchar('\n');
    buf_fini(&text);
    return cli_done("detokenize");
}

/* ids: n arguments, or none: stdin. */
static int cmd_tokens_detokenize(const struct tokens_args *args, char **ids, int n)
{
    struct tokenizer *tokenizer = NULL;
    struct token_ids list = {0};
    struct fault fault = {0};
    struct buf input = {0};
    int status = open_tokenizer("detokenize", args->model, &tokenizer);
    int rc = 0;

    if (status != CLI_OK)
        return status;
    for (int i = 0; i < n; i++)
        buf_printf(&input, "%s ", ids[i]);
    if (n == 0)
        rc = cli_read("-", MAX_INPUT_BYTES, &fault, &input);
    if (rc == 0)
        rc = cmd_tokens_read_ids(buf_view(&input), tokenizer, &list, &fault);
    status = rc == 0 ? cmd_tokens_print_text(args, tokenizer, &list) : cli_failed("detokenize", NULL, &fault);
    buf_fini(&input);
    token_ids_fini(&list);
    tokenizer_unref(tokenizer);
    return status;
}

int cmd_detokenize(int argc, char **argv)
{
    static const struct option options[] = {{"special", no_argument, NULL, 's'},
                                            {"continue", no_argument, NULL, 'c'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    struct tokens_args args = {0};
    int option;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(DETOKENIZE_HELP, stdout);
            return cli_done("detokenize");
        }
        if (option == '?')
            return cli_usage("detokenize", NULL);
        args.takes_special |= option == 's';
        args.continues |= option == 'c';
    }
    if (optind == argc)
        return cli_usage("detokenize", "name a model file");
    args.model = argv[optind];
    return cmd_tokens_detokenize(&args, argv + optind + 1, argc - optind - 1);
}
