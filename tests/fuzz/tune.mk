# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_tune
tests_fuzz_fuzz_tune_SOURCES = tests/fuzz/fuzz_tune.c
tests_fuzz_fuzz_tune_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_tune_LDADD = $(fuzz_main) $(link_compute_tensor)
EXTRA_DIST += tests/fuzz/corpus/tune
if !FUZZ
TESTS += tests/fuzz/fuzz_tune
endif
