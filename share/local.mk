# SPDX-License-Identifier: Apache-2.0
dist_pkgdata_DATA = share/baton-demo.gguf share/perplexity.txt
EXTRA_DIST += share/MODEL.md share/demo-golden.json share/eval/dialogues.jsonl
plandir = $(pkgdatadir)/plan
dist_plan_DATA = share/plan/devices.tsv share/plan/links.tsv share/plan/models.tsv share/plan/constants
