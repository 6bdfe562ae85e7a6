# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libcompute_sched.a
libcompute_sched_a_SOURCES = src/compute/sched/sched.h src/compute/sched/load.h src/compute/sched/head.h src/compute/sched/sched_priv.h src/compute/sched/sched.c src/compute/sched/seq.c \
	src/compute/sched/windows_priv.h src/compute/sched/windows.c \
	src/compute/sched/queue.c src/compute/sched/preempt.c src/compute/sched/plan.c src/compute/sched/budget.h src/compute/sched/budget.c src/compute/sched/prompt_cost.c src/compute/sched/prompt_cost.h src/compute/sched/apply.c src/compute/sched/handoff.c src/compute/sched/recurrent_priv.h src/compute/sched/recurrent.c \
	src/compute/sched/draft.c src/compute/sched/draft_priv.h src/compute/sched/draft_choose.c src/compute/sched/draft_model.c src/compute/sched/draft_prompt.c src/compute/sched/draft_handoff.c src/compute/sched/ngram_priv.h src/compute/sched/ngram.c src/compute/sched/cost.h src/compute/sched/cost.c src/compute/sched/speed.h src/compute/sched/speed.c src/compute/sched/load.c

if HAVE_CMOCKA
sched_tests = tests/unit/compute/sched/test_sched tests/unit/compute/sched/test_cancel tests/unit/compute/sched/test_handoff \
	tests/unit/compute/sched/test_sched_model tests/unit/compute/sched/test_cost tests/unit/compute/sched/test_ngram \
	tests/unit/compute/sched/test_speculate tests/unit/compute/sched/test_planner tests/unit/compute/sched/test_speculate_cpu tests/unit/compute/sched/test_mtp \
	tests/unit/compute/sched/test_scores tests/unit/compute/sched/test_recurrent tests/unit/compute/sched/test_windows tests/unit/compute/sched/test_draft_model
check_PROGRAMS += $(sched_tests)
TESTS += $(sched_tests)
tests_unit_compute_sched_test_sched_SOURCES = tests/unit/compute/sched/test_sched.c tests/unit/compute/sched/rig.h \
	tests/unit/compute/sched/rig.c
tests_unit_compute_sched_test_sched_LDADD = $(link_compute_sched) $(CMOCKA_LIBS)
tests_unit_compute_sched_test_cancel_SOURCES = tests/unit/compute/sched/test_cancel.c tests/unit/compute/sched/rig.h \
	tests/unit/compute/sched/rig.c
tests_unit_compute_sched_test_cancel_LDADD = $(link_compute_sched) $(CMOCKA_LIBS)
tests_unit_compute_sched_test_handoff_SOURCES = tests/unit/compute/sched/test_handoff.c tests/unit/compute/sched/rig.h \
	tests/unit/compute/sched/rig.c
tests_unit_compute_sched_test_handoff_LDADD = $(link_compute_sched) $(CMOCKA_LIBS)
tests_unit_compute_sched_test_sched_model_SOURCES = tests/unit/compute/sched/test_sched_model.c tests/unit/compute/sched/rig.h \
	tests/unit/compute/sched/rig.c $(grammar_test_help)
tests_unit_compute_sched_test_sched_model_LDADD = $(link_compute_sched) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/compute/sched/test_quota tests/unit/compute/sched/test_turns
TESTS += tests/unit/compute/sched/test_quota tests/unit/compute/sched/test_turns
tests_unit_compute_sched_test_turns_SOURCES = tests/unit/compute/sched/test_turns.c tests/unit/compute/sched/rig.h tests/unit/compute/sched/rig.c
tests_unit_compute_sched_test_turns_LDADD = $(link_compute_sched) $(CMOCKA_LIBS)
tests_unit_compute_sched_test_quota_SOURCES = tests/unit/compute/sched/test_quota.c tests/unit/compute/sched/rig.h tests/unit/compute/sched/rig.c
tests_unit_compute_sched_test_quota_LDADD = $(link_compute_sched) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/compute/sched/test_budget
TESTS += tests/unit/compute/sched/test_budget
tests_unit_compute_sched_test_budget_SOURCES = tests/unit/compute/sched/test_budget.c
tests_unit_compute_sched_test_budget_LDADD = libcompute_sched.a $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/compute/sched/test_learned
TESTS += tests/unit/compute/sched/test_learned
tests_unit_compute_sched_test_learned_SOURCES = tests/unit/compute/sched/test_learned.c tests/unit/compute/sched/rig.h tests/unit/compute/sched/rig.c
tests_unit_compute_sched_test_learned_LDADD = $(link_compute_sched) $(CMOCKA_LIBS)
tests_unit_compute_sched_test_cost_SOURCES = tests/unit/compute/sched/test_cost.c
tests_unit_compute_sched_test_cost_LDADD = $(link_compute_sched) $(CMOCKA_LIBS)
tests_unit_compute_sched_test_ngram_SOURCES = tests/unit/compute/sched/test_ngram.c
tests_unit_compute_sched_test_ngram_LDADD = $(link_compute_sched) $(CMOCKA_LIBS)
tests_unit_compute_sched_test_speculate_SOURCES = tests/unit/compute/sched/test_speculate.c tests/unit/compute/sched/rig.h \
	tests/unit/compute/sched/rig.c
tests_unit_compute_sched_test_speculate_LDADD = $(link_compute_sched) $(CMOCKA_LIBS)
tests_unit_compute_sched_test_draft_model_SOURCES = tests/unit/compute/sched/test_draft_model.c tests/unit/compute/sched/rig.h \
	tests/unit/compute/sched/rig.c
tests_unit_compute_sched_test_draft_model_LDADD = $(link_compute_sched) $(CMOCKA_LIBS)
tests_unit_compute_sched_test_planner_SOURCES = tests/unit/compute/sched/test_planner.c tests/unit/compute/sched/rig.h \
	tests/unit/compute/sched/rig.c
tests_unit_compute_sched_test_planner_LDADD = $(link_compute_sched) $(CMOCKA_LIBS)
tests_unit_compute_sched_test_mtp_SOURCES = tests/unit/compute/sched/test_mtp.c tests/unit/compute/model/tiny.c \
	tests/unit/compute/model/tiny.h
tests_unit_compute_sched_test_mtp_LDADD = $(link_compute_sched) $(CMOCKA_LIBS)
tests_unit_compute_sched_test_speculate_cpu_SOURCES = tests/unit/compute/sched/test_speculate_cpu.c tests/unit/compute/model/tiny.c \
	tests/unit/compute/model/tiny.h $(grammar_test_help)
tests_unit_compute_sched_test_speculate_cpu_LDADD = $(link_compute_sched) $(CMOCKA_LIBS)
cpu_rig = tests/unit/compute/sched/cpu_rig.c tests/unit/compute/sched/cpu_rig.h
tests_unit_compute_sched_test_recurrent_SOURCES = tests/unit/compute/sched/test_recurrent.c $(cpu_rig) tests/unit/compute/model/tiny.c \
	tests/unit/compute/model/tiny.h
tests_unit_compute_sched_test_recurrent_LDADD = $(link_compute_sched) $(CMOCKA_LIBS)
tests_unit_compute_sched_test_windows_SOURCES = tests/unit/compute/sched/test_windows.c $(cpu_rig) tests/unit/compute/model/tiny.c \
	tests/unit/compute/model/tiny.h
tests_unit_compute_sched_test_windows_LDADD = $(link_compute_sched) $(CMOCKA_LIBS)
tests_unit_compute_sched_test_scores_SOURCES = tests/unit/compute/sched/test_scores.c tests/unit/compute/model/tiny.c \
	tests/unit/compute/model/tiny.h
tests_unit_compute_sched_test_scores_LDADD = $(link_compute_sched) $(CMOCKA_LIBS)
endif

# Prints the cost of lookups and of sampling; run by hand.
noinst_PROGRAMS += tests/bench/bench_kv
tests_bench_bench_kv_SOURCES = tests/bench/bench_kv.c
tests_bench_bench_kv_LDADD = $(link_compute_sched)

# Prints the gain and the cost of speculation; run by hand on a model of `baton-model make`.
noinst_PROGRAMS += tests/bench/bench_speculate
tests_bench_bench_speculate_SOURCES = tests/bench/bench_speculate.c tests/bench/bench_help.c tests/bench/bench_help.h
tests_bench_bench_speculate_LDADD = $(link_compute_sched)
