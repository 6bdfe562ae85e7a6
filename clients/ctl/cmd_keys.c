/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of two kinds.
 *
 * The cluster's key is shared by its daemons and its operators.  It lives in a file that only they can read.
 *
 * An API key belongs to a client.  Daemons keep only its hash, one line per key in the file that http.api_keys
 * names (src/serve/access/auth.h has the format).  So the key itself is shown once and stored nowhere.  It has
 * 256 random bits, so guessing is hopeless and a plain fast hash is enough. */
#include <getopt.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/name.h"
#include "base/rng.h"
#include "base/str.h"
#include "clients/ctl/commands.h"
#include "serve/access/auth.h"
#include "net/link/tls.h"

#define KEY_ID_BYTES 4 /* of the hash; enough to tell keys apart, and no secret */

int cmd_new_cluster_key(const struct ctl *ctl, int argc, char **argv)
{
    struct fault fault = {0};
    int rc;

    if (argc != 2 || argv[1][0] == '-')
        return complain_usage(CTL_NAME, "new-cluster-key wants one argument, the file to make");
    rc = cluster_key_create(argv[1], &fault);
    if (rc == E_EXISTS)
        return complain(CTL_NAME, "%s is there already; a key is never overwritten, move it away first",
                        argv[1]);
    if (rc < 0)
        return complain(CTL_NAME, "%s", fault.text);
    printf("%s: made; copy it to every host of the cluster, readable by its daemons only\n", argv[1]);
    return finish_output(CTL_NAME);
}

static int print_token(const struct ctl *ctl, const char *purpose, int argc, char **argv)
{
    struct fault fault = {0};
    char token[65];

    if (argc > 1)
        return complain_usage(CTL_NAME, "%s: unexpected argument: %s", argv[0], argv[1]);
    if (admin_door_token(ctl->door.key_path, purpose, &fault, token) < 0)
        return complain(CTL_NAME, "%s", fault.text);
    printf("%s\n", token);
    OPENSSL_cleanse(token, sizeof(token));
    return finish_output(CTL_NAME);
}

int cmd_metrics_token(const struct ctl *ctl, int argc, char **argv)
{
    return print_token(ctl, "metrics", argc, argv);
}

int cmd_admin_token(const struct ctl *ctl, int argc, char **argv)
{
    return print_token(ctl, "admin", argc, argv);
}

static int print_key(const char *tenant, const char *id, char *const *limits)
{
    uint8_t secret[32];
    uint8_t hash[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    char key[3 + 2 * sizeof(secret) + 1] = "sk-";
    char hex[2 * 32 + 1];
    int status = EXIT_DONE;

    rng_system(secret, sizeof(secret));
    hex_encode(secret, sizeof(secret), key + 3);
    if (EVP_Digest(key, strlen(key), hash, &len, EVP_sha256(), NULL) != 1 || len != 32) {
        status = complain(CTL_NAME, "cannot hash: OpenSSL has no SHA-256");
    } else {
        hex_encode(hash, 32, hex);
        printf("%s\n%s  %s%s%s", key, hex, tenant, id[0] != '\0' ? "  " : "", id);
        for (; *limits != NULL; limits++)
            printf("  %s", *limits);
        putchar('\n');
        fprintf(stderr, "The first line is the key: give it to its user, it is not shown again.  The second "
                        "goes into the file\n"
                        "that http.api_keys names; then batonctl reload.\n");
        status = finish_output(CTL_NAME);
    }
    OPENSSL_cleanse(secret, sizeof(secret));
    OPENSSL_cleanse(key, sizeof(key));
    return status;
}

int cmd_new_key(const struct ctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {
        {"id", required_argument, NULL, 'i'}, {"tenant", required_argument, NULL, 't'}, {NULL, 0, NULL, 0}};
    const char *tenant = "default";
    const char *id = "";
    struct auth_rule rule = {0};
    struct fault fault = {0};
    int c;

    while ((c = getopt_long(argc, argv, "i:t:", options, NULL)) != -1) {
        if (c == '?')
            return EXIT_USAGE;
        if (!name_fits(optarg))
            return complain_usage(CTL_NAME, "%s: a name has 1 to 63 letters, digits, '.', '_' or '-'",
                                  optarg);
        if (c == 't')
            tenant = optarg;
        else
            id = optarg;
    }
    for (int i = optind; i < argc; i++)
        if (auth_rule_parse(&rule, argv[i], &fault) < 0)
            return complain_usage(CTL_NAME, "new-key: %s", fault.text);
    return print_key(tenant, id, argv + optind);
}

/* ---- listing ---- */

static void print_time(uint64_t unix_s)
{
    char text[21];

    clock_rfc3339(unix_s, text);
    printf("%s=%s", unix_s <= clock_unix_ns() / NS_PER_S ? "EXPIRED" : "expires", text);
}

static void print_rule(const struct auth_rule *rule)
{
    for (int kind = 0; kind < LIMIT_N_BUCKETS; kind++)
        if (rule->per_min[kind] > 0)
            printf(" %s=%" PRIu64, auth_limit_word((enum limit_kind)kind), rule->per_min[kind]);
    if (rule->concurrent > 0)
        printf(" concurrent=%" PRIu64, rule->concurrent);
    if (rule->weight > 0)
        printf(" weight=%" PRIu64, rule->weight);
    if (rule->class_name[0] != '\0')
        printf(" class=%s", rule->class_name);
    if (rule->models[0] != '\0')
        printf(" models=%s", rule->models);
    if (rule->expires_unix_s > 0) {
        putchar(' ');
        print_time(rule->expires_unix_s);
    }
}

static void print_entry(const struct auth_entry *entry)
{
    char id[2 * KEY_ID_BYTES + 1] = "tenant";

    if (entry->hash != NULL)
        hex_encode(entry->hash, KEY_ID_BYTES, id);
    printf("%-8s  %-16s  %-16s ", id, entry->tenant, entry->name[0] != '\0' ? entry->name : "-");
    if (entry->rule != NULL)
        print_rule(entry->rule);
    else
        printf(" no limits");
    putchar('\n');
}

int cmd_keys(const struct ctl *ctl, int argc, char **argv)
{
    struct auth_keys *keys;
    struct auth_entry entry;
    struct fault fault = {0};

    if (argc != 2 || argv[1][0] == '-')
        return complain_usage(CTL_NAME, "keys wants one argument, the file that http.api_keys names");
    if (auth_keys_load(argv[1], &fault, &keys) < 0)
        return complain(CTL_NAME, "%s", fault.text);
    for (size_t i = 0; auth_tenant_at(keys, i, &entry); i++)
        print_entry(&entry);
    for (size_t i = 0; auth_key_at(keys, i, &entry); i++)
        print_entry(&entry);
    auth_keys_free(keys);
    return finish_output(CTL_NAME);
}
