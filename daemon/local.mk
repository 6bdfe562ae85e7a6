# SPDX-License-Identifier: Apache-2.0
sbin_PROGRAMS += baton-router baton-prefill baton-decode
daemon_common = daemon/main_common.h daemon/main_common.c
daemon_worker = $(daemon_common) daemon/worker_main.h daemon/worker_main.c

baton_router_SOURCES = daemon/router_main.c $(daemon_common)
baton_router_LDADD = $(link_fleet_router)
baton_prefill_SOURCES = daemon/prefill_main.c $(daemon_worker)
baton_prefill_LDADD = $(link_worker_loop)
baton_decode_SOURCES = daemon/decode_main.c $(daemon_worker)
baton_decode_LDADD = $(link_worker_loop)
