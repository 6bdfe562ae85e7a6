# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_plan
tests_fuzz_fuzz_plan_SOURCES = tests/fuzz/fuzz_plan.c
tests_fuzz_fuzz_plan_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_plan_LDADD = $(fuzz_main) $(link_fleet_plan)
EXTRA_DIST += tests/fuzz/corpus/plan
if !FUZZ
TESTS += tests/fuzz/fuzz_plan
endif
