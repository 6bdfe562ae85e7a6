# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_admit
tests_fuzz_fuzz_admit_SOURCES = tests/fuzz/fuzz_admit.c
tests_fuzz_fuzz_admit_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_admit_LDADD = $(fuzz_main) $(link_serve_endpoint)
EXTRA_DIST += tests/fuzz/corpus/admit
if !FUZZ
TESTS += tests/fuzz/fuzz_admit
endif
