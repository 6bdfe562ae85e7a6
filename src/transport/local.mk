# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libtransport.a
libtransport_a_SOURCES = \
	src/transport/transport.h src/transport/tr_priv.h src/transport/tr_conn_priv.h src/transport/tr_stream_priv.h \
	src/transport/tr_digest_priv.h src/transport/tr_conn.c src/transport/tr_listen.c src/transport/tr_node.c src/transport/tr_push.c \
	src/transport/tr_shm.c src/transport/tr_stream.c src/transport/tr_tcp.c src/transport/tr_ticket.c
if XXH_DISPATCH
libtransport_a_SOURCES += src/transport/tr_digest_x86.c
else
libtransport_a_SOURCES += src/transport/tr_digest.c
endif
if HAVE_VERBS
libtransport_a_SOURCES += src/transport/verbs.h src/transport/verbs_system.c \
	src/transport/tr_rdma_priv.h src/transport/tr_rdma_qp_priv.h \
	src/transport/tr_rdma.c src/transport/tr_rdma_fall.c src/transport/tr_rdma_mr.c src/transport/tr_rdma_qp.c \
	src/transport/tr_rdma_rail.c src/transport/tr_rdma_rails.c src/transport/tr_rdma_recv.c \
	src/transport/tr_rdma_send.c src/transport/tr_rdma_share.c
else
libtransport_a_SOURCES += src/transport/tr_rdma_none.c
endif
EXTRA_DIST += src/transport/tr_rdma_none.c tests/conformance/verbs_none.c

if HAVE_CMOCKA
conformance_sources = tests/conformance/tr_world.c tests/conformance/tr_world.h $(conformance_verbs)
if HAVE_VERBS
conformance_verbs = tests/conformance/verbs_fake.c tests/conformance/verbs_fake_nic.c \
	tests/conformance/verbs_fake.h tests/conformance/verbs_fake_priv.h
else
conformance_verbs = tests/conformance/verbs_none.c
endif
check_PROGRAMS += tests/conformance/test_transport tests/conformance/test_transport_hostile \
	tests/conformance/test_transport_receivers tests/conformance/test_transport_users
TESTS += tests/conformance/test_transport tests/conformance/test_transport_hostile \
	tests/conformance/test_transport_receivers tests/conformance/test_transport_users
tests_conformance_test_transport_SOURCES = tests/conformance/test_transport.c $(conformance_sources)
tests_conformance_test_transport_LDADD = libnet.a $(link_transport) $(CMOCKA_LIBS)
check_PROGRAMS += tests/conformance/test_transport_peers
TESTS += tests/conformance/test_transport_peers
tests_conformance_test_transport_peers_SOURCES = tests/conformance/test_transport_peers.c $(conformance_sources)
tests_conformance_test_transport_peers_LDADD = libnet.a $(link_transport) $(CMOCKA_LIBS)
if HAVE_VERBS
check_PROGRAMS += tests/unit/transport/test_rdma tests/unit/transport/test_rdma_names
TESTS += tests/unit/transport/test_rdma tests/unit/transport/test_rdma_names
tests_unit_transport_test_rdma_SOURCES = tests/unit/transport/test_rdma.c $(conformance_sources)
tests_unit_transport_test_rdma_LDADD = libnet.a $(link_transport) $(CMOCKA_LIBS)
tests_unit_transport_test_rdma_names_SOURCES = tests/unit/transport/test_rdma_names.c $(conformance_sources)
tests_unit_transport_test_rdma_names_LDADD = libnet.a $(link_transport) $(CMOCKA_LIBS)
endif
tests_conformance_test_transport_users_SOURCES = tests/conformance/test_transport_users.c $(conformance_sources)
tests_conformance_test_transport_users_LDADD = libnet.a $(link_transport) $(CMOCKA_LIBS)
tests_conformance_test_transport_hostile_SOURCES = tests/conformance/test_transport_hostile.c \
	tests/conformance/tr_raw.c tests/conformance/tr_raw.h $(conformance_sources)
tests_conformance_test_transport_hostile_LDADD = libnet.a $(link_transport) $(CMOCKA_LIBS)
tests_conformance_test_transport_receivers_SOURCES = tests/conformance/test_transport_receivers.c \
	tests/conformance/tr_raw.c tests/conformance/tr_raw.h $(conformance_sources)
tests_conformance_test_transport_receivers_LDADD = libnet.a $(link_transport) $(CMOCKA_LIBS)
endif

# Not a test: run it by hand on a quiet machine.
