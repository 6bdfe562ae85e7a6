/* SPDX-License-Identifier: Apache-2.0 */
/* The error that a client gets when its request fails: HTTP status, type, text, and a code where one is
 * defined. */
#ifndef SERVE_API_ERROR_H
#define SERVE_API_ERROR_H

#include "base/bytes.h"

struct api_error {
    int status;
    const char *type;  /* "invalid_request_error", ... static */
    const char *code;  /* details.error_code, static; NULL: none */
    bool names_thread; /* details.unsupported is ["thread"] */
    uint32_t retry_after_s;
    char message[1024]; /* may be cut; made valid UTF-8 when rendered */
};

const char *api_error_type(int status); /* the type that belongs to a status */
/* Fills error (type by status, no code) and returns E_FORMAT, so that a parser can return its result. */
__attribute__((format(printf, 3, 4))) int api_fail(struct api_error *error, int status, const char *format,
                                                   ...);

/* Appends {"error":{"message":...,"type":...,"param":...,"code":...}}, the form that OpenAI's clients
 * read. When a message begins with the path of a field ("messages.0.role: ..."), param is that path in
 * OpenAI's form ("messages[0].role"). */
int api_put_openai_error(struct buf *out, const struct api_error *error);

/* Appends the path of a field in OpenAI's form, as a JSON string. */
void api_put_openai_path(struct buf *out, const char *path, size_t len_bytes);

/* Appends {"type":"error","error":{...},"request_id":"..."}.  A NULL request_id is left out (error
 * events). */
int api_put_error(struct buf *out, const struct api_error *error, const char *request_id);

#endif
