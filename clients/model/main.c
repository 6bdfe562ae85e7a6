/* SPDX-License-Identifier: Apache-2.0 */
/* baton-model: inspects, runs, makes, quantises and measures models.  Each command has a file of its own and
 * parses its own options (model_cli.h).  This file only looks up the name. */
#include "clients/model/model_cli.h"

#include "base/check.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} COMMANDS[] = {
    {"info", cmd_info, "content of a file: keys, shapes, tensors"},
    {"tokenize", cmd_tokenize, "text to token ids"},
    {"detokenize", cmd_detokenize, "token ids to text"},
    {"render", cmd_render, "a conversation in the model's chat format"},
    {"logits", cmd_logits, "the logits after a prompt"},
    {"generate", cmd_generate, "continue a prompt or answer a chat turn"},
    {"make", cmd_make, "write a model of a given shape with random weights"},
    {"quantize", cmd_quantize, "write a model in a smaller type"},
    {"imatrix", cmd_imatrix, "measure which weights matter for a text"},
    {"pull", cmd_pull, "fetch a model from a hub or a web server"},
    {"split", cmd_split, "write a model as several files"},
    {"merge", cmd_merge, "write a split model as one file"},
    {"perplexity", cmd_perplexity, "how well a model foretells a text, and how far from another file"},
    {"bench", cmd_bench, "time prefill, decode and batches beside the machine's limits"},
};

static void model_main_print_help(FILE *file)
{
    fputs("Usage: baton-model COMMAND [OPTIONS] FILE.gguf\n"
          "Look into, try, make, quantise, judge and time models in GGUF files.\n"
          "\n",
          file);
    for (size_t i = 0; i < ARRAY_LEN(COMMANDS); i++)
        fprintf(file, "  %-11s %s\n", COMMANDS[i].name, COMMANDS[i].summary);
    fputs("\n"
          "  baton-model COMMAND --help   the command's options\n"
          "  baton-model --version        the version\n",
          file);
}

static int model_main_unknown(const char *name)
{
    struct str_nearest nearest = {.text = name, .most = 3};

    for (size_t i = 0; i < ARRAY_LEN(COMMANDS); i++)
        str_nearest_try(&nearest, COMMANDS[i].name);
    fprintf(stderr, "baton-model: no command \"%s\"", name);
    if (nearest.name != NULL)
        fprintf(stderr, "; did you mean \"%s\"?", nearest.name);
    fputs("\nTry 'baton-model --help'.\n", stderr);
    return CLI_USAGE;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        model_main_print_help(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        model_main_print_help(stdout);
        return cli_done("help");
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        puts("baton-model " PACKAGE_VERSION);
        return cli_done("version");
    }
    for (size_t i = 0; i < ARRAY_LEN(COMMANDS); i++)
        if (strcmp(argv[1], COMMANDS[i].name) == 0)
            return COMMANDS[i].run(argc - 1, argv + 1);
    return model_main_unknown(argv[1]);
}
