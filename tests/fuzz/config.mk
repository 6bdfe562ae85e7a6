# SPDX-License-Identifier: Apache-2.0
# The model for the other fragments: replace "config" by the target's name, and link_config by its libraries.
check_PROGRAMS += tests/fuzz/fuzz_config
tests_fuzz_fuzz_config_SOURCES = tests/fuzz/fuzz_config.c
tests_fuzz_fuzz_config_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_config_LDADD = $(fuzz_main) $(link_base_config)
EXTRA_DIST += tests/fuzz/corpus/config
if !FUZZ
TESTS += tests/fuzz/fuzz_config
endif
