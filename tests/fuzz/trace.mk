# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_trace
tests_fuzz_fuzz_trace_SOURCES = tests/fuzz/fuzz_trace.c clients/sim/replay.c
tests_fuzz_fuzz_trace_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_trace_LDADD = $(fuzz_main) libbench.a $(link_fleet_sim) $(JANSSON_LIBS)
EXTRA_DIST += tests/fuzz/corpus/trace
if !FUZZ
TESTS += tests/fuzz/fuzz_trace
endif
