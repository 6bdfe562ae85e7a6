# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libtransport.a
libtransport_a_SOURCES = \
	src/transport/transport.h src/transport/tr_priv.h src/transport/tr_conn_priv.h src/transport/tr_stream_priv.h \
	src/transport/tr_conn.c src/transport/tr_listen.c src/transport/tr_node.c src/transport/tr_push.c \
	src/transport/tr_shm.c src/transport/tr_stream.c src/transport/tr_tcp.c src/transport/tr_ticket.c

if HAVE_CMOCKA
conformance_sources = tests/conformance/tr_world.c tests/conformance/tr_world.h
check_PROGRAMS += tests/conformance/test_transport tests/conformance/test_transport_hostile \
	tests/conformance/test_transport_users
TESTS += tests/conformance/test_transport tests/conformance/test_transport_hostile \
	tests/conformance/test_transport_users
tests_conformance_test_transport_SOURCES = tests/conformance/test_transport.c $(conformance_sources)
tests_conformance_test_transport_LDADD = libnet.a $(link_transport) $(CMOCKA_LIBS)
tests_conformance_test_transport_users_SOURCES = tests/conformance/test_transport_users.c $(conformance_sources)
tests_conformance_test_transport_users_LDADD = libnet.a $(link_transport) $(CMOCKA_LIBS)
tests_conformance_test_transport_hostile_SOURCES = tests/conformance/test_transport_hostile.c \
	tests/conformance/tr_raw.c tests/conformance/tr_raw.h $(conformance_sources)
tests_conformance_test_transport_hostile_LDADD = libnet.a $(link_transport) $(CMOCKA_LIBS)
endif

# Not a test: run it by hand on a quiet machine.
