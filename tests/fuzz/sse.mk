# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_sse
tests_fuzz_fuzz_sse_SOURCES = tests/fuzz/fuzz_sse.c
tests_fuzz_fuzz_sse_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_sse_LDADD = $(fuzz_main) $(link_http_tests)
EXTRA_DIST += tests/fuzz/corpus/sse
if !FUZZ
TESTS += tests/fuzz/fuzz_sse
endif
