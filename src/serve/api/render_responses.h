/* SPDX-License-Identifier: Apache-2.0 */
/* Renders /v1/responses: the response object, and the data of its stream's events.  Pure; every function
 * appends to out and returns 0 or E_NOMEM.  Output text is always valid UTF-8 on one line. */
#ifndef SERVE_API_RENDER_RESPONSES_H
#define SERVE_API_RENDER_RESPONSES_H

#include "serve/api/error.h"
#include "serve/api/gen.h"
#include "serve/api/render.h"

enum api_response_status {
    API_RESPONSE_IN_PROGRESS,
    API_RESPONSE_COMPLETED,
    API_RESPONSE_INCOMPLETE, /* a limit cut it */
    API_RESPONSE_CANCELLED,
    API_RESPONSE_FAILED
};

enum api_item_state { API_ITEM_OPEN, API_ITEM_WHOLE, API_ITEM_CUT };

struct api_item { /* an output item: a message, a call, or reasoning */
    enum gen_block_kind kind;
    enum api_item_state state;
    struct bytes text; /* or a call's arguments */
    bool is_escaped;   /* the text is the inside of a JSON string already */
    struct bytes call_id, name;
    struct bytes signature; /* of thinking */
    struct bytes logprobs;  /* of a message's text: JSON objects with commas between them */
};

struct api_response {
    const char *id;                            /* "resp_..." */
    uint64_t created_unix_s, completed_unix_s; /* completed: 0: not yet */
    struct bytes model;
    const struct gen_response *asked;
    enum api_response_status status;
    const struct api_item *items;
    size_t n_items;
    const struct api_usage *usage;     /* NULL: null */
    const struct api_error *error;     /* API_RESPONSE_FAILED */
    const struct gen_serving *serving; /* serving stats, added as "baton"; NULL: none */
};

struct api_range { /* a part of a rendered text */
    size_t at, len_bytes;
};

/* output_out: where the list of output items is, without its brackets; may be NULL. */
int api_put_response(struct buf *out, const struct api_response *response, struct api_range *output_out);
const char *api_response_status(enum api_response_status status); /* "completed" */

/* ---- events ---- */

/* {"type":TYPE,"sequence_number":N,"response":{...}}; range as above. */
int api_put_response_event(struct buf *out, const char *type, uint64_t sequence,
                           const struct api_response *response, struct api_range *output_out);

struct api_place { /* what an event is about: its response and item; and the event's number */
    const struct api_response *response; /* id and asked are read */
    unsigned index;
    uint64_t sequence;
};

enum api_item_event {
    API_ITEM_ADDED,      /* response.output_item.added */
    API_ITEM_PART_ADDED, /* the item's one part: of a message or of reasoning */
    API_ITEM_DELTA,      /* text: the new text; logprobs: its own */
    API_ITEM_TEXT_DONE,  /* the whole text or the arguments */
    API_ITEM_PART_DONE,
    API_ITEM_DONE /* response.output_item.done */
};

/* The event's name (static), which depends on the kind of item.  NULL: items of this kind have no such event. */
const char *api_item_event_name(const struct api_place *place, enum api_item_event event,
                                enum gen_block_kind kind);
int api_put_item_event(struct buf *out, const struct api_place *place, enum api_item_event event,
                       const struct api_item *item);

/* ---- kept responses ---- */

struct api_item_page { /* a page of GET /v1/responses/ID/input_items */
    uint32_t limit;    /* 1..100 */
    bool is_ascending;
    struct bytes after; /* id of an item; empty: from the first one */
};

/* items: as gen_response.items.  Items without an id get one made from the response's.  A page ends early when it
 * is long.  E_NOT_FOUND: no item has the id `after`. */
int api_put_input_items(struct buf *out, const char *response_id, struct bytes items,
                        const struct api_item_page *page);
int api_put_input_tokens(struct buf *out, uint32_t n_tokens); /* the answer of /v1/responses/input_tokens */
int api_put_response_deleted(struct buf *out, const char *response_id);

#endif
