/* SPDX-License-Identifier: Apache-2.0 */
/* The upstream, which writes the tokens.
 *
 * As workers of a router, each is a link like a decode daemon's: it registers, takes requests and sends one
 * frame a turn with a token of each of its streams.  As an HTTP server behind a proxy, it has the same turns,
 * but writes the events of an answer as Baton itself would, one write for each stream.
 *
 * Turns of different groups are spread evenly over the period, like those of many workers.  The seed of its
 * request identifies a stream. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "base/str.h"
#include "cache/prefix/block_events.h"
#include "gguf/gguf.h"
#include "net/link/link.h"
#include "proto/capabilities.h"
#include "proto/control.pb-c.h"
#include "tests/bench/streams/streams.h"
#include "text/token/tokenizer.h"

#define MAX_GROUPS  1024
#define MAX_DIALS   50
#define HEAD_BYTES  2048
#define WORDS       512
#define MAX_SINGLES 20000 /* streams of a group */

struct source {       /* one stream */
    uint64_t request; /* the router's number for it */
    uint64_t seed;
    uint32_t n_sent;
    int fd; /* HTTP */
    struct ev_fd *watch;
    char *head; /* HTTP: of the request, as far as it came; NULL: it is a stream */
    size_t n_head;
};

struct group {
    struct upstream *upstream;
    struct link *link;
    struct ev_timer *turn;
    uint64_t due_ns;
    struct source **sources;
    uint32_t n, cap;
    uint32_t number;
    bool has_lost; /* block events */
    char node[24];
    Baton__Hello hello;
    Baton__ModelInfo model;
    Baton__KvInfo kv;
    Baton__LoadReport load;
};

struct upstream {
    const struct upstream_opts *opts;
    struct ev_loop *loop;
    struct tls_context *tls;
    struct group groups[MAX_GROUPS];
    uint64_t period_ns;
    uint64_t epoch;
    struct buf vocabulary;
    char fingerprint[33];
    token_id words[WORDS];
    uint32_t next_group;
};

/* ---- turns ---- */

static void note_sent(const struct upstream *upstream, struct source *source, uint64_t now_ns)
{
    if (source->seed < upstream->opts->n_streams)
        atomic_store_explicit(
            &upstream->opts->shared->streams[source->seed].sent_ns[source->n_sent % STREAMS_RING], now_ns,
            memory_order_relaxed);
    source->n_sent++;
}

static void add_source(struct group *group, struct source *source)
{
    if (group->n == group->cap) {
        group->cap = group->cap == 0 ? 256 : group->cap * 2;
        group->sources = realloc(group->sources, group->cap * sizeof(*group->sources));
        ASSERT(group->sources != NULL);
    }
    group->sources[group->n++] = source;
}

static void drop_source(struct group *group, uint32_t at)
{
    struct source *source = group->sources[at];

    group->sources[at] = group->sources[--group->n];
    ev_fd_free(source->watch);
    free(source->head);
    free(source);
}

static void start_turns(struct group *group, ev_call turn)
{
    struct upstream *upstream = group->upstream;

    ASSERT(ev_timer_new(upstream->loop, turn, group, &group->turn) == 0);
    group->due_ns = clock_now_ns() + upstream->period_ns * (group->number + 1) / upstream->opts->n_workers;
    ev_timer_start(group->turn, group->due_ns - clock_now_ns());
}

static void next_turn(struct group *group, uint64_t began_ns)
{
    struct upstream *upstream = group->upstream;
    uint64_t late_ns = began_ns - group->due_ns;
    uint64_t now_ns;

    if (began_ns > group->due_ns && late_ns > atomic_load(&upstream->opts->shared->late_ns))
        atomic_store(&upstream->opts->shared->late_ns, late_ns);
    group->due_ns += upstream->period_ns;
    now_ns = clock_now_ns();
    ev_timer_start(group->turn, group->due_ns > now_ns ? group->due_ns - now_ns : 0);
}

/* ---- workers ---- */

static void dial_group(struct group *group);

static void send_answer(struct group *group, Baton__Answer *answer)
{
    Baton__Tokens tokens = BATON__TOKENS__INIT;

    tokens.n_answers = 1;
    tokens.answers = &answer;
    (void)link_send(group->link, FRAME_TOKENS, &tokens.base);
}

/* Accepts a stream, with or without its first token. */
static void accept_source(struct group *group, struct source *source, uint32_t n)
{
    Baton__Answer answer = BATON__ANSWER__INIT;
    uint32_t id = group->upstream->words[source->n_sent % WORDS];

    answer.request = source->request;
    answer.is_accepted = true;
    answer.first_index = source->n_sent;
    answer.ids = &id;
    answer.n_ids = n;
    send_answer(group, &answer);
}

static void take_submit(struct group *group, const Baton__Submit *submit)
{
    struct shared *shared = group->upstream->opts->shared;
    struct source *source = calloc(1, sizeof(*source));

    ASSERT(source != NULL);
    source->request = submit->request;
    source->seed = submit->sampling->seed;
    add_source(group, source);
    if (source->seed < STREAMS_LONG) {
        accept_source(group, source, 0);
        return;
    }
    atomic_store(&shared->long_left_ns, clock_now_ns());
    accept_source(group, source, 1);
    atomic_store(&shared->long_arrived_ns, clock_now_ns());
    drop_source(group, group->n - 1);
}

static void cancel(struct group *group, uint64_t request)
{
    for (uint32_t i = 0; i < group->n; i++)
        if (group->sources[i]->request == request) {
            drop_source(group, i);
            return;
        }
}

/* Sends many tokens at once to a client that does not read them. */
static void send_burst(struct group *group, struct source *source, uint64_t now_ns)
{
    uint32_t ids[STREAMS_DEAF_BURST];
    Baton__Answer answer = BATON__ANSWER__INIT;

    answer.request = source->request;
    answer.first_index = source->n_sent;
    for (uint32_t k = 0; k < STREAMS_DEAF_BURST; k++) {
        ids[k] = group->upstream->words[source->n_sent % WORDS];
        note_sent(group->upstream, source, now_ns);
    }
    answer.ids = ids;
    answer.n_ids = STREAMS_DEAF_BURST;
    send_answer(group, &answer);
}

/* Part of a snapshot: blocks of this worker alone, in memory. */
static void send_blocks_part(struct group *group, uint32_t part, uint32_t n_blocks)
{
    static struct block_hash hashes[BLOCK_PART_EVENTS];
    static uint8_t tiers[BLOCK_PART_EVENTS];
    Baton__BlockEvents message = BATON__BLOCK_EVENTS__INIT;
    uint32_t from = part * BLOCK_PART_EVENTS, left = n_blocks - from,
             n = left < BLOCK_PART_EVENTS ? left : BLOCK_PART_EVENTS;

    rng_system(hashes, n * sizeof(hashes[0]));
    memset(tiers, BLOCK_IN_MEMORY, n);
    message.first_number = 1;
    message.hashes.data = hashes[0].bytes;
    message.hashes.len = n * sizeof(hashes[0]);
    message.tiers.data = tiers;
    message.tiers.len = n;
    message.is_snapshot = true;
    message.part = part;
    message.is_last = from + n == n_blocks;
    (void)link_send(group->link, FRAME_BLOCK_EVENTS, &message.base);
}

/* Answers the router: with no blocks before the measurement. */
static void send_blocks(struct group *group)
{
    const struct upstream_opts *opts = group->upstream->opts;
    uint32_t n_blocks = opts->n_blocks / opts->n_workers + (group->number < opts->n_blocks % opts->n_workers);
    uint32_t part = 0;

    if (atomic_load(&opts->shared->began_ns) == 0)
        n_blocks = 0;
    do
        send_blocks_part(group, part++, n_blocks);
    while (part * BLOCK_PART_EVENTS < n_blocks);
}

/* Has the router ask for all blocks when the measurement begins: a number that does not follow says that it has missed
 * some. */
static void lose_events(struct group *group)
{
    const struct upstream_opts *opts = group->upstream->opts;
    struct block_hash hash = {{0}};
    uint8_t tier = BLOCK_GONE;
    Baton__BlockEvents message = BATON__BLOCK_EVENTS__INIT;

    if (group->has_lost || opts->n_blocks == 0 || atomic_load(&opts->shared->began_ns) == 0)
        return;
    group->has_lost = true;
    message.first_number = 1000;
    message.hashes.data = hash.bytes;
    message.hashes.len = sizeof(hash);
    message.tiers.data = &tier;
    message.tiers.len = 1;
    (void)link_send(group->link, FRAME_BLOCK_EVENTS, &message.base);
}

/* A token of each stream in one frame. */
static void worker_turn(void *arg)
{
    static uint8_t singles[MAX_SINGLES * FRAME_SINGLE_BYTES];
    struct group *group = arg;
    struct upstream *upstream = group->upstream;
    Baton__Tokens tokens = BATON__TOKENS__INIT;
    uint64_t began_ns = clock_now_ns();

    for (uint32_t i = 0; i < group->n; i++) {
        struct source *source = group->sources[i];
        struct frame_single single = {.request = source->request,
                                      .index = source->n_sent,
                                      .id = upstream->words[source->n_sent % WORDS]};

        if (source->seed >= STREAMS_DEAF) {
            send_burst(group, source, began_ns);
            continue;
        }
        ASSERT(tokens.singles.len < sizeof(singles));
        frame_single_pack(&single, singles + tokens.singles.len);
        tokens.singles.len += FRAME_SINGLE_BYTES;
        note_sent(upstream, source, began_ns);
    }
    tokens.singles.data = singles;
    if (tokens.singles.len > 0)
        (void)link_send(group->link, FRAME_TOKENS, &tokens.base); /* on_down says so when it is */
    lose_events(group);
    next_turn(group, began_ns);
}

static void send_vocabulary(struct group *group)
{
    struct upstream *upstream = group->upstream;
    Baton__VocabularyPart part = BATON__VOCABULARY_PART__INIT;
    size_t total = upstream->vocabulary.len_bytes;

    part.fingerprint = upstream->fingerprint;
    part.total_bytes = total;
    for (size_t at = 0; at < total; at += part.data.len) {
        part.offset = at;
        part.data.data = upstream->vocabulary.data + at;
        part.data.len = total - at < 262144 ? total - at : 262144;
        (void)link_send(group->link, FRAME_VOCABULARY_PART, &part.base);
    }
}

/* A router bounds the links of one address that have not said HELLO, so workers come one after another. */
static void on_up(void *arg, struct link *link)
{
    struct group *group = arg, *next = group + MAX_DIALS;

    if (group->number + MAX_DIALS < group->upstream->opts->n_workers && next->link == NULL)
        dial_group(next);
}

static void on_down(void *arg, struct link *link, const struct fault *why)
{
    struct group *group = arg;

    fprintf(stderr, "worker %u with %u streams: link down: %s\n", group->number, group->n, why->text);
    while (group->n > 0)
        drop_source(group, group->n - 1);
}

static int on_message(void *arg, struct link *link, enum frame_type type, const ProtobufCMessage *message)
{
    struct group *group = arg;

    if (type == FRAME_SUBMIT)
        take_submit(group, (const Baton__Submit *)message);
    else if (type == FRAME_CANCEL)
        cancel(group, ((const Baton__Cancel *)message)->request);
    else if (type == FRAME_VOCABULARY_WANTED)
        send_vocabulary(group);
    else if (type == FRAME_BLOCKS_WANTED)
        send_blocks(group);
    return 0;
}

static const ProtobufCMessage *make_hello(void *arg)
{
    struct group *group = arg;
    struct upstream *upstream = group->upstream;

    group->hello = (Baton__Hello)BATON__HELLO__INIT;
    group->model = (Baton__ModelInfo)BATON__MODEL_INFO__INIT;
    group->kv = (Baton__KvInfo)BATON__KV_INFO__INIT;
    snprintf(group->node, sizeof(group->node), "sim%u", group->number);
    group->hello.protocol = LINK_PROTOCOL;
    group->hello.role = BATON__ROLE__ROLE_DECODE;
    group->hello.node = group->node;
    group->hello.epoch = upstream->epoch;
    group->hello.capabilities = capabilities_own();
    group->hello.model = &group->model;
    group->hello.kv = &group->kv;
    group->model.name = (char *)(uintptr_t) "sim";
    group->model.fingerprint = upstream->fingerprint;
    group->model.context_length = 262144;
    group->model.vocabulary_bytes = upstream->vocabulary.len_bytes;
    group->kv.block_tokens = 32;
    group->kv.n_blocks = 1000000;
    group->kv.block_bytes = 1024;
    group->kv.max_seqs = 1000;
    return &group->hello.base;
}

static const ProtobufCMessage *make_heartbeat(void *arg)
{
    struct group *group = arg;

    group->load = (Baton__LoadReport)BATON__LOAD_REPORT__INIT;
    group->load.running = group->n;
    group->load.prefill_tokens_per_s = 1e6;
    group->load.decode_step_s = 1 / group->upstream->opts->rate_per_s;
    group->load.blocks_free = group->load.blocks_total = 1000000;
    return &group->load.base;
}

/* Ids of plain words: each gives its text at once and ends nothing. */
static int read_model(struct upstream *upstream)
{
    struct tokenizer *tokenizer = NULL;
    struct gguf *gguf = NULL;
    struct fault fault = {0};
    uint32_t n = 0;
    int rc = gguf_open(upstream->opts->model, &fault, &gguf);

    if (rc == 0)
        rc = gguf_vocabulary_image(gguf, &upstream->vocabulary);
    if (rc == 0)
        rc = tokenizer_new(gguf, &fault, &tokenizer);
    for (token_id id = 0; rc == 0 && n < WORDS && id < tokenizer_vocab_size(tokenizer); id++) {
        struct bytes piece = tokenizer_piece(tokenizer, id);
        bool is_word = !tokenizer_is_control(tokenizer, id) && piece.len_bytes >= 3 && piece.data[0] == ' ';

        for (size_t i = 1; is_word && i < piece.len_bytes; i++)
            is_word = piece.data[i] >= 'a' && piece.data[i] <= 'z';
        if (is_word)
            upstream->words[n++] = id;
    }
    for (uint32_t i = n; n > 0 && i < WORDS; i++)
        upstream->words[i] = upstream->words[i % n];
    tokenizer_unref(tokenizer);
    gguf_close(gguf);
    if (rc < 0 || n == 0)
        fprintf(stderr, "%s: %s\n", upstream->opts->model, rc < 0 ? fault.text : "no words");
    return rc < 0 || n == 0 ? -1 : 0;
}

static int start(const struct upstream_opts *opts, struct upstream **out)
{
    struct upstream *upstream = calloc(1, sizeof(*upstream));

    if (upstream == NULL || opts->n_workers == 0 || opts->n_workers > MAX_GROUPS ||
        ev_loop_new(&upstream->loop) < 0)
        return -1;
    upstream->opts = opts;
    upstream->period_ns = (uint64_t)((double)NS_PER_S / opts->rate_per_s);
    rng_system(&upstream->epoch, sizeof(upstream->epoch));
    for (uint32_t i = 0; i < opts->n_workers; i++) {
        upstream->groups[i].upstream = upstream;
        upstream->groups[i].number = i;
    }
    *out = upstream;
    return 0;
}

static void dial_group(struct group *group)
{
    static const struct link_events events = {.on_up = on_up, .on_message = on_message, .on_down = on_down};
    const struct link_opts link = {.loop = group->upstream->loop,
                                   .tls = group->upstream->tls,
                                   .events = &events,
                                   .events_arg = group,
                                   .make_hello = make_hello,
                                   .make_heartbeat = make_heartbeat};
    struct fault fault = {0};

    if (link_dial(&link, group->upstream->opts->router, &fault, &group->link) < 0) {
        fprintf(stderr, "upstream: %s\n", fault.text);
        exit(1);
    }
    start_turns(group, worker_turn);
}

int upstream_workers(const struct upstream_opts *opts)
{
    struct upstream *upstream;
    struct fault fault = {0};
    uint8_t key[32];

    if (start(opts, &upstream) < 0 || read_model(upstream) < 0 ||
        cluster_key_load(opts->cluster_key, &fault, key) < 0 ||
        tls_context_new(key, &fault, &upstream->tls) < 0) {
        fprintf(stderr, "upstream: %s\n", fault.text);
        return 1;
    }
    memset(upstream->fingerprint, 'b', 32);
    for (uint32_t i = 0; i < opts->n_workers && i < MAX_DIALS; i++)
        dial_group(&upstream->groups[i]);
    return ev_loop_run(upstream->loop);
}

/* ---- HTTP ---- */

static const char http_head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                                "cache-control: no-cache\r\nconnection: close\r\n\r\n";
static const char http_start[] =
    "event: message_start\ndata: "
    "{\"type\":\"message_start\",\"message\":{\"id\":\"msg_0\",\"type\":\"message\","
    "\"role\":\"assistant\",\"model\":\"sim\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,"
    "\"usage\":{\"input_tokens\":20,\"output_tokens\":1}}}\n\n"
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":"
    "{\"type\":\"text\",\"text\":\"\"}}\n\n";
static const char http_token[] =
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,"
    "\"delta\":{\"type\":\"text_delta\",\"text\":\" word\"}}\n\n";

static bool write_all(int fd, const char *text, size_t n)
{
    return send(fd, text, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n;
}

static void http_turn(void *arg)
{
    struct group *group = arg;
    uint64_t began_ns = clock_now_ns();

    for (uint32_t i = 0; i < group->n; i++) {
        struct source *source = group->sources[i];

        /* Noted one by one, so that a delay of our own writing does not count for the proxy. */
        note_sent(group->upstream, source, clock_now_ns());
        if (!write_all(source->fd, http_token, sizeof(http_token) - 1)) {
            close(source->fd);
            drop_source(group, i--);
        }
    }
    next_turn(group, began_ns);
}

static void on_request_bytes(void *arg, int fd, unsigned ready)
{
    struct source *source = arg;
    struct upstream *upstream = NULL;
    ssize_t n = recv(fd, source->head + source->n_head, HEAD_BYTES - 1 - source->n_head, 0);
    const char *seed;

    memcpy(&upstream, &source->request, sizeof(upstream)); /* until it is a stream */
    if (n <= 0) {
        if (n < 0 && errno == EAGAIN)
            return;
        ev_fd_free(source->watch);
        close(fd);
        free(source->head);
        free(source);
        return;
    }
    source->n_head += (size_t)n;
    source->head[source->n_head] = '\0';
    seed = strstr(source->head, "\"seed\":");
    if (seed == NULL || strchr(seed, ',') == NULL)
        return;
    source->seed = strtoull(seed + 7, NULL, 10);
    ev_fd_free(source->watch);
    source->watch = NULL;
    free(source->head);
    source->head = NULL;
    if (!write_all(fd, http_head, sizeof(http_head) - 1) ||
        !write_all(fd, http_start, sizeof(http_start) - 1)) {
        close(fd);
        free(source);
        return;
    }
    add_source(&upstream->groups[upstream->next_group++ % upstream->opts->n_workers], source);
}

static void on_connection(void *arg, int fd, unsigned ready)
{
    struct upstream *upstream = arg;
    int one = 1;

    for (;;) {
        struct source *source;
        int client = accept4(fd, NULL, NULL, SOCK_NONBLOCK);

        if (client < 0)
            return;
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        source = calloc(1, sizeof(*source));
        ASSERT(source != NULL && (source->head = malloc(HEAD_BYTES)) != NULL);
        source->fd = client;
        memcpy(&source->request, &upstream, sizeof(upstream));
        ASSERT(ev_fd_new(upstream->loop, client, on_request_bytes, source, &source->watch) == 0);
    }
}

int upstream_http(const struct upstream_opts *opts)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(opts->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct upstream *upstream;
    struct ev_fd *watch;
    int one = 1;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 4096) < 0 ||
        start(opts, &upstream) < 0 || ev_fd_new(upstream->loop, fd, on_connection, upstream, &watch) < 0) {
        fprintf(stderr, "upstream: cannot listen on port %u\n", opts->port);
        return 1;
    }
    for (uint32_t i = 0; i < opts->n_workers; i++)
        start_turns(&upstream->groups[i], http_turn);
    return ev_loop_run(upstream->loop);
}
