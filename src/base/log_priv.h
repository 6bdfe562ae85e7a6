/* SPDX-License-Identifier: Apache-2.0 */
/* Formats one log line in each output format. */
#ifndef BASE_LOG_PRIV_H
#define BASE_LOG_PRIV_H

#include "base/bytes.h"
#include "base/log.h"

struct log_line {
    const char *program;
    enum log_level level;
    const char *event;
    const struct log_field *fields;
    uint64_t unix_ns;
    bool has_colour;
};

/* Append one line including its end. out->is_bad is set when memory ran out. */
void log_format_json(const struct log_line *line, struct buf *out);
void log_format_text(const struct log_line *line, struct buf *out);
/* A datagram of journald's native protocol. */
void log_format_journal(const struct log_line *line, struct buf *out);

/* syslog's number for the level: 7 debug, 6 info, 4 warning, 3 error. */
int log_priority(enum log_level level);

#endif
