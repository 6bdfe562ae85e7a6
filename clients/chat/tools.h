/* SPDX-License-Identifier: Apache-2.0 */
/* The tools that baton-chat --tools gives a model: look, search, read, write and edit in one folder, and run
 * its tests.  The tools cannot reach anything outside of the folder.  The user chooses the tests' command and
 * answers for its effects. */
#ifndef CLIENTS_CHAT_TOOLS_H
#define CLIENTS_CHAT_TOOLS_H

#include "clients/chat/folder.h"

#define TOOLS_MAX_RESULT_BYTES 8192 /* bound of one result for the model */

struct tools {
    struct folder folder;
    char *test_command; /* owned; run by sh in the folder; NULL: run_tests does not exist */
    bool is_scratch;    /* the folder was made by tools_open_scratch() */
};

/* Works in an existing folder. */
int tools_open(const char *path, const char *test_command, struct fault *fault, struct tools *out);
/* Makes a new folder with a small project in it.  The folder is not deleted afterwards. */
int tools_open_scratch(struct fault *fault, struct tools *out);
void tools_close(struct tools *tools); /* a zeroed one is fine */

/* Appends the JSON array for the request's "tools".  E_NOMEM. */
int tools_put_definitions(const struct tools *tools, struct buf *out);
/* Runs a call; input is its JSON.  Appends the result, valid UTF-8, to out.  Returns whether the call
 * succeeded; otherwise the result gives the reason. */
bool tools_run(const struct tools *tools, struct bytes name, struct bytes input, struct buf *out);

#endif
