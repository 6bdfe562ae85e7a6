/* SPDX-License-Identifier: Apache-2.0 */
/* Logging: one line for each event, with an event name and typed fields.
 *
 * The log goes to stderr: as journal fields when stderr is the journal's stream (JOURNAL_STREAM), as short
 * lines for people when stderr is a terminal, else as JSON lines.  Thread safe.  Never log prompts, answers
 * or keys.
 *
 *     log_info("worker_ready", LOG_STR("model", name), LOG_U64("blocks", n));
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };
enum log_format { LOG_FORMAT_AUTO, LOG_FORMAT_JSON, LOG_FORMAT_TEXT, LOG_FORMAT_JOURNAL };

struct log_field {
    const char *key; /* NULL ends the list */
    enum { LOG_KIND_STR, LOG_KIND_U64, LOG_KIND_I64, LOG_KIND_F64, LOG_KIND_BOOL } kind;
    union {
        const char *str; /* NULL prints as an empty string */
        uint64_t u64;
        int64_t i64;
        double f64;
        bool flag;
    } as;
};

#define LOG_STR(k, v)  ((struct log_field){.key = (k), .kind = LOG_KIND_STR, .as.str = (v)})
#define LOG_U64(k, v)  ((struct log_field){.key = (k), .kind = LOG_KIND_U64, .as.u64 = (v)})
#define LOG_I64(k, v)  ((struct log_field){.key = (k), .kind = LOG_KIND_I64, .as.i64 = (v)})
#define LOG_F64(k, v)  ((struct log_field){.key = (k), .kind = LOG_KIND_F64, .as.f64 = (v)})
#define LOG_BOOL(k, v) ((struct log_field){.key = (k), .kind = LOG_KIND_BOOL, .as.flag = (v)})
#define LOG_ERR(c)     LOG_STR("error", err_name(c)) /* needs base/err.h */

#define LOG_FIELDS(...)       ((const struct log_field[]){__VA_ARGS__ __VA_OPT__(, ){.key = 0}})
#define log_debug(event, ...) log_write(LOG_LEVEL_DEBUG, event, LOG_FIELDS(__VA_ARGS__))
#define log_info(event, ...)  log_write(LOG_LEVEL_INFO, event, LOG_FIELDS(__VA_ARGS__))
#define log_warn(event, ...)  log_write(LOG_LEVEL_WARN, event, LOG_FIELDS(__VA_ARGS__))
#define log_error(event, ...) log_write(LOG_LEVEL_ERROR, event, LOG_FIELDS(__VA_ARGS__))

/* The log's level is the project's one mutable global.  program names the daemon in each line (borrowed). */
void log_setup(const char *program, enum log_level level, enum log_format format);
void log_set_level(enum log_level level);
bool log_enabled(enum log_level level);

/* Limits an event to lines_per_s lines each second.  The log counts the rest and reports them in one
 * "log_suppressed" line.  The default for every event is 200. 0: unlimited (access log).  At most 64 events
 * may have a limit (E_FULL). */
int log_set_limit(const char *event, unsigned lines_per_s);

/* Escapes values (control bytes, invalid UTF-8, terminal escapes) and cuts each at 1 KiB. */
void log_write(enum log_level level, const char *event, const struct log_field *fields);

#endif
