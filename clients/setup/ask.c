/* SPDX-License-Identifier: Apache-2.0 */
/* Questions on the terminal.  Each shows the default, which an empty answer chooses. */
#include "clients/setup/steps.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/str.h"

/* Reads one answer without its blanks.  An empty answer becomes the default. */
static int ask_line(const char *question, const char *usual, char *out, size_t cap)
{
    char line[600];
    char *from = line;
    size_t n;

    if (usual[0] != '\0')
        printf("%s [%s]: ", question, usual);
    else
        printf("%s: ", question);
    fflush(stdout);
    if (fgets(line, sizeof(line), stdin) == NULL) {
        putchar('\n');
        return E_CLOSED;
    }
    from += strspn(from, " \t");
    for (n = strlen(from); n > 0 && strchr(" \t\r\n", from[n - 1]) != NULL; n--)
        ;
    from[n] = '\0';
    str_copy(out, cap, n > 0 ? from : usual);
    return 0;
}

static int ask_role(struct setup_wish *wish, struct setup_answers *answers)
{
    static const char *const names[] = {"all", "router", "prefill", "decode"};

    for (;;) {
        int rc = ask_line("What does this host do? all (router and workers), router, prefill, decode", "all",
                          answers->role, sizeof(answers->role));

        if (rc != 0)
            return rc;
        for (int i = 0; i < 4; i++)
            if (strcasecmp(names[i], answers->role) == 0) {
                wish->role = (enum setup_role)i;
                return 0;
            }
        printf("One of: all, router, prefill, decode.\n");
    }
}

static int ask_model(struct setup_wish *wish, struct setup_answers *answers)
{
    struct fault fault;

    for (;;) {
        int rc = ask_line("Model file (GGUF)", "", answers->model, sizeof(answers->model));

        if (rc != 0)
            return rc;
        if (setup_model_read(answers->model, &fault, &wish->model) == 0)
            return 0;
        printf("%s\n", fault.text);
    }
}

int setup_ask(struct setup_wish *wish, struct setup_answers *answers)
{
    int rc = ask_role(wish, answers);
    bool is_worker_host = rc == 0 && (wish->role == SETUP_PREFILL || wish->role == SETUP_DECODE);

    if (rc == 0 && wish->role != SETUP_ROUTER && wish->model.path[0] == '\0')
        rc = ask_model(wish, answers);
    if (rc == 0 && is_worker_host && wish->n_routers == 0) {
        rc = ask_line("The router's link address, HOST:PORT (its link.listen)", "", answers->router,
                      sizeof(answers->router));
        wish->routers[wish->n_routers++] = answers->router;
    }
    if (rc == 0 && !is_worker_host && wish->address == NULL) {
        rc = ask_line("This host's address for other hosts; empty: this host alone", "", answers->address,
                      sizeof(answers->address));
        if (answers->address[0] != '\0')
            wish->address = answers->address;
    }
    return rc;
}

bool setup_confirm(const char *question)
{
    char answer[16];

    return ask_line(question, "n", answer, sizeof(answer)) == 0 && (answer[0] == 'y' || answer[0] == 'Y');
}
