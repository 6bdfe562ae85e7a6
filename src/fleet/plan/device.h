/* SPDX-License-Identifier: Apache-2.0 */
/* Devices and links: the numbers of the hardware, each with its source.
 *
 * NAN means unknown.  A plan that needs an unknown number is refused with the number's name; nothing is
 * guessed.  FLOPS are dense; rates are per direction and per device. */
#ifndef FLEET_PLAN_DEVICE_H
#define FLEET_PLAN_DEVICE_H

#include "fleet/plan/table.h"

#define PLAN_DEVICE_FIELDS(X)                                                                                \
    X(DEV_MEMORY, "memory", "bytes of memory")                                                               \
    X(DEV_MEMORY_RATE, "memory_rate", "bytes per second from memory")                                        \
    X(DEV_SRAM, "sram", "bytes of memory on the chip")                                                       \
    X(DEV_SRAM_RATE, "sram_rate", "bytes per second from memory on the chip")                                \
    X(DEV_FP32, "flops_fp32", "dense FLOPS in FP32")                                                         \
    X(DEV_FP16, "flops_fp16", "dense FLOPS in FP16")                                                         \
    X(DEV_BF16, "flops_bf16", "dense FLOPS in BF16")                                                         \
    X(DEV_INT8, "flops_int8", "dense operations per second in INT8")                                         \
    X(DEV_FP8, "flops_fp8", "dense FLOPS in FP8")                                                            \
    X(DEV_INT4, "flops_int4", "dense operations per second in INT4")                                         \
    X(DEV_FP4, "flops_fp4", "dense FLOPS in FP4")                                                            \
    X(DEV_SCALEUP_RATE, "scaleup_rate", "bytes per second to the other devices of a node")                   \
    X(DEV_SCALEUP_PEER, "scaleup_peer_rate", "bytes per second to one other device of a node")               \
    X(DEV_SCALEUP_DEVICES, "scaleup_devices", "devices that the scale-up network joins")                     \
    X(DEV_NIC_RATE, "nic_rate", "bytes per second of a device's share of the network cards")                 \
    X(DEV_HOST_RATE, "host_rate", "bytes per second to the host's memory")                                   \
    X(DEV_WATTS, "watts", "power of a device")                                                               \
    X(DEV_PRICE, "price", "dollars per device and hour")                                                     \
    X(DEV_MATMUL_BF16, "matmul_bf16", "part of the dense BF16 rate that a large matmul reaches")             \
    X(DEV_MATMUL_FP8, "matmul_fp8", "part of the dense FP8 rate that a large matmul reaches")

enum plan_device_field {
#define X(id, name, text) id,
    PLAN_DEVICE_FIELDS(X)
#undef X
        DEV_N_FIELDS
};

struct plan_device {
    char id[48];
    char name[64];
    char kind[16]; /* gpu, tpu, npu, cpu, wafer, sram-decode, system ... */
    char confidence[16];
    char aliases[128];
    char note[400];
    double at[DEV_N_FIELDS];
    char *sources[DEV_N_FIELDS]; /* owned */
};

struct plan_devices { /* a zeroed struct is empty */
    struct plan_device *list;
    size_t n;
};

struct plan_link {
    char id[32];
    double rate;          /* bytes per second, one direction */
    double measured_part; /* of the rate in bulk copies; NAN: not measured */
    double startup_s;     /* NAN: not measured */
    char source[160];
};

struct plan_links {
    struct plan_link *list;
    size_t n;
};

const char *plan_device_field_name(enum plan_device_field field);
const char *plan_device_field_text(enum plan_device_field field);

/* Adds the devices of a table with the columns device, field, value and source.  For a known device, each row
 * changes a field.  A value without a source is refused.  A rate of 1.6 times the known dense or one-way rate,
 * or more, is refused too: it is a sparse or a two-way figure. */
int plan_devices_add(struct plan_devices *devices, struct bytes text, struct fault *fault);
void plan_devices_fini(struct plan_devices *devices);
/* By id, by alias, or by the only id that begins with name; '_' equals '-', case is ignored.  E_NOT_FOUND and
 * E_INVAL (several fit), with the nearest names in the fault. */
int plan_devices_find(const struct plan_devices *devices, const char *name, struct fault *fault,
                      const struct plan_device **out);
/* Reads "h100" or "h100,watts=650,memory=80GB": a copy with changed numbers, whose source is the command
 * line.  The copy borrows the sources of devices.  "new,memory=..." defines a device of its own. */
int plan_device_inline(const struct plan_devices *devices, const char *text, struct fault *fault,
                       struct plan_device *out);

int plan_links_add(struct plan_links *links, struct bytes text, struct fault *fault);
void plan_links_fini(struct plan_links *links);
/* By id, or a rate such as "400Gb/s" or "50GB/s". */
int plan_links_find(const struct plan_links *links, const char *name, struct fault *fault,
                    struct plan_link *out);

/* Case-blind, '_' as '-'. */
bool plan_name_equal(const char *a, const char *b);
bool plan_name_begins(const char *name, const char *beginning);
bool plan_name_in_list(const char *list, const char *name); /* a list with commas */

#endif
