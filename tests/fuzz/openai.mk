# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_openai
tests_fuzz_fuzz_openai_SOURCES = tests/fuzz/fuzz_openai.c
tests_fuzz_fuzz_openai_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_openai_LDADD = $(fuzz_main) $(link_serve_api)
EXTRA_DIST += tests/fuzz/corpus/openai
if !FUZZ
TESTS += tests/fuzz/fuzz_openai
endif
