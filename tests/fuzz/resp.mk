# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_resp
tests_fuzz_fuzz_resp_SOURCES = tests/fuzz/fuzz_resp.c
tests_fuzz_fuzz_resp_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_resp_LDADD = $(fuzz_main) $(link_net_redis)
EXTRA_DIST += tests/fuzz/corpus/resp
if !FUZZ
TESTS += tests/fuzz/fuzz_resp
endif
