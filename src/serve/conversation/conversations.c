/* SPDX-License-Identifier: Apache-2.0 */
/* A hash map by id and a list in order of use.  Expiry and eviction both take from the front of the list.
 * A conversation that is being continued is off the list until it is given back, so neither can remove
 * it.  A second list has the continued conversations that still have their text, in order of their end. */
#include "serve/conversation/conversations.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hashmap.h"
#include "base/list.h"
#include "serve/api/ids.h"

#define OWNER_BYTES 64

struct kept_text {
    struct buf text;
    unsigned n_refs;
};

struct conversation {
    struct list node;  /* conversations.by_use; unlinked while held */
    struct list ended; /* conversations.ended, if it is continued and has its text; else unlinked */
    char id[IDS_BYTES];
    char owner[OWNER_BYTES];
    struct kept_text *text; /* NULL: it has been continued */
    uint64_t used_ns;
    bool is_held, is_continued;
};

struct conversations {
    struct hashmap *map;
    struct list by_use; /* most recently used last */
    struct list ended;  /* continued last at the end */
    uint64_t life_ns;
    size_t bytes, max_bytes;
};

int conversations_new(size_t max_bytes, uint64_t life_ns, struct conversations **out)
{
    struct conversations *conversations = calloc(1, sizeof(*conversations));

    if (conversations == NULL)
        return E_NOMEM;
    list_init(&conversations->by_use);
    list_init(&conversations->ended);
    conversations->max_bytes = max_bytes;
    conversations->life_ns = life_ns;
    if (hashmap_new(IDS_BYTES, &conversations->map) < 0) {
        free(conversations);
        return E_NOMEM;
    }
    *out = conversations;
    return 0;
}

/* ---- texts ---- */

/* Gives room back that the text does not need. */
static void kept_text_trim(struct buf *text)
{
    uint8_t *data = text->cap_bytes > text->len_bytes + 1 ? realloc(text->data, text->len_bytes + 1) : NULL;

    if (data == NULL)
        return;
    text->data = data;
    text->cap_bytes = text->len_bytes + 1;
}

struct kept_text *kept_text_new(struct buf *text)
{
    struct kept_text *kept = text->is_bad ? NULL : malloc(sizeof(*kept));

    if (kept == NULL) {
        buf_fini(text);
        return NULL;
    }
    kept_text_trim(text);
    *kept = (struct kept_text){.text = *text, .n_refs = 1};
    *text = (struct buf){0};
    return kept;
}

void kept_text_unref(struct kept_text *text)
{
    if (text == NULL || --text->n_refs > 0)
        return;
    buf_fini(&text->text);
    free(text);
}

struct bytes kept_text_view(const struct kept_text *text)
{
    return text == NULL ? bytes_of(NULL, 0) : buf_view(&text->text);
}

/* ---- the table ---- */

static size_t bytes_of_conversation(const struct conversation *conversation)
{
    return sizeof(*conversation) + HASHMAP_ENTRY_BYTES +
           (conversation->text == NULL ? 0
                                       : sizeof(*conversation->text) + conversation->text->text.cap_bytes);
}

static void conversations_forget(struct conversations *conversations, struct conversation *conversation)
{
    hashmap_remove(conversations->map, conversation->id);
    list_remove(&conversation->node);
    list_remove(&conversation->ended);
    conversations->bytes -= bytes_of_conversation(conversation);
    kept_text_unref(conversation->text);
    free(conversation);
}

static void conversations_drop_text(struct conversations *conversations, struct conversation *conversation)
{
    list_remove(&conversation->ended);
    conversations->bytes -= bytes_of_conversation(conversation);
    kept_text_unref(conversation->text);
    conversation->text = NULL;
    conversations->bytes += bytes_of_conversation(conversation);
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

    while (conversations->bytes > conversations->max_bytes && !list_is_empty(&conversations->ended))
        conversations_drop_text(conversations,
                                container_of(conversations->ended.next, struct conversation, ended));
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

    if (conversation == NULL) {
        buf_fini(text);
        return;
    }
    list_init(&conversation->node);
    list_init(&conversation->ended);
    memcpy(conversation->id, id, strlen(id));
    memcpy(conversation->owner, owner, strlen(owner));
    conversation->text = kept_text_new(text);
    if (conversation->text == NULL || bytes_of_conversation(conversation) > conversations->max_bytes ||
        hashmap_get(conversations->map, conversation->id) != NULL || /* it came from elsewhere meanwhile */
        hashmap_put(conversations->map, conversation->id, conversation, NULL) < 0) {
        kept_text_unref(conversation->text);
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

void conversations_give_back(struct conversations *conversations, struct conversation *conversation,
                             enum conversations_end how, uint64_t now_ns)
{
    conversation->is_held = false;
    conversation->is_continued = how != CONVERSATIONS_RELEASED;
    if (how == CONVERSATIONS_READABLE)
        list_push_back(&conversations->ended, &conversation->ended);
    else if (how == CONVERSATIONS_ENDED)
        conversations_drop_text(conversations, conversation);
    conversations_use(conversations, conversation, now_ns);
}

struct kept_text *conversations_read(struct conversations *conversations, struct bytes id, const char *owner,
                                     uint64_t now_ns)
{
    struct conversation *conversation;
    struct kept_text *text;

    conversations_sweep(conversations, now_ns);
    conversation = conversations_find(conversations, id, owner);
    if (conversation == NULL || conversation->text == NULL)
        return NULL;
    text = conversation->text;
    text->n_refs++;
    if (conversations_state(conversation) == CONVERSATIONS_TAKEN) {
        list_remove(&conversation->node);
        conversations_use(conversations, conversation, now_ns);
    }
    return text;
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
