# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += librouter.a
librouter_a_SOURCES = src/router/router.h src/router/router.c src/router/router_priv.h src/router/workers_priv.h \
	src/router/router_conf.h src/router/router_conf.c src/router/router_check.c src/router/dispatch.c \
	src/router/queue.c src/router/queue_priv.h src/router/submit.c \
	src/router/stream_priv.h src/router/stream.c src/router/tokens.c src/router/proof.c \
	src/router/models.c src/router/names.c src/router/names_priv.h src/router/workers.c src/router/world.c src/router/status.c
librouter_a_SOURCES += src/router/blocks.c src/router/told.c src/router/chain.c

if HAVE_CMOCKA
router_tests = tests/unit/router/test_turns tests/unit/router/test_abilities tests/unit/router/test_jobs tests/unit/router/test_draws tests/unit/router/test_jobs_model tests/unit/router/test_chain
check_PROGRAMS += $(router_tests)
TESTS += $(router_tests)
router_rig = tests/unit/router/rig.c tests/unit/router/rig.h
tests_unit_router_test_turns_SOURCES = tests/unit/router/test_turns.c $(router_rig)
tests_unit_router_test_turns_LDADD = tests/unit/front/libsim.a $(link_router) $(CMOCKA_LIBS)
tests_unit_router_test_jobs_SOURCES = tests/unit/router/test_jobs.c $(router_rig)
tests_unit_router_test_jobs_LDADD = tests/unit/front/libsim.a $(link_router) $(CMOCKA_LIBS)
tests_unit_router_test_abilities_SOURCES = tests/unit/router/test_abilities.c $(router_rig)
tests_unit_router_test_abilities_LDADD = tests/unit/front/libsim.a $(link_router) $(CMOCKA_LIBS)
tests_unit_router_test_chain_SOURCES = tests/unit/router/test_chain.c $(router_rig)
tests_unit_router_test_chain_LDADD = tests/unit/front/libsim.a $(link_router) $(CMOCKA_LIBS)
tests_unit_router_test_draws_SOURCES = tests/unit/router/test_draws.c $(router_rig)
tests_unit_router_test_draws_LDADD = tests/unit/front/libsim.a $(link_router) $(CMOCKA_LIBS)
tests_unit_router_test_jobs_model_SOURCES = tests/unit/router/test_jobs_model.c $(router_rig)
tests_unit_router_test_jobs_model_LDADD = tests/unit/front/libsim.a $(link_router) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/router/test_blocks
TESTS += tests/unit/router/test_blocks
tests_unit_router_test_blocks_SOURCES = tests/unit/router/test_blocks.c $(router_rig)
tests_unit_router_test_blocks_LDADD = tests/unit/front/libsim.a $(link_router) $(CMOCKA_LIBS)
endif

# Not a test: run it by hand on a quiet machine, beside nginx if that is there.
noinst_PROGRAMS += tests/bench/bench_streams
tests_bench_bench_streams_SOURCES = tests/bench/streams/main.c tests/bench/streams/streams.h \
	tests/bench/streams/load_priv.h tests/bench/streams/load.c tests/bench/streams/machine.c \
	tests/bench/streams/remote.c tests/bench/streams/upstream.c
tests_bench_bench_streams_LDADD = $(link_router)
