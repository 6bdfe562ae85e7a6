# SPDX-License-Identifier: Apache-2.0
bin_PROGRAMS += baton-model
baton_model_SOURCES = clients/model/main.c clients/model/model_cli.h clients/model/cli.c \
	clients/model/cmd_info.c clients/model/cmd_tokens.c clients/model/cmd_render.c \
	clients/model/render_body.h clients/model/render_body.c \
	clients/model/cmd_logits.c clients/model/cmd_generate.c \
	clients/model/prompt.h clients/model/prompt.c clients/model/rig.h clients/model/rig.c \
	clients/model/cmd_make.c clients/model/make_priv.h clients/model/make_vocab.c clients/model/make_weights.c \
	clients/model/make_keys.c clients/model/make_qblk.c \
	clients/model/cmd_quantize.c clients/model/quantize_priv.h clients/model/quantize_mix.c clients/model/quantize_imatrix.c \
	clients/model/imatrix_dat.h clients/model/imatrix_dat.c clients/model/quantize_scales.c clients/model/cmd_imatrix.c clients/model/cmd_split.c clients/model/cmd_pull.c \
	clients/model/cmd_perplexity.c clients/model/perplexity_priv.h clients/model/perplexity_score.c clients/model/perplexity_rows.c \
	clients/model/cmd_bench.c clients/model/bench_priv.h clients/model/bench_limit.c clients/model/bench_run.c
baton_model_LDADD = libpull.a libnet_http.a $(link_serve_prompt) $(link_compute_sched) $(CURL_LIBS)

# Model files from a hub.
noinst_LIBRARIES += libpull.a
libpull_a_SOURCES = clients/pull/pull.h clients/pull/pull_http_priv.h clients/pull/pull_name.c \
	clients/pull/pull_list.c clients/pull/pull_state.c clients/pull/pull_http.c clients/pull/pull_get.c \
	clients/pull/pull_store.c clients/pull/pull_reuse.c clients/pull/pull_progress.c
libpull_a_CPPFLAGS = $(AM_CPPFLAGS) $(CURL_CFLAGS)
link_pull = libpull.a libnet_http.a libtext_json.a libgguf.a libbase.a $(JANSSON_LIBS) $(XXHASH_LIBS) $(SSL_LIBS) $(CURL_LIBS) -lpthread -lm

dist_check_SCRIPTS += tests/integration/test-model-cli tests/integration/test_quality.py tests/integration/test-bench-kv
TESTS += tests/integration/test-model-cli tests/integration/test-bench-kv
if PLAIN_BUILD # sanitizers see the same code with other models
long_tests += tests/integration/test_quality.py
endif
tests/integration/test_quality.log: baton-model

# Tools that speak HTTP to the daemons.
noinst_LIBRARIES += libclients.a
libclients_a_SOURCES = \
	clients/common/cli.h clients/common/cli.c \
	clients/common/fetch.h clients/common/fetch.c \
	clients/common/server.h clients/common/server.c \
	clients/common/answer.h clients/common/answer.c \
	clients/common/stream.h clients/common/stream.c
link_clients = libclients.a $(link_net_http) $(JANSSON_LIBS)

sbin_PROGRAMS += batonctl
batonctl_SOURCES = clients/ctl/main.c clients/ctl/commands.h \
	clients/ctl/admin_call.h clients/ctl/admin_call.c \
	clients/ctl/status.h clients/ctl/status.c \
	clients/ctl/top_view.h clients/ctl/top_view.c clients/ctl/top_recent.h clients/ctl/top_recent.c clients/ctl/cmd_report.c clients/ctl/report_text.h clients/ctl/report_text.c \
	clients/ctl/cmd_reload.c clients/ctl/cmd_request.c clients/ctl/request_view.h clients/ctl/request_view_priv.h \
	clients/ctl/request_why.c clients/ctl/request_trace.c \
	clients/ctl/cmd_look.c clients/ctl/cmd_act.c clients/ctl/cmd_top.c clients/ctl/cmd_keys.c clients/ctl/cmd_key.c \
	clients/ctl/key_view.h clients/ctl/key_view.c \
	clients/ctl/join.h clients/ctl/join_text.h clients/ctl/join_text.c clients/ctl/wire.h clients/ctl/wire.c \
	clients/ctl/join_wait.c clients/ctl/join_talk.c clients/ctl/join_conf.c clients/ctl/members.c \
	clients/ctl/cmd_daemons.c clients/ctl/cmd_token.c clients/ctl/cmd_join.c clients/ctl/cmd_check.c clients/ctl/check_view.c
batonctl_LDADD = libclients.a libgguf.a libnet_discover.a $(link_serve_endpoint) $(CURL_LIBS) $(CARES_LIBS)

sbin_PROGRAMS += baton-setup
setup_sources = clients/setup/setup.h clients/setup/look.c clients/setup/decide.c clients/setup/decide_priv.h \
	clients/setup/decide_files.c clients/setup/render.c
baton_setup_SOURCES = $(setup_sources) clients/setup/main.c clients/setup/steps.h clients/setup/ports.c \
	clients/setup/ask.c clients/setup/write.c
baton_setup_LDADD = libfleet_plan.a $(link_clients) libtext_json.a libgguf.a libbase.a $(JANSSON_LIBS) $(XXHASH_LIBS) -lpthread -lm

bin_PROGRAMS += baton-chat
baton_chat_SOURCES = clients/chat/main.c clients/chat/chat.h \
	clients/chat/session.h clients/chat/session.c \
	clients/chat/turn.h clients/chat/turn.c \
	clients/chat/folder.h clients/chat/folder.c \
	clients/chat/run_tests.h clients/chat/run_tests.c \
	clients/chat/tools.h clients/chat/tools.c clients/chat/scratch.c \
	clients/chat/ask.c clients/chat/converse.c
baton_chat_CPPFLAGS = $(AM_CPPFLAGS) $(EDIT_CFLAGS)
baton_chat_LDADD = $(link_clients) $(EDIT_LIBS)

bin_PROGRAMS += baton-bench
noinst_LIBRARIES += libbench.a
libbench_a_SOURCES = clients/bench/options.h clients/bench/options.c \
	clients/bench/trace.h clients/bench/trace.c \
	clients/bench/plan.h clients/bench/plan.c \
	clients/bench/stats.h clients/bench/stats.c
baton_bench_SOURCES = clients/bench/main.c \
	clients/bench/run.h clients/bench/run.c \
	clients/bench/detail.h clients/bench/detail.c \
	clients/bench/report.h clients/bench/report.c \
	clients/bench/kv.h clients/bench/kv_bound.c clients/bench/kv_main.c clients/bench/kv_nodes.c clients/bench/kv_reference.c
baton_bench_LDADD = libbench.a libtransfer_transport.a $(link_clients) $(XXHASH_LIBS) $(VERBS_LIBS)

bin_PROGRAMS += baton-sim
baton_sim_SOURCES = clients/sim/main.c clients/sim/options.h clients/sim/options.c \
	clients/sim/replay.h clients/sim/replay.c clients/sim/report.h clients/sim/report.c \
	clients/sim/measured.h clients/sim/measured.c
baton_sim_LDADD = libbench.a libclients.a $(link_fleet_sim) $(link_net_http) $(JANSSON_LIBS)

bin_SCRIPTS += baton
CLEANFILES += baton
EXTRA_DIST += clients/baton/baton.in
baton: clients/baton/baton.in
	$(AM_V_GEN)sed -e 's|[@]VERSION[@]|$(VERSION)|; s|[@]bindir[@]|$(bindir)|; s|[@]sbindir[@]|$(sbindir)|; s|[@]pkgdatadir[@]|$(pkgdatadir)|' \
		$(top_srcdir)/clients/baton/baton.in > $@.tmp && chmod +x $@.tmp && mv $@.tmp $@

bin_PROGRAMS += baton-trace
baton_trace_SOURCES = clients/trace/main.c clients/trace/export.h clients/trace/export.c
baton_trace_LDADD = libbench.a libclients.a $(link_net_http) $(JANSSON_LIBS)

examples = clients/examples/ask.sh clients/examples/ask.py clients/examples/ask.c clients/examples/ask.mjs \
	clients/examples/openai.mjs clients/examples/agent.mjs clients/examples/resume.mjs
EXTRA_DIST += $(examples)

# The commands against a stub of the endpoint; with real daemons they are tested in tests/integration.  Sanitized builds
# run the commands of test_progress.py in other tests.
if PLAIN_BUILD
dist_check_SCRIPTS += tests/clients/check-completion
TESTS += tests/clients/check-completion tests/clients/test_progress.py
endif
client_tests = tests/clients/test_chat.py tests/clients/test_ctl.py tests/clients/test_bench.py \
	tests/clients/test_plan.py tests/clients/test_sim.py tests/clients/test_trace.py
TESTS += $(client_tests)
EXTRA_DIST += $(client_tests) tests/clients/test_progress.py tests/clients/harness.py tests/clients/stub.py
tests/clients/test_chat.log: baton-chat
tests/clients/test_ctl.log: batonctl
tests/clients/test_bench.log: baton-bench
tests/clients/test_plan.log: baton-plan
tests/clients/test_progress.log: baton-sim baton-model
tests/clients/test_sim.log: baton-sim baton-router baton-decode
tests/clients/test_trace.log: baton-trace baton-sim baton-router baton-decode

if HAVE_CMOCKA
clients_unit_tests = tests/unit/clients/test_answer tests/unit/clients/test_bench tests/unit/clients/test_talk \
	tests/unit/clients/test_tools tests/unit/clients/test_request_view \
	tests/unit/clients/test_report_text tests/unit/clients/test_top_view tests/unit/clients/test_setup \
	tests/unit/clients/test_join tests/unit/clients/test_key_view tests/unit/clients/test_pull_store \
	tests/unit/clients/test_drain
check_PROGRAMS += $(clients_unit_tests)
TESTS += $(clients_unit_tests)
tests_unit_clients_test_answer_SOURCES = tests/unit/clients/test_answer.c
tests_unit_clients_test_answer_LDADD = $(link_clients) $(CMOCKA_LIBS)
tests_unit_clients_test_bench_SOURCES = tests/unit/clients/test_bench.c
tests_unit_clients_test_bench_LDADD = libbench.a $(link_clients) $(CMOCKA_LIBS)
tests_unit_clients_test_talk_SOURCES = tests/unit/clients/test_talk.c clients/chat/session.c clients/ctl/status.c
tests_unit_clients_test_talk_LDADD = $(link_clients) $(CMOCKA_LIBS)
tests_unit_clients_test_drain_SOURCES = tests/unit/clients/test_drain.c clients/ctl/cmd_act.c clients/ctl/status.c
tests_unit_clients_test_drain_LDADD = $(link_clients) $(CMOCKA_LIBS)
tests_unit_clients_test_drain_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=clock_now_ns -Wl,--wrap=clock_sleep_ns
tests_unit_clients_test_request_view_SOURCES = tests/unit/clients/test_request_view.c \
	clients/ctl/request_why.c clients/ctl/request_trace.c
tests_unit_clients_test_request_view_LDADD = $(link_clients) $(CMOCKA_LIBS)
tests_unit_clients_test_report_text_SOURCES = tests/unit/clients/test_report_text.c clients/ctl/report_text.c
tests_unit_clients_test_report_text_LDADD = $(link_clients) $(CMOCKA_LIBS)
tests_unit_clients_test_top_view_SOURCES = tests/unit/clients/test_top_view.c clients/ctl/top_view.c clients/ctl/top_recent.c \
	clients/ctl/request_trace.c
tests_unit_clients_test_top_view_LDADD = $(link_clients) $(CMOCKA_LIBS)
tests_unit_clients_test_join_SOURCES = tests/unit/clients/test_join.c clients/ctl/join_text.c clients/ctl/join_conf.c \
	clients/ctl/join_wait.c clients/ctl/wire.c clients/ctl/members.c clients/ctl/check_view.c
tests_unit_clients_test_join_LDADD = $(link_clients) $(CMOCKA_LIBS)
tests_unit_clients_test_key_view_SOURCES = tests/unit/clients/test_key_view.c clients/ctl/key_view.c
tests_unit_clients_test_key_view_LDADD = $(link_clients) $(CMOCKA_LIBS)
tests_unit_clients_test_pull_store_SOURCES = tests/unit/clients/test_pull_store.c
tests_unit_clients_test_pull_store_LDADD = $(link_pull) $(CMOCKA_LIBS)
tests_unit_clients_test_setup_SOURCES = tests/unit/clients/test_setup.c $(setup_sources) clients/setup/steps.h clients/setup/write.c
tests_unit_clients_test_setup_LDADD = libfleet_plan.a $(link_clients) libtext_json.a libgguf.a libbase.a $(JANSSON_LIBS) $(XXHASH_LIBS) \
	$(CMOCKA_LIBS) -lpthread -lm
tests_unit_clients_test_tools_SOURCES = tests/unit/clients/test_tools.c clients/chat/tools.c clients/chat/folder.c \
	clients/chat/run_tests.c clients/chat/scratch.c
tests_unit_clients_test_tools_LDADD = $(link_clients) $(CMOCKA_LIBS)
endif

# Not a test: run it by hand.  It reads recorded traces as baton-bench does.
noinst_PROGRAMS += tests/bench/bench_route
tests_bench_bench_route_SOURCES = tests/bench/bench_help.c tests/bench/bench_help.h tests/bench/route/route.h tests/bench/route/main.c tests/bench/route/drive.c \
	tests/bench/route/crew.c tests/bench/route/traffic.c
tests_bench_bench_route_LDADD = libbench.a $(link_fleet_picker) $(JANSSON_LIBS)

bin_PROGRAMS += baton-plan
baton_plan_SOURCES = clients/plan/main.c clients/plan/plan_cli.h clients/plan/plan_cli.c \
	clients/plan/cmd_list.c clients/plan/cmd_validate.c clients/plan/cmd_calibrate.c clients/plan/cmd_ratio.c \
	clients/plan/calibrate.h clients/plan/calibrate_load.c clients/plan/load.h clients/plan/load.c \
	clients/plan/plan_job.h clients/plan/plan_options.c clients/plan/plan_prepare.c clients/plan/cmd_plan.c clients/plan/plan_report.c clients/plan/plan_explain.c \
	clients/plan/plan_trace.c clients/plan/plan_html.c clients/plan/svg.h clients/plan/svg.c \
	clients/plan/plan_conf.c clients/plan/simulate.h clients/plan/simulate_fleet.c clients/plan/simulate_load.c \
	clients/plan/simulate_args.h clients/plan/simulate_args.c clients/plan/cmd_simulate.c clients/plan/cmd_sweep.c \
	clients/sim/replay.h clients/sim/replay.c
baton_plan_LDADD = libfleet_plan.a $(link_fleet_sim) libbench.a $(link_clients) libtext_json.a libgguf.a libbase.a $(JANSSON_LIBS) $(XXHASH_LIBS) -lpthread -lm
