# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_clients
tests_fuzz_fuzz_clients_SOURCES = tests/fuzz/fuzz_clients.c clients/ctl/status.c
tests_fuzz_fuzz_clients_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_clients_LDADD = $(fuzz_main) libbench.a $(link_clients)
EXTRA_DIST += tests/fuzz/corpus/clients
if !FUZZ
TESTS += tests/fuzz/fuzz_clients
endif
