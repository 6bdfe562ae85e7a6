# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libdecode.a
libdecode_a_SOURCES = src/decode/arrive.h src/decode/arrive.c

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/decode/test_relay
TESTS += tests/unit/decode/test_relay
tests_unit_decode_test_relay_SOURCES = tests/unit/decode/test_relay.c
tests_unit_decode_test_relay_LDADD = libprefill.a $(link_decode) $(CMOCKA_LIBS)
endif
