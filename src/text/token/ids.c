/* SPDX-License-Identifier: Apache-2.0 */
/* A growable list of token ids.
 *
 * The list doubles as it grows and never shrinks. It has no limit: a caller that needs one counts before it
 * pushes. */
#include "text/token/tokenizer.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

void token_ids_fini(struct token_ids *ids)
{
    free(ids->ids);
    *ids = (struct token_ids){0};
}

int token_ids_reserve(struct token_ids *ids, size_t more)
{
    size_t cap = ids->cap < 32 ? 32 : ids->cap;

    if (more <= ids->cap - ids->n)
        return 0;
    if (more > SIZE_MAX / 16 - ids->n)
        return E_NOMEM;
    while (cap < ids->n + more)
        cap *= 2;
    token_id *grown = realloc(ids->ids, cap * sizeof(*grown));
    if (grown == NULL)
        return E_NOMEM;
    ids->ids = grown;
    ids->cap = cap;
    return 0;
}

int token_ids_push(struct token_ids *ids, token_id id)
{
    int rc = token_ids_reserve(ids, 1);

    if (rc == 0)
        ids->ids[ids->n++] = id;
    return rc;
}

int token_ids_append(struct token_ids *ids, const token_id *more, size_t n)
{
    int rc = token_ids_reserve(ids, n);

    if (rc != 0)
        return rc;
    if (n > 0)
        memcpy(ids->ids + ids->n, more, n * sizeof(*more));
    ids->n += n;
    return 0;
}
