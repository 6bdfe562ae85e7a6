# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_api
tests_fuzz_fuzz_api_SOURCES = tests/fuzz/fuzz_api.c
tests_fuzz_fuzz_api_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_api_LDADD = $(fuzz_main) $(link_serve_api)
EXTRA_DIST += tests/fuzz/corpus/api
if !FUZZ
TESTS += tests/fuzz/fuzz_api
endif
