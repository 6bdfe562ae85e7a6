# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libfleet_router.a
libfleet_router_a_SOURCES = src/fleet/router/router.h src/fleet/router/daemon_priv.h src/fleet/router/operate.c src/fleet/router/router.c src/fleet/router/router_metrics.c src/fleet/router/admission_priv.h src/fleet/router/router_priv.h src/fleet/router/workers_priv.h \
	src/fleet/router/router_conf.h src/fleet/router/router_conf.c src/fleet/router/router_check.c src/fleet/router/dispatch.c src/fleet/router/refusals.c \
	src/fleet/router/job.c src/fleet/router/job_priv.h src/fleet/router/queue.c src/fleet/router/queue_priv.h src/fleet/router/slices.c src/fleet/router/slices_priv.h src/fleet/router/ahead.c src/fleet/router/ahead_priv.h src/fleet/router/submit.c \
	src/fleet/router/stream_priv.h src/fleet/router/stream.c src/fleet/router/tokens.c src/fleet/router/serving.c \
	src/fleet/router/models.c src/fleet/router/names.c src/fleet/router/names_priv.h src/fleet/router/workers.c src/fleet/router/view.c src/fleet/router/status.c
libfleet_router_a_SOURCES += src/fleet/router/resume.c src/fleet/router/blocks.c src/fleet/router/stores.c src/fleet/router/stores_priv.h src/fleet/router/chain.c src/fleet/router/chain_priv.h src/fleet/router/admission.c src/fleet/router/check.c src/fleet/router/check_priv.h src/fleet/router/roles.c src/fleet/router/spending.c src/fleet/router/spending_priv.h src/fleet/router/trace.c src/fleet/router/job_spans.c src/fleet/router/job_spans_priv.h \
	src/fleet/router/decisions.c src/fleet/router/decisions_priv.h \
	src/fleet/router/decisions_json.c src/fleet/router/decisions_json_priv.h
libfleet_router_a_SOURCES += src/fleet/router/ranking.c src/fleet/router/ranking_priv.h src/fleet/router/kept.c src/fleet/router/kept_copy.c src/fleet/router/kept_priv.h src/fleet/router/kept_types_priv.h src/fleet/router/relay.c src/fleet/router/relay_priv.h \
	src/fleet/router/cancels.c src/fleet/router/cancels_priv.h
libfleet_router_a_SOURCES += src/fleet/router/pause_priv.h src/fleet/router/pause.c
libfleet_router_a_SOURCES += src/fleet/router/router_message.c src/fleet/router/router_message_priv.h src/fleet/router/state.c src/fleet/router/state_priv.h \
	src/fleet/router/margins.c src/fleet/router/margins_priv.h src/fleet/router/served.c src/fleet/router/served_priv.h src/fleet/router/streams.c src/fleet/router/streams_priv.h src/fleet/router/state_history.c src/fleet/router/state_history_priv.h

if HAVE_CMOCKA
router_tests = tests/unit/fleet/router/test_turns tests/unit/fleet/router/test_capabilities tests/unit/fleet/router/test_jobs tests/unit/fleet/router/test_worker_faults tests/unit/fleet/router/test_draws tests/unit/fleet/router/test_jobs_model tests/unit/fleet/router/test_chain \
	tests/unit/fleet/router/test_models
router_tests += tests/unit/fleet/router/test_long_stream tests/unit/fleet/router/test_relay
tests_unit_fleet_router_test_relay_SOURCES = tests/unit/fleet/router/test_relay.c $(router_rig)
tests_unit_fleet_router_test_relay_LDADD = tests/unit/serve/endpoint/libsim.a $(link_fleet_router) $(CMOCKA_LIBS)
tests_unit_fleet_router_test_long_stream_SOURCES = tests/unit/fleet/router/test_long_stream.c $(router_rig)
tests_unit_fleet_router_test_long_stream_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=clock_now_ns
tests_unit_fleet_router_test_long_stream_LDADD = tests/unit/serve/endpoint/libsim.a $(link_fleet_router) $(CMOCKA_LIBS)
router_tests += tests/unit/fleet/router/test_router_message tests/unit/fleet/router/test_ranking tests/unit/fleet/router/test_kept
tests_unit_fleet_router_test_kept_SOURCES = tests/unit/fleet/router/test_kept.c $(router_rig)
tests_unit_fleet_router_test_kept_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=clock_unix_ns
tests_unit_fleet_router_test_kept_LDADD = tests/unit/serve/endpoint/libsim.a $(link_fleet_router) $(CMOCKA_LIBS)
tests_unit_fleet_router_test_router_message_SOURCES = tests/unit/fleet/router/test_router_message.c
tests_unit_fleet_router_test_router_message_LDADD = $(link_fleet_router) $(CMOCKA_LIBS)
tests_unit_fleet_router_test_ranking_SOURCES = tests/unit/fleet/router/test_ranking.c
tests_unit_fleet_router_test_ranking_LDADD = $(link_fleet_router) $(CMOCKA_LIBS)
check_PROGRAMS += $(router_tests)
TESTS += $(router_tests)
router_rig = tests/unit/fleet/router/rig.c tests/unit/fleet/router/rig_client.c tests/unit/fleet/router/rig.h tests/unit/fleet/router/rig_fixture.h
tests_unit_fleet_router_test_turns_SOURCES = tests/unit/fleet/router/test_turns.c $(router_rig)
tests_unit_fleet_router_test_turns_LDADD = tests/unit/serve/endpoint/libsim.a $(link_fleet_router) $(CMOCKA_LIBS)
tests_unit_fleet_router_test_jobs_SOURCES = tests/unit/fleet/router/test_jobs.c $(router_rig)
tests_unit_fleet_router_test_jobs_LDADD = tests/unit/serve/endpoint/libsim.a $(link_fleet_router) $(CMOCKA_LIBS)
tests_unit_fleet_router_test_worker_faults_SOURCES = tests/unit/fleet/router/test_worker_faults.c $(router_rig)
tests_unit_fleet_router_test_worker_faults_LDADD = tests/unit/serve/endpoint/libsim.a $(link_fleet_router) $(CMOCKA_LIBS)
tests_unit_fleet_router_test_job_moves_SOURCES = tests/unit/fleet/router/test_job_moves.c $(router_rig)
tests_unit_fleet_router_test_job_moves_LDADD = tests/unit/serve/endpoint/libsim.a $(link_fleet_router) $(CMOCKA_LIBS)
tests_unit_fleet_router_test_models_SOURCES = tests/unit/fleet/router/test_models.c $(router_rig)
tests_unit_fleet_router_test_models_LDADD = tests/unit/serve/endpoint/libsim.a $(link_fleet_router) $(CMOCKA_LIBS)
tests_unit_fleet_router_test_capabilities_SOURCES = tests/unit/fleet/router/test_capabilities.c $(router_rig)
tests_unit_fleet_router_test_capabilities_LDADD = tests/unit/serve/endpoint/libsim.a $(link_fleet_router) $(CMOCKA_LIBS)
tests_unit_fleet_router_test_chain_SOURCES = tests/unit/fleet/router/test_chain.c $(router_rig)
tests_unit_fleet_router_test_chain_LDADD = tests/unit/serve/endpoint/libsim.a $(link_fleet_router) $(CMOCKA_LIBS)
tests_unit_fleet_router_test_draws_SOURCES = tests/unit/fleet/router/test_draws.c $(router_rig)
tests_unit_fleet_router_test_draws_LDADD = tests/unit/serve/endpoint/libsim.a $(link_fleet_router) $(CMOCKA_LIBS)
tests_unit_fleet_router_test_jobs_model_SOURCES = tests/unit/fleet/router/test_jobs_model.c $(router_rig)
tests_unit_fleet_router_test_jobs_model_LDADD = tests/unit/serve/endpoint/libsim.a $(link_fleet_router) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/fleet/router/test_job_moves
TESTS += tests/unit/fleet/router/test_job_moves
check_PROGRAMS += tests/unit/fleet/router/test_blocks tests/unit/fleet/router/test_rates tests/unit/fleet/router/test_stores
TESTS += tests/unit/fleet/router/test_blocks tests/unit/fleet/router/test_rates tests/unit/fleet/router/test_stores
tests_unit_fleet_router_test_rates_SOURCES = tests/unit/fleet/router/test_rates.c $(router_rig)
tests_unit_fleet_router_test_rates_LDADD = tests/unit/serve/endpoint/libsim.a $(link_fleet_router) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/fleet/router/test_admission
TESTS += tests/unit/fleet/router/test_admission
tests_unit_fleet_router_test_admission_SOURCES = tests/unit/fleet/router/test_admission.c $(router_rig)
tests_unit_fleet_router_test_admission_LDADD = tests/unit/serve/endpoint/libsim.a $(link_fleet_router) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/fleet/router/test_slices
TESTS += tests/unit/fleet/router/test_slices
tests_unit_fleet_router_test_slices_SOURCES = tests/unit/fleet/router/test_slices.c $(router_rig)
tests_unit_fleet_router_test_slices_LDADD = tests/unit/serve/endpoint/libsim.a $(link_fleet_router) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/fleet/router/test_pause
TESTS += tests/unit/fleet/router/test_pause
tests_unit_fleet_router_test_pause_SOURCES = tests/unit/fleet/router/test_pause.c $(router_rig)
tests_unit_fleet_router_test_pause_LDADD = tests/unit/serve/endpoint/libsim.a $(link_fleet_router) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/fleet/router/test_roles
TESTS += tests/unit/fleet/router/test_roles
tests_unit_fleet_router_test_roles_SOURCES = tests/unit/fleet/router/test_roles.c $(router_rig)
tests_unit_fleet_router_test_roles_LDADD = tests/unit/serve/endpoint/libsim.a $(link_fleet_router) $(CMOCKA_LIBS)
tests_unit_fleet_router_test_stores_SOURCES = tests/unit/fleet/router/test_stores.c $(router_rig)
tests_unit_fleet_router_test_stores_LDADD = tests/unit/serve/endpoint/libsim.a $(link_fleet_router) $(CMOCKA_LIBS)
tests_unit_fleet_router_test_blocks_SOURCES = tests/unit/fleet/router/test_blocks.c $(router_rig)
tests_unit_fleet_router_test_blocks_LDADD = tests/unit/serve/endpoint/libsim.a $(link_fleet_router) $(CMOCKA_LIBS)
endif

# Not a test: run it by hand on a quiet machine, beside nginx if nginx is installed.
noinst_PROGRAMS += tests/bench/bench_streams
tests_bench_bench_streams_SOURCES = tests/bench/streams/main.c tests/bench/streams/streams.h \
	tests/bench/streams/load_priv.h tests/bench/streams/load.c tests/bench/streams/machine.c \
	tests/bench/streams/remote.c tests/bench/streams/upstream.c
tests_bench_bench_streams_LDADD = $(link_fleet_router)
