/* SPDX-License-Identifier: Apache-2.0 */
/* One command, run in a folder, with bounds on its time and output. */
#ifndef CLIENTS_CHAT_RUN_TESTS_H
#define CLIENTS_CHAT_RUN_TESTS_H

#include "base/bytes.h"
#include "base/fault.h"

/* Runs `sh -c command` with the folder as its working directory and an empty stdin.  Appends its output, both
 * streams, at most 64 KiB.  A last line reports a status other than 0.  After two minutes, or on Ctrl-C, the
 * command and its children are killed, and the call fails.  E_IO, E_TIMEOUT, E_CANCELLED. */
int run_tests_in(int folder_fd, const char *command, struct fault *fault, struct buf *out);

#endif
