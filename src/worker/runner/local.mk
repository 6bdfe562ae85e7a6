# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libworker_runner.a
libworker_runner_a_SOURCES = src/worker/runner/block_map_priv.h src/worker/runner/chain.c src/worker/runner/hashing.c \
	src/worker/runner/commands.c src/worker/runner/disk.c \
	src/worker/runner/disk_metrics.c src/worker/runner/disk_metrics_priv.h src/worker/runner/disk_priv.h src/worker/runner/engine_thread.c src/worker/runner/engine_thread.h \
	src/worker/runner/engine_thread_priv.h src/worker/runner/head_kv.c src/worker/runner/head_kv_priv.h src/worker/runner/health.c \
	src/worker/runner/kv_receive.c src/worker/runner/kv_send.c \
	src/worker/runner/measure.c src/worker/runner/messages.c src/worker/runner/messages.h \
	src/worker/runner/peer_map.c src/worker/runner/peer_uses.c src/worker/runner/prefix_fetch.c src/worker/runner/prefix_serve.c \
	src/worker/runner/publish.c src/worker/runner/read_hold.c src/worker/runner/read_hold_priv.h src/worker/runner/remote.c src/worker/runner/remote_seen.c src/worker/runner/remote_seen_priv.h src/worker/runner/remote_priv.h src/worker/runner/remote_state_priv.h src/worker/runner/remote_save.c src/worker/runner/remote_metrics.c src/worker/runner/remote_metrics_priv.h src/worker/runner/state_list.c src/worker/runner/state_list_priv.h src/worker/runner/grammars.c src/worker/runner/tasks.c src/worker/runner/task_events.c src/worker/runner/task_log.c src/worker/runner/task_spans.c src/worker/runner/transfers.c \
	src/worker/runner/transfers_priv.h src/worker/runner/transport_choice.c

if HAVE_CMOCKA
worker_tests = tests/unit/worker/runner/test_messages tests/unit/worker/loop/test_routers \
	tests/unit/worker/runner/test_grammars
check_PROGRAMS += $(worker_tests)
TESTS += $(worker_tests)
check_PROGRAMS += tests/unit/worker/runner/test_transport_choice
TESTS += tests/unit/worker/runner/test_transport_choice
tests_unit_worker_runner_test_transport_choice_SOURCES = tests/unit/worker/runner/test_transport_choice.c
tests_unit_worker_runner_test_transport_choice_LDADD = $(link_worker_runner) $(CMOCKA_LIBS)
tests_unit_worker_runner_test_messages_SOURCES = tests/unit/worker/runner/test_messages.c
tests_unit_worker_runner_test_messages_LDADD = $(link_worker_runner) $(CMOCKA_LIBS)
tests_unit_worker_runner_test_grammars_SOURCES = tests/unit/worker/runner/test_grammars.c $(grammar_test_help)
tests_unit_worker_runner_test_grammars_LDADD = $(link_worker_runner) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/worker/runner/test_prefix_fetch
TESTS += tests/unit/worker/runner/test_prefix_fetch
# The test fakes the transport, the clock and the rest of the worker.
tests_unit_worker_runner_test_prefix_fetch_SOURCES = tests/unit/worker/runner/test_prefix_fetch.c tests/unit/worker/runner/prefix_fetch_rig.h \
	tests/unit/worker/runner/prefix_fetch_transport.c src/worker/runner/chain.c src/worker/runner/head_kv.c src/worker/runner/kv_receive.c \
	src/worker/runner/kv_send.c src/worker/runner/prefix_fetch.c src/worker/runner/prefix_serve.c \
	src/worker/runner/state_list.c src/worker/runner/task_spans.c \
	src/worker/runner/peer_uses.c src/worker/runner/transfers.c src/worker/runner/transport_choice.c
tests_unit_worker_runner_test_prefix_fetch_LDADD = libtransfer_kvxfer.a libproto.a libbase_metrics.a $(link_compute_sched) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/worker/runner/test_head_kv
TESTS += tests/unit/worker/runner/test_head_kv
# The test fakes the scheduler.
tests_unit_worker_runner_test_head_kv_SOURCES = tests/unit/worker/runner/test_head_kv.c src/worker/runner/head_kv.c
tests_unit_worker_runner_test_head_kv_LDADD = $(link_cache_kv) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/worker/runner/test_peer_map
TESTS += tests/unit/worker/runner/test_peer_map
# The test fakes the links and the engine thread.
tests_unit_worker_runner_test_peer_map_SOURCES = tests/unit/worker/runner/test_peer_map.c \
	tests/unit/worker/runner/map_rig.c tests/unit/worker/runner/map_rig.h src/worker/runner/peer_map.c \
	src/worker/loop/follow.c
tests_unit_worker_runner_test_peer_map_LDADD = $(link_worker_runner) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/worker/runner/test_measure
TESTS += tests/unit/worker/runner/test_measure
tests_unit_worker_runner_test_measure_SOURCES = tests/unit/worker/runner/test_measure.c \
	tests/unit/compute/sched/rig.c tests/unit/compute/sched/rig.h
tests_unit_worker_runner_test_measure_LDADD = $(link_worker_runner) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/worker/runner/test_disk
TESTS += tests/unit/worker/runner/test_disk
tests_unit_worker_runner_test_disk_SOURCES = tests/unit/worker/runner/test_disk.c tests/unit/worker/runner/disk_rig.c tests/unit/worker/runner/disk_rig.h
tests_unit_worker_runner_test_disk_LDADD = $(link_worker_runner) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/worker/runner/test_disk_save
TESTS += tests/unit/worker/runner/test_disk_save
tests_unit_worker_runner_test_disk_save_SOURCES = tests/unit/worker/runner/test_disk_save.c tests/unit/worker/runner/disk_rig.c tests/unit/worker/runner/disk_rig.h
tests_unit_worker_runner_test_disk_save_LDADD = $(link_worker_runner) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/worker/runner/test_remote_read
TESTS += tests/unit/worker/runner/test_remote_read
# The test fakes both tiers, the scheduler's load and the rest of the worker.
tests_unit_worker_runner_test_remote_read_SOURCES = tests/unit/worker/runner/test_remote_read.c tests/unit/worker/runner/disk_rig.c tests/unit/worker/runner/disk_rig.h
tests_unit_worker_runner_test_remote_read_LDADD = $(link_worker_runner) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/worker/runner/test_chain
TESTS += tests/unit/worker/runner/test_chain
tests_unit_worker_runner_test_chain_SOURCES = tests/unit/worker/runner/test_chain.c
tests_unit_worker_runner_test_chain_LDADD = libworker_runner.a $(link_worker_runner) $(CMOCKA_LIBS)
tests_unit_worker_runner_test_chain_LDFLAGS = -Wl,--wrap=prefix_roots_extend -Wl,--wrap=prefix_roots_chain
check_PROGRAMS += tests/unit/worker/runner/test_relay
TESTS += tests/unit/worker/runner/test_relay
tests_unit_worker_runner_test_relay_SOURCES = tests/unit/worker/runner/test_relay.c
tests_unit_worker_runner_test_relay_LDADD = libworker_runner.a $(link_worker_runner) $(CMOCKA_LIBS)
endif
