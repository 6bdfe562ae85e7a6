# SPDX-License-Identifier: Apache-2.0
# Real daemons, real sockets, real faults: Python's standard library drives them.
long_integration_tests = tests/integration/test_config.py tests/integration/test_resume.py tests/integration/test_faults.py \
	tests/integration/test_state.py
long_tests += $(long_integration_tests)
EXTRA_DIST += $(long_integration_tests)
integration_tests = tests/integration/test_sdk.py tests/integration/test_operate.py tests/integration/test_constraints.py \
	tests/integration/test_draft_model.py tests/integration/test_quantize.py tests/integration/test_http.py tests/integration/test_api_md.py
integration_tests += tests/integration/test_tier.py tests/integration/test_echo.py
integration_tests += tests/integration/test_render.py
integration_tests += tests/integration/test_schema_floods.py
integration_tests += tests/integration/test_broken_models.py
integration_tests += tests/integration/test_traces.py tests/integration/test_why.py tests/integration/test_changes.py
integration_tests += tests/integration/test_logs.py
tests/integration/test_why.log tests/integration/test_changes.log: batonctl
EXTRA_DIST += tests/integration/otlp.py tests/integration/check_phoenix.py
# Phoenix as the collector of real daemons; no part of make check, because it installs 1 GB
.PHONY: tests/integration/check-phoenix
tests/integration/check-phoenix: all
	$(PY_LOG_COMPILER) $(srcdir)/tests/integration/check_phoenix.py
integration_tests += tests/integration/test_hybrid.py tests/integration/test_families.py
integration_tests += tests/integration/test_embeddings.py
integration_tests += tests/integration/test_discovery.py tests/integration/test_numa.py
integration_tests += tests/integration/test_pause.py tests/integration/test_preempt.py tests/integration/test_admission.py tests/integration/test_load.py
integration_tests += tests/integration/test_files.py tests/integration/test_pull.py tests/integration/test_pull_reuse.py
integration_tests += tests/integration/test_kept.py tests/integration/test_three_routers.py tests/integration/test_resume_limits.py
integration_tests += tests/integration/test_keys.py tests/integration/test_certificates.py
tests/integration/test_tour.log tests/integration/test_keys.log tests/integration/test_certificates.log: batonctl
tests/integration/test_console.log: batonctl baton-plan
integration_tests += tests/integration/test_imatrix.py tests/integration/test_shared_kv.py
integration_tests += tests/integration/test_strangers.py tests/integration/test_stop.py tests/integration/test_texts.py
# What runs without sanitizers alone, because other sanitized tests run the same code of the daemons:
#   * long runs (test_faults.py covers the code), and limits of memory, as sanitizers keep freed memory
#   * files and documents: manifests, configurations, examples, the tour (sanitizers see --check-config in test_config.py)
#   * figures that slow daemons miss: shares, limits and times
#   * stock clients, browsers and shell scripts in front of the daemons (test_sdk.py and test_responses.py are sanitized)
plain_tests = tests/integration/test_matrix.py tests/integration/test_growth.py tests/integration/test_fair.py \
	tests/integration/test_memory.py tests/integration/test_fair_routers.py tests/integration/test_h2_floods.py \
	tests/integration/test_hybrid_faults.py tests/integration/test_manifests.py \
	tests/integration/test_truth.py tests/integration/test_tour.py tests/integration/test_console.py \
	tests/integration/test_examples.py tests/integration/test_config_keys.py tests/integration/test_flood.py \
	tests/integration/test_common_limits.py tests/integration/test_baton.py tests/integration/test_calibrate.py
# What runs hardly any code of the daemons that cheaper sanitized tests do not run: tools/sanitized-tests measures it.
# ThreadSanitizer has test_relay.py.
repeated_tests = tests/integration/test_caching.py tests/integration/test_relay.py tests/integration/test_mtp.py tests/integration/test_mamba.py \
	tests/integration/test_prefix_fetch.py tests/integration/test_pieces.py tests/integration/test_remote.py tests/integration/test_sampler.py \
	tests/integration/test_weights.py tests/integration/test_windows.py
EXTRA_DIST += $(plain_tests) $(repeated_tests) tests/integration/test_responses_clients.py
if PLAIN_BUILD
long_tests += tests/integration/test_responses_clients.py
TESTS += $(plain_tests) $(repeated_tests)
endif
EXTRA_DIST += tests/integration/hurt.py tests/integration/container.py tests/bench/bench_overlap.py tests/bench/bench_loop.py tests/bench/bench_loop_ports.py \
	tests/bench/bench_truth.py tests/bench/bench_goodput.py tests/bench/bench_routers.py tests/bench/bench_remote.py
TESTS += $(integration_tests)
EXTRA_DIST += $(integration_tests) tests/integration/cluster.py tests/integration/gguf_file.py tests/integration/draft_client.py tests/integration/right_head.py
TEST_EXTENSIONS = .py .vm
PY_LOG_COMPILER = env BATON_BUILD=$(abs_top_builddir) BATON_SOURCE=$(abs_top_srcdir) PYTHONDONTWRITEBYTECODE=1 python3
TESTS += tests/integration/test_disk_index.py tests/integration/test_peers.py
EXTRA_DIST += tests/integration/test_disk_index.py tests/integration/test_peers.py
if PLAIN_BUILD
TESTS += tests/integration/test_prometheus.py
endif
EXTRA_DIST += tests/integration/test_prometheus.py
tests/integration/test_prometheus.log: baton-bench batonctl
tests/integration/test_baton.log: baton baton-chat batonctl baton-model
TESTS += tests/integration/test_responses.py
EXTRA_DIST += tests/integration/test_responses.py tests/integration/responses/clients.py \
	tests/integration/responses/package.json tests/integration/responses/package-lock.json \
	tests/integration/responses/requirements.txt tests/integration/responses/test-responses.mjs
tests/integration/test_responses_clients.log: tests/integration/front_sim
# LiteLLM in front of real daemons; no part of make check, because it installs 200 MB
EXTRA_DIST += tests/integration/responses/embeddings.py tests/integration/responses/test-embeddings.mjs
EXTRA_DIST += tests/integration/responses/check_litellm.py tests/integration/responses/check_codex.py \
	tests/integration/responses/check_qwen.py tests/integration/responses/agent.py
.PHONY: tests/integration/check-litellm tests/integration/check-codex tests/integration/check-qwen
tests/integration/check-litellm: all
	$(PY_LOG_COMPILER) $(srcdir)/tests/integration/responses/check_litellm.py
tests/integration/check-codex: tests/integration/front_sim
	$(PY_LOG_COMPILER) $(srcdir)/tests/integration/responses/check_codex.py
tests/integration/check-qwen: tests/integration/front_sim
	$(PY_LOG_COMPILER) $(srcdir)/tests/integration/responses/check_qwen.py
TESTS += tests/integration/test_upgrade.py
EXTRA_DIST += tests/integration/test_upgrade.py
TESTS += tests/integration/test_roles.py tests/integration/test_move.py
EXTRA_DIST += tests/integration/test_roles.py tests/integration/test_move.py
TESTS += tests/integration/test_auto_roles.py
EXTRA_DIST += tests/integration/test_auto_roles.py
# skipped without redis-server, test_remote_s3.py without moto and rclone
TESTS += tests/integration/test_remote_s3.py tests/integration/test_store_errors.py
EXTRA_DIST += tests/integration/test_remote_s3.py tests/integration/s3_server.py tests/integration/loopback_server.py tests/integration/test_store_errors.py
TESTS += tests/integration/test_hybrid_remote.py tests/integration/test_remote_routing.py tests/integration/test_remote_faults.py tests/integration/test_remote_cluster.py
EXTRA_DIST += tests/integration/test_hybrid_remote.py tests/integration/test_remote_routing.py tests/integration/test_remote_faults.py tests/integration/test_remote_cluster.py tests/integration/redis_server.py tests/integration/resume_client.py
tests/integration/test_calibrate.log: baton-plan
# skipped without the package index and $BATON_REAL_MODELS; the sanitizers see the same code with the bundled model
if PLAIN_BUILD
TESTS += tests/integration/test_real_models.py
endif
EXTRA_DIST += tests/integration/test_real_models.py tests/integration/real_models.py
clean-local: clean-real-models
.PHONY: clean-real-models
clean-real-models:
	rm -rf tests/integration/real-models tests/integration/responses-work
TESTS += tests/integration/test_setup.py
EXTRA_DIST += tests/integration/test_setup.py
tests/integration/test_setup.log: baton-setup baton
TESTS += tests/integration/test_join.py
EXTRA_DIST += tests/integration/test_join.py
tests/integration/test_join.log: batonctl baton-setup
TESTS += tests/integration/test_check.py
EXTRA_DIST += tests/integration/test_check.py
tests/integration/test_check.log: batonctl
