/* SPDX-License-Identifier: Apache-2.0 */
/* The table of pins as functions.  pins.h has the rows. */
#include "compute/order/pins.h"

#include "base/clock.h"
#include "compute/order/work.h"

struct pin_row {
    const char *ttl;
    uint64_t ns;
};

#define PIN_ROW(name, ttl, s, field) {ttl, (uint64_t)(s)*NS_PER_S},
static const struct pin_row pin_rows[WORK_N_PINS] = {WORK_PINS(PIN_ROW)};
#undef PIN_ROW

const char *work_pin_ttl(enum work_pin pin)
{
    return pin_rows[pin].ttl;
}

uint64_t work_pin_ns(enum work_pin pin)
{
    return pin_rows[pin].ns;
}

bool work_pin_ends_at(const struct work *work, uint32_t n_blocks, uint32_t block_tokens)
{
    for (unsigned pin = 0; pin < WORK_N_PINS; pin++)
        if (n_blocks == work->pin_tokens[pin] / block_tokens)
            return true;
    return false;
}
