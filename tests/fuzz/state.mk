# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_state
tests_fuzz_fuzz_state_SOURCES = tests/fuzz/fuzz_state.c
tests_fuzz_fuzz_state_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_state_LDADD = $(fuzz_main) $(link_fleet_router)
EXTRA_DIST += tests/fuzz/corpus/state
if !FUZZ
TESTS += tests/fuzz/fuzz_state
endif
