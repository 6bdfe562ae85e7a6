# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_h2
tests_fuzz_fuzz_h2_SOURCES = tests/fuzz/fuzz_h2.c tests/fuzz/conn_drive.c tests/fuzz/conn_drive.h
tests_fuzz_fuzz_h2_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_h2_LDADD = $(fuzz_main) $(link_http_tests)
EXTRA_DIST += tests/fuzz/corpus/h2
if !FUZZ
TESTS += tests/fuzz/fuzz_h2
endif
