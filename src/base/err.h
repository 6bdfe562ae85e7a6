/* SPDX-License-Identifier: Apache-2.0 */
/* One table of result codes for the whole project.
 *
 * A function that can fail returns int: 0 or a count on success, else one of these negative codes.  The
 * first function that knows the cause picks the code.  Its callers pass the code on, handle it, or log
 * it.
 * How to change it: docs/changes-api.md, "An error code, or a status of error answers". */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#define ERR_TABLE(X)                                                                                         \
    X(E_NOMEM, -1001, "out of memory")                                                                       \
    X(E_INVAL, -1002, "invalid argument")                                                                    \
    X(E_RANGE, -1003, "value out of range")                                                                  \
    X(E_FORMAT, -1004, "malformed input")                                                                    \
    X(E_TRUNCATED, -1005, "input ends too early")                                                            \
    X(E_UNSUPPORTED, -1006, "not supported")                                                                 \
    X(E_IO, -1007, "input/output error")                                                                     \
    X(E_AGAIN, -1008, "not now, try again")                                                                  \
    X(E_FULL, -1009, "no room")                                                                              \
    X(E_CLOSED, -1010, "closed")                                                                             \
    X(E_TIMEOUT, -1011, "timed out")                                                                         \
    X(E_CANCELLED, -1012, "cancelled")                                                                       \
    X(E_AUTH, -1013, "not authenticated")                                                                    \
    X(E_PROTO, -1014, "protocol violation")                                                                  \
    X(E_VERSION, -1015, "version mismatch")                                                                  \
    X(E_MISMATCH, -1016, "fingerprint mismatch")                                                             \
    X(E_NOT_FOUND, -1017, "not found")                                                                       \
    X(E_EXISTS, -1018, "exists already")                                                                     \
    X(E_LIMIT, -1019, "limit exceeded")                                                                      \
    X(E_KV_FULL, -1020, "no free KV blocks")                                                                 \
    X(E_OVERLOADED, -1021, "overloaded")                                                                     \
    X(E_PEER, -1022, "peer failed")                                                                          \
    X(E_INTERNAL, -1023, "internal error")                                                                   \
    X(E_CONSTRAINT, -1024, "the answer cannot match its constraint")                                         \
    X(E_NUMERICS, -1025, "the model computes numbers that are not finite")

enum err {
#define X(name, value, text) name = value,
    ERR_TABLE(X)
#undef X
};

/* Return "E_NOMEM" and "out of memory".  A code outside the table gives "E_?" and "unknown error".  Never
 * NULL. */
const char *err_name(int code);
const char *err_text(int code);

#endif
