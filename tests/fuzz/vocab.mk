# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_vocab
tests_fuzz_fuzz_vocab_SOURCES = tests/fuzz/fuzz_vocab.c
tests_fuzz_fuzz_vocab_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_vocab_LDADD = $(fuzz_main) $(link_text_token)
EXTRA_DIST += tests/fuzz/corpus/vocab
if !FUZZ
TESTS += tests/fuzz/fuzz_vocab
endif
