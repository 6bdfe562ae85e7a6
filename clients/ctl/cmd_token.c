/* SPDX-License-Identifier: Apache-2.0 */
/* batonctl token: gives the cluster's key to one new host.
 *
 * The command runs beside the router: no daemon opens a port for joining, and the port is open only while an
 * operator waits.  The token is a random secret of 256 bits, from which both sides derive the key of the TLS
 * connection.  So an attacker in the middle without the token cannot complete a handshake or read a byte.  The
 * first handshake uses the token up. */
#include <getopt.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "base/str.h"
#include "clients/ctl/commands.h"
#include "clients/ctl/join.h"
#include "net/link/addr.h"
#include "net/link/tls.h"

struct token_args {
    const char *listen;
    const char *key_path;
    uint64_t lifetime_ns;
};

static int token_options(int argc, char **argv, struct token_args *args)
{
    static const struct option options[] = {{"listen", required_argument, NULL, 'l'},
                                            {"lifetime", required_argument, NULL, 't'},
                                            {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "l:t:", options, NULL)) != -1) {
        if (c == '?')
            return EXIT_USAGE;
        if (c == 'l')
            args->listen = optarg;
        else if (!option_duration(CTL_NAME, "--lifetime", optarg, &args->lifetime_ns))
            return EXIT_USAGE;
    }
    if (args->lifetime_ns < NS_PER_S || args->lifetime_ns > 3600 * NS_PER_S)
        return complain_usage(CTL_NAME, "--lifetime: from 1s to 1h");
    if (optind < argc)
        return complain_usage(CTL_NAME, "token: unexpected argument: %s", argv[optind]);
    return EXIT_DONE;
}

/* Adds the router's view of the cluster. It is no failure if the router does not run, because the new host needs
 * only the key. */
static void token_read_members(const struct ctl *ctl, struct join_message *welcome)
{
    struct admin_door *door;
    struct fault fault = {0};
    struct buf body = {0};

    if (admin_door_open(&ctl->door, &fault, &door) < 0)
        return;
    if (admin_door_ask(door, false, "/admin/status", &fault, &body) < 0 ||
        members_parse(buf_view(&body), welcome) < 0)
        fprintf(stderr, "note: the router is not reachable at %s, so the new host can check less\n",
                ctl->door.address);
    buf_fini(&body);
    admin_door_close(door);
}

/* Chooses the address to listen on: the given one, or the host of the router's link port. */
static int token_address(const struct token_args *args, const struct join_message *welcome,
                         struct fault *fault, char out[128])
{
    const char *from = args->listen;
    struct addr addr;
    int rc;

    if (from == NULL && welcome->n_places > 0 && strcmp(welcome->places[0].name, "router") == 0)
        from = welcome->places[0].address;
    if (from == NULL)
        return fault_set(fault, E_INVAL,
                         "give --listen ADDRESS:PORT, an address of this host that the new host can reach");
    rc = addr_parse(from, fault, &addr);
    if (rc != 0)
        return rc;
    if (!addr.is_numeric || addr_is_any(&addr))
        return fault_set(fault, E_FORMAT, "%s: give --listen with one numeric address and a port", from);
    snprintf(out, 128, strchr(addr.host, ':') != NULL ? "[%.100s]:%u" : "%.100s:%u", addr.host,
             args->listen != NULL ? addr.port : JOIN_PORT);
    return 0;
}

/* Dials the addresses that the new host asks for, until it is done. */
static void token_answer_probes(struct wire *wire)
{
    static struct join_message message;
    struct fault fault = {0};

    for (unsigned round = 0; round < 4 && join_receive(wire, JOIN_PROBE, &fault, &message) == 0; round++) {
        message.kind = JOIN_PROBED;
        message.pad_bytes = 0;
        if (message.n_places > JOIN_MAX_PROBE)
            message.n_places = JOIN_MAX_PROBE;
        for (unsigned i = 0; i < message.n_places; i++) {
            struct reach reach;

            reach_dial(message.places[i].address, NULL, &reach);
            str_copy(message.places[i].result, sizeof(message.places[i].result), reach.text);
        }
        if (join_send(wire, &message, &fault) != 0)
            return;
    }
}

/* Checks that the new host will accept this welcome, before a token is used up. */
static int token_check_welcome(const struct join_message *welcome, struct fault *fault)
{
    static struct join_message read;
    struct buf text = {0};
    int rc = buf_reserve(&text, JOIN_MAX_TEXT);

    if (rc == 0)
        rc = join_message_print(welcome, &text);
    if (rc != 0)
        rc = fault_set(fault, rc, "%s", err_text(rc));
    else
        rc = join_message_parse(buf_view(&text), fault, &read);
    if (text.data != NULL)
        OPENSSL_cleanse(text.data, text.len_bytes);
    buf_fini(&text);
    OPENSSL_cleanse(&read, sizeof(read));
    return rc;
}

static int token_welcome(const struct token_args *args, struct wire *wire, struct join_message *welcome,
                         const struct join_waits *waits)
{
    static struct join_message hello;
    struct fault fault = {0};
    int rc = join_receive(wire, JOIN_HELLO, &fault, &hello);

    if (rc == 0) /* the wait may be long: the key may have changed */
        rc = cluster_keys_load(args->key_path, &fault, &welcome->keys);
    if (rc == 0) {
        welcome->clock_ns = clock_unix_ns();
        rc = join_send(wire, welcome, &fault);
    }
    if (rc != 0)
        return complain(CTL_NAME, "%s used the token and did not finish: %s; make a new token", waits->peer,
                        fault.text);
    printf("%s (%s) has the cluster's key; the token is spent\n",
           hello.host[0] != '\0' ? hello.host : "a host", waits->peer);
    fflush(stdout);
    token_answer_probes(wire);
    return finish_output(CTL_NAME);
}

static int token_serve(const struct token_args *args, const uint8_t secret[32], int listen_fd,
                       struct join_message *welcome)
{
    struct tls_context *tls = NULL;
    struct join_waits waits;
    struct wire wire = {.fd = -1};
    struct fault fault = {0};
    uint8_t key[32];
    int rc = join_token_key(secret, key), status;

    if (rc == 0)
        rc = tls_context_new(key, &fault, &tls);
    OPENSSL_cleanse(key, sizeof(key));
    if (rc != 0)
        return complain(CTL_NAME, "%s", err_text(rc));
    rc = join_wait(listen_fd, tls_server(tls), clock_now_ns() + args->lifetime_ns, &waits, &wire);
    close(listen_fd);
    if (rc == 0)
        status = token_welcome(args, &wire, welcome, &waits);
    else
        status = complain(CTL_NAME, "the token has expired, and no host joined");
    if (waits.n_refused > 0)
        fprintf(stderr, "%u connections without the token were refused\n", waits.n_refused);
    wire_close(&wire);
    tls_context_free(tls);
    return status;
}

int cmd_token(const struct ctl *ctl, int argc, char **argv)
{
    static struct join_message welcome;
    struct token_args args = {.key_path = ctl->door.key_path, .lifetime_ns = 600 * NS_PER_S};
    struct fault fault = {0};
    char address[128], token[JOIN_TOKEN_BYTES], lifetime[24];
    uint8_t secret[32];
    int fd, status = token_options(argc, argv, &args);

    if (status != EXIT_DONE)
        return status;
    welcome.kind = JOIN_WELCOME;
    welcome.pad_bytes = JOIN_PAD;
    if (cluster_keys_load(args.key_path, &fault, &welcome.keys) != 0)
        return complain(CTL_NAME, "%s", fault.text);
    welcome.has_keys = true;
    join_host_name(welcome.host);
    token_read_members(ctl, &welcome);
    if (token_check_welcome(&welcome, &fault) != 0 || token_address(&args, &welcome, &fault, address) != 0 ||
        (fd = join_listen(address, &fault)) < 0)
        return complain(CTL_NAME, "%s", fault.text);
    rng_system(secret, sizeof(secret));
    if (join_token_print(secret, token) != 0) {
        close(fd);
        return complain(CTL_NAME, "%s", err_text(E_INTERNAL));
    }
    str_from_duration(args.lifetime_ns, lifetime);
    printf("On the new host, within %s:\n\n  batonctl join %s --token %s\n\nwaiting; Ctrl-C takes the token "
           "back\n",
           lifetime, address, token);
    fflush(stdout);
    OPENSSL_cleanse(token, sizeof(token));
    status = token_serve(&args, secret, fd, &welcome);
    OPENSSL_cleanse(secret, sizeof(secret));
    OPENSSL_cleanse(&welcome, sizeof(welcome));
    return status;
}
