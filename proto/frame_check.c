/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of all fields: a table, and the walk that applies it to every field of a message.
 *
 * The walk follows the message's own descriptor, so it cannot miss a field.  Each field has a strict
 * default: text of at most 255 bytes without control characters, an enum value that this side knows, a
 * finite real number.  Bytes and repeated fields have no sensible default; they are refused unless a row
 * below limits them.  Rows also give narrower limits: to node names, to counts that size an allocation, to
 * ranges that later arithmetic relies on.
 *
 *   rule   field kinds           min .. max
 *   TEXT   string                length in bytes
 *   NAME   string                length; only [A-Za-z0-9._-]
 *   HEX    string                length; only 0-9a-f
 *   RANGE  integers, reals, enums  value
 *   OPEN   enums                 value; a newer end may send one that this side does not know
 *   WITHIN reals                 value, either sign (max)
 *   BYTES  bytes                 length
 *   WORDS  bytes                 length, a multiple of four
 *   HASHES bytes                 length, a multiple of sixteen
 *   SINGLES bytes                the same
 *   COUNT  repeated              elements
 *   NEEDED message               must be present
 *
 * check_relations() comes last and checks the relations between fields. */
#include "proto/frame_priv.h"

#include "base/check.h"
#include "base/err.h"
#include "base/fair.h"
#include "base/name.h"
#include "base/str.h"
#include "proto/token_list.h"

#include <math.h>
#include <string.h>

#define MAX_TOKENS   FRAME_MAX_TOKENS
#define MAX_BLOCKS   (UINT64_C(1) << 24) /* blocks of a pool */
#define MAX_TEXT     255
#define MAX_PATH     107 /* sun_path less its NUL */
#define MAX_VOCAB    (UINT64_C(256) << 20)
#define MAX_PAUSE_MS (UINT64_C(600) * 1000)
#define MAX_REAL     (UINT64_C(1) << 62)
#define MAX_DEPTH    4
#define MAX_PENALTY  100
#define MAX_FINISH   255
#define HASH_BYTES   UINT64_C(16)
#define MAX_TENANT   ((UINT64_C(1) << 48) - 1) /* cache/prefix/tenant.h */
#define MAX_ASKED    (UINT64_C(1) << 17)       /* blocks of a prompt of MAX_TOKENS */
#define MAX_SINGLES  (UINT64_C(1) << 15)
#define MAX_EVENTS   (UINT64_C(1) << 15) /* block events in one frame */

enum rule { TEXT, NAME, HEX, RANGE, OPEN, WITHIN, BYTES, HASHES, SINGLES, COUNT, NEEDED };

struct limit {
    const char *field;
    enum rule rule;
    uint64_t min, max;
};

/* The rows of a message; a row with name NULL ends them. In the order of the fields' numbers they are found without
 * a search; any other order costs only time. */
struct limits {
    const ProtobufCMessageDescriptor *message;
    const struct limit *rows;
};

/* clang-format off */
#define NODE_NAME NAME, 1, 63
#define ROWS(...) (const struct limit[]){__VA_ARGS__, {.field = NULL}}

static const struct limits table[] = {
    {&baton__hello__descriptor, ROWS({"node", NODE_NAME}, {"build", TEXT, 0, 64}, {"host_id", TEXT, 0, 64})},
    {&baton__model_info__descriptor,
     ROWS({"name", TEXT, 1, MAX_TEXT},
          {"fingerprint", HEX, 32, 32},
          {"context_length", RANGE, 1, MAX_TOKENS},
          {"vocabulary_bytes", RANGE, 0, MAX_VOCAB})},
    {&baton__kv_info__descriptor,
     ROWS({"block_tokens", RANGE, 1, 4096},
          {"n_blocks", RANGE, 1, MAX_BLOCKS},
          {"block_bytes", RANGE, 1, UINT64_C(1) << 40},
          {"unix_path", TEXT, 0, MAX_PATH},
          {"max_seqs", RANGE, 0, 1 << 20},
          {"chunk_tokens", RANGE, 0, MAX_TOKENS},
          {"rdma_rails", RANGE, 0, 64})},
    {&baton__refused__descriptor, ROWS({"text", TEXT, 0, 511})},
    {&baton__load_report__descriptor,
     ROWS({"prefill_tokens_per_s", RANGE, 0, MAX_REAL},
          {"decode_step_s", RANGE, 0, MAX_REAL},
          {"transfer_bytes_per_s", RANGE, 0, MAX_REAL},
          {"push_bytes_per_s", RANGE, 0, MAX_REAL},
          {"read_bytes_per_s", RANGE, 0, MAX_REAL},
          {"prompt_token_s", RANGE, 0, MAX_REAL},
          {"prompt_pair_s", RANGE, 0, MAX_REAL},
          {"queued_prefill_s", RANGE, 0, MAX_REAL},
          {"n_routers", RANGE, 0, 65536})},
    {&baton__goodbye__descriptor, ROWS({"text", TEXT, 0, 511})},
    {&baton__vocabulary_wanted__descriptor, ROWS({"fingerprint", HEX, 32, 32})},
    {&baton__vocabulary_part__descriptor,
     ROWS({"fingerprint", HEX, 32, 32},
          {"offset", RANGE, 0, MAX_VOCAB},
          {"total_bytes", RANGE, 0, MAX_VOCAB},
          {"data", BYTES, 0, 1 << 20})},
    {&baton__submit__descriptor,
     ROWS({"request_id", TEXT, 0, FRAME_REQUEST_ID},
          {"tenant", TEXT, 0, FRAME_TENANT},
          {"tokens", BYTES, TOKEN_LIST_MIN_BYTES, TOKEN_LIST_MAX_BYTES *MAX_TOKENS},
          {"n_prompt", RANGE, 1, MAX_TOKENS},
          {"max_new_tokens", RANGE, 0, MAX_TOKENS},
          {"sampling", NEEDED, 0, 0},
          {"constraint", BYTES, 0, FRAME_MAX_CONSTRAINT},
          {"pin_5m_tokens", RANGE, 0, MAX_TOKENS},
          {"pin_1h_tokens", RANGE, 0, MAX_TOKENS},
          {"public_tokens", RANGE, 0, MAX_TOKENS},
          {"owner_tokens", RANGE, 0, MAX_TOKENS},
          {"ask_limit_ms", RANGE, 0, MAX_PAUSE_MS},
          {"score_from", RANGE, 0, MAX_TOKENS},
          {"token_bytes", RANGE, 0, TOKEN_LIST_MAX_BYTES},
          {"weight", RANGE, 0, FAIR_MAX_WEIGHT},
          {"n_tokens_later", RANGE, 0, MAX_TOKENS},
          {"compute_tokens", RANGE, 0, MAX_TOKENS})},
    {&baton__trace_context__descriptor, ROWS({"trace_id", BYTES, 16, 16}, {"parent_id", BYTES, 8, 8})},
    {&baton__submit_tokens__descriptor,
     ROWS({"tokens", BYTES, TOKEN_LIST_MIN_BYTES, TOKEN_LIST_MAX_BYTES *FRAME_PIECE_TOKENS},
          {"token_bytes", RANGE, TOKEN_LIST_MIN_BYTES, TOKEN_LIST_MAX_BYTES})},
    {&baton__resume_note__descriptor, ROWS({"message_id", TEXT, 0, FRAME_REQUEST_ID}, {"body_digest", BYTES, 0, 32}, {"fingerprint", TEXT, 0, 32})},
    {&baton__resume__descriptor, ROWS({"request_id", TEXT, 1, FRAME_REQUEST_ID},
          {"tenant", TEXT, 0, FRAME_TENANT},
          {"body_digest", BYTES, 0, 32})},
    {&baton__peer__descriptor, ROWS({"node", NODE_NAME}, {"link_address", TEXT, 1, MAX_TEXT})},
    {&baton__sampling__descriptor,
     ROWS({"temperature", RANGE, 0, 100},
          {"top_p", RANGE, 0, 1},
          {"min_p", RANGE, 0, 1},
          {"n_top", RANGE, 0, FRAME_MAX_TOP},
          {"frequency_penalty", WITHIN, 0, MAX_PENALTY},
          {"presence_penalty", WITHIN, 0, MAX_PENALTY},
          {"repetition_penalty", RANGE, 0, MAX_PENALTY},
          {"bias_ids", COUNT, 0, FRAME_MAX_BIAS},
          {"bias", COUNT, 0, FRAME_MAX_BIAS},
          {"min_tokens", RANGE, 0, MAX_TOKENS})},
    {&baton__tokens__descriptor,
     ROWS({"answers", COUNT, 0, 16384}, {"singles", SINGLES, 0, FRAME_SINGLE_BYTES *MAX_SINGLES})},
    {&baton__answer__descriptor,
     ROWS({"cached_tokens", RANGE, 0, MAX_TOKENS},
          {"first_index", RANGE, 0, MAX_TOKENS},
          {"ids", COUNT, 0, 65536},
          {"finish", OPEN, 0, MAX_FINISH},
          {"logprobs", COUNT, 0, 65536},
          {"n_tops", COUNT, 0, 65536},
          {"top_ids", COUNT, 0, 65536},
          {"top_logprobs", COUNT, 0, 65536},
          {"error_text", TEXT, 0, 511},
          {"embedding", COUNT, 0, FRAME_EMBEDDING_DIMS})},
    {&baton__serving__descriptor, ROWS({"transport", TEXT, 0, 15})},
    {&baton__offer__descriptor,
     ROWS({"n_tokens", RANGE, 1, MAX_TOKENS},
          {"n_blocks", RANGE, 1, MAX_BLOCKS},
          {"head_tokens", RANGE, 0, MAX_TOKENS})},
    {&baton__block_run__descriptor, ROWS({"first", RANGE, 0, MAX_BLOCKS}, {"count", RANGE, 1, MAX_BLOCKS})},
    {&baton__grant__descriptor,
     ROWS({"skip_blocks", RANGE, 0, MAX_BLOCKS},
          {"runs", COUNT, 0, 65536},
          {"transport", TEXT, 1, 15})},
    {&baton__grant_refused__descriptor, ROWS({"retry_after_ms", RANGE, 0, MAX_PAUSE_MS})},
    {&baton__prefill_done__descriptor, ROWS({"top_ids", COUNT, 0, FRAME_MAX_TOP}, {"top_logprobs", COUNT, 0, FRAME_MAX_TOP})},
    {&baton__transfer_done__descriptor, ROWS({"n_tokens", RANGE, 0, MAX_TOKENS})},
    {&baton__ask__descriptor,
     ROWS({"ask", RANGE, 1, UINT64_MAX},
          {"hashes", HASHES, HASH_BYTES, HASH_BYTES *MAX_ASKED},
          {"tenant", RANGE, 0, MAX_TENANT})},
    {&baton__ask_refused__descriptor, ROWS({"ask", RANGE, 1, UINT64_MAX})},
    {&baton__block_events__descriptor,
     ROWS({"first_number", RANGE, 1, UINT64_MAX / 2},
          {"hashes", HASHES, 0, HASH_BYTES *MAX_EVENTS},
          {"tiers", BYTES, 0, MAX_EVENTS},
          {"part", RANGE, 0, MAX_BLOCKS})},
    {&baton__blocks_last__descriptor, ROWS({"hashes", HASHES, HASH_BYTES, HASH_BYTES *MAX_EVENTS})},
    {&baton__store_blocks__descriptor,
     ROWS({"hashes", HASHES, HASH_BYTES, HASH_BYTES *MAX_EVENTS}, {"there", BYTES, 1, MAX_EVENTS})},
    {&baton__heartbeat__descriptor, ROWS({"keys", COUNT, 0, 2})},
    {&baton__key_proof__descriptor, ROWS({"mac", BYTES, 32, 32})},
    {&baton__spending__descriptor,
     ROWS({"node", TEXT, 0, 63},
          {"number", RANGE, 0, UINT64_MAX / 2},
          {"acks", COUNT, 0, FRAME_SPENDING_ACKS},
          {"rows", COUNT, 0, FRAME_SPENDING_ROWS})},
    {&baton__spending_row__descriptor,
     ROWS({"account", HASHES, FRAME_SPENDING_ID, FRAME_SPENDING_ID},
          {"level", COUNT, 0, FRAME_SPENDING_KINDS},
          {"spent", COUNT, 0, FRAME_SPENDING_KINDS},
          {"before", COUNT, 0, FRAME_SPENDING_KINDS},
          {"demand", RANGE, 0, 1 << 20})},
    {&baton__keep__descriptor,
     ROWS({"name", TEXT, 1, FRAME_KEPT_NAME},
          {"life_s", RANGE, 0, FRAME_KEPT_LIFE_S},
          {"value", BYTES, 0, FRAME_KEPT_BYTES})},
    {&baton__fetch__descriptor,
     ROWS({"names", COUNT, 0, FRAME_KEPT_NAMES},
          {"claim", TEXT, 0, FRAME_KEPT_NAME},
          {"claim_life_s", RANGE, 0, FRAME_KEPT_LIFE_S})},
    {&baton__fetched__descriptor, ROWS({"name", TEXT, 0, FRAME_KEPT_NAME}, {"value", BYTES, 0, FRAME_KEPT_BYTES})},
    {&baton__listed__descriptor, ROWS({"names", COUNT, 0, FRAME_KEPT_NAMES},
                                      {"lives_s", COUNT, 0, FRAME_KEPT_NAMES},
                                      {"lens_bytes", COUNT, 0, FRAME_KEPT_NAMES})},
    {&baton__router_message__descriptor, ROWS({"text", BYTES, 1, 64 << 10}, {"number", RANGE, 1, UINT64_MAX / 2})},
    {&baton__probe__descriptor, ROWS({"addresses", COUNT, 0, FRAME_PROBE_ADDRESSES})},
    {&baton__probed__descriptor, ROWS({"results", COUNT, 0, FRAME_PROBE_ADDRESSES})},
    {&baton__set_role__descriptor, ROWS({"role", RANGE, BATON__ROLE__ROLE_PREFILL, BATON__ROLE__ROLE_BOTH})},
};
/* clang-format on */

/* The walk's position, for the fault's text. */
struct check {
    struct fault *fault;
    const char *message;
    const char *field;
};

static int check_message(const ProtobufCMessage *message, unsigned depth, struct fault *fault);
static int check_field(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                       const struct limit *limit, unsigned depth, struct fault *fault);
static int check_value(const struct check *check, const ProtobufCFieldDescriptor *field, const void *at,
                       const struct limit *limit);
static int check_relations(const ProtobufCMessage *message, struct fault *fault);

int frame_check(const ProtobufCMessage *message, struct fault *fault)
{
    int err = check_message(message, 0, fault);

    return err != 0 ? err : check_relations(message, fault);
}

static const struct limit *frame_check_limits_of(const ProtobufCMessageDescriptor *descriptor)
{
    static const struct limit none[1];

    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (table[i].message == descriptor)
            return table[i].rows;
    return none;
}

/* The row of the field, NULL: none. *next is the first row that no field took; those before it need no look. */
static const struct limit *frame_check_take_row(const struct limit **next, const char *field)
{
    for (const struct limit *row = *next; row->field != NULL; row++) {
        if (row->field[0] != field[0] || strcmp(row->field, field) != 0)
            continue;
        if (row == *next)
            (*next)++;
        return row;
    }
    return NULL;
}

static int check_message(const ProtobufCMessage *message, unsigned depth, struct fault *fault)
{
    const ProtobufCMessageDescriptor *descriptor = message->descriptor;
    const struct limit *rows = frame_check_limits_of(descriptor), *next = rows;
    size_t n_taken = 0;

    if (depth > MAX_DEPTH)
        return fault_set(fault, E_PROTO, "%s: nested too deep", descriptor->short_name);
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
        const struct limit *own = frame_check_take_row(&next, field->name);
        int err = check_field(message, field, own, depth, fault);

        if (err != 0)
            return err;
        n_taken += own != NULL;
    }
    ASSERT(rows[n_taken].field == NULL); /* a row that no field has would limit nothing */
    return 0;
}

static size_t element_bytes(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_ENUM:
        return 4;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    }
    return 0;
}

static int check_field(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                       const struct limit *limit, unsigned depth, struct fault *fault)
{
    struct check check = {.fault = fault, .message = message->descriptor->short_name, .field = field->name};
    const uint8_t *at = (const uint8_t *)message + field->offset;
    bool is_repeated = field->label == PROTOBUF_C_LABEL_REPEATED;
    size_t n = 1;

    if (is_repeated) {
        uint64_t most = limit != NULL && limit->rule == COUNT ? limit->max : 0;

        memcpy(&n, (const uint8_t *)message + field->quantifier_offset, sizeof(n));
        if (n > most)
            return fault_set(fault, E_PROTO, "%s.%s: %zu elements, at most %llu are allowed", check.message,
                             check.field, n, (unsigned long long)most);
        at = *(const uint8_t *const *)(const void *)at;
    }
    for (size_t i = 0; i < n; i++, at += element_bytes(field)) {
        const ProtobufCMessage *child;
        int err;

        if (field->type != PROTOBUF_C_TYPE_MESSAGE) {
            err = check_value(&check, field, at, is_repeated ? NULL : limit);
        } else {
            memcpy(&child, at, sizeof(child));
            if (child == NULL && limit != NULL && limit->rule == NEEDED)
                return fault_set(fault, E_PROTO, "%s.%s: missing", check.message, check.field);
            err = child != NULL ? check_message(child, depth + 1, fault) : 0;
        }
        if (err != 0)
            return err;
    }
    return 0;
}

static bool frame_check_is_name(const char *text)
{
    return text[0] == '\0' || name_is_valid(bytes_str(text), SIZE_MAX);
}

static bool frame_check_is_hex(const char *text)
{
    return text[strspn(text, "0123456789abcdef")] == '\0';
}

static int check_text(const struct check *check, const char *text, const struct limit *limit)
{
    uint64_t min = limit != NULL ? limit->min : 0;
    uint64_t max = limit != NULL ? limit->max : MAX_TEXT;
    size_t len_bytes = strlen(text);

    if (len_bytes < min || len_bytes > max)
        return fault_set(check->fault, E_PROTO, "%s.%s: %zu bytes of text, allowed are %llu to %llu",
                         check->message, check->field, len_bytes, (unsigned long long)min,
                         (unsigned long long)max);
    if ((limit != NULL && limit->rule == NAME && !frame_check_is_name(text)) ||
        (limit != NULL && limit->rule == HEX && !frame_check_is_hex(text)) ||
        !str_is_printable(bytes_str(text)))
        return fault_set(check->fault, E_PROTO, "%s.%s: '%s' has characters not allowed there",
                         check->message, check->field, text);
    return 0;
}

static int check_bytes(const struct check *check, const ProtobufCBinaryData *data, const struct limit *limit)
{
    uint64_t min = limit != NULL ? limit->min : 0;
    uint64_t max = limit != NULL ? limit->max : 0;

    if (data->len < min || data->len > max)
        return fault_set(check->fault, E_PROTO, "%s.%s: %zu bytes, allowed are %llu to %llu", check->message,
                         check->field, data->len, (unsigned long long)min, (unsigned long long)max);
    if (limit != NULL && limit->rule == HASHES && data->len % HASH_BYTES != 0)
        return fault_set(check->fault, E_PROTO, "%s.%s: %zu bytes are no whole number of hashes",
                         check->message, check->field, data->len);
    if (limit != NULL && limit->rule == SINGLES && data->len % FRAME_SINGLE_BYTES != 0)
        return fault_set(check->fault, E_PROTO, "%s.%s: %zu bytes are no whole number of answers",
                         check->message, check->field, data->len);
    return 0;
}

static int check_integer(const struct check *check, uint64_t value, const struct limit *limit)
{
    if (limit != NULL && (value < limit->min || value > limit->max))
        return fault_set(check->fault, E_PROTO, "%s.%s: %llu is outside %llu to %llu", check->message,
                         check->field, (unsigned long long)value, (unsigned long long)limit->min,
                         (unsigned long long)limit->max);
    return 0;
}

static int check_real(const struct check *check, double value, const struct limit *limit)
{
    double measured = limit != NULL && limit->rule == WITHIN ? fabs(value) : value;

    if (!isfinite(value) ||
        (limit != NULL && (measured < (double)limit->min || measured > (double)limit->max)))
        return fault_set(check->fault, E_PROTO, "%s.%s: %g is out of range", check->message, check->field,
                         value);
    return 0;
}

static int check_value(const struct check *check, const ProtobufCFieldDescriptor *field, const void *at,
                       const struct limit *limit)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        return check_text(check, *(char *const *)at, limit);
    case PROTOBUF_C_TYPE_BYTES:
        return check_bytes(check, at, limit);
    case PROTOBUF_C_TYPE_ENUM:
        if ((limit == NULL || limit->rule != OPEN) &&
            protobuf_c_enum_descriptor_get_value(field->descriptor, *(const int *)at) == NULL)
            return fault_set(check->fault, E_PROTO, "%s.%s: unknown value %d", check->message, check->field,
                             *(const int *)at);
        return check_integer(check, (uint64_t) * (const int *)at, limit);
    case PROTOBUF_C_TYPE_FLOAT:
        return check_real(check, (double)*(const float *)at, limit);
    case PROTOBUF_C_TYPE_DOUBLE:
        return check_real(check, *(const double *)at, limit);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return check_integer(check, *(const uint32_t *)at, limit);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return check_integer(check, *(const uint64_t *)at, limit);
    case PROTOBUF_C_TYPE_INT32: /* signed ones are error codes: any value is fine, unknown ones print as such
                                 */
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_BOOL:
    case PROTOBUF_C_TYPE_MESSAGE:
        return 0;
    }
    return 0;
}

static int check_grant(const Baton__Grant *grant, struct fault *fault)
{
    uint64_t n_blocks = grant->skip_blocks;

    for (size_t i = 0; i < grant->n_runs; i++)
        n_blocks += grant->runs[i]->count;
    if (n_blocks > MAX_BLOCKS)
        return fault_set(fault, E_PROTO, "Grant.runs: %llu blocks in all", (unsigned long long)n_blocks);
    return 0;
}

static int check_submit(const Baton__Submit *submit, struct fault *fault)
{
    const Baton__Sampling *sampling = submit->sampling;
    size_t n = 0;

    if (token_list_count(bytes_of(submit->tokens.data, submit->tokens.len), frame_token_bytes(submit), &n) <
            0 ||
        n > MAX_TOKENS)
        return fault_set(fault, E_PROTO, "Submit.tokens: %zu bytes are no tokens of %u bytes",
                         submit->tokens.len, frame_token_bytes(submit));
    if (submit->n_tokens_later > MAX_TOKENS - n)
        return fault_set(fault, E_PROTO, "Submit.n_tokens_later: %u after %zu", submit->n_tokens_later, n);
    n += submit->n_tokens_later;
    if (submit->n_prompt > n)
        return fault_set(fault, E_PROTO, "Submit.n_prompt: %u of %zu tokens", submit->n_prompt, n);
    if (submit->mode != BATON__SUBMIT_MODE__SUBMIT_LOCAL && submit->peer == NULL)
        return fault_set(fault, E_PROTO, "Submit.peer: missing");
    if (submit->score_from > submit->n_prompt ||
        (submit->score_from > 0 && submit->mode != BATON__SUBMIT_MODE__SUBMIT_LOCAL))
        return fault_set(fault, E_PROTO, "Submit.score_from: %u of %u tokens, or not local",
                         submit->score_from, submit->n_prompt);
    if (submit->wants_embedding &&
        (submit->mode != BATON__SUBMIT_MODE__SUBMIT_LOCAL || submit->max_new_tokens != 1))
        return fault_set(fault, E_PROTO, "Submit.wants_embedding: not local, or %u tokens",
                         submit->max_new_tokens);
    if (sampling->n_bias != sampling->n_bias_ids)
        return fault_set(fault, E_PROTO, "Sampling.bias: %zu for %zu tokens", sampling->n_bias,
                         sampling->n_bias_ids);
    for (size_t i = 1; i < sampling->n_bias_ids; i++)
        if (sampling->bias_ids[i] <= sampling->bias_ids[i - 1])
            return fault_set(fault, E_PROTO, "Sampling.bias_ids: not ascending");
    return 0;
}

/* Log probabilities are there for all tokens of an answer or for none, and so are the most likely
 * alternatives. */
static int frame_check_answer(const Baton__Answer *answer, struct fault *fault)
{
    uint64_t n_top = 0;

    if (answer->n_embedding > 0 && answer->n_ids != 1)
        return fault_set(fault, E_PROTO, "Answer.embedding: with %zu tokens", answer->n_ids);
    if ((answer->n_logprobs != 0 && answer->n_logprobs != answer->n_ids) ||
        answer->n_n_tops != answer->n_logprobs)
        return fault_set(fault, E_PROTO, "Answer.logprobs: %zu and %zu for %zu tokens", answer->n_logprobs,
                         answer->n_n_tops, answer->n_ids);
    for (size_t i = 0; i < answer->n_n_tops; i++) {
        if (answer->n_tops[i] > FRAME_MAX_TOP)
            return fault_set(fault, E_PROTO, "Answer.n_tops: %u", answer->n_tops[i]);
        n_top += answer->n_tops[i];
    }
    if (n_top != answer->n_top_ids || n_top != answer->n_top_logprobs)
        return fault_set(fault, E_PROTO, "Answer.top_ids: %zu and %zu for %llu", answer->n_top_ids,
                         answer->n_top_logprobs, (unsigned long long)n_top);
    return 0;
}

static int frame_check_tokens(const Baton__Tokens *tokens, struct fault *fault)
{
    int err = 0;

    for (size_t i = 0; i < tokens->n_answers && err == 0; i++)
        err = frame_check_answer(tokens->answers[i], fault);
    return err;
}

/* Tiers and hashes match one to one, in events and in snapshots. */
static int check_events(const Baton__BlockEvents *events, struct fault *fault)
{
    size_t n = events->hashes.len / HASH_BYTES;

    if (events->tiers.len != n)
        return fault_set(fault, E_PROTO, "BlockEvents.tiers: %zu for %zu blocks", events->tiers.len, n);
    for (size_t i = 0; i < n; i++)
        if (events->tiers.data[i] > BATON__BLOCK_TIER__TIER_DISK)
            return fault_set(fault, E_PROTO, "BlockEvents.tiers: unknown tier %u", events->tiers.data[i]);
    return 0;
}

static int check_store_blocks(const Baton__StoreBlocks *blocks, struct fault *fault)
{
    size_t n = blocks->hashes.len / HASH_BYTES;

    if (blocks->there.len != n)
        return fault_set(fault, E_PROTO, "StoreBlocks.there: %zu for %zu blocks", blocks->there.len, n);
    return 0;
}

static int check_resumed(const Baton__Resumed *resumed, struct fault *fault)
{
    if (resumed->is_here && resumed->submit == NULL)
        return fault_set(fault, E_PROTO, "Resumed.submit: missing");
    return resumed->submit != NULL ? check_submit(resumed->submit, fault) : 0;
}

static int check_relations(const ProtobufCMessage *message, struct fault *fault)
{
    if (message->descriptor == &baton__submit__descriptor)
        return check_submit((const Baton__Submit *)message, fault);
    if (message->descriptor == &baton__submit_tokens__descriptor) {
        const Baton__SubmitTokens *more = (const Baton__SubmitTokens *)message;
        size_t n;

        if (token_list_count(bytes_of(more->tokens.data, more->tokens.len), more->token_bytes, &n) < 0)
            return fault_set(fault, E_PROTO, "SubmitTokens.tokens: %zu bytes are no tokens of %u bytes",
                             more->tokens.len, more->token_bytes);
    }
    if (message->descriptor == &baton__resumed__descriptor)
        return check_resumed((const Baton__Resumed *)message, fault);
    if (message->descriptor == &baton__tokens__descriptor)
        return frame_check_tokens((const Baton__Tokens *)message, fault);
    if (message->descriptor == &baton__store_blocks__descriptor)
        return check_store_blocks((const Baton__StoreBlocks *)message, fault);
    if (message->descriptor == &baton__block_events__descriptor)
        return check_events((const Baton__BlockEvents *)message, fault);
    if (message->descriptor == &baton__prefill_done__descriptor) {
        const Baton__PrefillDone *done = (const Baton__PrefillDone *)message;

        if (done->n_top_ids != done->n_top_logprobs)
            return fault_set(fault, E_PROTO, "PrefillDone.top_ids: %zu and %zu", done->n_top_ids,
                             done->n_top_logprobs);
    }
    if (message->descriptor == &baton__vocabulary_part__descriptor) {
        const Baton__VocabularyPart *part = (const Baton__VocabularyPart *)message;

        if (part->offset > part->total_bytes || part->data.len > part->total_bytes - part->offset)
            return fault_set(fault, E_PROTO, "VocabularyPart.data: reaches beyond total_bytes");
    }
    if (message->descriptor == &baton__grant__descriptor)
        return check_grant((const Baton__Grant *)message, fault);
    return 0;
}
