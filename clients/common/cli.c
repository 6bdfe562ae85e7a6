/* SPDX-License-Identifier: Apache-2.0 */
/* Small functions that all commands share, so that their messages and exit statuses agree.  A message begins
 * with the program's name.  A wrong command line ends in 2 and points to --help; any other failure ends in 1.
 *
 * Addresses are accepted as people write them: with or without "http://", a port (default 80) and a path.
 * https is refused with a message: TLS ends at a proxy before the router. */
#include "clients/common/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

int complain(const char *program, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "%s: ", program);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return EXIT_FAILED;
}

int complain_usage(const char *program, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "%s: ", program);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "; see %s --help\n", program);
    return EXIT_USAGE;
}

int finish_output(const char *program)
{
    if (fflush(stdout) != 0 || ferror(stdout))
        return complain(program, "cannot write the output");
    return EXIT_DONE;
}

static bool has_port(const char *authority)
{
    const char *colon = strrchr(authority, ':');
    const char *bracket = strrchr(authority, ']');

    return colon != NULL && (bracket == NULL || colon > bracket);
}

int server_url_parse(const char *text, struct fault *fault, struct server_url *out)
{
    struct server_url url = {0};
    const char *at = text;
    size_t len;

    if (strncmp(at, "https://", 8) == 0)
        return fault_set(fault, E_UNSUPPORTED,
                         "%s: https is not spoken here; give the http:// address behind the proxy", text);
    if (strncmp(at, "http://", 7) == 0)
        at += 7;
    else if (strstr(at, "://") != NULL)
        return fault_set(fault, E_FORMAT, "%s: an address looks like http://HOST:PORT", text);
    len = strcspn(at, "/?#");
    if (len == 0 || len + 4 > sizeof(url.address) || strpbrk(at, "?#@ ") != NULL)
        return fault_set(fault, E_FORMAT, "%s: an address looks like http://HOST:PORT", text);
    memcpy(url.address, at, len);
    if (!has_port(url.address))
        memcpy(url.address + len, ":80", 4);
    if (!str_copy(url.base, sizeof(url.base), at + len))
        return fault_set(fault, E_FORMAT, "%s: the path is too long", text);
    for (len = strlen(url.base); len > 0 && url.base[len - 1] == '/'; len--)
        url.base[len - 1] = '\0';
    *out = url;
    return 0;
}

bool option_u64(const char *program, const char *option, const char *text, uint64_t *out)
{
    if (str_to_u64(bytes_str(text), out) == 0)
        return true;
    complain_usage(program, "%s %s: not a whole number", option, text);
    return false;
}

bool option_f64(const char *program, const char *option, const char *text, double *out)
{
    if (str_to_f64(bytes_str(text), out) == 0)
        return true;
    complain_usage(program, "%s %s: not a number", option, text);
    return false;
}

bool option_duration(const char *program, const char *option, const char *text, uint64_t *ns_out)
{
    if (str_to_duration(bytes_str(text), ns_out) == 0)
        return true;
    complain_usage(program, "%s %s: not a time (500ms, 30s, 5min)", option, text);
    return false;
}
