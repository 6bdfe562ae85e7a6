# SPDX-License-Identifier: Apache-2.0
# What builds, checks and tries a tree from its top, for unpacked ones too; and how the bundled model was made.
EXTRA_DIST += run tools/check-packages tools/build tools/compiler-cache tools/debian-packages tools/install-packages
# ./check is copied by hand: as a file to be distributed, make would take it for the target, and run all tests.
dist-hook:
	cp -p $(srcdir)/check $(distdir)/check
demo_model = README.md agent.py bpe.py chat.py chat_template.jinja check-template corpus.py evaluate.py export.py gguf.py \
	glossary.py golden.py make-model manual.py model.py recall.py reference.py served.py sim.py story.py stretch.py talk.py \
	toolbox.py train.py words.py
EXTRA_DIST += $(demo_model:%=tools/demo-model/%)
EXTRA_DIST += tools/recipe tools/sanitized-tests tools/tables-to-c tools/tour
