# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libnet_link.a
libnet_link_a_SOURCES = \
	src/net/link/addr.c src/net/link/addr.h src/net/link/cluster_key.c src/net/link/cluster_key.h \
	src/net/link/link.c src/net/link/link.h src/net/link/link_priv.h src/net/link/link_dial.c src/net/link/link_frame.c src/net/link/link_keys.c \
	src/net/link/listen_check.c src/net/link/listen_check.h \
	src/net/link/listener.c src/net/link/listener.h \
	src/net/link/probe.c src/net/link/probe.h \
	src/net/link/resolve.c src/net/link/resolve_priv.h \
	src/net/link/stranger_counts.c src/net/link/stranger_counts.h src/net/link/tls.c src/net/link/tls.h \
	src/net/link/tls_ctx.c src/net/link/tls_ctx.h src/net/link/tls_files.c src/net/link/tls_files.h

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/net/link/test_tls tests/unit/net/link/test_addr tests/unit/net/link/test_link tests/unit/net/link/test_probe
TESTS += tests/unit/net/link/test_tls tests/unit/net/link/test_addr tests/unit/net/link/test_link tests/unit/net/link/test_probe
tests_unit_net_link_test_probe_SOURCES = tests/unit/net/link/test_probe.c
tests_unit_net_link_test_probe_LDADD = $(link_net_link) $(CMOCKA_LIBS)
tests_unit_net_link_test_tls_SOURCES = tests/unit/net/link/test_tls.c
tests_unit_net_link_test_tls_LDADD = $(link_net_link) $(CMOCKA_LIBS)
tests_unit_net_link_test_addr_SOURCES = tests/unit/net/link/test_addr.c
tests_unit_net_link_test_addr_LDADD = $(link_net_link) $(CMOCKA_LIBS)
tests_unit_net_link_test_link_SOURCES = tests/unit/net/link/test_link.c tests/unit/net/link/link_rig.c tests/unit/net/link/link_rig.h
tests_unit_net_link_test_link_LDADD = $(link_net_link) $(CMOCKA_LIBS)
endif
