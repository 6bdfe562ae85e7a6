/* SPDX-License-Identifier: Apache-2.0 */
/* batonctl join: gets the cluster's key with a token of `batonctl token`, then checks what a cluster needs of this host.
 *
 * The key is stored before the checks, so that a firewall that is still closed does not cost another token.  The
 * exit status is 0 when all checks pass, and 3 when the host has the key and a check failed. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "clients/ctl/commands.h"
#include "clients/ctl/join.h"
#include "gguf/gguf.h"
#include "net/link/addr.h"
#include "net/link/tls.h"

#define JOIN_MAX_SKEW_NS NS_PER_S
#define JOIN_LEAST_MTU   1280u

enum { EXIT_FOUND = 3 };

struct join {
    const char *key_path;
    char address[300];
    bool replaces;
    uint8_t secret[32];
    struct tls_context *tls; /* with the token's key */
    struct wire wire;
    struct join_message welcome;
    struct join_conf conf;
    uint64_t sent_ns, came_ns; /* hello, welcome; clock_unix_ns() */
    unsigned n_found;
};

/* ---- findings ---- */

__attribute__((format(printf, 2, 3))) static void join_good(const char *what, const char *format, ...)
{
    va_list args;

    printf("ok     %-10s ", what);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

__attribute__((format(printf, 3, 4))) static void join_found(struct join *join, const char *what,
                                                             const char *format, ...)
{
    va_list args;

    join->n_found++;
    printf("WRONG  %-10s ", what);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

static void check_clock(struct join *join)
{
    uint64_t middle_ns = join->sent_ns + (join->came_ns - join->sent_ns) / 2;
    uint64_t theirs_ns = join->welcome.clock_ns;
    uint64_t skew_ns = theirs_ns > middle_ns ? theirs_ns - middle_ns : middle_ns - theirs_ns;
    double skew_s = (double)skew_ns / 1e9;

    if (skew_ns <= JOIN_MAX_SKEW_NS + (join->came_ns - join->sent_ns) / 2)
        join_good("clock", "%.3f s %s %s", skew_s, theirs_ns > middle_ns ? "behind" : "ahead of",
                  join->welcome.host);
    else
        join_found(join, "clock",
                   "%.1f s %s %s. Traces, logs and expiry dates disagree. Fix: run a time service on both "
                   "(apt install "
                   "systemd-timesyncd)",
                   skew_s, theirs_ns > middle_ns ? "behind" : "ahead of", join->welcome.host);
}

static void check_mtu(struct join *join)
{
    unsigned mtu = wire_mtu(&join->wire);

    if (mtu != 0 && mtu < JOIN_LEAST_MTU)
        join_found(
            join, "MTU",
            "the path takes packets of %u bytes only. Fix: the MTU of interfaces and tunnels between the "
            "hosts",
            mtu);
    else
        join_good("MTU", "%u bytes, and %u KiB passed both ways", mtu, JOIN_PAD >> 10);
}

static void check_models(struct join *join)
{
    for (unsigned i = 0; i < join->conf.n_models; i++) {
        const struct join_model *theirs = &join->welcome.models[0];
        struct fault fault = {0};
        struct gguf *gguf;
        char ours[33];
        bool is_known = false;

        if (gguf_open(join->conf.models[i], &fault, &gguf) != 0) {
            join_found(join, "model", "%s. Fix: model.path in the configuration", fault.text);
            continue;
        }
        gguf_fingerprint(gguf, ours);
        gguf_close(gguf);
        for (unsigned j = 0; j < join->welcome.n_models; j++)
            is_known = is_known || strcmp(join->welcome.models[j].fingerprint, ours) == 0;
        if (is_known || join->welcome.n_models == 0)
            join_good("model", "%s has the fingerprint %s%s", join->conf.models[i], ours,
                      is_known ? "" : "; the cluster serves no model yet");
        else
            join_found(join, "model",
                       "%s has the fingerprint %s, and the cluster's %s has %s: workers of two files do not "
                       "hand over to "
                       "each other. Fix: copy the cluster's file, or serve this one under a name of its own "
                       "(model.name)",
                       join->conf.models[i], ours, theirs->name, theirs->fingerprint);
    }
    if (join->conf.n_models == 0)
        join_good("model", "no model is configured here yet; after baton-setup, batonctl check compares it");
}

/* True if a place has a loopback address of another host, which is a finding. */
static bool check_is_hidden(struct join *join, const struct join_place *place)
{
    struct addr addr, door;

    if (addr_parse(place->address, NULL, &addr) != 0 || !addr_is_loopback(&addr))
        return false;
    if (addr_parse(join->address, NULL, &door) == 0 && addr_is_loopback(&door))
        return false; /* both ends are on one host */
    join_found(join, place->name,
               "listens on %s, which other hosts cannot reach. Fix: %s of that daemon "
               "(baton-setup --address)",
               place->address, strncmp(place->name, "kv.", 3) == 0 ? "kv.tcp_listen" : "link.listen");
    return true;
}

/* Dials every daemon of the cluster. On links it also proves the new key, unless they use certificates. On KV ports
 * it only connects, because with kv.tcp_encrypt = no they have no TLS. */
static void check_way_out(struct join *join, SSL_CTX *ctx)
{
    if (join->welcome.has_certificates)
        join_good(
            "links",
            "the cluster's links use certificates: set link.ca, link.certificate and link.key here too");
    for (unsigned i = 0; i < join->welcome.n_places; i++) {
        const struct join_place *place = &join->welcome.places[i];
        bool has_key = !join->welcome.has_certificates && strncmp(place->name, "kv.", 3) != 0;
        struct reach reach;

        if (check_is_hidden(join, place))
            continue;
        reach_dial(place->address, has_key ? ctx : NULL, &reach);
        if (reach.is_reached)
            join_good(place->name, "%s answers%s", place->address, has_key ? " with the cluster's key" : "");
        else
            join_found(join, place->name, "%s: %s. Fix: open this port from here to there", place->address,
                       reach.text);
    }
    if (join->welcome.n_places == 0)
        join_good("cluster", "%s named no daemons", join->welcome.host);
}

/* Lets the other host dial the ports of this host. */
static void check_way_back(struct join *join)
{
    static struct join_message answer;
    struct fault fault = {0};
    int rc;

    if (join->conf.probe.n_places == 0) {
        join_good("way back",
                  "no daemon of this host listens beyond loopback yet; after baton-setup, batonctl check "
                  "tries it");
        return;
    }
    join_conf_listen(&join->conf);
    rc = join_send(&join->wire, &join->conf.probe, &fault);
    if (rc == 0)
        rc = join_receive(&join->wire, JOIN_PROBED, &fault, &answer);
    if (rc != 0)
        join_found(join, "way back", "%s did not say whether it reaches this host: %s", join->welcome.host,
                   fault.text);
    for (unsigned i = 0; rc == 0 && i < answer.n_places; i++) {
        const struct join_place *place = &answer.places[i];

        if (strcmp(place->result, "ok") == 0)
            join_good("way back", "%s reaches %s here", join->welcome.host, place->address);
        else
            join_found(join, "way back", "%s does not reach %s here: %s. Fix: open this port of this host",
                       join->welcome.host, place->address, place->result);
    }
    join_conf_close(&join->conf);
}

/* ---- joining ---- */

static int join_reach(struct join *join, struct fault *fault)
{
    uint8_t key[32];
    int rc = join_token_key(join->secret, key);

    if (rc == 0)
        rc = tls_context_new(key, fault, &join->tls);
    OPENSSL_cleanse(key, sizeof(key));
    if (rc != 0)
        return rc;
    rc = wire_dial(join->address, clock_now_ns() + JOIN_STEP_NS, fault, &join->wire);
    if (rc != 0) {
        char why[200];

        str_copy(why, sizeof(why), fault->text);
        return fault_set(
            fault, rc,
            "%s: %s. The token may be used or expired, or batonctl token does not wait there any more; "
            "make a new one",
            join->address, why);
    }
    rc = wire_shake(&join->wire, tls_client(join->tls), clock_now_ns() + JOIN_STEP_NS, fault);
    if (rc == 0)
        return 0;
    return fault_set(
        fault, rc,
        "%s does not know this token: it belongs to another host or is used, or another program answers "
        "there. Nothing was sent. Compare the address with the output of batonctl token",
        join->address);
}

static int join_ask(struct join *join, struct fault *fault)
{
    static struct join_message hello;
    char why[200];
    int rc;

    hello = (struct join_message){.kind = JOIN_HELLO, .clock_ns = clock_unix_ns(), .pad_bytes = JOIN_PAD};
    join_host_name(hello.host);
    join->sent_ns = hello.clock_ns;
    rc = join_send(&join->wire, &hello, fault);
    if (rc == 0)
        rc = join_receive(&join->wire, JOIN_WELCOME, fault, &join->welcome);
    join->came_ns = clock_unix_ns();
    if (rc == 0 && !join->welcome.has_keys)
        return fault_set(fault, E_PROTO, "%s sent no key", join->address);
    if (rc == 0)
        return 0;
    str_copy(why, sizeof(why), fault->text);
    return fault_set(
        fault, rc, "%s answers, and then: %s%s", join->address, why,
        rc == E_TIMEOUT ? ". Small packets pass and large ones do not: look at the MTU of the path" : "");
}

/* Replaces the key file in one step; owner and mode stay. */
static int join_replace(const struct join *join, struct fault *fault)
{
    char old[1024];
    int rc;

    if (snprintf(old, sizeof(old), "%s.old", join->key_path) >= (int)sizeof(old))
        return fault_set(fault, E_INVAL, "%.100s...: the path is too long", join->key_path);
    if (link(join->key_path, old) != 0)
        return errno == EEXIST ? fault_set(fault, E_EXISTS, "%s is there already: move it away", old)
                               : fault_set(fault, E_IO, "%s: %m", old);
    rc = cluster_keys_save(join->key_path, &join->welcome.keys, fault);
    if (rc != 0) {
        (void)unlink(old);
        return rc;
    }
    printf("the earlier key is in %s. Daemons that run here keep it until they restart: systemctl restart "
           "UNIT, one after another\n",
           old);
    return 0;
}

static int join_store(const struct join *join, struct fault *fault)
{
    if (join->replaces && access(join->key_path, F_OK) == 0)
        return join_replace(join, fault);
    return cluster_keys_store(join->key_path, &join->welcome.keys, fault);
}

static int join_check(struct join *join)
{
    struct tls_context *tls = NULL;
    struct fault fault = {0};

    check_clock(join);
    check_mtu(join);
    check_models(join);
    if (tls_context_open(&join->welcome.keys, &(struct tls_conf){0}, &fault, &tls) != 0)
        return complain(CTL_NAME, "%s", fault.text);
    check_way_out(join, tls_client(tls));
    tls_context_free(tls);
    check_way_back(join);
    if (join->n_found > 0)
        printf("this host has the cluster's key; %u %s to mend first\n", join->n_found,
               join->n_found == 1 ? "thing is" : "things are");
    else
        printf("this host has joined; next: baton-setup --role prefill or decode --router ..., unless it is "
               "done\n");
    return finish_output(CTL_NAME) == EXIT_DONE ? join->n_found > 0 ? EXIT_FOUND : EXIT_DONE : EXIT_FAILED;
}

static int join_run(struct join *join)
{
    char folder[1024];
    struct fault fault = {0};
    char *slash;

    if (!join->replaces && access(join->key_path, F_OK) == 0)
        return complain(
            CTL_NAME,
            "%s is there already, and a key is never overwritten: --replace moves it to %s.old (the token "
            "was not used)",
            join->key_path, join->key_path);
    str_copy(folder, sizeof(folder), join->key_path);
    slash = strrchr(folder, '/');
    if (slash != NULL)
        *slash = '\0';
    join_conf_read(slash != NULL ? folder : ".", &join->conf);
    if (join_reach(join, &fault) != 0 || join_ask(join, &fault) != 0 || join_store(join, &fault) != 0)
        return complain(CTL_NAME, "%s", fault.text);
    printf("%s: the key of %s's cluster\n", join->key_path, join->welcome.host);
    return join_check(join);
}

/* "10.0.0.1" is completed to "10.0.0.1:8089". */
static int join_read_address(const char *text, char out[300])
{
    struct addr addr;
    struct fault fault = {0};

    if (addr_parse(text, NULL, &addr) != 0)
        snprintf(out, 300, strchr(text, ':') != NULL && text[0] != '[' ? "[%.280s]:%d" : "%.280s:%d", text,
                 JOIN_PORT);
    else
        snprintf(out, 300, "%.299s", text);
    return addr_parse(out, &fault, &addr) == 0 ? EXIT_DONE : complain_usage(CTL_NAME, "join: %s", fault.text);
}

/* Reads the token from an option, or with "-" from stdin, which hides it from other users of the host. */
static int join_read_token(const char *text, uint8_t secret_out[32])
{
    struct fault fault = {0};
    char line[256] = "";

    if (text == NULL)
        return complain_usage(CTL_NAME,
                              "join wants --token TOKEN; batonctl token on the router's host makes one");
    if (strcmp(text, "-") == 0) {
        if (fgets(line, sizeof(line), stdin) == NULL)
            return complain(CTL_NAME, "join: no token on the input");
        line[strcspn(line, "\r\n")] = '\0';
        text = line;
    }
    if (join_token_parse(text, &fault, secret_out) != 0)
        return complain(CTL_NAME, "join: %s", fault.text);
    return EXIT_DONE;
}

int cmd_join(const struct ctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {
        {"token", required_argument, NULL, 't'}, {"replace", no_argument, NULL, 'r'}, {NULL, 0, NULL, 0}};
    static struct join join = {.wire = {.fd = -1}};
    const char *token = NULL;
    int c, status;

    join.key_path = ctl->door.key_path;
    while ((c = getopt_long(argc, argv, "t:r", options, NULL)) != -1) {
        if (c == '?')
            return EXIT_USAGE;
        if (c == 't')
            token = optarg;
        else
            join.replaces = true;
    }
    if (optind + 1 != argc)
        return complain_usage(CTL_NAME, "join wants one argument, HOST[:PORT] as batonctl token printed it");
    status = join_read_address(argv[optind], join.address);
    if (status == EXIT_DONE)
        status = join_read_token(token, join.secret);
    if (status == EXIT_DONE)
        status = join_run(&join);
    wire_close(&join.wire);
    tls_context_free(join.tls);
    OPENSSL_cleanse(&join, sizeof(join));
    return status;
}
