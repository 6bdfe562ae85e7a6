# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libnet_s3.a
libnet_s3_a_SOURCES = src/net/s3/s3_url.c src/net/s3/s3_url.h src/net/s3/sigv4.c src/net/s3/sigv4.h

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/net/s3/test_s3
TESTS += tests/unit/net/s3/test_s3
tests_unit_net_s3_test_s3_SOURCES = tests/unit/net/s3/test_s3.c
tests_unit_net_s3_test_s3_LDADD = $(link_net_s3) $(CMOCKA_LIBS)
endif
