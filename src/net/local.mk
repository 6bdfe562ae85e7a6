# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libnet.a
libnet_a_SOURCES = \
	src/net/addr.c src/net/addr.h \
	src/net/link.c src/net/link.h src/net/link_priv.h src/net/link_dial.c src/net/link_frame.c \
	src/net/listen_check.c src/net/listen_check.h \
	src/net/listener.c src/net/listener.h \
	src/net/resolve.c src/net/resolve.h \
	src/net/stranger_counts.c src/net/stranger_counts.h src/net/tls.c src/net/tls.h

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/net/test_tls tests/unit/net/test_addr tests/unit/net/test_link
TESTS += tests/unit/net/test_tls tests/unit/net/test_addr tests/unit/net/test_link
tests_unit_net_test_tls_SOURCES = tests/unit/net/test_tls.c
tests_unit_net_test_tls_LDADD = $(link_net) $(CMOCKA_LIBS)
tests_unit_net_test_addr_SOURCES = tests/unit/net/test_addr.c
tests_unit_net_test_addr_LDADD = $(link_net) $(CMOCKA_LIBS)
tests_unit_net_test_link_SOURCES = tests/unit/net/test_link.c tests/unit/net/link_rig.c tests/unit/net/link_rig.h
tests_unit_net_test_link_LDADD = $(link_net) $(CMOCKA_LIBS)
endif
