# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_cgroup
tests_fuzz_fuzz_cgroup_SOURCES = tests/fuzz/fuzz_cgroup.c
tests_fuzz_fuzz_cgroup_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_cgroup_LDADD = $(fuzz_main) libbase.a -lpthread
EXTRA_DIST += tests/fuzz/corpus/cgroup
if !FUZZ
TESTS += tests/fuzz/fuzz_cgroup
endif
