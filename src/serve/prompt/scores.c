/* SPDX-License-Identifier: Apache-2.0 */
/* A list that empties whenever the client keeps up.  It is at most one prompt long. */
#include "serve/prompt/scores.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

void scores_reserve(struct scores *scores, uint32_t n)
{
    if (scores->held != NULL)
        return;
    scores->held = malloc(n * sizeof(*scores->held));
    scores->cap = scores->held != NULL ? n : 0;
}

int scores_add(struct scores *scores, const struct sample_result *from, uint32_t n)
{
    if (n > scores->cap - scores->n) {
        uint32_t cap = scores->n + n + scores->cap / 2;
        struct sample_result *grown = realloc(scores->held, cap * sizeof(*grown));

        if (grown == NULL)
            return E_NOMEM;
        scores->held = grown;
        scores->cap = cap;
    }
    memcpy(scores->held + scores->n, from, n * sizeof(*from));
    scores->n += n;
    return 0;
}

void scores_fini(struct scores *scores)
{
    free(scores->held);
    *scores = (struct scores){0};
}
