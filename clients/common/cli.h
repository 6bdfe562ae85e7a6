/* SPDX-License-Identifier: Apache-2.0 */
/* The commands' common part: exit statuses, error messages, and the server's address as people write it. */
#ifndef CLIENTS_COMMON_CLI_H
#define CLIENTS_COMMON_CLI_H

#include "base/bytes.h"
#include "base/fault.h"

enum exit_status {
    EXIT_DONE = 0,
    EXIT_FAILED = 1, /* the work failed; stderr has the reason */
    EXIT_USAGE = 2   /* the command line was not understood */
};

/* "program: text" on stderr.  Returns EXIT_FAILED. */
__attribute__((format(printf, 2, 3))) int complain(const char *program, const char *format, ...);
/* The same, with a pointer to --help.  Returns EXIT_USAGE. */
__attribute__((format(printf, 2, 3))) int complain_usage(const char *program, const char *format, ...);
/* Flushes stdout: a full disk or a closed pipe is a failure. */
int finish_output(const char *program);

struct server_url {
    char address[300]; /* "host:port" for http_client_new() */
    char base[256];    /* path without a last '/', often "" */
};

/* "http://127.0.0.1:8080", "127.0.0.1:8080", "http://[::1]/base".  E_FORMAT; E_UNSUPPORTED for https. */
int server_url_parse(const char *text, struct fault *fault, struct server_url *out);

/* Read option values; false after a message that names the option. */
bool option_u64(const char *program, const char *option, const char *text, uint64_t *out);
bool option_f64(const char *program, const char *option, const char *text, double *out);
bool option_duration(const char *program, const char *option, const char *text, uint64_t *ns_out);

#endif
