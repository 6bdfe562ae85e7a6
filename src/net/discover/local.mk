# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libnet_discover.a
libnet_discover_a_CPPFLAGS = $(AM_CPPFLAGS) $(CURL_CFLAGS) $(CARES_CFLAGS)
libnet_discover_a_SOURCES = \
	src/net/discover/discover.c src/net/discover/discover.h src/net/discover/discover_priv.h \
	src/net/discover/dns.c src/net/discover/dns_reply.c \
	src/net/discover/endpoints.c src/net/discover/endpoints.h \
	src/net/discover/etcd.c src/net/discover/etcd_json.c src/net/discover/etcd_source.c \
	src/net/discover/file.c src/net/discover/members.c src/net/discover/names.c src/net/discover/register.c src/net/discover/thread.c \
	src/net/discover/url.c src/net/discover/url.h

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/net/discover/test_discover
TESTS += tests/unit/net/discover/test_discover
tests_unit_net_discover_test_discover_SOURCES = tests/unit/net/discover/test_discover.c
tests_unit_net_discover_test_discover_LDADD = $(link_net_discover) $(CMOCKA_LIBS)
endif
