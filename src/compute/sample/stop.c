/* SPDX-License-Identifier: Apache-2.0 */
/* A streaming matcher for several strings: the automaton of Aho and Corasick over bytes.
 *
 *    strings "he" "she"          root --h--> (h) --e--> (he)*
 *                                  \--s--> (s) --h--> (sh) --e--> (she)*
 *                                fallback: (sh) to (h), (she) to (he)
 *
 * A node stands for the text from the root to it. After any input the automaton is at the node of the
 * longest suffix of the input that begins some string. This answers two questions. A string that ends here
 * belongs to the node itself or to one of its chain of fallbacks, longest first, so the first one begins
 * earliest. The node's depth is the number of bytes that may still become a match and are held back. All
 * bytes before them are delivered.
 *
 * Children are lists, not tables. Strings come from clients, and with a table per node 64 KiB of strings
 * would take 64 MiB. A step costs at most the fan-out of a node. Each fallback is paid for by an earlier
 * step that went deeper. */
#include "compute/sample/stop.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/err.h"
#include "compute/sample/sampler.h"

#define ROOT      0
#define NO_NODE   UINT32_MAX
#define NO_STRING -1

struct node {
    uint32_t child;    /* first child */
    uint32_t sibling;  /* next sibling */
    uint32_t fallback; /* node of the longest proper suffix that is a node */
    uint32_t depth;
    int string; /* the longest string that ends here, NO_STRING if none does */
    uint8_t byte;
};

struct stop {
    struct node *nodes;
    uint32_t n_nodes;
    uint32_t *lengths; /* [string] lengths in bytes */
    uint32_t at;       /* node after all input so far */
    struct buf held;   /* the last nodes[at].depth bytes of the input */
    bool is_matched;
};

static uint32_t stop_child_of(const struct stop *stop, uint32_t node, uint8_t byte)
{
    uint32_t child = stop->nodes[node].child;

    while (child != NO_NODE && stop->nodes[child].byte != byte)
        child = stop->nodes[child].sibling;
    return child;
}

static uint32_t stop_step(const struct stop *stop, uint32_t node, uint8_t byte)
{
    for (;;) {
        uint32_t child = stop_child_of(stop, node, byte);

        if (child != NO_NODE)
            return child;
        if (node == ROOT)
            return ROOT;
        node = stop->nodes[node].fallback;
    }
}

static uint32_t add_child(struct stop *stop, uint32_t parent, uint8_t byte)
{
    uint32_t id = stop->n_nodes++;

    stop->nodes[id] = (struct node){.child = NO_NODE,
                                    .sibling = stop->nodes[parent].child,
                                    .depth = stop->nodes[parent].depth + 1,
                                    .string = NO_STRING,
                                    .byte = byte};
    stop->nodes[parent].child = id;
    return id;
}

static void add_string(struct stop *stop, struct bytes text, int index)
{
    uint32_t node = ROOT;

    for (size_t i = 0; i < text.len_bytes; i++) {
        uint32_t child = stop_child_of(stop, node, text.data[i]);

        node = child != NO_NODE ? child : add_child(stop, node, text.data[i]);
    }
    if (stop->nodes[node].string == NO_STRING)
        stop->nodes[node].string = index;
}

/* Breadth first: a node's fallback is shallower than the node, so it is complete when the node needs it. */
static int link_fallbacks(struct stop *stop)
{
    uint32_t *queue = malloc(stop->n_nodes * sizeof(*queue));
    uint32_t n_queued = 0;

    if (queue == NULL)
        return E_NOMEM;
    queue[n_queued++] = ROOT;
    for (uint32_t done = 0; done < n_queued; done++) {
        uint32_t parent = queue[done];

        for (uint32_t id = stop->nodes[parent].child; id != NO_NODE; id = stop->nodes[id].sibling) {
            struct node *node = &stop->nodes[id];

            node->fallback =
                parent == ROOT ? ROOT : stop_step(stop, stop->nodes[parent].fallback, node->byte);
            if (node->string == NO_STRING)
                node->string = stop->nodes[node->fallback].string;
            queue[n_queued++] = id;
        }
    }
    free(queue);
    return 0;
}

int stop_new(const struct bytes *strings, size_t n, struct stop **out)
{
    size_t n_bytes = 0;

    for (size_t i = 0; i < n; i++) {
        if (strings[i].len_bytes == 0)
            return E_INVAL;
        if (strings[i].len_bytes > SAMPLE_MAX_STOP_BYTES - n_bytes)
            return E_LIMIT;
        n_bytes += strings[i].len_bytes;
    }

    struct stop *stop = calloc(1, sizeof(*stop));
    if (stop == NULL)
        return E_NOMEM;
    stop->nodes = malloc((n_bytes + 1) * sizeof(*stop->nodes));
    stop->lengths = malloc((n + 1) * sizeof(*stop->lengths));
    if (stop->nodes == NULL || stop->lengths == NULL)
        goto fail;

    stop->nodes[ROOT] = (struct node){.child = NO_NODE, .sibling = NO_NODE, .string = NO_STRING};
    stop->n_nodes = 1;
    for (size_t i = 0; i < n; i++) {
        stop->lengths[i] = (uint32_t)strings[i].len_bytes;
        add_string(stop, strings[i], (int)i);
    }
    if (link_fallbacks(stop) < 0)
        goto fail;
    *out = stop;
    return 0;

fail:
    stop_free(stop);
    return E_NOMEM;
}

void stop_free(struct stop *stop)
{
    if (stop == NULL)
        return;
    buf_fini(&stop->held);
    free(stop->lengths);
    free(stop->nodes);
    free(stop);
}

/* Delivers the first len_bytes of the held text. */
static int stop_deliver(struct stop *stop, size_t len_bytes, struct buf *out)
{
    if (buf_append(out, stop->held.data, len_bytes) < 0)
        return E_NOMEM;
    buf_consume(&stop->held, len_bytes);
    return 0;
}

/* may_match: whether a match may end in the text. */
static int stop_scan(struct stop *stop, struct bytes text, bool may_match, struct buf *out)
{
    size_t match_begin = SIZE_MAX;
    int match = NO_STRING;

    ASSERT(!stop->is_matched);
    if (buf_append(&stop->held, text.data, text.len_bytes) < 0)
        return E_NOMEM;
    for (size_t i = stop->held.len_bytes - text.len_bytes; i < stop->held.len_bytes; i++) {
        stop->at = stop_step(stop, stop->at, stop->held.data[i]);

        int string = stop->nodes[stop->at].string;
        if (may_match && string != NO_STRING && i + 1 - stop->lengths[string] < match_begin) {
            match_begin = i + 1 - stop->lengths[string];
            match = string;
        }
    }

    stop->is_matched = match != NO_STRING;
    size_t ready = stop->is_matched ? match_begin : stop->held.len_bytes - stop->nodes[stop->at].depth;
    int code = stop_deliver(stop, ready, out);
    return code < 0 ? code : match;
}

int stop_feed(struct stop *stop, struct bytes text, struct buf *out)
{
    return stop_scan(stop, text, true, out);
}

int stop_pass(struct stop *stop, struct bytes text, struct buf *out)
{
    int code = stop_scan(stop, text, false, out);

    return code == NO_STRING ? 0 : code;
}

int stop_flush(struct stop *stop, struct buf *out)
{
    ASSERT(!stop->is_matched);
    stop->at = ROOT;
    return stop_deliver(stop, stop->held.len_bytes, out);
}
