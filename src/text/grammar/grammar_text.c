/* SPDX-License-Identifier: Apache-2.0 */
/* Writing an automaton over characters into a graph, as the bytes of a JSON string.
 *
 *     q --[a-é]--> r      becomes      q --61..7f-->r    q --c2--80..bf-->r    q --c3--80..a9-->r
 *
 * Each character has one spelling: itself, or its short escape where JSON requires one (\" \\ \n \t \r \b
 * \f).  Other control characters have no spelling here, so no pattern produces them.  Ranges of characters
 * are cut where the length of their UTF-8 changes, and then into runs of bytes.  Text between tags has no
 * escapes, and of the control characters only tab, line feed and carriage return.  Lengths are counted by one
 * copy of the automaton for each number of characters: place (state, count). */
#include "text/grammar/grammar_auto_priv.h"

#include "base/err.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

#define MAX_PLACES     20000u
#define MAX_RAW_PLACES 400000u /* most are never reached */
#define STEPS_OF_EDGE  4u      /* besides its nodes */

/* Writes the byte strings from lo[0..n) to hi[0..n), all of one length. */
static uint32_t grammar_text_between(struct graph *graph, const uint8_t *lo, const uint8_t *hi, size_t n,
                                     uint32_t next)
{
    static const uint8_t least[] = {0x80, 0x80, 0x80}, most[] = {0xbf, 0xbf, 0xbf};
    uint32_t ways = PC_DEAD;

    if (n == 1)
        return graph_byte(graph, lo[0], hi[0], next);
    if (lo[0] == hi[0])
        return graph_byte(graph, lo[0], lo[0], grammar_text_between(graph, lo + 1, hi + 1, n - 1, next));

    bool is_low_whole = memcmp(lo + 1, least, n - 1) == 0, is_high_whole = memcmp(hi + 1, most, n - 1) == 0;
    unsigned from = lo[0] + (is_low_whole ? 0u : 1u), to = hi[0] - (is_high_whole ? 0u : 1u);
    if (!is_low_whole)
        ways = graph_byte(graph, lo[0], lo[0], grammar_text_between(graph, lo + 1, most, n - 1, next));
    if (from <= to)
        ways = graph_split(graph, ways,
                           graph_byte(graph, (uint8_t)from, (uint8_t)to,
                                      grammar_text_between(graph, least, most, n - 1, next)));
    if (!is_high_whole)
        ways = graph_split(
            graph, ways,
            graph_byte(graph, hi[0], hi[0], grammar_text_between(graph, least, hi + 1, n - 1, next)));
    return ways;
}

static uint32_t grammar_text_wide(struct graph *graph, uint32_t lo, uint32_t hi, uint32_t next)
{
    static const struct code_range lengths[] = {
        {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, AUTO_LAST_CODE}};
    uint32_t ways = PC_DEAD;

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        uint32_t from = lo > lengths[i].lo ? lo : lengths[i].lo, to = hi < lengths[i].hi ? hi : lengths[i].hi;
        uint8_t first[4], last[4];

        if (from > to)
            continue;
        size_t n = utf8_put(from, first);
        utf8_put(to, last);
        ways = graph_split(graph, ways, grammar_text_between(graph, first, last, n, next));
    }
    return ways;
}

struct style {             /* how texts are spelled */
    bool is_raw;           /* unescaped; otherwise as in a JSON string */
    uint32_t end;          /* node after the last character */
    uint32_t beyond_ascii; /* raw: the rule of any one character of two or more bytes */
};

static uint32_t plain_bytes(struct graph *graph, const struct dfa_edge *edge, const struct code_range *ranges,
                            size_t n, uint32_t next)
{
    uint32_t ways = PC_DEAD;

    for (size_t i = 0; i < n; i++) {
        uint32_t lo = edge->lo > ranges[i].lo ? edge->lo : ranges[i].lo;
        uint32_t hi = edge->hi < ranges[i].hi ? edge->hi : ranges[i].hi;
        if (lo <= hi)
            ways = graph_split(graph, ways, graph_byte(graph, (uint8_t)lo, (uint8_t)hi, next));
    }
    return ways;
}

static uint32_t write_raw_edge(struct graph *graph, const struct style *style, const struct dfa_edge *edge,
                               uint32_t next)
{
    static const struct code_range plain[] = {{'\t', '\n'}, {'\r', '\r'}, {0x20, 0x7f}};
    uint32_t ways = plain_bytes(graph, edge, plain, 3, next);

    if (edge->hi < 0x80)
        return ways;
    return graph_split(graph, ways,
                       edge->lo <= 0x80 && edge->hi == AUTO_LAST_CODE
                           ? graph_call(graph, style->beyond_ascii, next)
                           : grammar_text_wide(graph, edge->lo, edge->hi, next));
}

static uint32_t write_edge(struct graph *graph, const struct dfa_edge *edge, uint32_t next)
{
    static const char escaped[] = "\b\f\n\r\t\"\\", names[] = "bfnrt\"\\";
    uint32_t ways = PC_DEAD, short_ways = PC_DEAD;

    for (size_t i = 0; escaped[i] != '\0'; i++)
        if ((uint32_t)escaped[i] >= edge->lo && (uint32_t)escaped[i] <= edge->hi)
            short_ways =
                graph_split(graph, short_ways, graph_byte(graph, (uint8_t)names[i], (uint8_t)names[i], next));
    ways = graph_byte(graph, '\\', '\\', short_ways);
    static const struct code_range plain[] = {{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0x7f}};
    ways = graph_split(graph, ways, plain_bytes(graph, edge, plain, 3, next));
    return edge->hi < 0x80 ? ways
                           : graph_split(graph, ways, grammar_text_wide(graph, edge->lo, edge->hi, next));
}

struct places {
    uint32_t *pcs;             /* [n_counts * n_states] 0: not reached yet */
    uint32_t *met, n, cap_met; /* places reached, in the order in which they are written */
    bool is_bad;               /* no memory */
};

/* Finds or makes a place's node. */
static uint32_t grammar_text_place_of(struct graph *graph, struct places *places, uint32_t index)
{
    if (places->pcs[index] != 0)
        return places->pcs[index];
    if (!graph_grow(&places->met, &places->cap_met, places->n + 1, sizeof(*places->met))) {
        places->is_bad = true;
        return PC_DEAD;
    }
    places->met[places->n++] = index;
    places->pcs[index] = graph_node(graph, (struct node){.kind = NODE_SPLIT, .next = PC_DEAD, .a = PC_DEAD});
    return places->pcs[index];
}

struct written { /* a text's automaton, and the way to write it */
    const struct dfa *dfa;
    struct bounds chars;
    const struct style *style;
};

static void write_place(struct graph *graph, const struct written *text, struct places *places,
                        uint32_t index)
{
    const struct dfa *dfa = text->dfa;
    const struct style *style = text->style;
    struct bounds chars = text->chars;
    uint32_t n = dfa->n_states, state = index % n, count = index / n, ways = PC_DEAD;
    const struct dfa_state *at = &dfa->states[state];
    uint32_t after = chars.max == GRAPH_UNBOUNDED && count >= chars.min ? count : count + 1;

    for (uint32_t i = 0; i < at->n_edges && count < chars.max && !graph->is_full; i++) {
        (void)graph_spend(graph, STEPS_OF_EDGE);
        const struct dfa_edge *edge = &dfa->edges[at->edges + i];
        uint32_t to = grammar_text_place_of(graph, places, after * n + edge->to);
        ways =
            graph_split(graph, ways,
                        style->is_raw ? write_raw_edge(graph, style, edge, to) : write_edge(graph, edge, to));
    }
    if (!graph->is_full)
        graph->nodes[places->pcs[index]].next = ways;
}

static int grammar_text_write_all(struct graph *graph, const struct written *text, uint32_t *pc_out)
{
    const struct dfa *dfa = text->dfa;
    struct bounds chars = text->chars;
    uint32_t n_counts = (chars.max == GRAPH_UNBOUNDED ? chars.min : chars.max) + 1;

    if ((uint64_t)n_counts * dfa->n_states > (text->style->is_raw ? MAX_RAW_PLACES : MAX_PLACES))
        return E_LIMIT;
    uint32_t n_places = n_counts * dfa->n_states;
    struct places places = {0};

    if (graph_spend(graph, n_places / STEPS_PER_BYTES) != 0)
        return E_LIMIT;
    places.pcs = calloc(n_places, sizeof(*places.pcs));
    if (places.pcs == NULL)
        return E_NOMEM;
    *pc_out = grammar_text_place_of(graph, &places, 0);
    for (uint32_t i = 0; i < places.n && !graph->is_full; i++) {
        uint32_t index = places.met[i];

        write_place(graph, text, &places, index);
        if (dfa->states[index % dfa->n_states].is_final && index / dfa->n_states >= chars.min &&
            !graph->is_full)
            graph->nodes[places.pcs[index]].a = text->style->end;
    }
    int rc = places.is_bad ? E_NOMEM : graph_status(graph, NULL);
    free(places.pcs);
    free(places.met);
    return rc;
}

int dfa_write(struct graph *graph, const struct dfa *dfa, struct bounds chars, uint32_t next,
              uint32_t *pc_out)
{
    const struct style style = {.end = graph_byte(graph, '"', '"', next)};

    return grammar_text_write_all(graph, &(struct written){dfa, chars, &style}, pc_out);
}

int dfa_write_raw(struct graph *graph, const struct dfa *dfa, struct bounds chars, uint32_t next,
                  uint32_t *pc_out)
{
    const struct style style = {
        .is_raw = true,
        .end = next,
        .beyond_ascii = graph_rule_of(graph, grammar_text_wide(graph, 0x80, AUTO_LAST_CODE, PC_RET))};

    return grammar_text_write_all(graph, &(struct written){dfa, chars, &style}, pc_out);
}
