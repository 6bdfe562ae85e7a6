# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libtransfer_transport.a
libtransfer_transport_a_SOURCES = \
	src/transfer/transport/transport.h src/transfer/transport/tr_priv.h src/transfer/transport/tr_conn_priv.h src/transfer/transport/tr_stream_priv.h \
	src/transfer/transport/tr_digest_priv.h src/transfer/transport/tr_conn.c src/transfer/transport/tr_keys.c src/transfer/transport/tr_listen.c src/transfer/transport/tr_node.c src/transfer/transport/tr_push.c \
	src/transfer/transport/tr_shm.c src/transfer/transport/tr_stream.c src/transfer/transport/tr_tcp.c src/transfer/transport/tr_ticket.c
if XXH_DISPATCH
libtransfer_transport_a_SOURCES += src/transfer/transport/tr_digest_x86.c
else
libtransfer_transport_a_SOURCES += src/transfer/transport/tr_digest.c
endif
if HAVE_VERBS
libtransfer_transport_a_SOURCES += src/transfer/transport/verbs_priv.h src/transfer/transport/verbs_system.c \
	src/transfer/transport/tr_rdma_priv.h src/transfer/transport/tr_rdma_qp_priv.h \
	src/transfer/transport/tr_rdma.c src/transfer/transport/tr_rdma_fall.c src/transfer/transport/tr_rdma_mr.c src/transfer/transport/tr_rdma_qp.c \
	src/transfer/transport/tr_rdma_rail.c src/transfer/transport/tr_rdma_rails.c src/transfer/transport/tr_rdma_recv.c \
	src/transfer/transport/tr_rdma_send.c src/transfer/transport/tr_rdma_connect.c
else
libtransfer_transport_a_SOURCES += src/transfer/transport/tr_rdma_none.c
endif
EXTRA_DIST += src/transfer/transport/tr_rdma_none.c tests/conformance/verbs_none.c

if HAVE_CMOCKA
conformance_sources = tests/conformance/tr_world.c tests/conformance/tr_world.h $(conformance_verbs)
if HAVE_VERBS
conformance_verbs = tests/conformance/verbs_fake.c tests/conformance/verbs_fake_nic.c \
	tests/conformance/verbs_fake.h tests/conformance/verbs_fake_priv.h
else
conformance_verbs = tests/conformance/verbs_none.c
endif
check_PROGRAMS += tests/conformance/test_transport tests/conformance/test_transport_hostile \
	tests/conformance/test_transport_receivers tests/conformance/test_transport_users tests/conformance/test_transport_keys
TESTS += tests/conformance/test_transport tests/conformance/test_transport_hostile \
	tests/conformance/test_transport_receivers tests/conformance/test_transport_users tests/conformance/test_transport_keys
tests_conformance_test_transport_SOURCES = tests/conformance/test_transport.c $(conformance_sources)
tests_conformance_test_transport_LDADD = libnet_link.a $(link_transfer_transport) $(CMOCKA_LIBS)
check_PROGRAMS += tests/conformance/test_transport_peers
TESTS += tests/conformance/test_transport_peers
tests_conformance_test_transport_peers_SOURCES = tests/conformance/test_transport_peers.c $(conformance_sources)
tests_conformance_test_transport_peers_LDADD = libnet_link.a $(link_transfer_transport) $(CMOCKA_LIBS)
if HAVE_VERBS
check_PROGRAMS += tests/unit/transfer/transport/test_rdma tests/unit/transfer/transport/test_rdma_names
TESTS += tests/unit/transfer/transport/test_rdma tests/unit/transfer/transport/test_rdma_names
tests_unit_transfer_transport_test_rdma_SOURCES = tests/unit/transfer/transport/test_rdma.c $(conformance_sources)
tests_unit_transfer_transport_test_rdma_LDADD = libnet_link.a $(link_transfer_transport) $(CMOCKA_LIBS)
tests_unit_transfer_transport_test_rdma_names_SOURCES = tests/unit/transfer/transport/test_rdma_names.c $(conformance_sources)
tests_unit_transfer_transport_test_rdma_names_LDADD = libnet_link.a $(link_transfer_transport) $(CMOCKA_LIBS)
endif
tests_conformance_test_transport_keys_SOURCES = tests/conformance/test_transport_keys.c $(conformance_sources)
tests_conformance_test_transport_keys_LDADD = libnet_link.a $(link_transfer_transport) $(CMOCKA_LIBS)
tests_conformance_test_transport_users_SOURCES = tests/conformance/test_transport_users.c $(conformance_sources)
tests_conformance_test_transport_users_LDADD = libnet_link.a $(link_transfer_transport) $(CMOCKA_LIBS)
tests_conformance_test_transport_hostile_SOURCES = tests/conformance/test_transport_hostile.c \
	tests/conformance/tr_raw.c tests/conformance/tr_raw.h $(conformance_sources)
tests_conformance_test_transport_hostile_LDADD = libnet_link.a $(link_transfer_transport) $(CMOCKA_LIBS)
tests_conformance_test_transport_receivers_SOURCES = tests/conformance/test_transport_receivers.c \
	tests/conformance/tr_raw.c tests/conformance/tr_raw.h $(conformance_sources)
tests_conformance_test_transport_receivers_LDADD = libnet_link.a $(link_transfer_transport) $(CMOCKA_LIBS)
endif

# Not a test: run it by hand on a quiet machine.
