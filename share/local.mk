# SPDX-License-Identifier: Apache-2.0
dist_pkgdata_DATA = share/baton-demo.gguf share/perplexity.txt
EXTRA_DIST += share/MODEL.md share/demo-golden.json share/eval/dialogues.jsonl
