# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libfleet_sim.a
libfleet_sim_a_SOURCES = src/fleet/sim/sim.h src/fleet/sim/sim_priv.h src/fleet/sim/worker_priv.h src/fleet/sim/run.c src/fleet/sim/front.c src/fleet/sim/admit.c src/fleet/sim/job_priv.h src/fleet/sim/queue_priv.h src/fleet/sim/queue.c src/fleet/sim/deadlines_priv.h src/fleet/sim/deadlines.c src/fleet/sim/pause.c \
	src/fleet/sim/baseline.c src/fleet/sim/worker.c src/fleet/sim/learn.c src/fleet/sim/cache.c src/fleet/sim/net.c src/fleet/sim/hosts_priv.h src/fleet/sim/hosts.c \
	src/fleet/sim/times.h src/fleet/sim/times.c src/fleet/sim/hist.h src/fleet/sim/hist.c \
	src/fleet/sim/agenda_priv.h src/fleet/sim/agenda.c src/fleet/sim/lru_priv.h src/fleet/sim/lru.c \
	src/fleet/sim/generate.h src/fleet/sim/generate.c src/fleet/sim/owner.c src/fleet/sim/roles.c src/fleet/sim/routers.c src/fleet/sim/ahead.c src/fleet/sim/turns.c

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/fleet/sim/test_sim
TESTS += tests/unit/fleet/sim/test_sim
tests_unit_fleet_sim_test_sim_SOURCES = tests/unit/fleet/sim/test_sim.c
tests_unit_fleet_sim_test_sim_LDADD = $(link_fleet_sim) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/fleet/sim/test_lru
TESTS += tests/unit/fleet/sim/test_lru
tests_unit_fleet_sim_test_lru_SOURCES = tests/unit/fleet/sim/test_lru.c
tests_unit_fleet_sim_test_lru_LDADD = $(link_fleet_sim) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/fleet/sim/test_hosts
TESTS += tests/unit/fleet/sim/test_hosts
tests_unit_fleet_sim_test_hosts_SOURCES = tests/unit/fleet/sim/test_hosts.c
tests_unit_fleet_sim_test_hosts_LDADD = $(link_fleet_sim) -lm $(CMOCKA_LIBS)
small_fleet = tests/unit/fleet/sim/small_fleet.c tests/unit/fleet/sim/small_fleet.h
check_PROGRAMS += tests/unit/fleet/sim/test_refusals
TESTS += tests/unit/fleet/sim/test_refusals
tests_unit_fleet_sim_test_refusals_SOURCES = tests/unit/fleet/sim/test_refusals.c $(small_fleet)
tests_unit_fleet_sim_test_refusals_LDADD = $(link_fleet_sim) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/fleet/sim/test_fairness
TESTS += tests/unit/fleet/sim/test_fairness
tests_unit_fleet_sim_test_fairness_SOURCES = tests/unit/fleet/sim/test_fairness.c $(small_fleet)
tests_unit_fleet_sim_test_fairness_LDADD = $(link_fleet_sim) -lm $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/fleet/sim/test_sim_busy
TESTS += tests/unit/fleet/sim/test_sim_busy
tests_unit_fleet_sim_test_sim_busy_SOURCES = tests/unit/fleet/sim/test_sim_busy.c $(small_fleet)
tests_unit_fleet_sim_test_sim_busy_LDADD = $(link_fleet_sim) -lm $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/fleet/sim/test_sim_pause
TESTS += tests/unit/fleet/sim/test_sim_pause
tests_unit_fleet_sim_test_sim_pause_SOURCES = tests/unit/fleet/sim/test_sim_pause.c $(small_fleet)
tests_unit_fleet_sim_test_sim_pause_LDADD = $(link_fleet_sim) $(CMOCKA_LIBS)
endif
