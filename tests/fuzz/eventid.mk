# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_eventid
tests_fuzz_fuzz_eventid_SOURCES = tests/fuzz/fuzz_eventid.c
tests_fuzz_fuzz_eventid_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_eventid_LDADD = $(fuzz_main) $(link_serve_api)
EXTRA_DIST += tests/fuzz/corpus/eventid
if !FUZZ
TESTS += tests/fuzz/fuzz_eventid
endif
