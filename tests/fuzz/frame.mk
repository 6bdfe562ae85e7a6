# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_frame
tests_fuzz_fuzz_frame_SOURCES = tests/fuzz/fuzz_frame.c
tests_fuzz_fuzz_frame_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_frame_LDADD = $(fuzz_main) $(link_proto)
EXTRA_DIST += tests/fuzz/corpus/frame
if !FUZZ
TESTS += tests/fuzz/fuzz_frame
endif
