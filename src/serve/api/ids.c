/* SPDX-License-Identifier: Apache-2.0 */
/* Ids come from the system's random generator with rejection sampling, so that each letter is equally
 * likely. */
#include "serve/api/ids.h"

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "base/str.h"

#define N_LETTERS 24

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

void ids_make(const char *prefix, char out[IDS_BYTES])
{
    uint8_t random[2 * N_LETTERS];
    size_t at = strlen(prefix);
    unsigned n = 0;

    memcpy(out, prefix, at);
    while (n < N_LETTERS) {
        rng_system(random, sizeof(random));
        for (size_t i = 0; i < sizeof(random) && n < N_LETTERS; i++)
            if (random[i] < 4 * 62)
                out[at + n++] = alphabet[random[i] % 62];
    }
    out[at + n] = '\0';
}

#define RESPONSE_PREFIX "resp_"

void ids_make_item(const char *prefix, const char *response_id, unsigned index, char out[IDS_BYTES])
{
    const char *letters = strchr(response_id, '_');

    snprintf(out, IDS_BYTES, "%.3s_%.24s_%u", prefix, letters == NULL ? "" : letters + 1, index);
}

static bool ids_is_letter(uint8_t c)
{
    return c != 0 && strchr(alphabet, c) != NULL;
}

bool ids_response_of(struct bytes item_id, char out[IDS_BYTES])
{
    const char *text = (const char *)item_id.data;
    size_t at = 0, n = 0;

    while (at < item_id.len_bytes && at < 4 && text[at] != '_')
        at++;
    while (at + 1 + n < item_id.len_bytes && n < N_LETTERS && ids_is_letter((uint8_t)text[at + 1 + n]))
        n++;
    if (n != N_LETTERS || text[at] != '_' || at + 1 + n >= item_id.len_bytes || text[at + 1 + n] != '_')
        return false;
    snprintf(out, IDS_BYTES, "%s%.24s", RESPONSE_PREFIX, text + at + 1);
    return true;
}

void ids_derive(const char *prefix, const char *seed, uint32_t number, char out[IDS_BYTES])
{
    uint64_t key = str_digest(seed);
    size_t at = strlen(prefix);
    uint32_t words[4] = {0};

    memcpy(out, prefix, at);
    for (unsigned i = 0; i < N_LETTERS; i++) {
        if (i % 4 == 0)
            rng_counter(key, number, i / 4, words);
        out[at + i] = alphabet[words[i % 4] % 62];
    }
    out[at + N_LETTERS] = '\0';
}
