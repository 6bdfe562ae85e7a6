# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_conn
tests_fuzz_fuzz_conn_SOURCES = tests/fuzz/fuzz_conn.c tests/fuzz/conn_drive.c tests/fuzz/conn_drive.h
tests_fuzz_fuzz_conn_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_conn_LDADD = $(fuzz_main) $(link_http_tests)
EXTRA_DIST += tests/fuzz/corpus/conn
if !FUZZ
TESTS += tests/fuzz/fuzz_conn
endif
