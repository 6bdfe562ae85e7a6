/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker can do, as its HELLO states it: bits of Hello.abilities.  A router of a newer version does
 * not send a worker what it does not know; bits that a reader does not know mean nothing to it.  Numbers are
 * never reused. */
#ifndef PROTO_ABILITIES_H
#define PROTO_ABILITIES_H

#include <stdint.h>

/* A bit for what an old worker would ignore or answer wrongly, not for each field.  name(bit, what it is
 * called) */
#define ABILITY_LIST(X)                                                                                      \
    X(GRAMMARS, 1, "answers of a given shape")      /* Submit.constraint */                                  \
    X(LOGPROBS, 2, "log probabilities")             /* Sampling.wants_logprob, n_top */                      \
    X(ASKED, 3, "asked pushes")                     /* ASK is understood, and Submit.holder */               \
    X(SCORES, 4, "log probabilities of the prompt") /* Submit.score_from */                                  \
    X(NARROW, 5, "tokens of two or three bytes")    /* Submit.token_bytes */                                 \
    X(TELLS, 6, "block events for peers")           /* BLOCKS_WANTED of a peer, and Ask.tenant */

#define ABILITY_N             7 /* the first is that any are stated */
#define X(name, number, text) ABILITY_##name = 1 << (number),
enum ability { ABILITY_STATED = 1, ABILITY_LIST(X) };
#undef X

/* All that this version has. */
uint64_t abilities_own(void);
/* What a HELLO states.  Workers older than the field can do what protocol 1 had before it: all but scores. */
uint64_t abilities_read(uint64_t stated);
/* The lowest of these bits in words; "" for none or unknown ones. */
const char *ability_text(uint64_t bits);

#endif
