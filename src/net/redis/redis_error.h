/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of a Redis or Valkey server, as text for an operator.  Pure; any thread. */
#ifndef NET_REDIS_REDIS_ERROR_H
#define NET_REDIS_REDIS_ERROR_H

#include "net/redis/redis_url.h"

/* Sets the fault to the server's error.  Where the URL or the login is the cause, the text says that instead.  Returns
 * code. */
int redis_error_fault(const struct redis_url *url, struct bytes error, int code, struct fault *fault);

#endif
