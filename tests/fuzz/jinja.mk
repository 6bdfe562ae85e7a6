# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_jinja
tests_fuzz_fuzz_jinja_SOURCES = tests/fuzz/fuzz_jinja.c
tests_fuzz_fuzz_jinja_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_jinja_LDADD = $(fuzz_main) $(link_text_token)
EXTRA_DIST += tests/fuzz/corpus/jinja
if !FUZZ
TESTS += tests/fuzz/fuzz_jinja
endif
