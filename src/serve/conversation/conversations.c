/* SPDX-License-Identifier: Apache-2.0 */
/* A hash map by id and a list in order of use.  Expiry and eviction both take from the front of the list.
 * A conversation that is being continued is off the list until it is given back, so neither can remove
 * it. */
#include "serve/conversation/conversations.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hashmap.h"
#include "base/list.h"
#include "serve/api/ids.h"

#define OWNER_BYTES 64

struct conversation {
    struct list node; /* conversations.by_use; unlinked while held */
    char id[IDS_BYTES];
    char owner[OWNER_BYTES];
    struct buf text; /* empty: it has been continued */
    uint64_t used_ns;
    bool is_held, is_continued;
};

struct conversations {
    struct hashmap *map;
    struct list by_use; /* most recently used last */
    uint64_t life_ns;
    size_t bytes, max_bytes;
};

int conversations_new(size_t max_bytes, uint64_t life_ns, struct conversations **out)
{
    struct conversations *conversations = calloc(1, sizeof(*conversations));

    if (conversations == NULL)
        return E_NOMEM;
    list_init(&conversations->by_use);
    conversations->max_bytes = max_bytes;
    conversations->life_ns = life_ns;
    if (hashmap_new(IDS_BYTES, &conversations->map) < 0) {
        free(conversations);
        return E_NOMEM;
    }
    *out = conversations;
    return 0;
}

static size_t bytes_of_conversation(const struct conversation *conversation)
{
    return sizeof(*conversation) + conversation->text.cap_bytes + HASHMAP_ENTRY_BYTES;
}

static void conversations_forget(struct conversations *conversations, struct conversation *conversation)
{
    hashmap_remove(conversations->map, conversation->id);
    list_remove(&conversation->node);
    conversations->bytes -= bytes_of_conversation(conversation);
    buf_fini(&conversation->text);
    free(conversation);
}

static struct conversation *conversations_oldest(struct conversations *conversations)
{
    return list_is_empty(&conversations->by_use)
               ? NULL
               : container_of(conversations->by_use.next, struct conversation, node);
}

static void conversations_sweep(struct conversations *conversations, uint64_t now_ns)
{
    struct conversation *conversation;

    while ((conversation = conversations_oldest(conversations)) != NULL &&
           (now_ns - conversation->used_ns > conversations->life_ns ||
            conversations->bytes > conversations->max_bytes))
        conversations_forget(conversations, conversation);
}

void conversations_free(struct conversations *conversations)
{
    struct conversation *conversation;

    if (conversations == NULL)
        return;
    while ((conversation = conversations_oldest(conversations)) != NULL)
        conversations_forget(conversations, conversation);
    hashmap_free(conversations->map);
    free(conversations);
}

static void conversations_use(struct conversations *conversations, struct conversation *conversation,
                              uint64_t now_ns)
{
    conversation->used_ns = now_ns;
    list_push_back(&conversations->by_use, &conversation->node);
    conversations_sweep(conversations, now_ns);
}

void conversations_put(struct conversations *conversations, const char *id, const char *owner,
                       struct buf *text, uint64_t now_ns)
{
    struct conversation *conversation = calloc(1, sizeof(*conversation));

    if (conversation == NULL || text->is_bad) {
        free(conversation);
        buf_fini(text);
        return;
    }
    memcpy(conversation->id, id, strlen(id));
    memcpy(conversation->owner, owner, strlen(owner));
    conversation->text = *text;
    *text = (struct buf){0};
    if (bytes_of_conversation(conversation) > conversations->max_bytes ||
        hashmap_get(conversations->map, conversation->id) != NULL || /* it came from elsewhere meanwhile */
        hashmap_put(conversations->map, conversation->id, conversation, NULL) < 0) {
        buf_fini(&conversation->text);
        free(conversation);
        return;
    }
    conversations->bytes += bytes_of_conversation(conversation);
    conversations_use(conversations, conversation, now_ns);
}

/* NULL: unknown. */
static struct conversation *conversations_find(struct conversations *conversations, struct bytes id,
                                               const char *owner)
{
    char key[IDS_BYTES] = {0};
    struct conversation *conversation;

    if (id.len_bytes == 0 || id.len_bytes >= sizeof(key))
        return NULL;
    memcpy(key, id.data, id.len_bytes);
    conversation = hashmap_get(conversations->map, key);
    return conversation == NULL || strcmp(conversation->owner, owner) != 0 ? NULL : conversation;
}

static enum conversations_take conversations_state(const struct conversation *conversation)
{
    if (conversation == NULL)
        return CONVERSATIONS_UNKNOWN;
    if (conversation->is_continued)
        return CONVERSATIONS_CONTINUED;
    return conversation->is_held ? CONVERSATIONS_BUSY : CONVERSATIONS_TAKEN;
}

enum conversations_take conversations_look(struct conversations *conversations, struct bytes id,
                                           const char *owner, uint64_t now_ns)
{
    conversations_sweep(conversations, now_ns);
    return conversations_state(conversations_find(conversations, id, owner));
}

enum conversations_take conversations_take(struct conversations *conversations, struct bytes id,
                                           const char *owner, uint64_t now_ns, struct conversation **out)
{
    struct conversation *conversation;

    conversations_sweep(conversations, now_ns);
    conversation = conversations_find(conversations, id, owner);
    if (conversations_state(conversation) != CONVERSATIONS_TAKEN)
        return conversations_state(conversation);
    list_remove(&conversation->node);
    conversation->is_held = true;
    *out = conversation;
    return CONVERSATIONS_TAKEN;
}

struct bytes conversation_text(const struct conversation *conversation)
{
    return buf_view(&conversation->text);
}

void conversations_give_back(struct conversations *conversations, struct conversation *conversation,
                             bool is_continued, uint64_t now_ns)
{
    conversation->is_held = false;
    if (is_continued) {
        conversations->bytes -= bytes_of_conversation(conversation);
        buf_fini(&conversation->text);
        conversation->text = (struct buf){0};
        conversation->is_continued = true;
        conversations->bytes += bytes_of_conversation(conversation);
    }
    conversations_use(conversations, conversation, now_ns);
}

bool conversations_peek(struct conversations *conversations, struct bytes id, const char *owner,
                        uint64_t now_ns, struct bytes *out)
{
    struct conversation *conversation;

    conversations_sweep(conversations, now_ns);
    conversation = conversations_find(conversations, id, owner);
    if (conversation == NULL || conversation->is_held || conversation->is_continued)
        return false;
    list_remove(&conversation->node);
    conversations_use(conversations, conversation, now_ns);
    *out = buf_view(&conversation->text);
    return true;
}

bool conversations_remove(struct conversations *conversations, struct bytes id, const char *owner)
{
    struct conversation *conversation = conversations_find(conversations, id, owner);

    if (conversation == NULL || conversation->is_held)
        return false;
    conversations_forget(conversations, conversation);
    return true;
}

size_t conversations_count(const struct conversations *conversations)
{
    return hashmap_count(conversations->map);
}

size_t conversations_bytes(const struct conversations *conversations)
{
    return conversations->bytes;
}
