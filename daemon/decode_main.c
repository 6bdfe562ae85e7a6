/* SPDX-License-Identifier: Apache-2.0 */
/* baton-decode: options and configuration, then worker/loop/worker.c, with both ends of a KV transfer. */
#include "daemon/worker_main.h"

int main(int argc, char **argv)
{
    return worker_main(argc, argv, &decode_conf_table);
}
