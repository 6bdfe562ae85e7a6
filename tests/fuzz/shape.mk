# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_shape
tests_fuzz_fuzz_shape_SOURCES = tests/fuzz/fuzz_shape.c
tests_fuzz_fuzz_shape_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_shape_LDADD = $(fuzz_main) tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint)
EXTRA_DIST += tests/fuzz/corpus/shape
if !FUZZ
TESTS += tests/fuzz/fuzz_shape
endif
