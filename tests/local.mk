# SPDX-License-Identifier: Apache-2.0
# Tests that belong to no single folder: lint, fuzz targets, integration.
#
# A fuzz target is LLVMFuzzerTestOneInput() in tests/fuzz/fuzz_X.c with a corpus in tests/fuzz/corpus/X/ and a
# fragment tests/fuzz/X.mk in the shape of tests/fuzz/config.mk.  With --enable-fuzz (clang) it gets libFuzzer's
# main and looks for new inputs when run by hand; otherwise it gets replay.c's main, which replays the corpus (and
# near misses of it) in `make check`.

# The life-cycles of a hand-off and of an asked push, visited exhaustively by Spin.
dist_check_SCRIPTS += tests/model/check-handoff tests/model/check-ask
if PLAIN_BUILD
long_tests += tests/model/check-handoff tests/model/check-ask
endif
EXTRA_DIST += tests/model/handoff.pml tests/model/ask.pml tests/model/searching

if FUZZ
fuzz_main =
fuzz_ldflags = -fsanitize=fuzzer
else
check_LIBRARIES += tests/fuzz/libreplay.a
fuzz_main = tests/fuzz/libreplay.a libbase.a
fuzz_ldflags =
endif
tests_fuzz_libreplay_a_SOURCES = tests/fuzz/replay.c

tests/unit/%.$(OBJEXT) tests/conformance/%.$(OBJEXT) tests/fuzz/%.$(OBJEXT): CFLAGS += $(TEST_CFLAGS)

include tests/lint/local.mk
include tests/fuzz/frame.mk
include tests/fuzz/classes.mk
include tests/fuzz/hello.mk
include tests/fuzz/http.mk
include tests/fuzz/conn.mk
include tests/fuzz/h2.mk
include tests/fuzz/gguf.mk
include tests/fuzz/split.mk
include tests/fuzz/pull.mk
include tests/fuzz/imatrix.mk
include tests/fuzz/tune.mk
include tests/fuzz/plan.mk
include tests/fuzz/vocab.mk
include tests/fuzz/cut.mk
include tests/fuzz/config.mk
include tests/fuzz/api.mk
include tests/fuzz/calls.mk
include tests/fuzz/constraint.mk
include tests/fuzz/openai.mk
include tests/fuzz/responses.mk
include tests/fuzz/admit.mk
include tests/fuzz/kvframe.mk
include tests/fuzz/tokenlist.mk
include tests/fuzz/eventid.mk
include tests/fuzz/tracecontext.mk
include tests/fuzz/trace.mk
include tests/fuzz/access.mk
include tests/fuzz/cgroup.mk
include tests/fuzz/remote.mk
include tests/fuzz/resp.mk
include tests/fuzz/tier.mk
include tests/fuzz/peermap.mk
include tests/fuzz/template.mk
include tests/fuzz/jinja.mk
include tests/fuzz/clusterkey.mk
include tests/fuzz/discover.mk
include tests/fuzz/sse.mk
include tests/fuzz/state.mk
include tests/fuzz/clients.mk
include tests/fuzz/join.mk
include tests/fuzz/grammar_run.mk
include tests/fuzz/grammar_regex.mk
include tests/fuzz/grammar_cost.mk
include tests/fuzz/grammar_schema.mk
include tests/cross/local.mk
include tests/integration/local.mk
include tests/rdma/local.mk

# What ThreadSanitizer runs (see ./check): everything in which threads meet.
threaded_tests = tests/unit/base/test_mailbox tests/unit/base/test_team tests/unit/base/event/test_loop \
	tests/unit/base/metrics/test_metrics tests/conformance/test_transport tests/conformance/test_transport_users tests/integration/test_relay.py \
	tests/integration/test_faults.py
threaded_programs = $(filter-out %.py,$(threaded_tests))
