# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_responses
tests_fuzz_fuzz_responses_SOURCES = tests/fuzz/fuzz_responses.c
tests_fuzz_fuzz_responses_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_responses_LDADD = $(fuzz_main) $(link_serve_api)
EXTRA_DIST += tests/fuzz/corpus/responses
if !FUZZ
TESTS += tests/fuzz/fuzz_responses
endif
