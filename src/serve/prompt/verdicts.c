/* SPDX-License-Identifier: Apache-2.0 */
/* A list in order of use and a map from digests into it, behind one lock.
 *
 *     question --SHA-256--> key --map--> verdict
 *     list: last used <-> ... <-> least recently used --> dropped
 *
 * All job threads use it.  They hold the lock only for a look-up, so no thread waits for another one's
 * compilation. */
#include "serve/prompt/verdicts.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hashmap.h"
#include "base/list.h"

struct verdict {
    struct list node; /* in verdicts.all, most recently used first */
    struct verdict_key key;
    int rc;
    char text[]; /* the fault's text */
};

struct verdicts {
    pthread_mutex_t lock;
    struct hashmap *by_key;
    struct list all;
    uint32_t n, max;
};

int verdicts_new(uint32_t max, struct verdicts **out)
{
    struct verdicts *verdicts = calloc(1, sizeof(*verdicts));

    if (verdicts == NULL || hashmap_new(sizeof(struct verdict_key), &verdicts->by_key) < 0) {
        free(verdicts);
        return E_NOMEM;
    }
    pthread_mutex_init(&verdicts->lock, NULL);
    list_init(&verdicts->all);
    verdicts->max = max;
    *out = verdicts;
    return 0;
}

static void verdict_drop(struct verdicts *verdicts, struct verdict *verdict)
{
    hashmap_remove(verdicts->by_key, &verdict->key);
    list_remove(&verdict->node);
    verdicts->n--;
    free(verdict);
}

void verdicts_free(struct verdicts *verdicts)
{
    if (verdicts == NULL)
        return;
    while (!list_is_empty(&verdicts->all))
        verdict_drop(verdicts, container_of(verdicts->all.next, struct verdict, node));
    hashmap_free(verdicts->by_key);
    pthread_mutex_destroy(&verdicts->lock);
    free(verdicts);
}

int verdicts_key(struct bytes question, struct verdict_key *out)
{
    unsigned len;

    return EVP_Digest(question.data, question.len_bytes, out->bytes, &len, EVP_sha256(), NULL) == 1 ? 0
                                                                                                    : E_NOMEM;
}

bool verdicts_find(struct verdicts *verdicts, const struct verdict_key *key, int *rc_out,
                   struct fault *fault_out)
{
    struct verdict *verdict;

    if (verdicts == NULL)
        return false;
    pthread_mutex_lock(&verdicts->lock);
    verdict = hashmap_get(verdicts->by_key, key);
    if (verdict != NULL) {
        *rc_out = verdict->rc;
        if (verdict->rc < 0)
            fault_set(fault_out, verdict->rc, "%s", verdict->text);
        list_remove(&verdict->node);
        list_push_front(&verdicts->all, &verdict->node);
    }
    pthread_mutex_unlock(&verdicts->lock);
    return verdict != NULL;
}

void verdicts_keep(struct verdicts *verdicts, const struct verdict_key *key, int rc,
                   const struct fault *fault)
{
    size_t n = rc < 0 ? strlen(fault->text) : 0;
    struct verdict *verdict;

    if (verdicts == NULL || rc == E_NOMEM)
        return;
    verdict = calloc(1, sizeof(*verdict) + n + 1);
    if (verdict == NULL)
        return;
    verdict->key = *key;
    verdict->rc = rc;
    memcpy(verdict->text, fault->text, n);
    pthread_mutex_lock(&verdicts->lock);
    if (hashmap_get(verdicts->by_key, key) != NULL || hashmap_put(verdicts->by_key, key, verdict, NULL) < 0) {
        free(verdict); /* another thread has stored the same verdict meanwhile */
    } else {
        list_push_front(&verdicts->all, &verdict->node);
        if (++verdicts->n > verdicts->max)
            verdict_drop(verdicts, container_of(verdicts->all.prev, struct verdict, node));
    }
    pthread_mutex_unlock(&verdicts->lock);
}
