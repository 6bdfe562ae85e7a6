/* SPDX-License-Identifier: Apache-2.0 */
/* The capabilities of a worker, as its HELLO states them: bits of Hello.capabilities.  A router sends a worker only
 * messages and fields that the worker's capabilities cover.  A reader ignores unknown bits.  Numbers are never
 * reused. */
#ifndef PROTO_CAPABILITIES_H
#define PROTO_CAPABILITIES_H

#include <stdint.h>

/* Add a bit only for a feature that an old worker would ignore or answer wrongly, not for each field.
 * X(name, bit, text) */
#define CAPABILITY_LIST(X)                                                                                   \
    X(GRAMMARS, 1, "constrained answers")             /* Submit.constraint */                                \
    X(LOGPROBS, 2, "log probabilities")               /* Sampling.wants_logprob, n_top */                    \
    X(ASKED, 3, "asked pushes")                       /* the worker accepts ASK and Submit.owner */          \
    X(SCORES, 4, "log probabilities of the prompt")   /* Submit.score_from */                                \
    X(NARROW, 5, "tokens of two or three bytes")      /* Submit.token_bytes */                               \
    X(TELLS, 6, "block events for peers")             /* BLOCKS_WANTED from a peer, and Ask.tenant */        \
    X(ROLES, 7, "roles that change")                  /* SET_ROLE */                                         \
    X(PIECES, 8, "prompts in pieces")                 /* Submit.n_tokens_later, SUBMIT_TOKENS */             \
    X(RESUMES, 9, "streams that outlive a router")    /* Submit.resume, RESUME, FINISH_MOVED */              \
    X(SPENDING, 10, "limits common to routers")       /* SPENDING */                                         \
    X(PROBES, 11, "checks of the network")            /* PROBE */                                            \
    X(EMBEDDINGS, 12, "embeddings")                   /* Submit.wants_embedding */                           \
    X(KEEPS, 13, "values kept for routers")           /* KEEP, FETCH */                                      \
    X(ROUTER_MESSAGE, 14, "messages between routers") /* ROUTER_MESSAGE, LoadReport.n_routers */             \
    X(LISTS, 15, "lists of values kept")              /* LIST_KEPT, Fetch.mark, Keep.mark */

#define CAPABILITY_N          16 /* including CAPABILITY_STATED */
#define X(name, number, text) CAPABILITY_##name = 1 << (number),
enum capability { CAPABILITY_STATED = 1, CAPABILITY_LIST(X) };
#undef X

/* The capabilities of this version. */
uint64_t capabilities_own(void);
/* The capabilities that a HELLO states.  A worker older than the field states 0, which means GRAMMARS,
 * LOGPROBS and ASKED: the features of protocol 1 before the field. */
uint64_t capabilities_read(uint64_t stated);
/* The lowest of these bits in words; "" when none is known. */
const char *capability_text(uint64_t bits);

#endif
