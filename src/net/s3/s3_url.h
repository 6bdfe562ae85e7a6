/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of object stores: s3://bucket[/prefix][?endpoint=http://host:port&region=name]
 *
 * Without an endpoint the store is Amazon's, in the region (us-east-1).  With one, the bucket is the first part of
 * the path, as MinIO, Ceph, Garage and other stores expect it.  Pure; any thread. */
#ifndef NET_S3_S3_URL_H
#define NET_S3_S3_URL_H

#include <stdbool.h>

#include "base/bytes.h"
#include "base/fault.h"

struct s3_url {
    char base[512];   /* "https://host:port" */
    char host[256];   /* "host:port", as the Host header has it */
    char prefix[512]; /* encoded path before the key: "/bucket/prefix/" or "/" */
    char region[64];
};

bool s3_url_is(const char *text);
int s3_url_parse(const char *text, struct fault *fault, struct s3_url *out); /* E_FORMAT */

#endif
