/* SPDX-License-Identifier: Apache-2.0 */
/* The console: a page for browsers whose files are part of the binary.
 *
 *   GET /console, /console/FILE     on http.listen: the chat        on http.admin: the fleet
 *
 * The files hold nothing confidential and need no key.  Every request of the page carries the key that the user
 * typed in: an API key on http.listen, the admin token on http.admin. */
#ifndef SERVE_ENDPOINT_CONSOLE_PRIV_H
#define SERVE_ENDPOINT_CONSOLE_PRIV_H

#include "base/bytes.h"

struct http_exchange;

bool console_has(struct bytes path);
/* Answers GET or HEAD of a path that console_has(). */
void console_reply(struct http_exchange *exchange);

#endif
