# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_tracecontext
tests_fuzz_fuzz_tracecontext_SOURCES = tests/fuzz/fuzz_tracecontext.c
tests_fuzz_fuzz_tracecontext_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_tracecontext_LDADD = $(fuzz_main) $(link_net_otlp)
EXTRA_DIST += tests/fuzz/corpus/tracecontext
if !FUZZ
TESTS += tests/fuzz/fuzz_tracecontext
endif
