/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a conversation from a file or the command line into the request that a server would read. */
#ifndef MODEL_RENDER_BODY_H
#define MODEL_RENDER_BODY_H

#include "serve/api/parse.h"
#include "base/fault.h"

struct render_body {
    struct bytes text;   /* a request's body; or */
    const char *user;    /* a question ... */
    const char *system;  /* ... and a system text before it, which may be NULL */
    bool continues_last; /* the answer goes on from a last message of the assistant */
};

/* Reads either API's body.  First it changes forms that only templates' examples use (calls without ids,
 * arguments as objects, tools without their wrapper).  The server's parser checks the rest.  E_FORMAT,
 * E_NOMEM, with the fault.  On success end *out with gen_request_fini(). */
int render_body_read(const struct render_body *body, struct gen_request *out, struct fault *fault);

#endif
