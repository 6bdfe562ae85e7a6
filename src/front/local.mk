# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libfront.a
libfront_a_SOURCES = src/front/front.h src/front/backend.h src/front/front_priv.h src/front/front.c \
	src/front/request.c src/front/choice_priv.h src/front/choices.c src/front/choice_job.c \
	src/front/choice_events.c src/front/choice_end.c src/front/output_priv.h src/front/output.c \
	src/front/output_messages.c src/front/output_openai.c src/front/logprobs.h src/front/logprobs.c \
	src/front/reply.c src/front/report.c src/front/answer.h src/front/answer.c src/front/shape.h \
	src/front/shape_priv.h src/front/shape.c src/front/shape_calls.c src/front/shape_tags.c src/front/sign.h src/front/scores.c src/front/scores.h src/front/sign.c \
	src/front/prompt.h src/front/prompt.c src/front/prompt_raw.c src/front/auth.h src/front/auth.c \
	src/front/ids.h src/front/ids.c src/front/memory.h src/front/memory.c src/front/threads.h src/front/remains.c src/front/remains.h src/front/stall.c src/front/stall.h \
	src/front/threads.c src/front/replay.h src/front/replay.c \
	src/front/record.h src/front/record.c src/front/public_prefix.h src/front/public_prefix.c \
	src/front/auth_rule.c src/front/admit.h src/front/admit.c src/front/limits.h src/front/limits.c \
	src/front/guesses.h src/front/guesses.c src/front/pool.h src/front/pool.c src/front/verdicts.h src/front/verdicts.c src/front/shape_check.c src/front/unzip.h src/front/unzip.c \
	src/front/admin.h src/front/admin.c

# A backend that answers by script, and a small model for it: used by tests, and behind a real server by front_sim.
check_LIBRARIES += tests/unit/front/libsim.a
tests_unit_front_libsim_a_SOURCES = tests/unit/front/sim_backend.c tests/unit/front/sim_backend.h \
	tests/unit/front/sim_model.c tests/unit/front/sim_model.h

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/front/test_auth tests/unit/front/test_blocks tests/unit/front/test_shape \
	tests/unit/front/test_answer tests/unit/front/test_prompt tests/unit/front/test_answers \
	tests/unit/front/test_front tests/unit/front/test_logprobs tests/unit/front/test_openai \
	tests/unit/front/test_choices tests/unit/front/test_limits tests/unit/front/test_pool \
	tests/unit/front/test_admit tests/unit/front/test_replay tests/unit/front/test_threads
TESTS += tests/unit/front/test_auth tests/unit/front/test_blocks tests/unit/front/test_shape \
	tests/unit/front/test_answer tests/unit/front/test_prompt tests/unit/front/test_replay \
	tests/unit/front/test_answers tests/unit/front/test_front tests/unit/front/test_logprobs \
	tests/unit/front/test_openai tests/unit/front/test_choices tests/unit/front/test_limits \
	tests/unit/front/test_pool tests/unit/front/test_admit tests/unit/front/test_threads
tests_unit_front_test_logprobs_SOURCES = tests/unit/front/test_logprobs.c
tests_unit_front_test_logprobs_LDADD = tests/unit/front/libsim.a $(link_front) $(CMOCKA_LIBS)
front_rig_openai = tests/unit/front/rig_openai.c tests/unit/front/rig_openai.h $(front_rig)
tests_unit_front_test_choices_SOURCES = tests/unit/front/test_choices.c $(front_rig_openai)
tests_unit_front_test_choices_LDADD = tests/unit/front/libsim.a $(link_front) $(CMOCKA_LIBS)
tests_unit_front_test_openai_SOURCES = tests/unit/front/test_openai.c $(front_rig_openai)
tests_unit_front_test_openai_LDADD = tests/unit/front/libsim.a $(link_front) $(CMOCKA_LIBS)
tests_unit_front_test_auth_SOURCES = tests/unit/front/test_auth.c
tests_unit_front_test_auth_LDADD = $(link_front) $(CMOCKA_LIBS)
tests_unit_front_test_shape_SOURCES = tests/unit/front/test_shape.c tests/unit/front/shape_rig.c \
	tests/unit/front/shape_rig.h
tests_unit_front_test_shape_LDADD = tests/unit/front/libsim.a $(link_front) $(CMOCKA_LIBS)
tests_unit_front_test_limits_SOURCES = tests/unit/front/test_limits.c
tests_unit_front_test_limits_LDADD = $(link_front) $(CMOCKA_LIBS)
tests_unit_front_test_pool_SOURCES = tests/unit/front/test_pool.c
tests_unit_front_test_pool_LDADD = $(link_front) $(CMOCKA_LIBS)
tests_unit_front_test_answer_SOURCES = tests/unit/front/test_answer.c
tests_unit_front_test_answer_LDADD = tests/unit/front/libsim.a $(link_front) $(CMOCKA_LIBS)
tests_unit_front_test_prompt_SOURCES = tests/unit/front/test_prompt.c
tests_unit_front_test_prompt_LDADD = tests/unit/front/libsim.a $(link_front) $(CMOCKA_LIBS)
tests_unit_front_test_replay_SOURCES = tests/unit/front/test_replay.c tests/unit/front/replay_rig.c \
	tests/unit/front/replay_model.c tests/unit/front/replay_rig.h
tests_unit_front_test_replay_LDADD = $(link_front) $(CMOCKA_LIBS)
front_rig = tests/unit/front/rig.c tests/unit/front/rig.h tests/unit/http/raw.c tests/unit/http/raw.h
tests_unit_front_test_answers_SOURCES = tests/unit/front/test_answers.c $(front_rig)
tests_unit_front_test_answers_LDADD = tests/unit/front/libsim.a $(link_front) $(CMOCKA_LIBS)
tests_unit_front_test_blocks_SOURCES = tests/unit/front/test_blocks.c $(front_rig)
tests_unit_front_test_blocks_LDADD = tests/unit/front/libsim.a $(link_front) $(CMOCKA_LIBS)
tests_unit_front_test_front_SOURCES = tests/unit/front/test_front.c $(front_rig)
tests_unit_front_test_front_LDADD = tests/unit/front/libsim.a $(link_front) $(CMOCKA_LIBS)
tests_unit_front_test_threads_SOURCES = tests/unit/front/test_threads.c $(front_rig)
tests_unit_front_test_threads_LDADD = tests/unit/front/libsim.a $(link_front) $(CMOCKA_LIBS)
tests_unit_front_test_admit_SOURCES = tests/unit/front/test_admit.c $(front_rig)
tests_unit_front_test_admit_LDADD = tests/unit/front/libsim.a $(link_front) $(CMOCKA_LIBS)
endif

# The endpoint as foreign clients see it.
check_PROGRAMS += tests/integration/front_sim
tests_integration_front_sim_SOURCES = tests/integration/front_sim.c
tests_integration_front_sim_LDADD = tests/unit/front/libsim.a $(link_front)
TESTS += tests/integration/sdk/run-sdk-test
EXTRA_DIST += tests/integration/sdk/run-sdk-test tests/integration/sdk/package.json \
	tests/integration/sdk/package-lock.json tests/integration/sdk/test.mjs \
	tests/integration/sdk/test-openai.mjs \
	tests/integration/sdk/get-sdks
clean-local: clean-sdk-work
.PHONY: clean-sdk-work
clean-sdk-work:
	rm -rf tests/integration/sdk-work

noinst_PROGRAMS += tests/bench/bench_prompt
tests_bench_bench_prompt_SOURCES = tests/bench/bench_prompt.c tests/bench/bench_help.c tests/bench/bench_help.h
tests_bench_bench_prompt_LDADD = $(link_front)
