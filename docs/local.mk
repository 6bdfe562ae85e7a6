# SPDX-License-Identifier: Apache-2.0
dist_man_MANS += docs/man/baton.7 docs/man/baton-router.8 docs/man/baton-prefill.8 docs/man/baton-decode.8 \
	docs/man/baton-model.1
dist_doc_DATA = docs/architecture.md docs/operations.md docs/models.md docs/templates.md docs/performance.md \
	docs/openai.md docs/responses.md docs/http.md docs/grammars.md docs/api.md docs/handoff.md docs/caching.md docs/rates.md docs/planning.md \
	docs/tour.svg docs/console.md docs/console-chat.webp docs/console-phone.webp docs/console-fleet.webp docs/console-why.webp \
	docs/planning-example.html docs/planning-phone.png docs/simulator.md docs/routing.md docs/tracing.md docs/errors.md docs/logging.md docs/log-schema.json docs/scale.md docs/joining.md \
	docs/changes.md docs/changes-api.md docs/changes-fleet.md docs/changes-worker.md
dist_man_MANS += docs/man/baton-router.conf.5 docs/man/baton-prefill.conf.5 docs/man/baton-decode.conf.5 docs/man/baton.1
EXTRA_DIST += docs/man/baton-router.conf.5.in docs/man/baton-prefill.conf.5.in docs/man/baton-decode.conf.5.in
dist_check_SCRIPTS += docs/man/check-man
TESTS += docs/man/check-man
dist_man_MANS += docs/man/baton-chat.1 docs/man/baton-bench.1 docs/man/baton-plan.1 docs/man/baton-sim.1 docs/man/baton-trace.1 \
	docs/man/batonctl.8 docs/man/baton-setup.8

labdir = $(docdir)/lab
dist_lab_DATA = docs/lab/README.md \
	docs/lab/2026-11-21-attention.md \
	docs/lab/2026-11-21-plain-types.md \
	docs/lab/2026-11-21-quantised-weights.md \
	docs/lab/2026-11-21-speculation.md \
	docs/lab/2026-11-21-step-planner.md \
	docs/lab/2026-11-21-zen5.md \
	docs/lab/2026-11-22-bf16-tiles.md \
	docs/lab/2026-11-22-decode-of-every-type.md \
	docs/lab/2026-11-22-idle-memory.md \
	docs/lab/2026-11-22-limits.md \
	docs/lab/2026-11-22-load-time.md \
	docs/lab/2026-11-22-long-prompts.md \
	docs/lab/2026-11-22-long-words.md \
	docs/lab/2026-11-22-moving-kv.md \
	docs/lab/2026-11-22-overlap.md \
	docs/lab/2026-11-22-placement.md \
	docs/lab/2026-11-22-prompts-by-tiles.md \
	docs/lab/2026-11-22-streams.md \
	docs/lab/2026-11-22-tens-of-tokens.md \
	docs/lab/2026-11-22-xeon-peers.md \
	docs/lab/2026-11-23-attention-from-the-arena.md \
	docs/lab/2026-11-23-avx2-narrow-weights.md \
	docs/lab/2026-11-23-load-memory.md \
	docs/lab/2026-11-23-tuning-at-start.md \
	docs/lab/2026-11-23-zen3.md \
	docs/lab/2026-11-23-zen4-batches.md \
	docs/lab/2026-11-23-zen4-decode.md \
	docs/lab/2026-11-23-zen4-peers.md \
	docs/lab/2026-11-26-long-bundled-model.md \
	docs/lab/2026-11-26-second-oracle.md \
	docs/lab/2026-11-26-simulator-index.md \
	docs/lab/2026-11-26-sparse-attention.md \
	docs/lab/2026-11-26-structure.md \
	docs/lab/2026-11-27-draft-model-cold-start.md \
	docs/lab/2026-11-27-goodput-at-capacity.md \
	docs/lab/2026-11-27-reader-trial.md \
	docs/lab/2026-11-28-choice-in-groups.md \
	docs/lab/2026-11-28-sealing.md \
	docs/lab/2026-11-28-xeon-decode.md \
	docs/lab/2026-11-29-lattice-points.md docs/lab/2026-11-29-two-lines-at-once.md docs/lab/2026-11-29-two-bit-self.md docs/lab/2026-11-29-prompts-beside-answers.md \
	docs/lab/2026-11-30-clone-to-answer.md docs/lab/2026-11-30-one-token-on-a-zen-1.md docs/lab/2026-11-30-points-on-a-xeon.md docs/lab/2026-11-30-real-models.md docs/lab/2026-11-30-routers-know-who-had-less.md docs/lab/2026-11-30-routers-share-turns.md docs/lab/2026-11-30-two-changes-made.md docs/lab/2026-11-30-where-a-check-goes.md \
	docs/lab/2026-12-01-idle-workers-first.md docs/lab/2026-12-01-lattice-points-on-a-xeon.md docs/lab/2026-12-01-waits-of-short-steps.md
