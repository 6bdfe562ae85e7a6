/* SPDX-License-Identifier: Apache-2.0 */
/* The slowest schemas to compile.
 *
 *     bench_grammar_cost [-n SCHEMAS] [-c CLIMBS] [-s SEED] [-o FOLDER]
 *
 * First it compiles SCHEMAS (500) random schemas and patterns and prints the slowest one's time and steps.
 * Then it tries CLIMBS (2,000) changes of each of the slowest, and of hand-made starts.  It keeps a change
 * that takes longer (hill climbing by time), or more time per step (by rate).  Steps are the compiler's unit
 * of work (at most GRAMMAR_MAX_STEPS), so the worst time per step times that limit bounds every compilation.
 * It writes the worst ones to FOLDER, as seeds of tests/fuzz/fuzz_grammar_cost. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/str.h"
#include "text/grammar/grammar.h"

#define MAX_TEXT_BYTES (256u << 10)
#define MIN_STEPS      20000u /* enough for a meaningful rate */
#define N_TOP          6u

struct trial {
    char *text;
    uint64_t ns, steps;
    int rc;
    char why[80];
};

static struct rng rng;

static uint32_t below(uint32_t n)
{
    return (uint32_t)rng_below(&rng, n);
}

static uint64_t cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Returns the best of some runs in the thread's own time, without time taken by others. */
static struct trial try_text(const char *text, unsigned n_runs)
{
    struct grammar_schema one = {.text = bytes_str(text), .path = "$"};
    struct trial trial = {.ns = UINT64_MAX};

    for (unsigned i = 0; i < n_runs; i++) {
        struct fault fault = {0};
        uint64_t began_ns = cpu_ns();

        trial.rc = grammar_check_schemas(&one, 1, &fault, &trial.steps);
        uint64_t ns = cpu_ns() - began_ns;
        if (ns < trial.ns)
            trial.ns = ns;
        snprintf(trial.why, sizeof(trial.why), "%.79s", trial.rc == 0 ? "taken" : fault.text);
    }
    return trial;
}

/* ---- random patterns and schemas ---- */

static void put_piece(struct buf *out, unsigned depth)
{
    static const char *const atoms[] = {"x",     "a",   ".",    "\\d",       "\\w",
                                        "\\s",   "\\W", "[^x]", "[a-z0-9_]", "[\xc3\xa9-\xe2\x82\xac]",
                                        "[ace]", "b"};
    static const char *const counts[] = {"*", "+", "?", "{3}", "{1,30}", "{1,50}", "{0,7}", "{2,}", "{40}"};

    if (depth > 0 && below(3) == 0) {
        buf_append_byte(out, '(');
        for (uint32_t n = 1 + below(3); n > 0; n--)
            put_piece(out, depth - 1);
        if (below(3) == 0) {
            buf_append_byte(out, '|');
            put_piece(out, depth - 1);
        }
        buf_append_byte(out, ')');
    } else {
        buf_append_str(out, atoms[below(ARRAY_LEN(atoms))]);
    }
    if (below(2) == 0)
        buf_append_str(out, counts[below(ARRAY_LEN(counts))]);
}

static json_t *random_pattern(void)
{
    struct buf text = {0};

    if (below(2) == 0)
        buf_append_byte(&text, '^');
    for (uint32_t n = 1 + below(6); n > 0; n--)
        put_piece(&text, 3);
    if (below(2) == 0)
        buf_append_byte(&text, '$');
    json_t *json = json_stringn((const char *)text.data, text.len_bytes);
    buf_fini(&text);
    return json;
}

static json_t *random_schema(unsigned depth);

static json_t *random_list(unsigned depth)
{
    json_t *list = json_array();

    for (uint32_t n = 1 + below(4); n > 0; n--)
        json_array_append_new(list, random_schema(depth));
    return list;
}

static json_t *random_words(void)
{
    json_t *list = json_array();

    for (uint32_t n = 1 + below(6); n > 0; n--)
        json_array_append_new(list,
                              below(3) > 0 ? json_sprintf("w%u", below(1000)) : json_integer(below(99)));
    return list;
}

static void put_string_keywords(json_t *schema)
{
    static const char *const formats[] = {"date-time", "email", "uri",     "ipv6",
                                          "hostname",  "uuid",  "duration"};

    json_object_set_new(schema, "type", json_string("string"));
    if (below(2) == 0)
        json_object_set_new(schema, "pattern", random_pattern());
    else if (below(3) == 0)
        json_object_set_new(schema, "format", json_string(formats[below(ARRAY_LEN(formats))]));
    if (below(4) == 0)
        json_object_set_new(schema, "maxLength", json_integer(below(60)));
    if (below(6) == 0)
        json_object_set_new(schema, "minLength", json_integer(below(20)));
}

static void put_number_keywords(json_t *schema)
{
    bool is_integer = below(2) == 0;

    json_object_set_new(schema, "type", json_string(is_integer ? "integer" : "number"));
    if (below(2) == 0)
        json_object_set_new(schema, "minimum",
                            is_integer ? json_integer(below(100000)) : json_real(below(999) / 128.0));
    if (below(2) == 0)
        json_object_set_new(schema, "maximum",
                            is_integer ? json_integer(1000000000LL * below(1000))
                                       : json_real(9 + below(999) / 1024.0));
    if (is_integer && below(3) == 0)
        json_object_set_new(schema, "multipleOf", json_integer(1 + below(100)));
}

static void put_object_keywords(json_t *schema, unsigned depth)
{
    json_t *properties = json_object(), *required = json_array();

    json_object_set_new(schema, "type", json_string("object"));
    for (uint32_t n = below(6); n > 0; n--) {
        json_t *name = json_sprintf("p%u", below(30));

        json_object_set_new(properties, json_string_value(name), random_schema(depth));
        if (below(2) == 0)
            json_array_append(required, name);
        json_decref(name);
    }
    json_object_set_new(schema, "properties", properties);
    json_object_set_new(schema, "required", required);
    if (below(3) == 0)
        json_object_set_new(schema, "additionalProperties",
                            below(2) == 0 ? json_boolean(below(2)) : random_schema(depth));
}

static json_t *random_schema(unsigned depth)
{
    json_t *schema = json_object();
    uint32_t kind = below(depth == 0 ? 4 : 9);

    if (kind == 0)
        put_number_keywords(schema);
    else if (kind == 1)
        json_object_set_new(schema, "enum", random_words());
    else if (kind < 4)
        put_string_keywords(schema);
    else if (kind < 6)
        put_object_keywords(schema, depth - 1);
    else if (kind == 6)
        json_object_set_new(schema, "items", random_schema(depth - 1));
    else
        json_object_set_new(schema,
                            below(3) == 0 ? "allOf"
                            : kind == 7   ? "anyOf"
                                          : "oneOf",
                            random_list(depth - 1));
    return schema;
}

/* ---- changes ---- */

static void change_string(json_t *string)
{
    struct buf text = {0};
    struct bytes old = bytes_of(json_string_value(string), json_string_length(string));
    size_t at = below((uint32_t)old.len_bytes + 1), n = below((uint32_t)(old.len_bytes - at) + 1);

    buf_append(&text, old.data, at);
    switch (below(4)) {
    case 0: /* something new */
        put_piece(&text, 2);
        break;
    case 1: /* a part twice */
        buf_append(&text, old.data + at, n);
        buf_append(&text, old.data + at, n);
        break;
    case 2: /* repeated */
        buf_printf(&text, "{1,%u}", 1 + below(60));
        n = 0;
        break;
    default: /* left out */
        break;
    }
    buf_append(&text, old.data + at + n, old.len_bytes - at - n);
    json_string_setn(string, (const char *)text.data, text.len_bytes); /* fails if the text is not UTF-8 */
    buf_fini(&text);
}

static void change(json_t *value, unsigned depth);

/* Adds some members with new names; their values are copies of an existing one. */
static void widen(json_t *value)
{
    uint32_t n = 1 + below(40);

    if (json_is_array(value) && json_array_size(value) > 0)
        for (; n > 0; n--)
            json_array_append_new(
                value, json_deep_copy(json_array_get(value, below((uint32_t)json_array_size(value)))));
    void *first = json_object_iter(value);
    for (uint32_t i = below((uint32_t)json_object_size(value) + 1); first != NULL && i > 1; i--)
        first = json_object_iter_next(value, first);
    for (; first != NULL && n > 0; n--) {
        json_t *name =
            json_sprintf("%sn%u", below(20) == 0 ? json_object_iter_key(first) : "", below(1000000));
        json_t *copy = json_deep_copy(json_object_iter_value(first));

        if (strlen(json_string_value(name)) < 400)
            json_object_set_new(value, json_string_value(name), copy);
        else
            json_decref(copy);
        json_decref(name);
        first = json_object_iter_at(value, json_object_iter_key(json_object_iter(value)));
    }
}

static void change_object(json_t *value, unsigned depth)
{
    static const char *const names[] = {"properties", "enum",        "anyOf",     "allOf",  "oneOf",
                                        "items",      "required",    "$ref",      "type",   "minLength",
                                        "maxItems",   "prefixItems", "maxLength", "pattern"};
    const char *name = names[below(ARRAY_LEN(names))];
    json_t *made = strcmp(name, "properties") == 0 ? json_pack("{s:o}", "q", random_schema(1))
                   : strcmp(name, "enum") == 0     ? random_words()
                   : strcmp(name, "required") == 0 ? json_pack("[s]", "q")
                   : strcmp(name, "$ref") == 0     ? json_string("#/$defs/d")
                   : strcmp(name, "type") == 0     ? json_pack("[s,s]", "string", "object")
                   : strcmp(name, "pattern") == 0  ? random_pattern()
                   : strcmp(name, "items") == 0    ? random_schema(2)
                   : strstr(name, "Length") != NULL || strcmp(name, "maxItems") == 0
                       ? json_integer(below(200))
                       : random_list(depth > 4 ? 0 : 1);

    json_object_set_new(value, name, made);
}

static void change(json_t *value, unsigned depth)
{
    uint32_t n = (uint32_t)(json_object_size(value) + json_array_size(value)), at = n > 0 ? below(n) : 0,
             i = 0;
    const char *name;
    json_t *member;

    if (json_is_string(value)) {
        change_string(value);
        return;
    }
    if (json_is_integer(value)) {
        json_integer_set(value, below(2) == 0 ? below(100) : json_integer_value(value) * 2 % 1000000000000LL);
        return;
    }
    if (n > 0 && below(5) > 0) { /* somewhere inside */
        if (json_is_array(value))
            change(json_array_get(value, at), depth + 1);
        json_object_foreach(value, name, member)
        {
            if (i++ != at)
                continue;
            change(member, depth + 1);
            break;
        }
        return;
    }
    if (below(3) > 0)
        widen(value);
    else if (json_is_object(value))
        change_object(value, depth);
}

static char *changed(const char *text)
{
    json_t *json = json_loads(text, JSON_DECODE_ANY, NULL);

    if (json == NULL)
        return strdup(text);
    for (uint32_t n = 1 + below(3); n > 0; n--)
        change(json, 0);
    char *out = json_dumps(json, JSON_ENCODE_ANY | JSON_COMPACT);
    json_decref(json);
    return out;
}

/* ---- the search ---- */

static double rate_of(const struct trial *trial)
{
    return trial->steps < MIN_STEPS ? 0 : (double)trial->ns / (double)trial->steps;
}

static bool is_worse(const struct trial *left, const struct trial *right, bool is_by_rate)
{
    return is_by_rate ? rate_of(left) > rate_of(right) : left->ns > right->ns;
}

static struct trial climb(const char *from, unsigned n_climbs, bool is_by_rate)
{
    struct trial best = try_text(from, 3);

    best.text = strdup(from);
    for (unsigned i = 0; i < n_climbs; i++) {
        char *text = changed(best.text);
        struct trial now = try_text(text, 1);

        if (strlen(text) < MAX_TEXT_BYTES && is_worse(&now, &best, is_by_rate)) {
            now = try_text(text, 3);
            if (is_worse(&now, &best, is_by_rate)) {
                now.text = text;
                text = best.text;
                best = now;
            }
        }
        free(text);
    }
    return best;
}

static void print_trial(const char *what, const struct trial *trial)
{
    printf("%-8s %7.2f ms %8llu steps %6.2f ns/step  %zu bytes, %s\n         %.160s\n", what,
           (double)trial->ns / 1e6, (unsigned long long)trial->steps,
           (double)trial->ns / (double)(trial->steps + 1), strlen(trial->text), trial->why, trial->text);
    fflush(stdout);
}

static void keep_trial(const char *folder, unsigned number, const struct trial *trial)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s/climbed_%02u.json", folder, number);
    file = fopen(path, "we");
    ASSERT(file != NULL);
    fputs(trial->text, file);
    ASSERT(fclose(file) == 0);
}

static int by_time(const void *left, const void *right)
{
    const struct trial *a = left, *b = right;

    return (a->ns < b->ns) - (a->ns > b->ns);
}

static void search(struct trial *random, unsigned n_random, unsigned n_climbs, const char *folder)
{
    static const char *const begun[] = {
        "{\"type\":\"string\",\"pattern\":\"^(x{1,30}){1,30}$\"}",
        "{\"properties\":{\"a\":{},\"b\":{}},\"required\":[\"a\",\"b\"]}",
        "{\"enum\":[\"a\",\"b\"],\"anyOf\":[{\"type\":\"string\"},{\"minLength\":1}]}",
        "{\"$defs\":{\"d\":{\"properties\":{\"a\":{\"const\":1}}}},\"allOf\":[{\"$ref\":\"#/$defs/d\"},{}]}",
        "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":1}},\"required\":[\"k\"]},"
        "{\"type\":\"object\",\"properties\":{\"k\":{\"const\":2}},\"required\":[\"k\"]}]}",
        "{\"additionalProperties\":{\"type\":\"null\"},\"properties\":{\"ab\":{}}}",
        "{\"properties\":{\"a\":{\"type\":\"number\",\"minimum\":0.125,\"maximum\":9.75}}}",
        "{\"properties\":{\"a\":{\"type\":\"integer\",\"multipleOf\":97,\"minimum\":5}}}",
    };
    unsigned n_begun = ARRAY_LEN(begun), number = 0;

    for (unsigned by_rate = 0; by_rate < 2; by_rate++)
        for (unsigned i = 0; i < N_TOP + n_begun; i++) {
            const char *from = i < n_begun              ? begun[i]
                               : i - n_begun < n_random ? random[i - n_begun].text
                                                        : "{}";
            struct trial best = climb(from, n_climbs, by_rate != 0);

            print_trial(by_rate != 0 ? "rate" : "time", &best);
            if (folder != NULL)
                keep_trial(folder, number++, &best);
            free(best.text);
        }
}

int main(int argc, char **argv)
{
    unsigned n_random = 500, n_climbs = 2000;
    const char *folder = NULL;
    uint64_t seed = 1;
    int option;

    while ((option = getopt(argc, argv, "n:c:s:o:")) != -1) {
        if (option == 'n')
            n_random = (unsigned)strtoul(optarg, NULL, 10);
        else if (option == 'c')
            n_climbs = (unsigned)strtoul(optarg, NULL, 10);
        else if (option == 's')
            seed = strtoull(optarg, NULL, 10);
        else if (option == 'o')
            folder = optarg;
        else
            return 2;
    }
    rng_init(&rng, seed);
    struct trial *random = calloc(n_random + 1, sizeof(*random));
    ASSERT(random != NULL);
    for (unsigned i = 0; i < n_random; i++) {
        json_t *schema = random_schema(4);
        char *text = json_dumps(schema, JSON_COMPACT);

        random[i] = try_text(text, 3);
        random[i].text = text;
        json_decref(schema);
    }
    qsort(random, n_random, sizeof(*random), by_time);
    for (unsigned i = 0; i < n_random && i < 3; i++)
        print_trial("random", &random[i]);
    search(random, n_random, n_climbs, folder);
    for (unsigned i = 0; i < n_random; i++)
        free(random[i].text);
    free(random);
    return 0;
}
