/* SPDX-License-Identifier: Apache-2.0 */
/* The tools that baton-chat --tools gives a model: look, search, read, write and edit in one folder, and run
 * its tests.  Nothing outside of the folder can be reached by them; what the tests' command does is the
 * user's choice. */
#ifndef CLIENTS_CHAT_TOOLS_H
#define CLIENTS_CHAT_TOOLS_H

#include "clients/chat/folder.h"

#define TOOLS_MAX_RESULT_BYTES 8192 /* what a model gets to see of one result */

struct tools {
    struct folder folder;
    char *test_command; /* owned; run by sh in the folder; NULL: there is no run_tests */
    bool is_scratch;    /* the folder was made by tools_open_scratch() */
};

/* Works in a folder that is there. */
int tools_open(const char *path, const char *test_command, struct fault *fault, struct tools *out);
/* Makes a new folder with a small project in it; it stays afterwards. */
int tools_open_scratch(struct fault *fault, struct tools *out);
void tools_close(struct tools *tools); /* a zeroed one is fine */

/* Appends the JSON array for the request's "tools".  E_NOMEM. */
int tools_put_definitions(const struct tools *tools, struct buf *out);
/* Does what a call asks; input is its JSON.  The result, valid UTF-8, is appended to out.  Returns whether it
 * went well; otherwise the result says why. */
bool tools_run(const struct tools *tools, struct bytes name, struct bytes input, struct buf *out);

#endif
