/* SPDX-License-Identifier: Apache-2.0 */
/* One command, run in a folder, with bounds on its time and output. */
#ifndef CLIENTS_CHAT_RUN_TESTS_H
#define CLIENTS_CHAT_RUN_TESTS_H

#include "base/bytes.h"
#include "base/fault.h"

/* `sh -c command` with the folder as its working directory and nothing to read.  Its output, both streams, is
 * appended (at most 64 KiB); a status other than 0 is said in a last line.  It and its children are killed
 * after two minutes or on Ctrl-C, which is a failure.  E_IO, E_TIMEOUT, E_CANCELLED. */
int run_tests_in(int folder_fd, const char *command, struct fault *fault, struct buf *out);

#endif
