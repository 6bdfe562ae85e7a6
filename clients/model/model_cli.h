/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of baton-model.  Each gets its own name as argv[0] and knows --help.  It writes its result to
 * stdout and errors to stderr, and returns the exit status. */
#ifndef MODEL_MODEL_CLI_H
#define MODEL_MODEL_CLI_H

#include "base/bytes.h"
#include "base/fault.h"

enum cli_status {
    CLI_OK = 0,
    CLI_FAILED = 1, /* the work could not be done; stderr says why */
    CLI_USAGE = 2   /* the command line was not understood */
};

int cmd_info(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_detokenize(int argc, char **argv);
int cmd_render(int argc, char **argv);
int cmd_logits(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_make(int argc, char **argv);
int cmd_quantize(int argc, char **argv);
int cmd_imatrix(int argc, char **argv);
int cmd_pull(int argc, char **argv);
int cmd_split(int argc, char **argv);
int cmd_merge(int argc, char **argv);
int cmd_perplexity(int argc, char **argv);
int cmd_bench(int argc, char **argv);

/* Prints "baton-model COMMAND: SUBJECT: the fault's text" on stderr; subject is a file or NULL.  Returns
 * CLI_FAILED. */
int cli_failed(const char *command, const char *subject, const struct fault *fault);
/* The same for a code without a story. */
int cli_failed_code(const char *command, const char *subject, int code);
/* Points to --help on stderr, after getopt's own message.  Returns CLI_USAGE. */
int cli_usage(const char *command, const char *complaint);
/* Flushes stdout; a full disk or a closed pipe is a failure.  Returns CLI_OK or CLI_FAILED. */
int cli_done(const char *command);
/* 0 if there is no such file yet, or if it may be overwritten; else E_EXISTS. */
int cli_may_write(const char *path, bool is_forced, struct fault *fault);
/* 0 unless path is the file `source`, or a part of the split model that it names; also through links.  E_EXISTS.
 * source: NULL if there is none. */
int cli_is_other(const char *path, const char *source, struct fault *fault);
/* Appends all of a file ("-": stdin), at most limit_bytes (E_LIMIT). */
int cli_read(const char *path, size_t limit_bytes, struct fault *fault, struct buf *out);

#endif
