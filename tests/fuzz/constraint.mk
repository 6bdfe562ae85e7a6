# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_constraint
tests_fuzz_fuzz_constraint_SOURCES = tests/fuzz/fuzz_constraint.c
tests_fuzz_fuzz_constraint_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_constraint_LDADD = $(fuzz_main) tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint)
EXTRA_DIST += tests/fuzz/corpus/constraint
if !FUZZ
TESTS += tests/fuzz/fuzz_constraint
endif
