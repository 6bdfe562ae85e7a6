# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libfront.a
libfront_a_SOURCES = src/front/front.h src/front/backend.h src/front/front_priv.h src/front/front.c \
	src/front/request.c src/front/output.c src/front/reply.c src/front/report.c src/front/answer.h \
	src/front/answer.c src/front/prompt.h src/front/prompt.c src/front/auth.h src/front/auth.c src/front/ids.h \
	src/front/ids.c src/front/admin.h src/front/admin.c

# A backend that answers by script, and a small model for it: used by tests, and behind a real server by front_sim.
check_LIBRARIES += tests/unit/front/libsim.a
tests_unit_front_libsim_a_SOURCES = tests/unit/front/sim_backend.c tests/unit/front/sim_backend.h \
	tests/unit/front/sim_model.c tests/unit/front/sim_model.h

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/front/test_auth tests/unit/front/test_answer tests/unit/front/test_prompt \
	tests/unit/front/test_answers tests/unit/front/test_front
TESTS += tests/unit/front/test_auth tests/unit/front/test_answer tests/unit/front/test_prompt \
	tests/unit/front/test_answers tests/unit/front/test_front
tests_unit_front_test_auth_SOURCES = tests/unit/front/test_auth.c
tests_unit_front_test_auth_LDADD = $(link_front) $(CMOCKA_LIBS)
tests_unit_front_test_answer_SOURCES = tests/unit/front/test_answer.c
tests_unit_front_test_answer_LDADD = tests/unit/front/libsim.a $(link_front) $(CMOCKA_LIBS)
tests_unit_front_test_prompt_SOURCES = tests/unit/front/test_prompt.c
tests_unit_front_test_prompt_LDADD = tests/unit/front/libsim.a $(link_front) $(CMOCKA_LIBS)
front_rig = tests/unit/front/rig.c tests/unit/front/rig.h tests/unit/http/raw.c tests/unit/http/raw.h
tests_unit_front_test_answers_SOURCES = tests/unit/front/test_answers.c $(front_rig)
tests_unit_front_test_answers_LDADD = tests/unit/front/libsim.a $(link_front) $(CMOCKA_LIBS)
tests_unit_front_test_front_SOURCES = tests/unit/front/test_front.c $(front_rig)
tests_unit_front_test_front_LDADD = tests/unit/front/libsim.a $(link_front) $(CMOCKA_LIBS)
endif

# The endpoint as foreign clients see it.
check_PROGRAMS += tests/integration/front_sim
tests_integration_front_sim_SOURCES = tests/integration/front_sim.c
tests_integration_front_sim_LDADD = tests/unit/front/libsim.a $(link_front)
TESTS += tests/integration/sdk/run-sdk-test
EXTRA_DIST += tests/integration/sdk/get-sdks tests/integration/sdk/run-sdk-test tests/integration/sdk/package.json \
	tests/integration/sdk/package-lock.json tests/integration/sdk/test.mjs
clean-local: clean-sdk-work
.PHONY: clean-sdk-work
clean-sdk-work:
	rm -rf tests/integration/sdk-work
