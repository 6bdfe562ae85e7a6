/* SPDX-License-Identifier: Apache-2.0 */
/* The graph that constraints and schemas are compiled into.
 *
 *     rule  ->o--byte-->o--call other-->o--split-->o--byte-->(RET)
 *                                         \------->(RET)
 *
 * It is written from its end to its beginning: each function takes the node to continue at and returns the
 * node to begin at.  So only loops need a node before it is filled.  Rules are called and return, so a value
 * can contain values.  A call may name a rule that is not written yet.
 *
 * At the end, graph_finish() computes each node's least number of bytes to the end of its rule.  It is the
 * fixed point of dist(byte) = 1 + dist(next),  dist(split) = the lesser,  dist(call) = dist(rule) +
 * dist(next).  The distances have three uses.  A part that cannot end is never entered, so no answer gets
 * stuck.  A part with distance 0 may be empty.  A run that is short of tokens knows the shortest way out.
 *
 * Two constructs would make the search for the next byte endless, and are refused here: a rule that calls
 * itself before it reads a byte, and a repetition of a part that may be empty. */
#include "text/grammar/grammar_priv.h"

#include "base/check.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

bool graph_grow(void *array, uint32_t *cap, uint32_t n, size_t size)
{
    if (n <= *cap)
        return true;

    uint32_t more = *cap < 64 ? 64 : *cap;
    while (more < n)
        more *= 2;
    void *grown = realloc(*(void **)array, more * size);
    if (grown == NULL)
        return false;
    *(void **)array = grown;
    *cap = more;
    return true;
}

static uint32_t grammar_graph_fail(struct graph *graph, int code)
{
    if (!graph->is_full)
        graph->code = code;
    graph->is_full = true;
    return PC_DEAD;
}

int graph_init(struct graph *graph)
{
    *graph = (struct graph){.steps = GRAMMAR_MAX_STEPS};
    for (uint32_t i = 0; i < STR_N_PLACES; i++)
        graph_node(graph, (struct node){.kind = NODE_STR});
    graph_node(graph, (struct node){.kind = NODE_RET});
    graph_node(graph, (struct node){.kind = NODE_DEAD});
    graph->rules = NULL;
    if (graph_rule(graph) == RULE_STR && !graph->is_full)
        graph->rules[RULE_STR] = 0;
    return graph->is_full ? E_NOMEM : 0;
}

void graph_fini(struct graph *graph)
{
    for (uint32_t i = 0; i < graph->n_frees; i++) {
        free(graph->frees[i].is_hit);
        free(graph->frees[i].next);
    }
    free(graph->frees);
    free(graph->bounds);
    free(graph->rules);
    free(graph->dist);
    free(graph->nodes);
    *graph = (struct graph){0};
}

int graph_spend(struct graph *graph, uint64_t steps)
{
    if (steps < graph->steps) {
        graph->steps -= steps;
        return 0;
    }
    graph->steps = 0;
    grammar_graph_fail(graph, E_LIMIT);
    return E_LIMIT;
}

uint32_t graph_node(struct graph *graph, struct node node)
{
    if (graph->n_nodes >= GRAPH_MAX_NODES || graph_spend(graph, STEPS_OF_NODE) != 0)
        return grammar_graph_fail(graph, E_LIMIT);
    if (graph->is_full || !graph_grow(&graph->nodes, &graph->cap_nodes, graph->n_nodes + 1, sizeof(node)))
        return grammar_graph_fail(graph, E_NOMEM);
    graph->nodes[graph->n_nodes] = node;
    return graph->n_nodes++;
}

uint32_t graph_rule_of(struct graph *graph, uint32_t pc)
{
    uint32_t rule = graph_rule(graph);

    if (!graph->is_full)
        graph->rules[rule] = pc;
    return rule;
}

uint32_t graph_rule(struct graph *graph)
{
    if (graph->n_rules >= GRAPH_MAX_RULES || graph_spend(graph, STEPS_OF_NODE) != 0)
        return grammar_graph_fail(graph, E_LIMIT), RULE_STR;
    if (graph->is_full || !graph_grow(&graph->rules, &graph->cap_rules, graph->n_rules + 1, sizeof(uint32_t)))
        return grammar_graph_fail(graph, E_NOMEM), RULE_STR;
    graph->rules[graph->n_rules] = PC_DEAD;
    return graph->n_rules++;
}

static uint32_t add_bounds(struct graph *graph, struct bounds bounds)
{
    if (graph->is_full ||
        !graph_grow(&graph->bounds, &graph->cap_bounds, graph->n_bounds + 1, sizeof(bounds)))
        return grammar_graph_fail(graph, E_NOMEM), 0;
    graph->bounds[graph->n_bounds] = bounds;
    return graph->n_bounds++;
}

uint32_t graph_byte(struct graph *graph, uint8_t lo, uint8_t hi, uint32_t next)
{
    if (next == PC_DEAD)
        return PC_DEAD;
    return graph_node(graph, (struct node){.kind = NODE_BYTE, .lo = lo, .hi = hi, .next = next});
}

uint32_t graph_text(struct graph *graph, struct bytes text, uint32_t next)
{
    for (size_t i = text.len_bytes; i > 0; i--)
        next = graph_byte(graph, text.data[i - 1], text.data[i - 1], next);
    return next;
}

uint32_t graph_split(struct graph *graph, uint32_t left, uint32_t right)
{
    if (left == PC_DEAD || left == right)
        return right;
    if (right == PC_DEAD)
        return left;
    return graph_node(graph, (struct node){.kind = NODE_SPLIT, .next = left, .a = right});
}

uint32_t graph_call(struct graph *graph, uint32_t rule, uint32_t next)
{
    if (next == PC_DEAD)
        return PC_DEAD;
    return graph_node(graph, (struct node){.kind = NODE_CALL, .a = rule, .next = next});
}

uint32_t graph_string(struct graph *graph, struct bounds chars, uint32_t next)
{
    if (next == PC_DEAD || chars.min > chars.max)
        return PC_DEAD;

    uint32_t bounds = add_bounds(graph, chars);
    return graph_node(graph, (struct node){.kind = NODE_CALL, .a = RULE_STR, .b = bounds, .next = next});
}

uint32_t graph_loop(struct graph *graph, uint32_t rule, struct bounds times, uint32_t next)
{
    if (next == PC_DEAD || times.min > times.max)
        return PC_DEAD;
    if (times.max == 0)
        return next;

    uint32_t bounds = add_bounds(graph, times);
    return graph_node(graph, (struct node){.kind = NODE_LOOP, .a = rule, .b = bounds, .next = next});
}

/* ---- one of many texts ---- */

int graph_by_bytes(const void *left, const void *right)
{
    const struct bytes *a = left, *b = right;
    size_t n = a->len_bytes < b->len_bytes ? a->len_bytes : b->len_bytes;
    int order = n == 0 ? 0 : memcmp(a->data, b->data, n);

    return order != 0 ? order : (a->len_bytes > b->len_bytes) - (a->len_bytes < b->len_bytes);
}

/* Writes sorted texts that share their first depth bytes. */
static uint32_t fork_texts(struct graph *graph, const struct bytes *texts, size_t n, size_t depth,
                           uint32_t next)
{
    size_t same = depth;
    uint32_t ways = PC_DEAD;

    while (same < texts[0].len_bytes && same < texts[n - 1].len_bytes &&
           texts[0].data[same] == texts[n - 1].data[same])
        same++;
    for (size_t from = 0, to; from < n && !graph->is_full; from = to) {
        if (texts[from].len_bytes == same) {
            ways = graph_split(graph, ways, next);
            to = from + 1;
            continue;
        }
        uint8_t byte = texts[from].data[same];
        for (to = from + 1; to < n && texts[to].data[same] == byte;)
            to++;
        ways = graph_split(graph, ways, fork_texts(graph, texts + from, to - from, same, next));
    }
    return graph_text(graph, bytes_of(texts[0].data + depth, same - depth), ways);
}

uint32_t graph_texts(struct graph *graph, struct bytes *texts, size_t n, uint32_t next)
{
    if (n == 0 || next == PC_DEAD)
        return PC_DEAD;
    qsort(texts, n, sizeof(*texts), graph_by_bytes);
    return fork_texts(graph, texts, n, 0, next);
}

/* ---- free text ---- */

/* Builds the automaton of the marks: places are beginnings of marks; each transition leads to the longest one
 * that fits. */
static int build_places(struct free_text *text, const struct bytes *marks, size_t n)
{
    uint16_t *fail_to = calloc(text->n_places, sizeof(*fail_to));
    uint16_t *queue = calloc(text->n_places, sizeof(*queue));
    size_t from = 0, to = 0;
    uint16_t used = 1;

    for (size_t i = 0; i < n && fail_to != NULL && queue != NULL; i++) {
        uint16_t at = 0;
        for (size_t j = 0; j < marks[i].len_bytes; j++) {
            uint16_t *slot = &text->next[at][marks[i].data[j]];
            if (*slot == 0)
                *slot = used++;
            at = *slot;
        }
        text->is_hit[at] = 1;
        text->starts[marks[i].data[0] >> 3] |= (uint8_t)(1u << (marks[i].data[0] & 7));
    }
    for (queue[to++] = 0; fail_to != NULL && queue != NULL && from < to;) {
        uint16_t at = queue[from++];
        text->is_hit[at] |= text->is_hit[fail_to[at]];
        for (unsigned byte = 0; byte < 256; byte++) {
            uint16_t child = text->next[at][byte];
            uint16_t other = at == 0 ? 0 : text->next[fail_to[at]][byte];
            if (child == 0) {
                text->next[at][byte] = other;
            } else {
                fail_to[child] = other;
                queue[to++] = child;
            }
        }
    }
    int rc = fail_to == NULL || queue == NULL ? E_NOMEM : 0;
    free(fail_to);
    free(queue);
    return rc;
}

int graph_free(struct graph *graph, const struct bytes *marks, size_t n, uint32_t max_tokens,
               uint32_t *index_out)
{
    size_t n_places = 1;

    for (size_t i = 0; i < n; i++)
        n_places += marks[i].len_bytes;
    if (n_places > 4096 || graph->n_frees >= 64)
        return E_LIMIT;

    struct free_text *grown = realloc(graph->frees, (graph->n_frees + 1) * sizeof(*grown));
    if (grown == NULL)
        return E_NOMEM;
    graph->frees = grown;

    struct free_text *text = &graph->frees[graph->n_frees];
    *text = (struct free_text){.max_tokens = max_tokens, .n_places = (uint16_t)n_places};
    text->is_hit = calloc(n_places, 1);
    text->next = calloc(n_places, sizeof(*text->next));
    *index_out = graph->n_frees++;
    return text->is_hit == NULL || text->next == NULL ? E_NOMEM : build_places(text, marks, n);
}

/* ---- the end ---- */

int graph_status(const struct graph *graph, struct fault *fault)
{
    if (!graph->is_full)
        return 0;
    return fault_set(fault, graph->code,
                     graph->code != E_LIMIT ? "out of memory"
                     : graph->steps == 0    ? "too much work for one request"
                                            : "grammar too large");
}

static uint32_t grammar_graph_sum(uint64_t a, uint64_t b)
{
    return a + b >= GRAPH_FAR ? GRAPH_FAR : (uint32_t)(a + b);
}

static uint32_t dist_now(const struct graph *graph, uint32_t pc)
{
    const struct node *node = &graph->nodes[pc];
    const uint32_t *dist = graph->dist;
    uint64_t min;

    switch ((enum node_kind)node->kind) {
    case NODE_STR:
        return grammar_graph_sum(string_dist((uint8_t)pc), 1);
    case NODE_RET:
        return 0;
    case NODE_DEAD:
        return GRAPH_FAR;
    case NODE_BYTE:
    case NODE_TOKEN:
        return grammar_graph_sum(1, dist[node->next]);
    case NODE_FREE:
        return dist[node->next];
    case NODE_SPLIT:
        return dist[node->next] < dist[node->a] ? dist[node->next] : dist[node->a];
    case NODE_CALL:
        min = node->a == RULE_STR ? graph->bounds[node->b].min : 0;
        return grammar_graph_sum(grammar_graph_sum(min, dist[graph->rules[node->a]]), dist[node->next]);
    case NODE_LOOP:
        min = graph->bounds[node->b].min;
        return grammar_graph_sum(min == 0 ? 0 : min * dist[graph->rules[node->a]], dist[node->next]);
    }
    return GRAPH_FAR;
}

/* Nodes in the order of their distances (Knuth's generalisation of Dijkstra's algorithm).  A node's distance
 * is never less than a part of it, so the distance of the nearest open node is final. */
struct nearest {
    uint64_t *heap; /* distance << 32 | pc */
    size_t n, cap;
    uint32_t *users; /* nodes that use node pc: users[from[pc] .. from[pc + 1]) */
    uint32_t *from;
};

static bool grammar_graph_heap_push(struct nearest *nearest, uint64_t item)
{
    if (nearest->n == nearest->cap) {
        size_t cap = nearest->cap == 0 ? 256 : nearest->cap * 2;
        uint64_t *grown = realloc(nearest->heap, cap * sizeof(*grown));
        if (grown == NULL)
            return false;
        nearest->heap = grown;
        nearest->cap = cap;
    }
    size_t at = nearest->n++;
    for (; at > 0 && nearest->heap[(at - 1) / 2] > item; at = (at - 1) / 2)
        nearest->heap[at] = nearest->heap[(at - 1) / 2];
    nearest->heap[at] = item;
    return true;
}

static uint64_t grammar_graph_heap_pop(struct nearest *nearest)
{
    uint64_t top = nearest->heap[0], item = nearest->heap[--nearest->n];
    size_t at = 0;

    for (size_t child = 1; child < nearest->n; child = 2 * at + 1) {
        child += child + 1 < nearest->n && nearest->heap[child + 1] < nearest->heap[child];
        if (nearest->heap[child] >= item)
            break;
        nearest->heap[at] = nearest->heap[child];
        at = child;
    }
    nearest->heap[at] = item;
    return top;
}

/* The nodes whose distances make up the node's distance. */
static uint32_t parts_of(const struct graph *graph, const struct node *node, uint32_t parts[2])
{
    switch ((enum node_kind)node->kind) {
    case NODE_STR:
    case NODE_RET:
    case NODE_DEAD:
        return 0;
    case NODE_BYTE:
    case NODE_TOKEN:
    case NODE_FREE:
        parts[0] = node->next;
        return 1;
    case NODE_SPLIT:
        parts[0] = node->next;
        parts[1] = node->a;
        return 2;
    case NODE_CALL:
    case NODE_LOOP:
        parts[0] = node->next;
        parts[1] = graph->rules[node->a];
        return 2;
    }
    return 0;
}

static bool list_users(const struct graph *graph, struct nearest *nearest)
{
    uint32_t parts[2];

    nearest->from = calloc((size_t)graph->n_nodes + 2, sizeof(*nearest->from));
    nearest->users = malloc(2 * (size_t)graph->n_nodes * sizeof(*nearest->users));
    if (nearest->from == NULL || nearest->users == NULL)
        return false;
    for (uint32_t pc = 0; pc < graph->n_nodes; pc++)
        for (uint32_t i = parts_of(graph, &graph->nodes[pc], parts); i > 0; i--)
            nearest->from[parts[i - 1] + 2]++;
    for (uint32_t pc = 2; pc <= graph->n_nodes; pc++)
        nearest->from[pc] += nearest->from[pc - 1];
    for (uint32_t pc = 0; pc < graph->n_nodes; pc++)
        for (uint32_t i = parts_of(graph, &graph->nodes[pc], parts); i > 0; i--)
            nearest->users[nearest->from[parts[i - 1] + 1]++] = pc;
    return true;
}

static int find_distances(struct graph *graph)
{
    struct nearest nearest = {0};

    graph->dist = malloc(graph->n_nodes * sizeof(*graph->dist));
    bool is_well = graph->dist != NULL && list_users(graph, &nearest);
    for (uint32_t i = 0; i < graph->n_nodes && is_well; i++)
        graph->dist[i] = GRAPH_FAR;
    for (uint32_t pc = 0; pc <= PC_RET && is_well; pc++)
        is_well = grammar_graph_heap_push(&nearest, (uint64_t)dist_now(graph, pc) << 32 | pc);
    while (is_well && nearest.n > 0) {
        uint64_t top = grammar_graph_heap_pop(&nearest);
        uint32_t pc = (uint32_t)top;

        if (graph->dist[pc] < GRAPH_FAR || top >> 32 >= GRAPH_FAR)
            continue;
        graph->dist[pc] = (uint32_t)(top >> 32);
        for (uint32_t i = nearest.from[pc]; i < nearest.from[pc + 1] && is_well; i++) {
            uint32_t user = nearest.users[i], dist = dist_now(graph, user);
            if (dist < GRAPH_FAR && graph->dist[user] >= GRAPH_FAR)
                is_well = grammar_graph_heap_push(&nearest, (uint64_t)dist << 32 | user);
        }
    }
    free(nearest.heap);
    free(nearest.users);
    free(nearest.from);
    return is_well ? 0 : E_NOMEM;
}

/* Finds a path that returns to a node without reading.  Depth first; a node is OPEN while the search is below
 * it. */
enum { UNSEEN, OPEN, DONE };

static uint32_t grammar_graph_onward(const struct graph *graph, uint32_t pc, uint32_t which)
{
    const struct node *node = &graph->nodes[pc];
    bool is_empty;

    switch ((enum node_kind)node->kind) {
    case NODE_STR:
    case NODE_RET:
    case NODE_DEAD:
    case NODE_BYTE:
    case NODE_TOKEN:
        return PC_DEAD;
    case NODE_FREE:
        return which == 0 ? node->next : PC_DEAD;
    case NODE_SPLIT:
        return which == 0 ? node->next : node->a;
    case NODE_CALL:
        is_empty = graph->dist[graph->rules[node->a]] == 0;
        return which == 0 ? graph->rules[node->a] : is_empty ? node->next : PC_DEAD;
    case NODE_LOOP:
        is_empty = graph->bounds[node->b].min == 0;
        return which == 0 ? graph->rules[node->a] : is_empty ? node->next : PC_DEAD;
    }
    return PC_DEAD;
}

static int look_from(const struct graph *graph, uint32_t pc, uint8_t *marks, uint32_t *way)
{
    uint32_t depth = 0;

    way[depth] = pc;
    marks[pc] = OPEN;
    for (uint8_t which = 0;;) {
        uint32_t to = which < 2 ? grammar_graph_onward(graph, way[depth], which) : PC_DEAD;

        if (to != PC_DEAD && marks[to] == OPEN)
            return E_UNSUPPORTED;
        if (to != PC_DEAD && marks[to] == UNSEEN) {
            marks[to] = OPEN;
            way[++depth] = to;
            which = 0;
            continue;
        }
        if (which < 1) {
            which++;
            continue;
        }
        marks[way[depth]] = DONE;
        if (depth == 0)
            return 0;
        /* back in the caller: take the second way if the first led here */
        which = grammar_graph_onward(graph, way[depth - 1], 0) == way[depth] ? 1 : 2;
        depth--;
    }
}

static int look_for_circles(const struct graph *graph, uint32_t *pc_out)
{
    uint8_t *marks = calloc(graph->n_nodes, 1);
    uint32_t *way = malloc(graph->n_nodes * sizeof(*way));
    int rc = marks == NULL || way == NULL ? E_NOMEM : 0;

    for (uint32_t pc = 0; pc < graph->n_nodes && rc == 0; pc++) {
        *pc_out = pc;
        if (marks[pc] == UNSEEN)
            rc = look_from(graph, pc, marks, way);
    }
    free(marks);
    free(way);
    return rc;
}

int graph_finish(struct graph *graph, struct fault *fault, uint32_t *pc_out)
{
    int rc = graph_status(graph, fault);

    *pc_out = 0;

    if (rc != 0)
        return rc;
    rc = find_distances(graph);
    if (rc != 0)
        return fault_set(fault, rc, "out of memory");
    *pc_out = graph->rules[graph->start];
    if (graph->dist[*pc_out] >= GRAPH_FAR)
        return fault_set(fault, E_FORMAT, GRAPH_NO_END);
    for (*pc_out = 0; *pc_out < graph->n_nodes; ++*pc_out)
        if (graph->nodes[*pc_out].kind == NODE_LOOP &&
            graph->dist[graph->rules[graph->nodes[*pc_out].a]] == 0)
            return fault_set(fault, E_UNSUPPORTED, "a repetition of something that may be empty");
    rc = look_for_circles(graph, pc_out);
    if (rc == E_UNSUPPORTED)
        return fault_set(fault, rc, "something refers to itself with nothing before it");
    return rc == 0 ? 0 : fault_set(fault, rc, "out of memory");
}
