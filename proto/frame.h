/* SPDX-License-Identifier: Apache-2.0 */
/* The frame around every control message, and the table of all messages.
 *
 *    0      4        6       8         12
 *    magic  version  type    length    payload (protobuf, length bytes)
 *
 * Little endian. magic is "BTN1".  A frame longer than its type allows closes the link.  A reader skips
 * unknown types, so that a rolling upgrade works, and refuses unknown versions.
 * How to change it: docs/changes-fleet.md, "A message on the link". */
#ifndef PROTO_FRAME_H
#define PROTO_FRAME_H

#include <protobuf-c/protobuf-c.h>

#include "base/bytes.h"
#include "base/fault.h"
#include "proto/control.pb-c.h"

#define FRAME_HEADER_BYTES 12
#define FRAME_MAGIC        UINT32_C(0x314e5442)
#define FRAME_VERSION      1

/* All messages, in lists by the ends that receive them.  Each end handles its own lists and ignores the others.
 * name, number (24 was CONTROL, now retired), protobuf type (c_name, snake), largest payload in bytes */
/* Any two ends: the link itself handles these. */
#define FRAMES_LINK(X)                                                                                       \
    X(HELLO, 1, Hello, hello, 64 << 10)                                                                      \
    X(REFUSED, 2, Refused, refused, 4 << 10)
/* Any two ends. */
#define FRAMES_ALL(X)                                                                                        \
    X(HEARTBEAT, 3, Heartbeat, heartbeat, 64 << 10)                                                          \
    X(GOODBYE, 4, Goodbye, goodbye, 4 << 10)
/* From workers to routers. */
#define FRAMES_ROUTER(X)                                                                                     \
    X(VOCABULARY_PART, 11, VocabularyPart, vocabulary_part, (1 << 20) + 4096)                                \
    X(TOKENS, 22, Tokens, tokens, 1 << 20)                                                                   \
    X(RESUMED, 27, Resumed, resumed, (16 << 20) + 1024)                                                      \
    X(STORE_BLOCKS, 53, StoreBlocks, store_blocks, 1 << 20)                                                  \
    X(FETCHED, 73, Fetched, fetched, (2 << 20) + 4096)                                                       \
    X(LISTED, 76, Listed, listed, 16 << 10)                                                                  \
    X(PROBED, 81, Probed, probed, 16 << 10)
/* From routers to workers. */
#define FRAMES_WORKER(X)                                                                                     \
    X(VOCABULARY_WANTED, 10, VocabularyWanted, vocabulary_wanted, 4 << 10)                                   \
    X(SUBMIT, 20, Submit, submit, 16 << 20)                                                                  \
    X(CANCEL, 21, Cancel, cancel, 4 << 10)                                                                   \
    X(PROCEED, 23, Proceed, proceed, 4 << 10)                                                                \
    X(SUBMIT_TOKENS, 25, SubmitTokens, submit_tokens, 1 << 20)                                               \
    X(RESUME, 26, Resume, resume, 4 << 10)                                                                   \
    X(BLOCKS_LAST, 52, BlocksLast, blocks_last, 1 << 20)                                                     \
    X(SET_ROLE, 60, SetRole, set_role, 4 << 10)                                                              \
    X(KEEP, 71, Keep, keep, (2 << 20) + 4096)                                                                \
    X(FETCH, 72, Fetch, fetch, 16 << 10)                                                                     \
    X(LIST_KEPT, 75, ListKept, list_kept, 4 << 10)                                                           \
    X(PROBE, 80, Probe, probe, 64 << 10)
/* Between workers: the engine thread handles them. */
#define FRAMES_PEER(X)                                                                                       \
    X(OFFER, 30, Offer, offer, 64 << 10)                                                                     \
    X(GRANT, 31, Grant, grant, 1 << 20)                                                                      \
    X(GRANT_REFUSED, 32, GrantRefused, grant_refused, 4 << 10)                                               \
    X(PREFILL_DONE, 33, PrefillDone, prefill_done, 64 << 10)                                                 \
    X(TRANSFER_DONE, 34, TransferDone, transfer_done, 4 << 10)                                               \
    X(TRANSFER_CANCEL, 35, TransferCancel, transfer_cancel, 4 << 10)                                         \
    X(TRANSFER_STOPPED, 36, TransferStopped, transfer_stopped, 4 << 10)                                      \
    X(ASK, 40, Ask, ask, 4 << 20)                                                                            \
    X(ASK_REFUSED, 41, AskRefused, ask_refused, 4 << 10)
/* From workers to routers and workers. */
#define FRAMES_ROUTER_PEER(X) X(BLOCK_EVENTS, 50, BlockEvents, block_events, 1 << 20)
/* From routers and workers to workers. */
#define FRAMES_WORKER_PEER(X) X(BLOCKS_WANTED, 51, BlocksWanted, blocks_wanted, 4 << 10)
/* Between routers and workers, both ways. */
#define FRAMES_ROUTER_WORKER(X)                                                                              \
    X(SPENDING, 70, Spending, spending, 64 << 10)                                                            \
    X(ROUTER_MESSAGE, 74, RouterMessage, router_message, (64 << 10) + 64)
#define FRAME_TABLE(X)                                                                                       \
    FRAMES_LINK(X)                                                                                           \
    FRAMES_ALL(X)                                                                                            \
    FRAMES_ROUTER(X)                                                                                         \
    FRAMES_WORKER(X)                                                                                         \
    FRAMES_PEER(X)                                                                                           \
    FRAMES_ROUTER_PEER(X)                                                                                    \
    FRAMES_WORKER_PEER(X)                                                                                    \
    FRAMES_ROUTER_WORKER(X)

#define FRAME_CASE(name, number, ctype, snake, max_bytes) case FRAME_##name:

enum frame_type {
#define X(name, number, ctype, snake, max_bytes) FRAME_##name = number,
    FRAME_TABLE(X)
#undef X
};

struct frame_header {
    uint16_t version;
    uint16_t type;
    uint32_t len_bytes;
};

#define FRAME_SINGLE_BYTES 16

/* Rows and acknowledgements of one SPENDING, and the limits in a row. */
#define FRAME_SPENDING_ROWS  256
#define FRAME_SPENDING_ACKS  15
#define FRAME_SPENDING_KINDS 16 /* room for later limits: a longer list closes the link of an older end */
#define FRAME_SPENDING_ID    16 /* bytes of an account's name */

/* A value that a worker keeps, its name and its life, and the names of one FETCH or LISTED. */
#define FRAME_KEPT_BYTES  (UINT64_C(2) << 20)
#define FRAME_KEPT_NAME   79
#define FRAME_KEPT_LIFE_S 172800
#define FRAME_KEPT_NAMES  64

/* Bytes of a request's or an answer's id, and of a tenant's name. */
#define FRAME_REQUEST_ID 39
#define FRAME_TENANT     63

/* Addresses of one PROBE. */
#define FRAME_PROBE_ADDRESSES 160

/* Tokens of a prompt, and of a worker's context: as many as SUBMIT's 16 MiB can hold. */
#define FRAME_MAX_TOKENS (UINT64_C(4) << 20)

/* Entries of Sampling.bias, and the most likely tokens beside a sampled one: as many as the sampler takes. */
#define FRAME_MAX_BIAS 1024
#define FRAME_MAX_TOP  20

/* Bytes of Submit.constraint. */
#define FRAME_MAX_CONSTRAINT (UINT64_C(1) << 20)

/* Tokens of one SUBMIT to a worker that takes prompts in pieces, and of one SUBMIT_TOKENS at most. */
#define FRAME_PIECE_TOKENS (UINT64_C(64) << 10)

/* Most numbers of an embedding: 256 KiB of them, a quarter of the largest TOKENS frame. */
#define FRAME_EMBEDDING_DIMS 65536

struct frame_single { /* an Answer of one token, packed in Tokens.singles */
    uint64_t request;
    uint32_t index, id; /* Answer.first_index and the only element of Answer.ids */
};

const char *frame_type_name(uint16_t type); /* "SUBMIT"; "?" if unknown */
bool frame_type_known(uint16_t type);
uint32_t frame_max_bytes(uint16_t type); /* unknown types: 1 MiB */

void frame_header_pack(const struct frame_header *header, uint8_t out[FRAME_HEADER_BYTES]);
/* E_PROTO: wrong magic, or length beyond the type's limit.  E_VERSION. */
int frame_header_unpack(const uint8_t in[FRAME_HEADER_BYTES], struct fault *fault, struct frame_header *out);

/* Appends header and packed message to out.  E_LIMIT, E_NOMEM. */
int frame_pack(enum frame_type type, const ProtobufCMessage *message, struct buf *out);
/* Unpacks a payload and checks it: required text present, enums in range, lengths bounded.  The table of
 * limits is in frame_check.c.  Free the message with frame_message_free().  E_PROTO; the fault names the
 * field. */
int frame_unpack(enum frame_type type, struct bytes payload, struct fault *fault, ProtobufCMessage **out);
void frame_message_free(ProtobufCMessage *message);

void frame_single_pack(const struct frame_single *single, uint8_t out[FRAME_SINGLE_BYTES]);
struct frame_single frame_single_unpack(const uint8_t in[FRAME_SINGLE_BYTES]);

/* Bytes for each token of a SUBMIT (proto/token_list.h). */
static inline uint32_t frame_token_bytes(const Baton__Submit *submit)
{
    return submit->token_bytes == 0 ? 4 : submit->token_bytes;
}

#endif
