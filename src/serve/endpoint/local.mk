# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libserve_endpoint.a
libserve_endpoint_a_SOURCES = src/serve/endpoint/admin.c src/serve/endpoint/admin_events.c src/serve/endpoint/admin_events_priv.h src/serve/endpoint/admin.h src/serve/endpoint/admit.c \
	src/serve/endpoint/admit_priv.h src/serve/endpoint/backend.h src/serve/endpoint/choice_end.c \
	src/serve/endpoint/choice_events.c src/serve/endpoint/choice_job.c src/serve/endpoint/choice_priv.h \
	src/serve/endpoint/choices.c src/serve/endpoint/embeddings.c src/serve/endpoint/console.c src/serve/endpoint/console_priv.h src/serve/endpoint/front.c src/serve/endpoint/front.h \
	src/serve/endpoint/front_priv.h src/serve/endpoint/handle.c src/serve/endpoint/handle.h src/serve/endpoint/logprobs.c src/serve/endpoint/logprobs_priv.h \
	src/serve/endpoint/output.c src/serve/endpoint/output_messages.c src/serve/endpoint/output_openai.c \
	src/serve/endpoint/output_priv.h src/serve/endpoint/output_responses.c src/serve/endpoint/responses.c src/serve/endpoint/responses_items.c src/serve/endpoint/responses_priv.h \
	src/serve/endpoint/remains.c src/serve/endpoint/remains_priv.h \
	src/serve/endpoint/reload.c src/serve/endpoint/reload.h src/serve/endpoint/reply.c src/serve/endpoint/report.c src/serve/endpoint/request.c src/serve/endpoint/request_work.c src/serve/endpoint/request_spans.c src/serve/endpoint/request_thread.c src/serve/endpoint/resume.c src/serve/endpoint/resume_priv.h src/serve/endpoint/stall.c \
	src/serve/endpoint/stall_priv.h src/serve/endpoint/truncate.c src/serve/endpoint/cancels.c src/serve/endpoint/cancels_priv.h src/serve/endpoint/front_shared.h src/serve/endpoint/shared.c src/serve/endpoint/shared_priv.h
# The console's files as C strings, so that the daemon needs no file to serve them.
console_files = $(top_srcdir)/share/console/index.html $(top_srcdir)/share/console/console.css \
	$(top_srcdir)/share/console/common.js $(top_srcdir)/share/console/chat.js $(top_srcdir)/share/console/fleet.js
src/serve/endpoint/console.inc: $(console_files) $(top_srcdir)/tools/console-to-c
	$(AM_V_GEN)$(MKDIR_P) src/serve/endpoint && $(top_srcdir)/tools/console-to-c $(console_files) >$@.new && mv $@.new $@
src/serve/endpoint/console.$(OBJEXT): src/serve/endpoint/console.inc
BUILT_SOURCES += src/serve/endpoint/console.inc
CLEANFILES += src/serve/endpoint/console.inc
EXTRA_DIST += tools/console-to-c share/console/index.html share/console/console.css share/console/common.js \
	share/console/chat.js share/console/fleet.js
# A scripted backend with a small model.  Tests use it; front_sim runs it behind a real server.
check_LIBRARIES += tests/unit/serve/endpoint/libsim.a
tests_unit_serve_endpoint_libsim_a_SOURCES = tests/unit/serve/endpoint/sim_backend.c tests/unit/serve/endpoint/sim_backend.h \
	tests/unit/serve/endpoint/sim_model.c tests/unit/serve/endpoint/sim_model.h

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/serve/endpoint/test_blocks tests/unit/serve/endpoint/test_answers \
	tests/unit/serve/endpoint/test_front tests/unit/serve/endpoint/test_logprobs \
	tests/unit/serve/endpoint/test_openai tests/unit/serve/endpoint/test_choices \
	tests/unit/serve/endpoint/test_admit tests/unit/serve/endpoint/test_conversations
TESTS += tests/unit/serve/endpoint/test_blocks tests/unit/serve/endpoint/test_answers \
	tests/unit/serve/endpoint/test_front tests/unit/serve/endpoint/test_logprobs \
	tests/unit/serve/endpoint/test_openai tests/unit/serve/endpoint/test_choices \
	tests/unit/serve/endpoint/test_admit tests/unit/serve/endpoint/test_conversations
check_PROGRAMS += tests/unit/serve/endpoint/test_admin
TESTS += tests/unit/serve/endpoint/test_admin
tests_unit_serve_endpoint_test_admin_SOURCES = tests/unit/serve/endpoint/test_admin.c
tests_unit_serve_endpoint_test_admin_LDADD = $(link_serve_endpoint) $(CMOCKA_LIBS)
tests_unit_serve_endpoint_test_logprobs_SOURCES = tests/unit/serve/endpoint/test_logprobs.c
tests_unit_serve_endpoint_test_logprobs_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint) \
	$(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/serve/endpoint/test_orders
TESTS += tests/unit/serve/endpoint/test_orders
tests_unit_serve_endpoint_test_orders_SOURCES = tests/unit/serve/endpoint/test_orders.c
tests_unit_serve_endpoint_test_orders_LDADD = $(link_serve_endpoint) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/serve/endpoint/test_handle
TESTS += tests/unit/serve/endpoint/test_handle
tests_unit_serve_endpoint_test_handle_SOURCES = tests/unit/serve/endpoint/test_handle.c
tests_unit_serve_endpoint_test_handle_LDADD = $(link_serve_endpoint) $(CMOCKA_LIBS)
front_rig_openai = tests/unit/serve/endpoint/rig_openai.c tests/unit/serve/endpoint/rig_openai.h $(front_rig)
tests_unit_serve_endpoint_test_choices_SOURCES = tests/unit/serve/endpoint/test_choices.c $(front_rig_openai)
tests_unit_serve_endpoint_test_choices_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint) \
	$(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/serve/endpoint/test_responses
TESTS += tests/unit/serve/endpoint/test_responses
tests_unit_serve_endpoint_test_responses_SOURCES = tests/unit/serve/endpoint/test_responses.c $(front_rig_openai)
tests_unit_serve_endpoint_test_responses_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint) \
	$(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/serve/endpoint/test_responses_owners
TESTS += tests/unit/serve/endpoint/test_responses_owners
tests_unit_serve_endpoint_test_responses_owners_SOURCES = tests/unit/serve/endpoint/test_responses_owners.c $(front_rig_openai)
tests_unit_serve_endpoint_test_responses_owners_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint) \
	$(CMOCKA_LIBS)
tests_unit_serve_endpoint_test_openai_SOURCES = tests/unit/serve/endpoint/test_openai.c $(front_rig_openai)
tests_unit_serve_endpoint_test_openai_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint) $(CMOCKA_LIBS)
front_rig = tests/unit/serve/endpoint/rig.c tests/unit/serve/endpoint/rig.h tests/unit/net/http/raw.c \
	tests/unit/net/http/raw.h
tests_unit_serve_endpoint_test_answers_SOURCES = tests/unit/serve/endpoint/test_answers.c $(front_rig)
tests_unit_serve_endpoint_test_answers_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint) \
	$(CMOCKA_LIBS)
tests_unit_serve_endpoint_test_blocks_SOURCES = tests/unit/serve/endpoint/test_blocks.c $(front_rig)
tests_unit_serve_endpoint_test_blocks_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/serve/endpoint/test_model_wait
TESTS += tests/unit/serve/endpoint/test_model_wait
tests_unit_serve_endpoint_test_model_wait_SOURCES = tests/unit/serve/endpoint/test_model_wait.c $(front_rig)
tests_unit_serve_endpoint_test_model_wait_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint) \
	$(CMOCKA_LIBS)
tests_unit_serve_endpoint_test_front_SOURCES = tests/unit/serve/endpoint/test_front.c $(front_rig)
tests_unit_serve_endpoint_test_front_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint) $(CMOCKA_LIBS)
tests_unit_serve_endpoint_test_conversations_SOURCES = tests/unit/serve/endpoint/test_conversations.c $(front_rig)
tests_unit_serve_endpoint_test_conversations_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint) \
	$(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/serve/endpoint/test_shared
TESTS += tests/unit/serve/endpoint/test_shared
tests_unit_serve_endpoint_test_shared_SOURCES = tests/unit/serve/endpoint/test_shared.c
tests_unit_serve_endpoint_test_shared_LDADD = $(link_serve_endpoint) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/serve/endpoint/test_loop_work
TESTS += tests/unit/serve/endpoint/test_loop_work
tests_unit_serve_endpoint_test_loop_work_SOURCES = tests/unit/serve/endpoint/test_loop_work.c $(front_rig)
tests_unit_serve_endpoint_test_loop_work_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint) $(CMOCKA_LIBS)
check_PROGRAMS += tests/unit/serve/endpoint/test_reload
TESTS += tests/unit/serve/endpoint/test_reload
tests_unit_serve_endpoint_test_reload_SOURCES = tests/unit/serve/endpoint/test_reload.c $(front_rig)
tests_unit_serve_endpoint_test_reload_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint) $(CMOCKA_LIBS)
tests_unit_serve_endpoint_test_admit_SOURCES = tests/unit/serve/endpoint/test_admit.c $(front_rig)
tests_unit_serve_endpoint_test_admit_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint) $(CMOCKA_LIBS)
endif
# Tests of the endpoint through third-party clients.
check_PROGRAMS += tests/integration/front_sim
tests_integration_front_sim_SOURCES = tests/integration/front_sim.c
tests_integration_front_sim_LDADD = tests/unit/serve/endpoint/libsim.a $(link_serve_endpoint)
if PLAIN_BUILD # test_sdk.py runs an SDK with sanitizers
TESTS += tests/integration/sdk/run-sdk-test
endif
EXTRA_DIST += tests/integration/sdk/run-sdk-test tests/integration/sdk/package.json \
	tests/integration/sdk/package-lock.json tests/integration/sdk/test.mjs tests/integration/sdk/test-openai.mjs \
	tests/integration/sdk/get-sdks
clean-local: clean-sdk-work
.PHONY: clean-sdk-work
clean-sdk-work:
	rm -rf tests/integration/sdk-work
noinst_PROGRAMS += tests/bench/bench_prompt
tests_bench_bench_prompt_SOURCES = tests/bench/bench_prompt.c tests/bench/bench_help.c tests/bench/bench_help.h
tests_bench_bench_prompt_LDADD = $(link_serve_endpoint)
