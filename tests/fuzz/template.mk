# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_template
tests_fuzz_fuzz_template_SOURCES = tests/fuzz/fuzz_template.c
tests_fuzz_fuzz_template_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_template_LDADD = $(fuzz_main) $(link_text_token)
EXTRA_DIST += tests/fuzz/corpus/template
if !FUZZ
TESTS += tests/fuzz/fuzz_template
endif
