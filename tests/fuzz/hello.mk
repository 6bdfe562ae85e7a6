# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_hello
tests_fuzz_fuzz_hello_SOURCES = tests/fuzz/fuzz_hello.c
tests_fuzz_fuzz_hello_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_hello_LDADD = $(fuzz_main) $(link_base_event)
EXTRA_DIST += tests/fuzz/corpus/hello
if !FUZZ
TESTS += tests/fuzz/fuzz_hello
endif
