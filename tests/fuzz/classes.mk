# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_classes
tests_fuzz_fuzz_classes_SOURCES = tests/fuzz/fuzz_classes.c
tests_fuzz_fuzz_classes_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_classes_LDADD = $(fuzz_main) $(link_fleet_picker)
EXTRA_DIST += tests/fuzz/corpus/classes
if !FUZZ
TESTS += tests/fuzz/fuzz_classes
endif
