/* SPDX-License-Identifier: Apache-2.0 */
/* An automaton over characters, written into a graph as the bytes of a JSON string.
 *
 *     q --[a-é]--> r      becomes      q --61..7f-->r    q --c2--80..bf-->r    q --c3--80..a9-->r
 *
 * Each character has one spelling: itself, or its short escape where JSON wants one (\" \\ \n \t \r \b \f;
 * other control characters have none here, so a pattern gets none of them).  Ranges of characters are cut
 * where the length of their UTF-8 changes and then into runs of bytes.  Where a text stands as itself,
 * between tags, there are no escapes, and of control characters only tab, line feed and carriage return.  A
 * length is counted by copying the automaton for each number of characters: place (state, count).
 */
#include "sample/grammar_auto_priv.h"

#include "base/err.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

#define MAX_PLACES     20000u
#define MAX_RAW_PLACES 400000u /* most of which are never reached */

/* Bytes lo[0..n) to hi[0..n), which are of one length. */
static uint32_t between(struct graph *graph, const uint8_t *lo, const uint8_t *hi, size_t n, uint32_t next)
{
    static const uint8_t least[] = {0x80, 0x80, 0x80}, most[] = {0xbf, 0xbf, 0xbf};
    uint32_t ways = PC_DEAD;

    if (n == 1)
        return graph_byte(graph, lo[0], hi[0], next);
    if (lo[0] == hi[0])
        return graph_byte(graph, lo[0], lo[0], between(graph, lo + 1, hi + 1, n - 1, next));

    bool is_low_whole = memcmp(lo + 1, least, n - 1) == 0, is_high_whole = memcmp(hi + 1, most, n - 1) == 0;
    unsigned from = lo[0] + (is_low_whole ? 0u : 1u), to = hi[0] - (is_high_whole ? 0u : 1u);
    if (!is_low_whole)
        ways = graph_byte(graph, lo[0], lo[0], between(graph, lo + 1, most, n - 1, next));
    if (from <= to)
        ways = graph_split(
            graph, ways,
            graph_byte(graph, (uint8_t)from, (uint8_t)to, between(graph, least, most, n - 1, next)));
    if (!is_high_whole)
        ways = graph_split(graph, ways,
                           graph_byte(graph, hi[0], hi[0], between(graph, least, hi + 1, n - 1, next)));
    return ways;
}

static uint32_t wide(struct graph *graph, uint32_t lo, uint32_t hi, uint32_t next)
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
        ways = graph_split(graph, ways, between(graph, first, last, n, next));
    }
    return ways;
}

struct style {             /* how texts are spelled */
    bool is_raw;           /* as themselves; else as in a JSON string */
    uint32_t end;          /* behind the last character */
    uint32_t beyond_ascii; /* raw: the rule of any one character of two bytes and more */
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
                           : wide(graph, edge->lo, edge->hi, next));
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
    return edge->hi < 0x80 ? ways : graph_split(graph, ways, wide(graph, edge->lo, edge->hi, next));
}

/* A place's number, made when it is new. */
static uint32_t place_of(struct graph *graph, uint32_t *places, uint32_t index)
{
    if (places[index] == 0)
        places[index] = graph_node(graph, (struct node){.kind = NODE_SPLIT, .next = PC_DEAD, .a = PC_DEAD});
    return places[index];
}

static void write_place(struct graph *graph, const struct dfa *dfa, struct bounds chars,
                        const struct style *style, uint32_t *places, uint32_t index)
{
    uint32_t n = dfa->n_states, state = index % n, count = index / n, ways = PC_DEAD;
    const struct dfa_state *at = &dfa->states[state];
    uint32_t after = chars.max == GRAPH_UNBOUNDED && count >= chars.min ? count : count + 1;

    for (uint32_t i = 0; i < at->n_edges && count < chars.max; i++) {
        const struct dfa_edge *edge = &dfa->edges[at->edges + i];
        uint32_t to = place_of(graph, places, after * n + edge->to);
        ways =
            graph_split(graph, ways,
                        style->is_raw ? write_raw_edge(graph, style, edge, to) : write_edge(graph, edge, to));
    }
    if (!graph->is_full)
        graph->nodes[places[index]].next = ways;
}

static int write_all(struct graph *graph, const struct dfa *dfa, struct bounds chars,
                     const struct style *style, uint32_t *pc_out)
{
    uint32_t n_counts = (chars.max == GRAPH_UNBOUNDED ? chars.min : chars.max) + 1;

    if ((uint64_t)n_counts * dfa->n_states > (style->is_raw ? MAX_RAW_PLACES : MAX_PLACES))
        return E_LIMIT;
    uint32_t n_places = n_counts * dfa->n_states;
    uint32_t *places = calloc(n_places, sizeof(*places));
    if (places == NULL)
        return E_NOMEM;
    *pc_out = place_of(graph, places, 0);
    /* counts only rise, but within one count states lead anywhere: go over it until nothing new comes up */
    uint8_t *is_written = calloc(n_places, 1);
    for (bool is_new = is_written != NULL; is_new && !graph->is_full;) {
        is_new = false;
        for (uint32_t i = 0; i < n_places && !graph->is_full; i++) {
            if (places[i] == 0 || is_written[i])
                continue;
            is_written[i] = 1;
            is_new = true;
            write_place(graph, dfa, chars, style, places, i);
            if (dfa->states[i % dfa->n_states].is_final && i / dfa->n_states >= chars.min && !graph->is_full)
                graph->nodes[places[i]].a = style->end;
        }
    }
    int rc = is_written == NULL ? E_NOMEM : graph_status(graph, NULL);
    free(is_written);
    free(places);
    return rc;
}

int dfa_write(struct graph *graph, const struct dfa *dfa, struct bounds chars, uint32_t next,
              uint32_t *pc_out)
{
    const struct style style = {.end = graph_byte(graph, '"', '"', next)};

    return write_all(graph, dfa, chars, &style, pc_out);
}

int dfa_write_raw(struct graph *graph, const struct dfa *dfa, struct bounds chars, uint32_t next,
                  uint32_t *pc_out)
{
    const struct style style = {.is_raw = true,
                                .end = next,
                                .beyond_ascii =
                                    graph_rule_of(graph, wide(graph, 0x80, AUTO_LAST_CODE, PC_RET))};

    return write_all(graph, dfa, chars, &style, pc_out);
}
