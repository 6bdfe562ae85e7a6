# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_http
tests_fuzz_fuzz_http_SOURCES = tests/fuzz/fuzz_http.c
tests_fuzz_fuzz_http_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_http_LDADD = $(fuzz_main) $(link_http_tests)
EXTRA_DIST += tests/fuzz/corpus/http
if !FUZZ
TESTS += tests/fuzz/fuzz_http
endif
