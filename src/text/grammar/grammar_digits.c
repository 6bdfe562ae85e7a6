/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers within bounds, digit by digit.
 *
 *     from 27 to 345:   2 digits from 27 to 99, or 3 digits from 100 to 345
 *
 *     place (digit, prefix equals the lower bound's?, prefix equals the upper bound's?, remainder)
 *         3: 0..2 --> free      4: 0..4 --> free      5: 0..5
 *         3: 3    --> still 3..  4: 4 --> still 34.
 *
 * While the written digits equal a bound's beginning, the bound's next digit limits the next one.  Once they
 * differ, any digit is allowed.  Multiples carry the remainder of the written digits.  A fraction is compared
 * the same way, with zeros for the digits that are not written.  Numbers with bounds have no exponent.
 * Bounds beyond 18 digits are ignored.
 *
 * Readers of fractions round to a double.  Rounding cannot pass an inclusive bound, but it can end at one that is
 * excluded: 99.9999999999999998 is read as 100.  So the double beside an excluded bound is the bound. */
#include "text/grammar/grammar_auto_priv.h"

#include "base/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS           18u
#define PART_DIGITS      16u
#define MAX_MULTIPLE     100u
#define STEPS_OF_WHOLE   200u               /* besides its nodes */
#define STEPS_OF_DECIMAL 4500u              /* bounds are spelled with ever more digits */
#define HIGHEST          999999999999999999 /* DIGITS nines */

/* ---- whole numbers ---- */

struct whole { /* numbers of n digits from lo to hi, with remainder 0, then next */
    struct graph *graph;
    char lo[DIGITS + 2], hi[DIGITS + 2];
    uint32_t n, multiple, next;
    uint32_t (*memo)[4]; /* [digits left][remainder] -> [is it a beginning of lo or hi]: pc + 1 */
};

static uint32_t write_digits(struct whole *w, uint32_t at, unsigned tight, uint32_t rest)
{
    if (at == w->n)
        return rest == 0 ? w->next : PC_DEAD;

    uint32_t *known = &w->memo[(w->n - at) * w->multiple + rest][tight];
    if (*known != 0)
        return *known - 1;
    if (graph_spend(w->graph, STEPS_OF_NODE) != 0)
        return PC_DEAD;
    uint32_t ways = PC_DEAD;
    char from = tight & 1 ? w->lo[at] : '0', to = tight & 2 ? w->hi[at] : '9';
    for (char digit = from; digit <= to;) {
        unsigned after =
            (tight & 1 && digit == w->lo[at] ? 1u : 0) | (tight & 2 && digit == w->hi[at] ? 2u : 0);
        uint32_t left = (rest * 10 + (uint32_t)(digit - '0')) % w->multiple;
        char last = digit;

        /* group digits that do not limit the digits after them */
        while (w->multiple == 1 && after == 0 && last < to && !(tight & 2 && last + 1 == w->hi[at]))
            last++;
        uint32_t pc = write_digits(w, at + 1, after, left);
        ways = graph_split(w->graph, ways, graph_byte(w->graph, (uint8_t)digit, (uint8_t)last, pc));
        digit = (char)(last + 1);
    }
    *known = ways + 1;
    return ways;
}

/* Writes whole numbers from lo to hi (not negative), then next. */
static int write_whole(struct graph *graph, const int64_t range[2], uint32_t multiple, uint32_t next,
                       uint32_t *pc_out)
{
    int64_t least = 1, lo = range[0], hi = range[1];
    uint32_t ways = PC_DEAD;

    *pc_out = PC_DEAD;
    if (lo > hi)
        return 0;
    if (graph_spend(graph, STEPS_OF_WHOLE + multiple * (DIGITS + 1)) != 0)
        return E_LIMIT;
    if (lo == 0)
        ways = graph_byte(graph, '0', '0', next);
    struct whole w = {.graph = graph, .multiple = multiple, .next = next};
    w.memo = calloc((DIGITS + 1) * (size_t)multiple, sizeof(*w.memo));
    if (w.memo == NULL)
        return E_NOMEM;
    for (w.n = 1; w.n <= DIGITS; w.n++, least *= 10) {
        int64_t most = least > HIGHEST / 10 ? HIGHEST : least * 10 - 1;
        int64_t from = lo > least ? lo : least, to = hi < most ? hi : most;

        if (from > to)
            continue;
        for (uint32_t i = 0; i < (DIGITS + 1) * multiple; i++) /* unlimited digits serve every length */
            memset(&w.memo[i][1], 0, 3 * sizeof(w.memo[i][1]));
        snprintf(w.lo, sizeof(w.lo), "%lld", (long long)from);
        snprintf(w.hi, sizeof(w.hi), "%lld", (long long)to);
        ways = graph_split(graph, ways, write_digits(&w, 0, 3, 0));
    }
    free(w.memo);
    *pc_out = ways;
    return 0;
}

/* ---- fractions ---- */

struct fraction { /* digits after the point; "" and no limit: any digits */
    const char *lo, *hi;
    bool is_lo_open, is_hi_open;
    uint32_t any[PART_DIGITS + 1]; /* any digits from this place on; 0: not written yet */
};

/* Writes any digits from place at, up to the maximum. */
static uint32_t write_any_part(struct graph *graph, struct fraction *f, uint32_t at, uint32_t next)
{
    f->any[PART_DIGITS] = next;
    for (uint32_t i = PART_DIGITS; i-- > at;)
        if (f->any[i] == 0)
            f->any[i] = graph_split(graph, graph_byte(graph, '0', '9', f->any[i + 1]), next);
    return f->any[at];
}

static bool grammar_digits_is_zero(const char *digits)
{
    return strspn(digits, "0") == strlen(digits);
}

/* Writes digits from place at (at most PART_DIGITS in all).  lo, hi: the rest of each bound; NULL: it no
 * longer limits. */
static uint32_t write_part(struct graph *graph, struct fraction *f, uint32_t at, const struct bounds *texts,
                           uint32_t next)
{
    bool has_lo = texts->min != GRAPH_UNBOUNDED, has_hi = texts->max != GRAPH_UNBOUNDED;
    const char *lo = has_lo ? f->lo + texts->min : "", *hi = has_hi ? f->hi + texts->max : "";
    bool may_end = (!has_lo || (grammar_digits_is_zero(lo) && !f->is_lo_open)) &&
                   (!has_hi || !grammar_digits_is_zero(hi) || !f->is_hi_open);
    uint32_t ways = may_end ? next : PC_DEAD;

    if (at == PART_DIGITS)
        return ways;
    if (!has_lo && !has_hi)
        return write_any_part(graph, f, at, next);
    char from = has_lo && *lo != '\0' ? *lo : '0', to = !has_hi ? '9' : *hi != '\0' ? *hi : '0';
    for (char digit = from; digit <= to;) {
        bool is_lo = has_lo && digit == from, is_hi = has_hi && digit == to;
        struct bounds after = {is_lo ? texts->min + (*lo != '\0') : GRAPH_UNBOUNDED,
                               is_hi ? texts->max + (*hi != '\0') : GRAPH_UNBOUNDED};
        char last = digit;

        while (!is_lo && !is_hi && last < to && !(has_hi && last + 1 == to))
            last++;
        uint32_t pc = write_part(graph, f, at + 1, &after, next);
        ways = graph_split(graph, ways, graph_byte(graph, (uint8_t)digit, (uint8_t)last, pc));
        digit = (char)(last + 1);
    }
    return ways;
}

/* Writes the end, or a point and digits, so that the fraction is within f. */
static uint32_t write_fraction(struct graph *graph, struct fraction *f, uint32_t next)
{
    struct bounds whole = {f->lo == NULL ? GRAPH_UNBOUNDED : 0, f->hi == NULL ? GRAPH_UNBOUNDED : 0}, after;
    bool may_end = (f->lo == NULL || (grammar_digits_is_zero(f->lo) && !f->is_lo_open)) &&
                   (f->hi == NULL || !grammar_digits_is_zero(f->hi) || !f->is_hi_open);
    uint32_t ways = PC_DEAD;

    /* the first digit is written here, because a point needs one */
    const char *lo = f->lo == NULL ? "" : f->lo, *hi = f->hi == NULL ? "" : f->hi;
    char from = *lo != '\0' ? *lo : '0', to = f->hi == NULL ? '9' : *hi != '\0' ? *hi : '0';
    for (char digit = from; digit <= to; digit++) {
        after.min = f->lo != NULL && digit == from ? whole.min + (*lo != '\0') : GRAPH_UNBOUNDED;
        after.max = f->hi != NULL && digit == to ? whole.max + (*hi != '\0') : GRAPH_UNBOUNDED;
        uint32_t pc = write_part(graph, f, 1, &after, next);
        ways = graph_split(graph, ways, graph_byte(graph, (uint8_t)digit, (uint8_t)digit, pc));
    }
    ways = graph_byte(graph, '.', '.', ways);
    return may_end ? graph_split(graph, next, ways) : ways;
}

/* ---- magnitudes ---- */

struct magnitude {                                                   /* not negative; is_set: hi counts */
    char lo[DIGITS + PART_DIGITS + 8], hi[DIGITS + PART_DIGITS + 8]; /* "12.5" */
    bool is_lo_open, is_hi_open;
};

/* Spells the shortest decimal that reads back as value; false: it needs too many digits. */
static bool grammar_digits_spell(double value, char out[DIGITS + PART_DIGITS + 8])
{
    for (int digits = 0; digits <= (int)PART_DIGITS; digits++) {
        snprintf(out, DIGITS + PART_DIGITS + 8, "%.*f", digits, value);
        if (strtod(out, NULL) == value)
            return true;
    }
    return false;
}

/* Replaces an excluded bound by the double beside it, if that can be written. */
static double move_inside(double bound, double towards, bool *is_open)
{
    char text[DIGITS + PART_DIGITS + 8];
    double inside = nextafter(bound, towards);

    if (!*is_open || fabs(inside) > (double)HIGHEST || !grammar_digits_spell(fabs(inside), text))
        return bound;
    *is_open = false;
    return inside;
}

static int write_magnitude(struct graph *graph, const struct magnitude *m, uint32_t next, uint32_t *pc_out)
{
    int64_t lo = strtoll(m->lo, NULL, 10), hi = strtoll(m->hi, NULL, 10), between[2] = {lo + 1, hi - 1};
    const char *lo_part = strchr(m->lo, '.'), *hi_part = strchr(m->hi, '.');
    struct fraction low = {.lo = lo_part == NULL ? "" : lo_part + 1, .is_lo_open = m->is_lo_open};
    struct fraction high = {.hi = hi_part == NULL ? "" : hi_part + 1, .is_hi_open = m->is_hi_open};
    struct fraction any = {0};
    uint32_t pc, ways = PC_DEAD;
    int rc;

    *pc_out = PC_DEAD;
    if (lo > hi)
        return 0;
    if (lo == hi) {
        low.hi = high.hi;
        low.is_hi_open = high.is_hi_open;
    }
    between[0] = between[1] = lo;
    rc = write_whole(graph, between, 1, write_fraction(graph, &low, next), &ways);
    if (rc != 0 || lo == hi) {
        *pc_out = ways;
        return rc;
    }
    between[0] = between[1] = hi;
    rc = write_whole(graph, between, 1, write_fraction(graph, &high, next), &pc);
    ways = graph_split(graph, ways, pc);
    between[0] = lo + 1;
    between[1] = hi - 1;
    if (rc == 0)
        rc = write_whole(graph, between, 1, write_fraction(graph, &any, next), &pc);
    *pc_out = rc == 0 ? graph_split(graph, ways, pc) : PC_DEAD;
    return rc;
}

static int write_decimal(struct graph *graph, const struct number_bounds *b, uint32_t next, uint32_t *pc_out)
{
    bool is_min_open = b->is_min_open, is_max_open = b->is_max_open;
    uint32_t above = PC_DEAD, below = PC_DEAD;
    int rc = 0;

    *pc_out = PC_DEAD;
    if (graph_spend(graph, STEPS_OF_DECIMAL) != 0)
        return E_LIMIT;
    double lo = b->has_min ? move_inside(b->min, INFINITY, &is_min_open) : -(double)HIGHEST;
    double hi = b->has_max ? move_inside(b->max, -INFINITY, &is_max_open) : (double)HIGHEST;
    lo = lo < -(double)HIGHEST ? -(double)HIGHEST : lo;
    hi = hi > (double)HIGHEST ? (double)HIGHEST : hi;
    if (lo > (double)HIGHEST || hi < -(double)HIGHEST || lo > hi ||
        (lo == hi && (is_min_open || is_max_open)))
        return 0;
    /* "-0.0" would be accepted below zero, so the negative side excludes 0 */
    struct magnitude up = {.is_lo_open = lo >= 0 && is_min_open, .is_hi_open = is_max_open};
    struct magnitude down = {.is_lo_open = hi >= 0 || is_max_open, .is_hi_open = is_min_open};
    if (!grammar_digits_spell(lo > 0 ? lo : 0, up.lo) || !grammar_digits_spell(hi > 0 ? hi : 0, up.hi) ||
        !grammar_digits_spell(hi < 0 ? -hi : 0, down.lo) || !grammar_digits_spell(lo < 0 ? -lo : 0, down.hi))
        return E_UNSUPPORTED;
    if (hi > 0 || (hi == 0 && !is_max_open))
        rc = write_magnitude(graph, &up, next, &above);
    if (rc == 0 && lo < 0)
        rc = write_magnitude(graph, &down, next, &below);
    *pc_out = graph_split(graph, above, graph_byte(graph, '-', '-', below));
    return rc;
}

static int write_integer(struct graph *graph, const struct number_bounds *b, uint32_t next, uint32_t *pc_out)
{
    int64_t least = b->least < -HIGHEST ? -HIGHEST : b->least, most = b->most > HIGHEST ? HIGHEST : b->most;
    int64_t up[2] = {least > 0 ? least : 0, most}, down[2] = {most < 0 ? -most : 1, -least};
    uint32_t multiple = b->multiple == 0 ? 1 : b->multiple, above, below;

    if (least > most) {
        *pc_out = PC_DEAD;
        return 0;
    }
    int rc = write_whole(graph, up, multiple, next, &above);
    if (rc == 0)
        rc = write_whole(graph, down, multiple, next, &below);
    *pc_out = rc == 0 ? graph_split(graph, above, graph_byte(graph, '-', '-', below)) : PC_DEAD;
    return rc;
}

int digits_write(struct graph *graph, const struct number_bounds *bounds, uint32_t next,
                 const char **reason_out, uint32_t *pc_out)
{
    if (bounds->multiple > MAX_MULTIPLE) {
        *reason_out = "only up to 100 can be enforced";
        return E_UNSUPPORTED;
    }
    if (bounds->is_integer)
        return write_integer(graph, bounds, next, pc_out);
    *reason_out = "more digits after the point than can be enforced";
    return write_decimal(graph, bounds, next, pc_out);
}
