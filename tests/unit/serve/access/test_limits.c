/* SPDX-License-Identifier: Apache-2.0 */
/* Limits on a virtual clock: requests that fit, waiting times, refunds, the state after a reload; and
 * failed logins by address. */
#include "serve/access/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "serve/access/failed_logins.h"

#define MAX_LOADS 8

struct world {
    struct auth_keys *keys, *all_keys[MAX_LOADS];
    struct limits *limits, *all_limits[MAX_LOADS]; /* with every earlier load: leases may hold them */
    unsigned n_loads;
    uint64_t now_ns;
};

/* text: lines of a key file in which "@x" stands for the hash of key x. */
static struct auth_keys *parse(const char *text)
{
    struct buf file = {0};
    struct auth_keys *keys = NULL;
    char hash[65];

    for (; *text != '\0'; text++) {
        if (*text == '@') {
            auth_key_hash(bytes_of(++text, 1), hash);
            buf_append_str(&file, hash);
        } else {
            buf_append_byte(&file, (uint8_t)*text);
        }
    }
    assert_int_equal(auth_keys_parse("keys", buf_view(&file), NULL, &keys), 0);
    buf_fini(&file);
    return keys;
}

static void load(struct world *world, const char *text)
{
    struct limits *old = world->limits;

    assert_true(world->n_loads < MAX_LOADS);
    world->keys = world->all_keys[world->n_loads] = parse(text);
    assert_int_equal(limits_make(world->keys, old, &world->limits), 0);
    world->all_limits[world->n_loads++] = world->limits;
}

static void begin(struct world *world, const char *text)
{
    memset(world, 0, sizeof(*world));
    world->now_ns = 1000 * NS_PER_S;
    load(world, text);
}

static void end(struct world *world)
{
    for (unsigned i = 0; i < world->n_loads; i++) {
        assert_true(limits_are_idle(world->all_limits[i]));
        limits_free(world->all_limits[i]);
        auth_keys_free(world->all_keys[i]);
    }
}

static struct limit_account *account(struct world *world, const char *key)
{
    struct auth_key who;

    assert_int_equal(auth_check(world->keys, bytes_str(key), &who), 0);
    limits_find(world->limits, &who);
    assert_non_null(who.account);
    return who.account;
}

static int ask(struct world *world, const char *key, struct limit_lease *lease, struct limit_refusal *refusal)
{
    return limits_begin(lease, account(world, key), world->now_ns, refusal);
}

/* Spends a whole request in no time.  Returns the seconds to wait if it is refused. */
static uint32_t spend(struct world *world, const char *key, uint64_t input, uint64_t output)
{
    struct limit_refusal refusal = {0};
    struct limit_lease lease;

    if (ask(world, key, &lease, &refusal) == 0)
        limits_reserve(&lease, input, output, world->now_ns, &refusal);
    if (refusal.retry_after_s == 0)
        limits_settle(&lease, input, output, world->now_ns);
    else
        limits_settle(&lease, 0, 0, world->now_ns);
    return refusal.retry_after_s;
}

static void requests_refill_continuously(void **state)
{
    struct world world;

    begin(&world, "@a t laptop rpm=60\n@b t\n");
    for (int i = 0; i < 60; i++)
        assert_int_equal(spend(&world, "a", 0, 0), 0);
    assert_int_equal(spend(&world, "a", 0, 0), 1);
    world.now_ns += NS_PER_S / 2;
    assert_int_equal(spend(&world, "a", 0, 0), 1);
    world.now_ns += NS_PER_S / 2;
    assert_int_equal(spend(&world, "a", 0, 0), 0);
    assert_int_equal(spend(&world, "a", 0, 0), 1);
    world.now_ns += 3600 * NS_PER_S; /* the bucket never has more than one minute's worth */
    for (int i = 0; i < 60; i++)
        assert_int_equal(spend(&world, "a", 0, 0), 0);
    assert_int_equal(spend(&world, "a", 0, 0), 1);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(spend(&world, "b", 1000000, 1000000), 0);
    end(&world);
}

/* Twenty requests begin at once, and each may write 1000 of 10,000: ten are admitted. */
static void a_burst_cannot_overshoot(void **state)
{
    struct limit_refusal refusal;
    struct limit_lease leases[20];
    struct world world;
    int n = 0;

    begin(&world, "@a t tpm_out=10k\n");
    for (int i = 0; i < 20; i++) {
        assert_int_equal(ask(&world, "a", &leases[i], &refusal), 0);
        n += limits_reserve(&leases[i], 5, 1000, world.now_ns, &refusal) == 0;
    }
    assert_int_equal(n, 10);
    assert_int_equal(refusal.kind, LIMIT_OUTPUT);
    assert_int_equal(refusal.limit, 10000);
    assert_null(refusal.tenant);
    assert_int_equal(refusal.retry_after_s, 6);
    /* Tokens that they did not write are available again. */
    for (int i = 0; i < 20; i++)
        limits_settle(&leases[i], 5, i < 10 ? 100 : 0, world.now_ns);
    assert_int_equal(spend(&world, "a", 5, 9001), 1);
    assert_int_equal(spend(&world, "a", 5, 9000), 0);
    end(&world);
}

static void a_request_above_its_limit_waits_and_owes(void **state)
{
    struct world world;

    begin(&world, "@a t tpm_in=6000\n");
    assert_int_equal(spend(&world, "a", 100, 0), 0);
    assert_int_equal(spend(&world, "a", 9000, 0), 1); /* needs an empty bucket: a second for 100 */
    world.now_ns += NS_PER_S;
    assert_int_equal(spend(&world, "a", 9000, 0), 0);
    assert_int_equal(spend(&world, "a", 6000, 0), 60); /* 90 s really */
    assert_int_equal(spend(&world, "a", 1, 0), 31);
    world.now_ns += 31 * NS_PER_S;
    assert_int_equal(spend(&world, "a", 1, 0), 0);
    end(&world);
}

static void tenants_share_and_both_rules_hold(void **state)
{
    struct limit_refusal refusal;
    struct limit_lease first, second, third;
    struct world world;

    begin(&world, "tenant t rpm=3 tpm=1000 concurrent=2\n@a t rpm=2\n@b t\n@c u\n");
    assert_int_equal(ask(&world, "a", &first, &refusal), 0);
    assert_int_equal(limits_reserve(&first, 400, 400, world.now_ns, &refusal), 0);
    assert_int_equal(ask(&world, "b", &second, &refusal), 0);
    assert_int_equal(limits_reserve(&second, 100, 101, world.now_ns, &refusal), E_LIMIT);
    assert_int_equal(refusal.kind, LIMIT_TOKENS);
    assert_string_equal(refusal.tenant, "t");
    assert_int_equal(limits_reserve(&second, 100, 100, world.now_ns, &refusal), 0);
    assert_int_equal(ask(&world, "b", &third, &refusal), E_LIMIT);
    assert_int_equal(refusal.kind, LIMIT_CONCURRENT);
    assert_int_equal(refusal.limit, 2);
    limits_settle(&third, 0, 0, world.now_ns);
    limits_settle(&first, 400, 0, world.now_ns);
    assert_int_equal(spend(&world, "a", 1, 1), 0);
    limits_settle(&second, 100, 100, world.now_ns);
    assert_int_equal(spend(&world, "a", 0, 0), 30); /* the key's own limit: 2 a minute */
    assert_int_equal(spend(&world, "b", 0, 0), 20); /* the tenant's */
    assert_int_equal(spend(&world, "c", 100000, 100000), 0);
    assert_ptr_equal(limits_tenant(account(&world, "a")), limits_tenant(account(&world, "b")));
    assert_ptr_not_equal(limits_tenant(account(&world, "a")), limits_tenant(account(&world, "c")));
    end(&world);
}

static void the_rest_of_a_stream_counts_nothing(void **state)
{
    struct limit_refusal refusal;
    struct limit_lease first, rest, other;
    struct world world;

    begin(&world, "tenant t rpm=2\n@a t rpm=1 tpm_out=100 concurrent=1\n");
    assert_int_equal(ask(&world, "a", &first, &refusal), 0);
    assert_int_equal(limits_reserve(&first, 0, 100, world.now_ns, &refusal), 0);
    assert_int_equal(limits_resume(&rest, account(&world, "a"), world.now_ns, &refusal), 0);
    limits_take_back(&rest, world.now_ns);
    limits_take_back(&rest, world.now_ns); /* the second call has no effect */
    limits_settle(&first, 0, 100, world.now_ns);
    assert_int_equal(ask(&world, "a", &other, &refusal), E_LIMIT); /* the rest has a place */
    limits_settle(&other, 0, 0, world.now_ns);
    limits_settle(&rest, 0, 100, world.now_ns);
    world.now_ns += 60 * NS_PER_S;
    assert_int_equal(spend(&world, "a", 0, 100), 0); /* places and tokens are free */
    assert_int_equal(spend(&world, "a", 0, 0), 60);
    end(&world);
}

static void unknown_streams_count_as_requests(void **state)
{
    struct limit_refusal refusal;
    struct limit_lease lease;
    struct world world;
    unsigned n = 0;

    begin(&world, "@a t rpm=10\n");
    for (; limits_resume(&lease, account(&world, "a"), world.now_ns, &refusal) == 0; n++) {
        limits_settle(&lease, 0, 0, world.now_ns);
        assert_true(n < 20);
    }
    limits_take_back(&lease, world.now_ns); /* a refused one does not count */
    limits_settle(&lease, 0, 0, world.now_ns);
    assert_int_equal(n, 13);
    assert_int_equal(refusal.kind, LIMIT_REQUESTS);
    assert_int_equal(refusal.retry_after_s, 6);
    assert_int_equal(spend(&world, "a", 0, 0), 24);
    end(&world);
}

/* 100 requests for the rest of streams come at once, before the first search ends. */
static void searches_at_once_are_bounded(void **state)
{
    struct limit_refusal refusal;
    struct limit_lease leases[100];
    struct world world;
    unsigned n_searched = 0, n_placed = 0;

    begin(&world, "tenant t rpm=120\n@a t rpm=60\n@b t\n@c u concurrent=2\n");
    for (int i = 0; i < 100; i++)
        n_searched += limits_resume(&leases[i], account(&world, "a"), world.now_ns, &refusal) == 0;
    assert_int_equal(n_searched, 68); /* each found at most 1.1 * 60 + 1 before it */
    assert_int_equal(refusal.kind, LIMIT_REQUESTS);
    assert_int_equal(refusal.retry_after_s, 1);
    assert_int_equal(spend(&world, "a", 0, 0), 9);
    for (int i = 0; i < 52; i++) /* the tenant has the rest of its limit */
        assert_int_equal(spend(&world, "b", 0, 0), 0);
    assert_int_equal(spend(&world, "b", 0, 0), 1);
    for (int i = 0; i < 100; i++) {
        if (i < 50)
            limits_take_back(&leases[i], world.now_ns);
        limits_settle(&leases[i], 0, 0, world.now_ns);
    }
    for (int i = 0; i < 42; i++) /* 18 searches stay counted */
        assert_int_equal(spend(&world, "a", 0, 0), 0);
    assert_int_equal(spend(&world, "a", 0, 0), 1);
    for (int i = 0; i < 100; i++)
        n_placed += limits_resume(&leases[i], account(&world, "c"), world.now_ns, &refusal) == 0;
    assert_int_equal(n_placed, 4);
    assert_int_equal(refusal.kind, LIMIT_CONCURRENT);
    for (int i = 0; i < 100; i++)
        limits_settle(&leases[i], 0, 0, world.now_ns);
    assert_int_equal(spend(&world, "c", 0, 0), 0);
    end(&world);
}

static void a_reload_keeps_what_was_used(void **state)
{
    struct limit_refusal refusal;
    struct limit_lease lease, other;
    struct world world;

    begin(&world, "tenant t concurrent=2\n@a t rpm=10\n@b t\n");
    for (int i = 0; i < 8; i++)
        assert_int_equal(spend(&world, "a", 0, 0), 0);
    assert_int_equal(ask(&world, "a", &lease, &refusal), 0);
    load(&world, "# another order, and fewer\n@c u rpm=1\n@b t\ntenant t concurrent=1\n@a t rpm=9\n");
    assert_int_equal(ask(&world, "b", &other, &refusal), E_LIMIT); /* the running one counts */
    assert_int_equal(refusal.kind, LIMIT_CONCURRENT);
    limits_settle(&other, 0, 0, world.now_ns);
    assert_int_equal(spend(&world, "a", 0, 0), 7); /* 9 of 9 */
    load(&world, "@c u rpm=1\n");                  /* running, and now without a key */
    limits_settle(&lease, 0, 0, world.now_ns);
    load(&world, "@a v rpm=2\n"); /* given to another tenant: begins anew */
    assert_int_equal(spend(&world, "a", 0, 0), 0);
    assert_int_equal(ask(&world, "a", &lease, &refusal), 0);
    load(&world, "@a w rpm=2\n");
    limits_settle(&lease, 0, 0, world.now_ns);
    assert_int_equal(spend(&world, "a", 0, 0), 0);
    end(&world);
}

static void models_and_expiry(void **state)
{
    struct world world;

    begin(&world, "@a t models=small,big-* expires=2027-01-31\ntenant t models=big-*,small,other\n"
                  "@b t expires=2027-01-31T12:30:01Z\n@c u\n");
    assert_true(limits_allow_model(account(&world, "a"), "small"));
    assert_true(limits_allow_model(account(&world, "a"), "big-9"));
    assert_false(limits_allow_model(account(&world, "a"), "smaller"));
    assert_false(limits_allow_model(account(&world, "a"), "other"));
    assert_true(limits_allow_model(account(&world, "b"), "other"));
    assert_false(limits_allow_model(account(&world, "b"), "big"));
    assert_true(limits_allow_model(account(&world, "c"), "anything"));
    assert_true(limits_allow_model(NULL, "anything"));
    /* date -ud 2027-01-31 +%s */
    assert_false(limits_expired(account(&world, "a"), 1801353599));
    assert_true(limits_expired(account(&world, "a"), 1801353600));
    assert_false(limits_expired(account(&world, "b"), 1801398600));
    assert_true(limits_expired(account(&world, "b"), 1801398601));
    assert_false(limits_expired(NULL, UINT64_MAX));
    end(&world);
}

static void a_class_is_the_keys_or_its_tenants(void **state)
{
    static const char *const bad[] = {"class=", "class=a/b", "class=a_name_that_is_longer_than_31_bytes"};
    struct auth_rule rule = {0};
    struct world world;

    begin(&world, "@a t class=high\n@b t\n@c plain\ntenant t class=low\n");
    assert_string_equal(limits_class(account(&world, "a")), "high");
    assert_string_equal(limits_class(account(&world, "b")), "low");
    assert_string_equal(limits_class(account(&world, "c")), "");
    assert_string_equal(limits_class(NULL), "");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(auth_rule_parse(&rule, bad[i], NULL), E_FORMAT);
    end(&world);
}

static void a_weight_is_the_keys_or_its_tenants(void **state)
{
    static const char *const bad[] = {"weight=0",  "weight=1001", "weight=1k1",
                                      "weight=-1", "weight=",     "weight=2m"};
    struct auth_rule rule = {0};
    struct world world;

    begin(&world, "@a t weight=1k\n@b t\n@c plain rpm=60\ntenant t weight=7\n");
    assert_int_equal(limits_weight(account(&world, "a")), 1000);
    assert_int_equal(limits_weight(account(&world, "b")), 7);
    assert_int_equal(limits_weight(account(&world, "c")), 1);
    assert_int_equal(limits_weight(NULL), 1);
    load(&world, "@a t\n@b t\n@c plain\n");
    assert_int_equal(limits_weight(account(&world, "a")), 1);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(auth_rule_parse(&rule, bad[i], NULL), E_FORMAT);
    end(&world);
}

static void rules_are_read_whole_or_refused(void **state)
{
    static const char *const bad[] = {"rpm=0",
                                      "rpm=",
                                      "rpm=-1",
                                      "rpm=1.5",
                                      "rpm=1g",
                                      "rpm",
                                      "=5",
                                      "speed=5",
                                      "tpm=9999999999999m",
                                      "concurrent=k",
                                      "models=",
                                      "models=a,,b",
                                      "models=a,",
                                      "models=a*b",
                                      "expires=2027-02-29",
                                      "expires=2027-13-01",
                                      "expires=27-01-01",
                                      "expires=2027-01-01T24:00:00Z",
                                      "expires=2027-01-01T00:00:00",
                                      "expires=1969-01-01",
                                      "rpm=1 rpm"};
    struct fault fault;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct auth_rule rule = {0};

        if (auth_rule_parse(&rule, bad[i], &fault) != E_FORMAT)
            fail_msg("accepted: %s", bad[i]);
        assert_true(fault.text[0] != '\0');
    }
    struct auth_rule rule = {0};

    assert_int_equal(auth_rule_parse(&rule, "tpm=40k", NULL), 0);
    assert_int_equal(rule.per_min[LIMIT_TOKENS], 40000);
    assert_int_equal(auth_rule_parse(&rule, "expires=2028-02-29", NULL), 0);
    assert_int_equal(rule.expires_unix_s, 1835395200);
    /* a rule that is there twice */
    assert_int_equal(auth_rule_parse(&rule, "class=low", NULL), 0);
    assert_int_equal(auth_rule_parse(&rule, "models=a", NULL), 0);
    assert_int_equal(auth_rule_parse(&rule, "tpm=50k", NULL), E_FORMAT);
    assert_int_equal(auth_rule_parse(&rule, "expires=2029-01-01", NULL), E_FORMAT);
    assert_int_equal(auth_rule_parse(&rule, "class=high", NULL), E_FORMAT);
    assert_int_equal(auth_rule_parse(&rule, "models=b", NULL), E_FORMAT);
    assert_string_equal(rule.class_name, "low");
}

/* For any requests in any order: the limits grant at most limit + rate x time, no reservation leaks, and a
 * client that waits for the stated time is admitted. */
static void random_requests_stay_within(void **state)
{
    struct limit_lease leases[8] = {0};
    uint64_t outputs[8] = {0};
    uint64_t written = 0;
    struct limit_refusal refusal;
    struct world world;
    struct rng rng;

    rng_init(&rng, 42);
    begin(&world, "tenant t concurrent=6\n@a t tpm_out=6000\n");
    uint64_t from_ns = world.now_ns;

    for (int i = 0; i < 20000; i++) {
        unsigned at = (unsigned)(rng_u64(&rng) % 8);

        world.now_ns += rng_u64(&rng) % (2 * NS_PER_S);
        if (leases[at].account != NULL) {
            uint64_t real = rng_u64(&rng) % (outputs[at] + 1);

            written += real;
            limits_settle(&leases[at], 10, real, world.now_ns);
        } else {
            outputs[at] = 1 + rng_u64(&rng) % 3000;
            if (ask(&world, "a", &leases[at], &refusal) < 0 ||
                limits_reserve(&leases[at], 10, outputs[at], world.now_ns, &refusal) < 0) {
                assert_in_range(refusal.retry_after_s, 1, 60);
                limits_settle(&leases[at], 0, 0, world.now_ns);
            }
        }
        assert_true(written <= 6000 + (world.now_ns - from_ns) / NS_PER_S * 100 + 100);
    }
    assert_true(written > (world.now_ns - from_ns) / NS_PER_S * 100 / 4); /* although enough was requested */
    for (unsigned i = 0; i < 8; i++)
        limits_settle(&leases[i], 0, 0, world.now_ns);
    world.now_ns += 60 * NS_PER_S;
    assert_int_equal(spend(&world, "a", 10, 6000), 0);
    uint32_t wait_s = spend(&world, "a", 10, 3000);

    assert_int_equal(wait_s, 30);
    world.now_ns += wait_s * NS_PER_S;
    assert_int_equal(spend(&world, "a", 10, 3000), 0);
    end(&world);
}

static void fields_say_what_is_left(void **state)
{
    struct http_fields fields = {0};
    struct world world;
    const uint64_t unix_ns = UINT64_C(1801353600) * NS_PER_S;

    begin(&world, "tenant t tpm_in=100k tpm_out=1000\n@a t rpm=60\n@b u\n");
    spend(&world, "a", 10000, 900);
    limits_put_fields(account(&world, "a"), LIMIT_MESSAGES, world.now_ns, unix_ns, &fields);
    assert_string_equal((const char *)fields.text.data,
                        "anthropic-ratelimit-requests-limit: 60\r\n"
                        "anthropic-ratelimit-requests-remaining: 59\r\n"
                        "anthropic-ratelimit-requests-reset: 2027-01-31T00:00:01Z\r\n"
                        "anthropic-ratelimit-tokens-limit: 1000\r\n"
                        "anthropic-ratelimit-tokens-remaining: 100\r\n"
                        "anthropic-ratelimit-tokens-reset: 2027-01-31T00:00:54Z\r\n"
                        "anthropic-ratelimit-input-tokens-limit: 100000\r\n"
                        "anthropic-ratelimit-input-tokens-remaining: 90000\r\n"
                        "anthropic-ratelimit-input-tokens-reset: 2027-01-31T00:00:06Z\r\n"
                        "anthropic-ratelimit-output-tokens-limit: 1000\r\n"
                        "anthropic-ratelimit-output-tokens-remaining: 100\r\n"
                        "anthropic-ratelimit-output-tokens-reset: 2027-01-31T00:00:54Z\r\n");
    http_fields_fini(&fields);
    memset(&fields, 0, sizeof(fields));
    spend(&world, "a", 0, 2000); /* refused: 900 of 1000 are used; it costs nothing but a request */
    limits_put_fields(account(&world, "a"), LIMIT_OPENAI, world.now_ns, unix_ns, &fields);
    assert_string_equal((const char *)fields.text.data, "x-ratelimit-limit-requests: 60\r\n"
                                                        "x-ratelimit-remaining-requests: 58\r\n"
                                                        "x-ratelimit-reset-requests: 2.000s\r\n"
                                                        "x-ratelimit-limit-tokens: 1000\r\n"
                                                        "x-ratelimit-remaining-tokens: 100\r\n"
                                                        "x-ratelimit-reset-tokens: 54.000s\r\n");
    http_fields_fini(&fields);
    memset(&fields, 0, sizeof(fields));
    limits_put_fields(account(&world, "b"), LIMIT_MESSAGES, world.now_ns, unix_ns, &fields);
    limits_put_fields(NULL, LIMIT_MESSAGES, world.now_ns, unix_ns, &fields);
    assert_int_equal(fields.text.len_bytes, 0);
    end(&world);
}

/* ---- failed logins ---- */

static void note(struct failed_logins *logins, const char *peer, int number, uint64_t now_ns)
{
    char key[24];

    snprintf(key, sizeof(key), "sk-%d", number);
    failed_logins_note(logins, peer, bytes_str(key), now_ns);
}

static void failed_logins_are_slowed(void **state)
{
    struct failed_logins *logins;
    uint64_t now = 5 * NS_PER_S;

    assert_int_equal(failed_logins_new(10, 3, &logins), 0);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(failed_logins_wait_s(logins, "192.0.2.1:5", now), 0);
        note(logins, "192.0.2.1:77", i, now);
    }
    assert_int_equal(failed_logins_wait_s(logins, "192.0.2.1:1", now), 6);
    assert_int_equal(failed_logins_wait_s(logins, "192.0.2.2:1", now), 0);
    assert_int_equal(failed_logins_wait_s(logins, "[::ffff:192.0.2.1]:1", now), 6);
    now += 6 * NS_PER_S;
    assert_int_equal(failed_logins_wait_s(logins, "192.0.2.1:1", now), 0);
    note(logins, "192.0.2.1:77", 99, now);
    assert_int_equal(failed_logins_wait_s(logins, "192.0.2.1:1", now), 6);
    /* A client with an old key that repeats for ever counts as one failed login. */
    for (int i = 0; i < 1000; i++)
        note(logins, "192.0.2.9:1", 7, now);
    failed_logins_note(logins, "192.0.2.9:1", bytes_of(NULL, 0), now);
    assert_int_equal(failed_logins_wait_s(logins, "192.0.2.9:1", now), 0);
    /* A /64 is one source. */
    for (int i = 0; i < 10; i++)
        note(logins, i % 2 == 0 ? "[2001:db8::1]:9" : "[2001:db8::2:3]:9", i, now);
    assert_true(failed_logins_wait_s(logins, "[2001:db8::ffff]:1", now) > 0);
    assert_int_equal(failed_logins_wait_s(logins, "[2001:db8:0:1::1]:1", now), 0);
    /* The table is full: the address that was silent longest is forgotten. */
    note(logins, "192.0.2.50:1", 1, now);
    assert_int_equal(failed_logins_wait_s(logins, "192.0.2.1:1", now), 0);
    assert_true(failed_logins_wait_s(logins, "[2001:db8::ffff]:1", now) > 0);
    /* Not an address: not counted, and no error. */
    note(logins, "", 1, now);
    note(logins, "unix", 1, now);
    note(logins, "[:1", 1, now);
    note(logins, "[]:1", 1, now);
    failed_logins_free(logins);
    assert_int_equal(failed_logins_new(0, 3, &logins), 0);
    for (int i = 0; i < 100; i++)
        note(logins, "192.0.2.1:77", i, now);
    assert_int_equal(failed_logins_wait_s(logins, "192.0.2.1:1", now), 0);
    failed_logins_free(logins);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_refill_continuously),
        cmocka_unit_test(a_burst_cannot_overshoot),
        cmocka_unit_test(a_request_above_its_limit_waits_and_owes),
        cmocka_unit_test(tenants_share_and_both_rules_hold),
        cmocka_unit_test(the_rest_of_a_stream_counts_nothing),
        cmocka_unit_test(unknown_streams_count_as_requests),
        cmocka_unit_test(searches_at_once_are_bounded),
        cmocka_unit_test(a_reload_keeps_what_was_used),
        cmocka_unit_test(models_and_expiry),
        cmocka_unit_test(a_class_is_the_keys_or_its_tenants),
        cmocka_unit_test(a_weight_is_the_keys_or_its_tenants),
        cmocka_unit_test(rules_are_read_whole_or_refused),
        cmocka_unit_test(random_requests_stay_within),
        cmocka_unit_test(fields_say_what_is_left),
        cmocka_unit_test(failed_logins_are_slowed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
