# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_access
tests_fuzz_fuzz_access_SOURCES = tests/fuzz/fuzz_access.c clients/trace/export.c
tests_fuzz_fuzz_access_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_access_LDADD = $(fuzz_main) libbench.a libbase.a $(JANSSON_LIBS) $(SSL_LIBS) -lm -lpthread
EXTRA_DIST += tests/fuzz/corpus/access
if !FUZZ
TESTS += tests/fuzz/fuzz_access
endif
