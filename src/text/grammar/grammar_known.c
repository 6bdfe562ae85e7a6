/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of one compilation: a schema that three hundred tools share is compiled once.
 *
 * A schema is found by a hash over the JSON's values in their order, and then compared in full.  The order of
 * members counts, since properties are written in it. */
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/err.h"
#include "text/grammar/grammar_priv.h"

static uint64_t known_hash(const json_t *value, uint64_t hash)
{
    double number = json_number_value(value);
    const char *name;
    json_t *member;
    size_t i;

    hash = XXH3_64bits_withSeed(&number, sizeof(number), hash + (uint64_t)json_typeof(value));
    if (json_is_string(value))
        hash = XXH3_64bits_withSeed(json_string_value(value), json_string_length(value), hash);
    json_array_foreach(value, i, member) hash = known_hash(member, hash);
    json_object_foreach((json_t *)value, name, member)
    {
        hash = known_hash(member, XXH3_64bits_withSeed(name, strlen(name), hash));
    }
    return hash + json_array_size(value) + json_object_size(value);
}

static bool known_equal(json_t *left, json_t *right)
{
    void *mine = json_object_iter(left), *theirs = json_object_iter(right);
    size_t n = json_array_size(left);

    if (json_typeof(left) != json_typeof(right))
        return false;
    if (!json_is_object(left) && !json_is_array(left))
        return json_equal(left, right) != 0;
    if (n != json_array_size(right) || json_object_size(left) != json_object_size(right))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!known_equal(json_array_get(left, i), json_array_get(right, i)))
            return false;
    for (; mine != NULL; mine = json_object_iter_next(left, mine)) {
        if (strcmp(json_object_iter_key(mine), json_object_iter_key(theirs)) != 0 ||
            !known_equal(json_object_iter_value(mine), json_object_iter_value(theirs)))
            return false;
        theirs = json_object_iter_next(right, theirs);
    }
    return true;
}

bool known_find(struct compile_ctx *ctx, const char *kind, json_t *json, struct known_key *key, uint32_t *out)
{
    snprintf(key->name, sizeof(key->name), "%s %016llx", kind, (unsigned long long)known_hash(json, 0));
    key->json = json;
    json_t *entry = json_object_get(ctx->known, key->name);
    if (entry == NULL || !known_equal(json_array_get(entry, 0), json))
        return false;
    *out = (uint32_t)json_integer_value(json_array_get(entry, 1));
    return true;
}

int known_keep(struct compile_ctx *ctx, const struct known_key *key, uint32_t number)
{
    json_t *entry = json_pack("[O,I]", key->json, (json_int_t)number);

    if (entry == NULL)
        return E_NOMEM;
    return json_object_set_new_nocheck(ctx->known, key->name, entry) == 0 ? 0 : E_NOMEM;
}
