/* SPDX-License-Identifier: Apache-2.0 */
/* A store of values by key, as the remote tier's threads use it: one interface, one file for each kind of store, one
 * row for each in store.c.
 *
 *     remote_io.c --> struct store_ops --> store_redis.c   Redis, Valkey, and clusters of them
 *                                          store_s3.c      object stores with Amazon's S3 interface
 *
 * Calls wait, but never longer than a stall limit without progress.  A result < 0 means that the store did not
 * answer at all; else each item has its own result.  One thread for each object.
 * How to change it: docs/changes-worker.md, "A kind of shared store". */
#ifndef CACHE_REMOTE_STORE_H
#define CACHE_REMOTE_STORE_H

#include <stdatomic.h>

#include "base/bytes.h"
#include "base/fault.h"

struct store_opts {
    const char *url;     /* borrowed for the call that opens */
    const char *login;   /* "user:password" or "password", used where the URL has none; may be empty */
    const char *ca_path; /* certificates that sign the server's; empty: the system's */
    uint64_t lifetime_s; /* of a value after its last use; 0: for ever */
    uint64_t stall_ns;   /* without progress for so long: E_TIMEOUT */
    size_t value_bytes;  /* of the longest value */
    const atomic_bool *is_ending; /* set: waits end with E_CANCELLED */
    bool writes;                  /* the object is used to write: what it sees must not be out of date */
    unsigned number;              /* of this object among those of a tier: they spread their reads by it */
};

struct store_item {
    const char *key;
    uint64_t from_bytes, len_bytes; /* get: the part of the value */
    uint64_t value_bytes;           /* has: set to the value's length */
    int result; /* 0, E_NOT_FOUND (has, get), E_EXISTS (put), E_FULL (put), or why the item failed */
};

struct store_reader { /* values are borrowed for the call; i: of the item */
    /* The beginning of a value while the rest arrives, longer with each call; the first of these calls has no bytes.  Not
     * all stores call it.  A value whose connection was cut may begin anew, with the same bytes or others. */
    void (*on_part)(void *arg, unsigned i, struct bytes beginning);
    void (*on_value)(void *arg, unsigned i, struct bytes value);
    void *arg;
};

struct store_values {
    const struct bytes *all; /* [n] the lengths are set; the bytes are there once fill() returned */
    /* Makes the first len_bytes of value i, unless they are there.  So the store sends the beginning of a value before
     * the rest is made.  Calls for one value may repeat.  < 0: the value cannot be made. */
    int (*fill)(void *arg, unsigned i, size_t len_bytes);
    void *arg;
};

struct store_ops {
    const char *kind;
    const char *schemes;                                    /* of its URLs, as a list for an error text */
    bool (*url_is)(const char *url);                        /* whether it begins with one of the schemes */
    int (*url_check)(const char *url, struct fault *fault); /* E_FORMAT */
    bool has_login;    /* its URLs may hold a user and a password, up to the last @ */
    bool has_options;  /* the query of its URLs says how the store is read, and not which one it is */
    double keys_per_s; /* of has(), a guess until it is measured */
    int (*open)(const struct store_opts *opts, struct fault *fault, void **out); /* sends nothing */
    void (*close)(void *store);
    /* Whether the store answers.  With advice (may be NULL) also whether it permits what a worker does, and appends which
     * of the store's settings do not suit a cache. */
    int (*test)(void *store, struct buf *advice, struct fault *fault);
    /* An empty value counts as not there. */
    int (*has)(void *store, struct store_item *items, unsigned n, struct fault *fault);
    /* Calls on_value for each part while it is there; a value that ends early gives a shorter part. */
    int (*get)(void *store, struct store_item *items, unsigned n, const struct store_reader *reader,
               struct fault *fault);
    /* Keeps a value that is there already. */
    int (*put)(void *store, struct store_item *items, const struct store_values *values, unsigned n,
               struct fault *fault);
    /* Renews lifetimes that get() could not renew.  Called after results were told.  NULL: there are none. */
    void (*renew)(void *store);
    int (*remove)(void *store, struct store_item *item, struct fault *fault);
};

extern const struct store_ops store_redis, store_s3;

/* The kind of store that the URL names; NULL: none. */
const struct store_ops *store_ops_of(const char *url);
/* Checks the URL without a connection.  E_FORMAT. */
int store_url_check(const char *url, struct fault *fault);
/* The URL without its login, for logs and status, and as the store's name among workers. */
void store_url_public(const char *url, char *out, size_t out_bytes);

#endif
