/* SPDX-License-Identifier: Apache-2.0 */
/* A hash map by id and a list in order of use.  Expiry and eviction both take from the front of the list.
 * A conversation that is being continued is off the list until it is given back, so neither can remove
 * it. */
#include "serve/conversation/threads.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hashmap.h"
#include "base/list.h"
#include "serve/api/ids.h"

#define OWNER_BYTES    64
#define OVERHEAD_BYTES 128 /* the map's half-filled slot and the allocator's overhead */

struct thread {
    struct list node; /* threads.by_use; unlinked while held */
    char id[IDS_BYTES];
    char owner[OWNER_BYTES];
    struct buf text; /* empty: it has been continued */
    uint64_t used_ns;
    bool is_held, is_continued;
};

struct threads {
    struct hashmap *map;
    struct list by_use; /* most recently used last */
    uint64_t life_ns;
    size_t bytes, max_bytes;
};

int threads_new(size_t max_bytes, uint64_t life_ns, struct threads **out)
{
    struct threads *threads = calloc(1, sizeof(*threads));

    if (threads == NULL)
        return E_NOMEM;
    list_init(&threads->by_use);
    threads->max_bytes = max_bytes;
    threads->life_ns = life_ns;
    if (hashmap_new(IDS_BYTES, &threads->map) < 0) {
        free(threads);
        return E_NOMEM;
    }
    *out = threads;
    return 0;
}

static size_t bytes_of_thread(const struct thread *thread)
{
    return sizeof(*thread) + thread->text.cap_bytes + OVERHEAD_BYTES;
}

static void forget(struct threads *threads, struct thread *thread)
{
    hashmap_remove(threads->map, thread->id);
    list_remove(&thread->node);
    threads->bytes -= bytes_of_thread(thread);
    buf_fini(&thread->text);
    free(thread);
}

static struct thread *oldest(struct threads *threads)
{
    return list_is_empty(&threads->by_use) ? NULL : container_of(threads->by_use.next, struct thread, node);
}

static void sweep(struct threads *threads, uint64_t now_ns)
{
    struct thread *thread;

    while ((thread = oldest(threads)) != NULL &&
           (now_ns - thread->used_ns > threads->life_ns || threads->bytes > threads->max_bytes))
        forget(threads, thread);
}

void threads_free(struct threads *threads)
{
    struct thread *thread;

    if (threads == NULL)
        return;
    while ((thread = oldest(threads)) != NULL)
        forget(threads, thread);
    hashmap_free(threads->map);
    free(threads);
}

static void use(struct threads *threads, struct thread *thread, uint64_t now_ns)
{
    thread->used_ns = now_ns;
    list_push_back(&threads->by_use, &thread->node);
    sweep(threads, now_ns);
}

void threads_put(struct threads *threads, const char *id, const char *owner, struct buf *text,
                 uint64_t now_ns)
{
    struct thread *thread = calloc(1, sizeof(*thread));

    if (thread == NULL || text->is_bad) {
        free(thread);
        buf_fini(text);
        return;
    }
    memcpy(thread->id, id, strlen(id));
    memcpy(thread->owner, owner, strlen(owner));
    thread->text = *text;
    *text = (struct buf){0};
    if (bytes_of_thread(thread) > threads->max_bytes ||
        hashmap_put(threads->map, thread->id, thread, NULL) < 0) {
        buf_fini(&thread->text);
        free(thread);
        return;
    }
    threads->bytes += bytes_of_thread(thread);
    use(threads, thread, now_ns);
}

enum threads_take threads_take(struct threads *threads, struct bytes id, const char *owner, uint64_t now_ns,
                               struct thread **out)
{
    char key[IDS_BYTES] = {0};
    struct thread *thread;

    sweep(threads, now_ns);
    if (id.len_bytes == 0 || id.len_bytes >= sizeof(key))
        return THREADS_UNKNOWN;
    memcpy(key, id.data, id.len_bytes);
    thread = hashmap_get(threads->map, key);
    if (thread == NULL || strcmp(thread->owner, owner) != 0)
        return THREADS_UNKNOWN;
    if (thread->is_continued)
        return THREADS_CONTINUED;
    if (thread->is_held)
        return THREADS_BUSY;
    list_remove(&thread->node);
    thread->is_held = true;
    *out = thread;
    return THREADS_TAKEN;
}

struct bytes thread_text(const struct thread *thread)
{
    return buf_view(&thread->text);
}

void threads_give_back(struct threads *threads, struct thread *thread, bool is_continued, uint64_t now_ns)
{
    thread->is_held = false;
    if (is_continued) {
        threads->bytes -= bytes_of_thread(thread);
        buf_fini(&thread->text);
        thread->text = (struct buf){0};
        thread->is_continued = true;
        threads->bytes += bytes_of_thread(thread);
    }
    use(threads, thread, now_ns);
}

size_t threads_count(const struct threads *threads)
{
    return hashmap_count(threads->map);
}

size_t threads_bytes(const struct threads *threads)
{
    return threads->bytes;
}
