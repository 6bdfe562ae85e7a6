# SPDX-License-Identifier: Apache-2.0
dist_man_MANS += docs/man/baton.7 docs/man/baton-router.8 docs/man/baton-prefill.8 docs/man/baton-decode.8 \
	docs/man/baton-model.1
dist_doc_DATA = docs/architecture.md docs/operations.md docs/models.md docs/templates.md docs/performance.md \
	docs/openai.md docs/http.md docs/grammars.md docs/api.md docs/handoff.md docs/caching.md docs/rates.md
EXTRA_DIST += docs/lab/2026-11-23-tuning-at-start.md
EXTRA_DIST += docs/man/baton-router.8.in docs/man/baton-prefill.8.in docs/man/baton-decode.8.in
dist_check_SCRIPTS += docs/man/check-man
TESTS += docs/man/check-man
dist_man_MANS += docs/man/baton-chat.1 docs/man/baton-bench.1 docs/man/batonctl.8
