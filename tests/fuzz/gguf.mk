# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_gguf
tests_fuzz_fuzz_gguf_SOURCES = tests/fuzz/fuzz_gguf.c
tests_fuzz_fuzz_gguf_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_gguf_LDADD = $(fuzz_main) $(link_gguf)
EXTRA_DIST += tests/fuzz/corpus/gguf
if !FUZZ
TESTS += tests/fuzz/fuzz_gguf
endif
