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
 * The children of a node stand side by side, in the order of their bytes, so a step halves them until it finds one.
 * A table for each node would take 64 MiB for 64 KiB of strings, and those come from clients. Each fallback is paid for
 * by an earlier step that went deeper. So the time to build the automaton, or to feed text, is linear in the bytes. */
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
    uint32_t children; /* the first child; the others follow it */
    uint32_t fallback; /* node of the longest proper suffix that is a node */
    uint32_t depth;
    int string;          /* the longest string that ends here, NO_STRING if none does */
    uint16_t n_children; /* up to 256 */
    uint8_t byte;
};

struct stop_set {
    struct node *nodes; /* breadth first, from the root */
    uint32_t n_nodes;
    uint32_t *lengths; /* [string] lengths in bytes */
};

struct stop {
    const struct stop_set *set;
    uint32_t at; /* node after all input so far */
    struct buf
        held; /* the last nodes[at].depth bytes of the input; after a match, all from its beginning on */
    bool is_matched;
};

static uint32_t stop_child_of(const struct stop_set *set, uint32_t node, uint8_t byte)
{
    uint32_t low = set->nodes[node].children, high = low + set->nodes[node].n_children;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (set->nodes[middle].byte == byte)
            return middle;
        if (set->nodes[middle].byte < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return NO_NODE;
}

static uint32_t stop_step(const struct stop_set *set, uint32_t node, uint8_t byte)
{
    for (;;) {
        uint32_t child = stop_child_of(set, node, byte);

        if (child != NO_NODE)
            return child;
        if (node == ROOT)
            return ROOT;
        node = set->nodes[node].fallback;
    }
}

/* ---- building ---- */

struct sorted {
    struct bytes text;
    int index;
};

struct range { /* of the sorted strings */
    uint32_t begin, end;
};

struct build {
    struct stop_set *set;
    struct sorted *strings;
    struct range *ranges; /* [node] the strings that begin with the node's text */
};

/* Equal strings stand in the order of their indices. */
static int compare_strings(const void *one, const void *other)
{
    const struct sorted *a = one, *b = other;
    size_t n = a->text.len_bytes < b->text.len_bytes ? a->text.len_bytes : b->text.len_bytes;
    int order = memcmp(a->text.data, b->text.data, n);

    if (order != 0)
        return order;
    if (a->text.len_bytes != b->text.len_bytes)
        return a->text.len_bytes < b->text.len_bytes ? -1 : 1;
    return a->index - b->index;
}

/* A node's fallback is shallower than the node, so the fallback and its children are complete. */
static void add_child(struct build *build, uint32_t parent, struct range range)
{
    struct stop_set *set = build->set;
    const struct sorted *first = &build->strings[range.begin];
    uint32_t depth = set->nodes[parent].depth + 1;
    uint8_t byte = first->text.data[depth - 1];
    uint32_t fallback = parent == ROOT ? ROOT : stop_step(set, set->nodes[parent].fallback, byte);

    build->ranges[set->n_nodes] = range;
    set->nodes[set->n_nodes++] =
        (struct node){.fallback = fallback,
                      .depth = depth,
                      .string = first->text.len_bytes == depth ? first->index : set->nodes[fallback].string,
                      .byte = byte};
    set->nodes[parent].n_children++;
}

/* The strings that end at the parent stand before those that go on. */
static void add_children(struct build *build, uint32_t parent)
{
    const struct sorted *strings = build->strings;
    struct range range = build->ranges[parent];
    uint32_t depth = build->set->nodes[parent].depth;

    while (range.begin < range.end && strings[range.begin].text.len_bytes == depth)
        range.begin++;
    build->set->nodes[parent].children = build->set->n_nodes;
    while (range.begin < range.end) {
        struct range same = {range.begin, range.begin + 1};

        while (same.end < range.end &&
               strings[same.end].text.data[depth] == strings[same.begin].text.data[depth])
            same.end++;
        add_child(build, parent, same);
        range.begin = same.end;
    }
}

static int stop_build(struct stop_set *set, const struct bytes *strings, size_t n, size_t n_bytes)
{
    struct build build = {.set = set,
                          .strings = malloc((n + 1) * sizeof(*build.strings)),
                          .ranges = malloc((n_bytes + 1) * sizeof(*build.ranges))};
    int rc = build.strings == NULL || build.ranges == NULL ? E_NOMEM : 0;

    if (rc == 0) {
        for (size_t i = 0; i < n; i++)
            build.strings[i] = (struct sorted){strings[i], (int)i};
        qsort(build.strings, n, sizeof(*build.strings), compare_strings);
        build.ranges[ROOT] = (struct range){0, (uint32_t)n};
        set->nodes[ROOT] = (struct node){.string = NO_STRING};
        set->n_nodes = 1;
        for (uint32_t node = ROOT; node < set->n_nodes; node++)
            add_children(&build, node);
    }
    free(build.strings);
    free(build.ranges);
    return rc;
}

int stop_set_new(const struct bytes *strings, size_t n, struct stop_set **out)
{
    size_t n_bytes = 0;

    for (size_t i = 0; i < n; i++) {
        if (strings[i].len_bytes == 0)
            return E_INVAL;
        if (strings[i].len_bytes > SAMPLE_MAX_STOP_BYTES - n_bytes)
            return E_LIMIT;
        n_bytes += strings[i].len_bytes;
    }

    struct stop_set *set = calloc(1, sizeof(*set));
    if (set == NULL)
        return E_NOMEM;
    set->nodes = malloc((n_bytes + 1) * sizeof(*set->nodes));
    set->lengths = malloc((n + 1) * sizeof(*set->lengths));
    if (set->nodes == NULL || set->lengths == NULL || stop_build(set, strings, n, n_bytes) < 0) {
        stop_set_free(set);
        return E_NOMEM;
    }
    for (size_t i = 0; i < n; i++)
        set->lengths[i] = (uint32_t)strings[i].len_bytes;
    *out = set;
    return 0;
}

size_t stop_set_bytes(const struct stop_set *set)
{
    return set == NULL ? 0 : set->n_nodes * sizeof(*set->nodes);
}

void stop_set_free(struct stop_set *set)
{
    if (set == NULL)
        return;
    free(set->lengths);
    free(set->nodes);
    free(set);
}

/* ---- matching ---- */

int stop_new(const struct stop_set *set, struct stop **out)
{
    struct stop *stop = calloc(1, sizeof(*stop));

    if (stop == NULL)
        return E_NOMEM;
    stop->set = set;
    *out = stop;
    return 0;
}

void stop_free(struct stop *stop)
{
    if (stop == NULL)
        return;
    buf_fini(&stop->held);
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
    const struct stop_set *set = stop->set;
    size_t match_begin = SIZE_MAX;
    int match = NO_STRING;

    ASSERT(!stop->is_matched);
    if (buf_append(&stop->held, text.data, text.len_bytes) < 0)
        return E_NOMEM;
    for (size_t i = stop->held.len_bytes - text.len_bytes; i < stop->held.len_bytes; i++) {
        stop->at = stop_step(set, stop->at, stop->held.data[i]);

        int string = set->nodes[stop->at].string;
        if (may_match && string != NO_STRING && i + 1 - set->lengths[string] < match_begin) {
            match_begin = i + 1 - set->lengths[string];
            match = string;
        }
    }

    stop->is_matched = match != NO_STRING;
    size_t ready = stop->is_matched ? match_begin : stop->held.len_bytes - set->nodes[stop->at].depth;
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

size_t stop_held_bytes(const struct stop *stop)
{
    return stop->held.len_bytes;
}

int stop_flush(struct stop *stop, struct buf *out)
{
    ASSERT(!stop->is_matched);
    stop->at = ROOT;
    return stop_deliver(stop, stop->held.len_bytes, out);
}
