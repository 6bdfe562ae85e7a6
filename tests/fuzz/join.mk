# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_join
tests_fuzz_fuzz_join_SOURCES = tests/fuzz/fuzz_join.c clients/ctl/join_text.c clients/ctl/join_conf.c clients/ctl/join_wait.c \
	clients/ctl/wire.c clients/ctl/members.c clients/ctl/check_view.c
tests_fuzz_fuzz_join_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_join_LDADD = $(fuzz_main) $(link_clients)
EXTRA_DIST += tests/fuzz/corpus/join
if !FUZZ
TESTS += tests/fuzz/fuzz_join
endif
