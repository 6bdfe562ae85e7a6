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

# `make first` builds what ./run starts. Its workers have kernels for this machine only; all else is the same.
# `make first-pull` adds baton-model, which fetches models for ./run --model hf:...
# What libkern_here.a may have is wanted from the start, so that it gives it.
first_wants = -Wl,-u,kern_tables -Wl,-u,kern_bf16_peak -Wl,-u,kern_tiles_peak
first_programs = baton-router batonctl baton-chat baton-bench
if KERNELS_X86
EXTRA_PROGRAMS += first/baton-prefill first/baton-decode
first_workers = first/baton-prefill first/baton-decode
first_link = libkern_here.a $(filter-out $(kern_libs),$(link_worker_loop)) $(kern_here_libs) libgguf.a libbase.a
first_libraries = $(filter %.a,$(first_link))
EXTRA_PROGRAMS += first/baton-model
first_pull = first/baton-model
first_model_link = libpull.a libnet_http.a libkern_here.a $(filter-out $(kern_libs),$(link_serve_prompt) $(link_compute_sched)) $(kern_here_libs) \
	libgguf.a libbase.a $(CURL_LIBS)
first_baton_model_SOURCES = $(baton_model_SOURCES)
first_baton_model_LDFLAGS = $(AM_LDFLAGS) $(first_wants)
first_baton_model_LDADD = $(first_model_link)
first_baton_model_DEPENDENCIES = $(filter %.a,$(first_model_link))
first_baton_prefill_SOURCES = $(baton_prefill_SOURCES)
first_baton_prefill_LDFLAGS = $(AM_LDFLAGS) $(first_wants)
first_baton_prefill_LDADD = $(first_link)
first_baton_prefill_DEPENDENCIES = $(first_libraries)
first_baton_decode_SOURCES = $(baton_decode_SOURCES)
first_baton_decode_LDFLAGS = $(AM_LDFLAGS) $(first_wants)
first_baton_decode_LDADD = $(first_link)
first_baton_decode_DEPENDENCIES = $(first_libraries)
else
first_workers = baton-prefill baton-decode
first_pull = baton-model
endif
.PHONY: first first-pull
first: $(BUILT_SOURCES)
	$(AM_V_at)$(MAKE) $(AM_MAKEFLAGS) $(first_programs) $(first_workers)
first-pull: first
	$(AM_V_at)$(MAKE) $(AM_MAKEFLAGS) $(first_pull)
