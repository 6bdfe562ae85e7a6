# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_imatrix
tests_fuzz_fuzz_imatrix_SOURCES = tests/fuzz/fuzz_imatrix.c clients/model/imatrix_dat.c
tests_fuzz_fuzz_imatrix_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_imatrix_LDADD = $(fuzz_main) libbase.a
EXTRA_DIST += tests/fuzz/corpus/imatrix
if !FUZZ
TESTS += tests/fuzz/fuzz_imatrix
endif
