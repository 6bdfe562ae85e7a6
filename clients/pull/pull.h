/* SPDX-License-Identifier: Apache-2.0 */
/* Fetching model files.
 *
 *     hf:owner/name:Q4_K_M  --pull_name-->  struct pull_name          an https address is a name too
 *     GET .../tree/main     --pull_list-->  files with size and SHA-256, of which one model is chosen
 *     GET .../resolve/...   --pull_http-->  the address of the bytes, after redirects
 *     a copy on this machine --pull_reuse-> NAME, a link
 *     ranges of the file    --pull_get--->  NAME.part, NAME.part.state
 *     SHA-256               --pull_store->  NAME, NAME.sha256
 *
 * pull_name, pull_list and pull_state are pure and read outside input; any bytes may come. */
#ifndef CLIENTS_PULL_PULL_H
#define CLIENTS_PULL_PULL_H

#include "base/bytes.h"
#include "base/fault.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* ---- names ---- */

enum { PULL_NAME_BYTES = 128, PULL_URL_BYTES = 2048, PULL_PATH_BYTES = 1024 };

struct pull_name {
    bool is_hub;
    char owner[PULL_NAME_BYTES], repo[PULL_NAME_BYTES];
    char pick[PULL_PATH_BYTES]; /* quantisation or file of the repository; "": not said */
    char url[PULL_URL_BYTES];   /* unless is_hub */
    char path[PULL_PATH_BYTES]; /* unless is_hub: where the file is kept, HOST/FOLDERS/FILE */
};

/* True if the text names something to fetch and not a local file: it begins with hf:, http: or https:. */
bool pull_is_name(const char *text);
/* E_FORMAT, with the reason. */
int pull_name_read(const char *text, struct pull_name *out, struct fault *fault);
/* True if a path from outside stays inside its folder: plain components, no hidden ones, no control bytes. */
bool pull_path_is_safe(struct bytes path);

/* ---- the hub's list ---- */

struct pull_file {
    char *path; /* in the repository */
    uint64_t size_bytes;
    char sha256[65]; /* "": the hub gives none */
};
struct pull_list { /* a zeroed struct is empty */
    struct pull_file *files;
    size_t n;
    const char *usual; /* the quantisation that pull_list_choose() took because pick named none, else NULL */
};

/* True if the path is that of a model: a GGUF file, but no projector, importance matrix or draft head. */
bool pull_path_is_model(struct bytes path);

int pull_list_add(struct pull_list *list, struct bytes path, uint64_t size_bytes, const char *sha256);
/* Appends the GGUF files of a page of the hub's tree. E_FORMAT, E_LIMIT, E_NOMEM. */
int pull_list_read(struct pull_list *list, struct bytes json, struct fault *fault);
void pull_list_fini(struct pull_list *list);
/* Keeps the files of the one model that pick names, its parts in order; any part names it. An empty pick is the only
 * model, or that of a usual quantisation. With no match or several: E_NOT_FOUND, and options_out lists the models. */
int pull_list_choose(struct pull_list *list, const char *pick, struct buf *options_out, struct fault *fault);

/* ---- state of an unfinished download ---- */

#define PULL_MAX_SEGMENTS 4096

struct pull_state {
    uint64_t size_bytes, segment_bytes;
    char id[128];                           /* SHA-256 or ETag: a change makes the bytes useless */
    uint64_t done_bytes[PULL_MAX_SEGMENTS]; /* from the start of each segment */
};

uint32_t pull_state_segments(const struct pull_state *state);
uint64_t pull_state_segment_end(const struct pull_state *state, uint32_t segment); /* offset in the file */
uint64_t pull_state_done(const struct pull_state *state);                          /* bytes */
void pull_state_start(struct pull_state *state, uint64_t size_bytes, const char *id);
int pull_state_put(const struct pull_state *state, struct buf *out);
int pull_state_read(struct bytes text, struct pull_state *out); /* E_FORMAT */

/* ---- the network ---- */

struct pull_opts {
    const char *endpoint; /* of the hub, without a last slash */
    const char *token;    /* NULL: none. Sent to the endpoint's scheme, host and port only */
    uint32_t n_connections;
    uint32_t stall_s; /* a connection without a byte for this long is cut */
    bool is_quiet;
    bool
        is_brief; /* the caller can do without the hub's list: it is asked for twice, for some seconds only */
    bool (*is_cancelled)(void);
};

struct pull_source {              /* where a file's bytes are */
    char url[PULL_URL_BYTES * 4]; /* after redirects */
    uint64_t size_bytes;
    char sha256[65]; /* "": not known */
    char etag[128];
    bool has_ranges;
};

int pull_http_init(void);
/* Fetches a page of text, after a failure that may pass several times. next_out: the address of the next page, ""
 * after the last. A refusal by status is E_AUTH (401, 403), E_NOT_FOUND (404), E_OVERLOADED (429), E_PEER
 * (5xx) or E_PROTO; no answer is E_PEER or E_TIMEOUT. */
int pull_http_page(const struct pull_opts *opts, const char *url, struct buf *body,
                   char next_out[PULL_URL_BYTES], struct fault *fault);
/* Follows redirects to the bytes of a file and learns their number. */
int pull_http_find(const struct pull_opts *opts, const char *url, struct pull_source *out,
                   struct fault *fault);
/* Sets the fault's text for an error status of a request to url. retry_out: the same request may succeed later. */
int pull_http_status(const struct pull_opts *opts, const char *url, long status, bool *retry_out,
                     struct fault *fault);
bool pull_is_same_origin(const char *a, const char *b);

/* Downloads url into path, which appears when it is complete. Continues PATH.part if the file is still the same.
 * sha256 and size_bytes: as the hub's list says, "" and 0 where unknown. E_CANCELLED leaves PATH.part. */
int pull_get(const struct pull_opts *opts, const char *url, const char *path,
             const struct pull_file *expected, struct fault *fault);

/* ---- the folder ---- */

#define PULL_SYSTEM_FOLDER "/var/lib/baton/models" /* an administrator's models */

/* The folder for models: to_dir, else /var/lib/baton/models if it exists and can be written, else
 * $XDG_CACHE_HOME/baton/models or ~/.cache/baton/models. */
int pull_store_folder(const char *to_dir, struct buf *out, struct fault *fault);
/* True if path is complete and has this digest. With an empty digest: true if it exists, and is no link to a file that changed
 * since its digest was computed. */
bool pull_store_has(const char *path, const struct pull_file *expected);
/* The digest in PATH.sha256: what a complete file had when it came. "": there is none, or path is a link to a file that changed
 * since. */
void pull_store_digest(const char *path, char out[65]);
/* The digest of the bytes that path has. E_IO, E_CANCELLED. */
int pull_store_compute(const struct pull_opts *opts, const char *path, char out[65], struct fault *fault);
/* The same of a file that stays as it is meanwhile, and when its reading began. E_IO: it changed. */
int pull_store_compute_still(const struct pull_opts *opts, const char *path, char out[65],
                             struct timespec *begun_out, struct fault *fault);
/* Writes PATH.sha256, which gets that time: of a link, it holds until its target changes. A failure leaves none. */
void pull_store_keep_digest(const char *path, const char *sha256, const struct timespec *begun);
/* Computes a digest that is absent, or of a link whose target changed, again. Returns 1 if the bytes of path have the expected
 * one, or with an empty one, that which was kept; 0; E_CANCELLED. */
int pull_store_recheck(const struct pull_opts *opts, const char *path, const struct pull_file *expected,
                       struct fault *fault);
void pull_store_remove(const char *path); /* the file and its digest */
/* Removes the file and its digest unless it begins as GGUF; the fault says what it is. A server may answer with a page,
 * such as a login. Without a digest nothing else shows that, and the page would keep the model's name. E_IO: the file
 * could not be read, and stays. */
int pull_store_drop_page(const char *path, struct fault *fault);
/* Checks PATH.part against the digest, gives it its name and writes PATH.sha256. */
int pull_store_finish(const struct pull_opts *opts, const char *path, const char *sha256,
                      struct fault *fault);
int pull_store_make_folders(const char *path, struct fault *fault); /* those above a file */
/* Appends all GGUF files below folder/prefix, with paths relative to it. */
int pull_store_list(const char *folder, struct pull_list *list);

/* Makes path a link to target, which has this digest, and writes PATH.sha256.  E_UNSUPPORTED: no link can be made there, and path
 * stays as it was. */
int pull_store_link(const char *path, const char *target, const char *sha256, const struct timespec *begun,
                    struct fault *fault);

/* ---- copies on this machine ---- */

struct pull_reuse {     /* folders of one model, or NULL; borrowed */
    const char *system; /* in the system's folder of models */
    const char *cache;  /* in the cache of the hub's libraries */
};

/* The system's folder of models, if this user can read it. */
bool pull_reuse_system(struct buf *out);
/* The folder of a repository in the cache of the hub's libraries, if it is there: HF_HUB_CACHE, HF_HOME/hub or
 * ~/.cache/huggingface/hub. */
bool pull_reuse_cache(const struct pull_name *name, struct buf *out);
/* The folder in it with the files of the revision that was fetched last. */
bool pull_reuse_snapshot(const char *cache, struct buf *out);
/* Sets the digests of a snapshot's files, which are the names of their blobs. False: one has none. */
bool pull_reuse_digests(const char *snapshot, struct pull_list *list);
/* Makes path a link to a copy with the expected digest, whose bytes are read once, unless its own are that. Returns 1, or 0
 * without a copy that can be used; E_CANCELLED, E_IO. */
int pull_reuse(const struct pull_opts *opts, const struct pull_reuse *places, const char *path,
               const struct pull_file *expected, struct fault *fault);
/* Pure: the revision in refs/main; the digest at the end of a blob's path. */
bool pull_reuse_revision(struct bytes text, char out[65]);
bool pull_reuse_digest(struct bytes target, char out[65]);

/* ---- progress ---- */

struct pull_progress {
    const char *what;
    uint64_t total_bytes, begin_bytes;
    uint64_t began_ns, printed_ns;
    unsigned printed_percent;
    bool is_quiet, is_terminal;
};
void pull_progress_start(struct pull_progress *progress, const char *what, uint64_t done_bytes,
                         uint64_t total_bytes, bool is_quiet);
void pull_progress_show(struct pull_progress *progress, uint64_t done_bytes);
void pull_progress_end(struct pull_progress *progress);

#endif
