# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_calls
tests_fuzz_fuzz_calls_SOURCES = tests/fuzz/fuzz_calls.c
tests_fuzz_fuzz_calls_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_calls_LDADD = $(fuzz_main) $(link_text_toolcall)
EXTRA_DIST += tests/fuzz/corpus/calls
if !FUZZ
TESTS += tests/fuzz/fuzz_calls
endif
