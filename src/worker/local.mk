# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libworker.a
libworker_a_SOURCES = src/worker/worker.h src/worker/worker.c src/worker/worker_priv.h \
	src/worker/worker_conf.h src/worker/worker_conf.c src/worker/worker_check.c src/worker/model_check.c src/worker/model.c src/worker/hello.c \
	src/worker/routers.c src/worker/answers.c src/worker/peers.c src/worker/local.c src/worker/status.c \
	src/worker/messages.h src/worker/messages.c src/worker/tasks.c src/worker/shapes.c src/worker/compile.c \
	src/worker/engine_thread.h src/worker/engine_thread_priv.h src/worker/engine_thread.c src/worker/measure.c \
	src/worker/commands.c
libworker_a_SOURCES += src/worker/share_priv.h src/worker/ask.c src/worker/lend.c src/worker/publish.c
libworker_a_SOURCES += src/worker/peer_map.c src/worker/follow.c
libworker_a_SOURCES += src/worker/disk.h src/worker/disk.c
libworker_a_SOURCES += src/worker/transport_choice.c src/worker/health.c

if HAVE_CMOCKA
worker_tests = tests/unit/worker/test_messages tests/unit/worker/test_routers tests/unit/worker/test_shapes
check_PROGRAMS += $(worker_tests)
TESTS += $(worker_tests)
check_PROGRAMS += tests/unit/worker/test_transport_choice
TESTS += tests/unit/worker/test_transport_choice
tests_unit_worker_test_transport_choice_SOURCES = tests/unit/worker/test_transport_choice.c
tests_unit_worker_test_transport_choice_LDADD = $(link_worker) $(CMOCKA_LIBS)
tests_unit_worker_test_messages_SOURCES = tests/unit/worker/test_messages.c
tests_unit_worker_test_messages_LDADD = $(link_worker) $(CMOCKA_LIBS)
tests_unit_worker_test_routers_SOURCES = tests/unit/worker/test_routers.c
tests_unit_worker_test_routers_LDADD = $(link_worker) $(CMOCKA_LIBS)
tests_unit_worker_test_shapes_SOURCES = tests/unit/worker/test_shapes.c $(grammar_test_help)
tests_unit_worker_test_shapes_LDADD = $(link_worker) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/worker/test_share
TESTS += tests/unit/worker/test_share
# transport, clock and the worker around are the test's own fakes
tests_unit_worker_test_share_SOURCES = tests/unit/worker/test_share.c tests/unit/worker/share_rig.h \
	tests/unit/worker/share_transport.c src/worker/ask.c src/worker/lend.c src/worker/transport_choice.c
tests_unit_worker_test_share_LDADD = libkvxfer.a libproto.a $(link_kv) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/worker/test_peer_map
TESTS += tests/unit/worker/test_peer_map
# links and the engine thread are the test's own fakes
tests_unit_worker_test_peer_map_SOURCES = tests/unit/worker/test_peer_map.c tests/unit/worker/map_rig.c tests/unit/worker/map_rig.h src/worker/peer_map.c src/worker/follow.c
tests_unit_worker_test_peer_map_LDADD = $(link_worker) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/worker/test_measure
TESTS += tests/unit/worker/test_measure
tests_unit_worker_test_measure_SOURCES = tests/unit/worker/test_measure.c tests/unit/sched/rig.c tests/unit/sched/rig.h
tests_unit_worker_test_measure_LDADD = $(link_worker) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/worker/test_disk
TESTS += tests/unit/worker/test_disk
tests_unit_worker_test_disk_SOURCES = tests/unit/worker/test_disk.c
tests_unit_worker_test_disk_LDADD = $(link_worker) $(CMOCKA_LIBS)
endif
