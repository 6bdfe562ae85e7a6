/* SPDX-License-Identifier: Apache-2.0 */
/* The regular expressions of ECMA-262, as JSON Schema uses them, parsed into an automaton.
 *
 *     pattern := sequence ('|' sequence)*        piece := atom quantifier?
 *
 *     start --> (any)* --> pattern --> (any)* --> match        found anywhere, unless ^ and $ say otherwise
 *
 * Each part becomes nodes from its own start to its own end.  Parts are chained by an edge from one end to
 * the next start.  {n,m} repeats a part by copying its nodes, within the limit on nodes.  ^ and $ are nodes
 * that let through at one place only, so they may be anywhere.
 *
 * Constructs that are not regular (look-around, back-references) or not supported (word boundaries, \p
 * classes, flags) are refused by name.  \d and \w are ASCII, as in ECMA-262. */
#include "text/grammar/grammar_auto_priv.h"

#include "base/err.h"
#include "base/str.h"

#include <string.h>

#define MAX_PATTERN_BYTES 4096u
#define MAX_GROUPS        60u
#define NO_NODE           UINT32_MAX

struct part {
    uint32_t from, to; /* to: an NFA_GO whose next is not set yet */
};

struct regex {
    struct bytes text;
    size_t at;
    struct nfa *nfa;
    uint32_t depth;
    int rc;
    const char *reason;
};

static struct part read_choice(struct regex *r);

static void grammar_regex_fail(struct regex *r, int rc, const char *reason)
{
    if (r->rc == 0) {
        r->rc = rc;
        r->reason = reason;
    }
}

static bool is_more(const struct regex *r)
{
    return r->rc == 0 && r->at < r->text.len_bytes;
}

static bool grammar_regex_sees(const struct regex *r, const char *text)
{
    size_t n = strlen(text);

    return r->text.len_bytes - r->at >= n && memcmp(r->text.data + r->at, text, n) == 0;
}

static bool grammar_regex_skips(struct regex *r, const char *text)
{
    if (!grammar_regex_sees(r, text))
        return false;
    r->at += strlen(text);
    return true;
}

static uint32_t grammar_regex_node(struct regex *r, struct nfa_node made)
{
    uint32_t index = r->rc == 0 ? nfa_node(r->nfa, made) : NO_NODE;

    if (index == NO_NODE)
        grammar_regex_fail(r, E_LIMIT, "too large");
    return index == NO_NODE ? 0 : index;
}

static struct part grammar_regex_empty(struct regex *r)
{
    uint32_t go = grammar_regex_node(r, (struct nfa_node){.kind = NFA_GO});

    return (struct part){go, go};
}

static void grammar_regex_connect(struct regex *r, uint32_t from, uint32_t to)
{
    if (r->rc == 0)
        r->nfa->nodes[from].next = to;
}

static struct part grammar_regex_guarded(struct regex *r, enum nfa_kind kind)
{
    struct part end = grammar_regex_empty(r);

    return (struct part){grammar_regex_node(r, (struct nfa_node){.kind = kind, .next = end.from}), end.to};
}

/* ---- sets of characters ---- */

struct set { /* disjoint and ascending after tidying */
    struct code_range ranges[256];
    uint32_t n;
};

static void grammar_regex_add(struct regex *r, struct set *set, uint32_t lo, uint32_t hi)
{
    if (set->n == sizeof(set->ranges) / sizeof(set->ranges[0]))
        grammar_regex_fail(r, E_LIMIT, "a class with too many ranges");
    else
        set->ranges[set->n++] = (struct code_range){lo, hi};
}

static void grammar_regex_tidy(struct set *set)
{
    uint32_t n = 0;

    for (uint32_t i = 1; i < set->n; i++) {
        struct code_range moved = set->ranges[i];
        uint32_t j = i;
        for (; j > 0 && set->ranges[j - 1].lo > moved.lo; j--)
            set->ranges[j] = set->ranges[j - 1];
        set->ranges[j] = moved;
    }
    for (uint32_t i = 0; i < set->n; i++) {
        if (n > 0 && set->ranges[i].lo <= set->ranges[n - 1].hi + 1) {
            if (set->ranges[i].hi > set->ranges[n - 1].hi)
                set->ranges[n - 1].hi = set->ranges[i].hi;
        } else {
            set->ranges[n++] = set->ranges[i];
        }
    }
    set->n = n;
}

static void grammar_regex_invert(struct regex *r, struct set *set)
{
    struct set other = {.n = 0};
    uint32_t from = 0;

    grammar_regex_tidy(set);
    for (uint32_t i = 0; i < set->n; i++) {
        if (set->ranges[i].lo > from)
            grammar_regex_add(r, &other, from, set->ranges[i].lo - 1);
        from = set->ranges[i].hi + 1;
    }
    if (from <= AUTO_LAST_CODE)
        grammar_regex_add(r, &other, from, AUTO_LAST_CODE);
    *set = other;
}

static struct part of_set(struct regex *r, struct set *set)
{
    struct part end = grammar_regex_empty(r);
    struct nfa_node made = {.kind = NFA_SET, .next = end.from, .set = r->nfa->n_ranges};

    grammar_regex_tidy(set);
    made.n_set = set->n;
    for (uint32_t i = 0; i < set->n && r->rc == 0; i++)
        if (nfa_range(r->nfa, set->ranges[i].lo, set->ranges[i].hi) != 0)
            grammar_regex_fail(r, E_LIMIT, "too large");
    return (struct part){grammar_regex_node(r, made), end.to};
}

/* Adds \d \w \s or an opposite; false: it is none of them. */
static bool add_shorthand(struct regex *r, struct set *set, uint8_t name)
{
    struct set own = {.n = 0};

    switch (name | 0x20) {
    case 'd':
        grammar_regex_add(r, &own, '0', '9');
        break;
    case 'w':
        grammar_regex_add(r, &own, '0', '9');
        grammar_regex_add(r, &own, 'A', 'Z');
        grammar_regex_add(r, &own, '_', '_');
        grammar_regex_add(r, &own, 'a', 'z');
        break;
    case 's':
        grammar_regex_add(r, &own, '\t', '\r');
        grammar_regex_add(r, &own, ' ', ' ');
        grammar_regex_add(r, &own, 0xa0, 0xa0);
        grammar_regex_add(r, &own, 0x1680, 0x1680);
        grammar_regex_add(r, &own, 0x2000, 0x200a);
        grammar_regex_add(r, &own, 0x2028, 0x2029);
        grammar_regex_add(r, &own, 0x202f, 0x202f);
        grammar_regex_add(r, &own, 0x205f, 0x205f);
        grammar_regex_add(r, &own, 0x3000, 0x3000);
        grammar_regex_add(r, &own, 0xfeff, 0xfeff);
        break;
    default:
        return false;
    }
    if (name < 'a')
        grammar_regex_invert(r, &own);
    for (uint32_t i = 0; i < own.n; i++)
        grammar_regex_add(r, set, own.ranges[i].lo, own.ranges[i].hi);
    return true;
}

/* ---- characters ---- */

static uint32_t read_hex(struct regex *r, uint32_t n)
{
    uint32_t code = 0;

    for (uint32_t i = 0; i < n; i++, r->at++) {
        uint8_t byte = r->at < r->text.len_bytes ? r->text.data[r->at] : 0;
        uint8_t low = byte | 0x20;

        if (byte >= '0' && byte <= '9')
            code = code * 16 + (byte - '0');
        else if (low >= 'a' && low <= 'f')
            code = code * 16 + (low - 'a' + 10u);
        else {
            grammar_regex_fail(r, E_FORMAT, "an escape without its hexadecimal digits");
            return 0;
        }
    }
    return code;
}

static uint32_t read_unicode(struct regex *r)
{
    uint32_t n = 0;

    if (!grammar_regex_skips(r, "{")) {
        uint32_t code = read_hex(r, 4);
        if (code < 0xd800 || code > 0xdfff)
            return code;
        uint32_t low = code < 0xdc00 && grammar_regex_skips(r, "\\u") ? read_hex(r, 4) : 0;
        if (low < 0xdc00 || low > 0xdfff)
            grammar_regex_fail(r, E_FORMAT, "half of a surrogate pair");
        return 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    while (n < 8 && r->at + n < r->text.len_bytes && r->text.data[r->at + n] != '}')
        n++;
    uint32_t code = n == 0 || n > 6 ? AUTO_LAST_CODE + 1 : read_hex(r, n);
    if (code > AUTO_LAST_CODE || (code >= 0xd800 && code <= 0xdfff) || !grammar_regex_skips(r, "}"))
        grammar_regex_fail(r, E_FORMAT, "\\u{...} is no character");
    return code;
}

/* Reads the rest of an escape: one character. */
static uint32_t grammar_regex_read_escape(struct regex *r)
{
    static const char letters[] = "tnrfv", meant[] = "\t\n\r\f\v";
    uint8_t byte = r->text.data[r->at++];
    const char *letter = byte == 0 ? NULL : strchr(letters, byte);

    if (letter != NULL)
        return (uint8_t)meant[letter - letters];
    switch (byte) {
    case 'x':
        return read_hex(r, 2);
    case 'u':
        return read_unicode(r);
    case 'c':
        if (r->at < r->text.len_bytes &&
            ((r->text.data[r->at] | 0x20) >= 'a' && (r->text.data[r->at] | 0x20) <= 'z'))
            return r->text.data[r->at++] & 0x1f;
        grammar_regex_fail(r, E_FORMAT, "\\c without its letter");
        return 0;
    case '0':
        return 0;
    case 'k':
        grammar_regex_fail(r, E_UNSUPPORTED, "back-references are not supported");
        return 0;
    case 'p':
    case 'P':
        grammar_regex_fail(r, E_UNSUPPORTED, "character properties (\\p) are not supported");
        return 0;
    case 'b':
    case 'B':
        grammar_regex_fail(r, E_UNSUPPORTED, "word boundaries (\\b) are not supported");
        return 0;
    }
    if (byte >= '1' && byte <= '9')
        grammar_regex_fail(r, E_UNSUPPORTED, "back-references are not supported");
    else if ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z')
        grammar_regex_fail(r, E_FORMAT, "an escape that is not known");
    else if (byte >= 0x80)
        r->at--;
    else
        return byte;
    return r->rc == 0 ? '\\' : 0;
}

static uint32_t read_character(struct regex *r)
{
    size_t n;

    if (r->text.data[r->at] == '\\') {
        r->at++;
        if (r->at == r->text.len_bytes) {
            grammar_regex_fail(r, E_FORMAT, "ends in a backslash");
            return 0;
        }
        return grammar_regex_read_escape(r);
    }
    uint32_t code = utf8_next(r->text, r->at, &n);
    r->at += n;
    return code;
}

/* Reads one side of a range.  True: it was a shorthand, which cannot bound a range. */
static bool read_class_item(struct regex *r, struct set *set, uint32_t *code_out)
{
    if (r->text.data[r->at] == '\\' && r->at + 1 < r->text.len_bytes) {
        uint8_t name = r->text.data[r->at + 1];
        if (add_shorthand(r, set, name)) {
            r->at += 2;
            return true;
        }
        if (name == 'b' || name == '-') { /* in a class, \b is a backspace */
            r->at += 2;
            *code_out = name == 'b' ? '\b' : '-';
            return false;
        }
    }
    *code_out = read_character(r);
    return false;
}

static struct part read_class(struct regex *r)
{
    struct set set = {.n = 0};
    bool is_inverted = grammar_regex_skips(r, "^");

    while (is_more(r) && !grammar_regex_sees(r, "]")) {
        uint32_t lo, hi;

        if (read_class_item(r, &set, &lo) || r->rc != 0)
            continue;
        hi = lo;
        if (grammar_regex_sees(r, "-") && r->at + 1 < r->text.len_bytes && r->text.data[r->at + 1] != ']') {
            r->at++;
            if (read_class_item(r, &set, &hi)) {
                grammar_regex_add(r, &set, '-', '-');
                hi = lo;
            }
        }
        if (lo > hi)
            grammar_regex_fail(r, E_FORMAT, "a range that ends before it begins");
        else
            grammar_regex_add(r, &set, lo, hi);
    }
    if (!grammar_regex_skips(r, "]"))
        grammar_regex_fail(r, E_FORMAT, "a class without its ]");
    if (is_inverted)
        grammar_regex_invert(r, &set);
    return of_set(r, &set);
}

/* ---- parts ---- */

static struct part read_group(struct regex *r)
{
    if (grammar_regex_skips(r, "?=") || grammar_regex_skips(r, "?!") || grammar_regex_skips(r, "?<=") ||
        grammar_regex_skips(r, "?<!")) {
        grammar_regex_fail(r, E_UNSUPPORTED, "look-around is not supported");
    } else if (grammar_regex_skips(r, "?<")) {
        while (is_more(r) && !grammar_regex_sees(r, ">"))
            r->at++;
        if (!grammar_regex_skips(r, ">"))
            grammar_regex_fail(r, E_FORMAT, "a group's name without its >");
    } else if (!grammar_regex_skips(r, "?:") && grammar_regex_sees(r, "?")) {
        grammar_regex_fail(r, E_UNSUPPORTED, "flags and other (?...) groups are not supported");
    }
    if (r->depth >= MAX_GROUPS)
        grammar_regex_fail(r, E_LIMIT, "groups nested too deeply");
    if (r->rc != 0)
        return grammar_regex_empty(r);
    r->depth++;
    struct part part = read_choice(r);
    r->depth--;
    if (!grammar_regex_skips(r, ")"))
        grammar_regex_fail(r, E_FORMAT, "a ( without its )");
    return part;
}

static struct part read_atom(struct regex *r)
{
    struct set set = {.n = 0};

    if (grammar_regex_skips(r, "("))
        return read_group(r);
    if (grammar_regex_skips(r, "["))
        return read_class(r);
    if (grammar_regex_skips(r, "^"))
        return grammar_regex_guarded(r, NFA_BEGIN);
    if (grammar_regex_skips(r, "$"))
        return grammar_regex_guarded(r, NFA_END);
    if (grammar_regex_skips(r, ".")) {
        grammar_regex_add(r, &set, '\n', '\n');
        grammar_regex_add(r, &set, '\r', '\r');
        grammar_regex_add(r, &set, 0x2028, 0x2029);
        grammar_regex_invert(r, &set);
        return of_set(r, &set);
    }
    if (grammar_regex_sees(r, "*") || grammar_regex_sees(r, "+") || grammar_regex_sees(r, "?")) {
        grammar_regex_fail(r, E_FORMAT, "nothing to repeat");
        return grammar_regex_empty(r);
    }
    if (r->text.data[r->at] == '\\' && r->at + 1 < r->text.len_bytes &&
        add_shorthand(r, &set, r->text.data[r->at + 1])) {
        r->at += 2;
        return of_set(r, &set);
    }
    uint32_t code = read_character(r);
    grammar_regex_add(r, &set, code, code);
    return of_set(r, &set);
}

static bool grammar_regex_read_number(struct regex *r, uint32_t *out)
{
    uint32_t number = 0;
    size_t from = r->at;

    while (r->at < r->text.len_bytes && r->text.data[r->at] >= '0' && r->text.data[r->at] <= '9') {
        if (number < 100000)
            number = number * 10 + (r->text.data[r->at] - '0');
        r->at++;
    }
    *out = number;
    return r->at > from;
}

/* Reads a quantifier.  False: none follows. */
static bool read_quantifier(struct regex *r, struct bounds *times)
{
    size_t from = r->at;

    if (grammar_regex_skips(r, "*")) {
        *times = (struct bounds){0, GRAPH_UNBOUNDED};
    } else if (grammar_regex_skips(r, "+")) {
        *times = (struct bounds){1, GRAPH_UNBOUNDED};
    } else if (grammar_regex_skips(r, "?")) {
        *times = (struct bounds){0, 1};
    } else if (grammar_regex_skips(r, "{")) {
        if (!grammar_regex_read_number(r, &times->min)) {
            r->at = from; /* a literal { */
            return false;
        }
        times->max = times->min;
        if (grammar_regex_skips(r, ",") && !grammar_regex_read_number(r, &times->max))
            times->max = GRAPH_UNBOUNDED;
        if (!grammar_regex_skips(r, "}")) {
            r->at = from;
            return false;
        }
        if (times->min > times->max)
            grammar_regex_fail(r, E_FORMAT, "a repetition with its bounds the wrong way round");
    } else {
        return false;
    }
    grammar_regex_skips(r, "?"); /* lazy: matches the same texts */
    return true;
}

/* part or nothing. */
static struct part grammar_regex_optional(struct regex *r, struct part part)
{
    return (struct part){
        grammar_regex_node(r, (struct nfa_node){.kind = NFA_SPLIT, .next = part.from, .other = part.to}),
        part.to};
}

static struct part grammar_regex_repeated(struct regex *r, struct part part)
{
    struct part end = grammar_regex_empty(r);
    uint32_t fork =
        grammar_regex_node(r, (struct nfa_node){.kind = NFA_SPLIT, .next = part.from, .other = end.from});

    grammar_regex_connect(r, part.to, fork);
    return (struct part){fork, end.to};
}

/* Copies the nodes begin .. end.  They lead only to each other and out of their part's end, which each copy
 * connects anew.  Copies share their sets. */
static struct part grammar_regex_copied(struct regex *r, struct part part, uint32_t begin, uint32_t end)
{
    uint32_t shift = r->nfa->n_nodes - begin;

    for (uint32_t i = begin; i < end && r->rc == 0; i++) {
        struct nfa_node made = r->nfa->nodes[i];

        if (made.next >= begin && made.next < end)
            made.next += shift;
        if (made.other >= begin && made.other < end)
            made.other += shift;
        grammar_regex_node(r, made);
    }
    return (struct part){part.from + shift, part.to + shift};
}

static struct part read_piece(struct regex *r)
{
    uint32_t begin = r->nfa->n_nodes;
    struct bounds times;
    struct part part = read_atom(r);

    if (r->rc != 0)
        return part;
    if (!read_quantifier(r, &times))
        return part;
    uint32_t n = times.max == GRAPH_UNBOUNDED ? times.min + 1 : times.max;
    if (n > AUTO_MAX_NODES / 2)
        grammar_regex_fail(r, E_LIMIT, "repeated too often");
    uint32_t end = r->nfa->n_nodes;
    struct part first = part, whole = grammar_regex_empty(r);
    for (uint32_t i = 0; i < n && r->rc == 0; i++) {
        if (i > 0)
            part = grammar_regex_copied(r, first, begin, end);
        if (times.max == GRAPH_UNBOUNDED && i == times.min)
            part = grammar_regex_repeated(r, part);
        else if (i >= times.min)
            part = grammar_regex_optional(r, part);
        grammar_regex_connect(r, whole.to, part.from);
        whole.to = part.to;
    }
    return whole;
}

static struct part read_sequence(struct regex *r)
{
    struct part whole = grammar_regex_empty(r);

    while (is_more(r) && !grammar_regex_sees(r, "|") && !grammar_regex_sees(r, ")")) {
        struct part piece = read_piece(r);
        grammar_regex_connect(r, whole.to, piece.from);
        whole.to = piece.to;
    }
    return whole;
}

static struct part read_choice(struct regex *r)
{
    struct part whole = read_sequence(r);

    while (r->rc == 0 && grammar_regex_skips(r, "|")) {
        struct part other = read_sequence(r), end = grammar_regex_empty(r);
        uint32_t fork = grammar_regex_node(
            r, (struct nfa_node){.kind = NFA_SPLIT, .next = whole.from, .other = other.from});
        grammar_regex_connect(r, whole.to, end.from);
        grammar_regex_connect(r, other.to, end.from);
        whole = (struct part){fork, end.to};
    }
    return whole;
}

static struct part grammar_regex_anything(struct regex *r)
{
    struct set set = {.n = 0};

    grammar_regex_add(r, &set, 0, AUTO_LAST_CODE);
    return grammar_regex_repeated(r, of_set(r, &set));
}

int regex_parse(struct bytes pattern, struct nfa *nfa, const char **reason_out)
{
    struct regex r = {.text = pattern, .nfa = nfa};

    *nfa = (struct nfa){.anything = UINT32_MAX};
    if (pattern.len_bytes > MAX_PATTERN_BYTES)
        grammar_regex_fail(&r, E_LIMIT, "too long");
    else if (utf8_valid_prefix(pattern) != pattern.len_bytes)
        grammar_regex_fail(&r, E_FORMAT, "not UTF-8");
    struct part before = grammar_regex_anything(&r), found = read_choice(&r),
                after = grammar_regex_anything(&r);
    if (r.rc == 0 && r.at < pattern.len_bytes)
        grammar_regex_fail(&r, E_FORMAT, "a ) without its (");
    grammar_regex_connect(&r, before.to, found.from);
    grammar_regex_connect(&r, found.to, after.from);
    grammar_regex_connect(&r, after.to, grammar_regex_node(&r, (struct nfa_node){.kind = NFA_MATCH}));
    nfa->start = before.from;
    nfa->anything = after.from;
    if (r.rc != 0)
        nfa_fini(nfa);
    *reason_out = r.reason;
    return r.rc;
}
