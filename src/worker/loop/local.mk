# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libworker_loop.a
libworker_loop_a_SOURCES = src/worker/loop/answers.c src/worker/loop/compile.c src/worker/loop/discovery.c src/worker/loop/follow.c \
	src/worker/loop/hello.c src/worker/loop/kept.c src/worker/loop/kept_priv.h src/worker/loop/local.c src/worker/loop/draft_model.c src/worker/loop/draft_model_priv.h src/worker/loop/load_progress_priv.h src/worker/loop/model.c src/worker/loop/model_check.c src/worker/loop/numa.c src/worker/loop/numa_priv.h src/worker/loop/remote_login.c \
	src/worker/loop/parts.c src/worker/loop/peers.c src/worker/loop/peer_slots.c src/worker/loop/peer_slots_priv.h src/worker/loop/probe.c src/worker/loop/probe_priv.h src/worker/loop/role.c src/worker/loop/routers.c src/worker/loop/send_blocks.c src/worker/loop/notices.c src/worker/loop/spending.c src/worker/loop/status.c src/worker/loop/tails.c src/worker/loop/tail_resume.c src/worker/loop/tails_priv.h src/worker/loop/weights.c src/worker/loop/worker.c src/worker/loop/access.c src/worker/loop/access_priv.h \
	src/worker/loop/worker.h src/worker/loop/worker_check.c src/worker/loop/worker_conf.c \
	src/worker/loop/worker_conf.h src/worker/loop/discovery_priv.h src/worker/loop/spending_priv.h src/worker/loop/weights_priv.h src/worker/loop/worker_priv.h

if HAVE_CMOCKA
tests_unit_worker_loop_test_routers_SOURCES = tests/unit/worker/loop/test_routers.c tests/unit/worker/loop/link_fake.c
tests_unit_worker_loop_test_routers_LDADD = $(link_worker_loop) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/worker/loop/test_tails tests/unit/worker/loop/test_kept
TESTS += tests/unit/worker/loop/test_tails tests/unit/worker/loop/test_kept
check_PROGRAMS += tests/unit/worker/loop/test_peer_slots
TESTS += tests/unit/worker/loop/test_peer_slots
tests_unit_worker_loop_test_peer_slots_SOURCES = tests/unit/worker/loop/test_peer_slots.c
tests_unit_worker_loop_test_peer_slots_LDADD = $(link_worker_loop) $(CMOCKA_LIBS)
tests_unit_worker_loop_test_kept_SOURCES = tests/unit/worker/loop/test_kept.c
tests_unit_worker_loop_test_kept_LDADD = $(link_worker_loop) $(CMOCKA_LIBS)
tests_unit_worker_loop_test_tails_SOURCES = tests/unit/worker/loop/test_tails.c tests/unit/worker/loop/link_fake.c
tests_unit_worker_loop_test_tails_LDADD = $(link_worker_loop) $(CMOCKA_LIBS)
endif
