# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_kvframe
tests_fuzz_fuzz_kvframe_SOURCES = tests/fuzz/fuzz_kvframe.c
tests_fuzz_fuzz_kvframe_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_kvframe_LDADD = $(fuzz_main) $(link_proto)
EXTRA_DIST += tests/fuzz/corpus/kvframe
if !FUZZ
TESTS += tests/fuzz/fuzz_kvframe
endif
