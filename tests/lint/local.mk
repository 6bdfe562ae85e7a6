# SPDX-License-Identifier: Apache-2.0
# The mechanical rules of the project, as tests: the first comment of tests/lint/check-X states its rule.  They read the
# source tree (also an unpacked tarball) and look at the build.
source_checks = \
	tests/lint/check-errors \
	tests/lint/check-folders \
	tests/lint/check-format \
	tests/lint/check-frames \
	tests/lint/check-headers \
	tests/lint/check-keys \
	tests/lint/check-layers \
	tests/lint/check-lint \
	tests/lint/check-names \
	tests/lint/check-references \
	tests/lint/check-sizes \
	tests/lint/check-spdx \
	tests/lint/check-words
build_checks = \
	tests/lint/check-links \
	tests/lint/check-router-light
dist_check_SCRIPTS += $(source_checks) $(build_checks) tests/lint/sources
if PLAIN_BUILD
TESTS += $(source_checks) $(build_checks)
endif
EXTRA_DIST += tests/lint/layers tests/lint/exceptions tests/lint/words $(folder_pages)
# One page for each folder of sources (tests/lint/check-folders).
folder_pages = clients/README.md clients/baton/README.md clients/bench/README.md clients/chat/README.md clients/common/README.md \
	clients/ctl/README.md clients/examples/README.md clients/model/README.md clients/plan/README.md clients/pull/README.md clients/setup/README.md \
	clients/sim/README.md daemon/README.md src/README.md src/base/README.md src/base/config/README.md \
	src/base/event/README.md src/base/metrics/README.md src/cache/README.md src/cache/kv/README.md \
	src/cache/prefix/README.md src/compute/README.md src/compute/engine/README.md src/compute/kernels/README.md \
	src/compute/model/README.md src/compute/order/README.md src/compute/sample/README.md \
	src/compute/sched/README.md src/compute/tensor/README.md src/fleet/README.md src/fleet/picker/README.md \
	src/fleet/plan/README.md src/fleet/router/README.md src/fleet/sim/README.md src/gguf/README.md \
	src/net/README.md src/net/discover/README.md src/net/http/README.md src/net/link/README.md src/net/otlp/README.md src/serve/README.md src/serve/access/README.md \
	src/serve/answer/README.md src/serve/api/README.md src/serve/conversation/README.md \
	src/serve/endpoint/README.md src/serve/prompt/README.md src/serve/setup/README.md src/text/README.md \
	src/text/grammar/README.md src/text/jinja/README.md src/text/json/README.md src/text/token/README.md \
	src/text/toolcall/README.md src/transfer/README.md src/transfer/kvxfer/README.md \
	src/transfer/transport/README.md src/worker/README.md src/worker/loop/README.md src/worker/runner/README.md \
	tests/README.md tests/bench/README.md tests/clients/README.md tests/conformance/README.md tests/cross/README.md \
	tests/fuzz/README.md tests/golden/README.md tests/integration/README.md tests/lint/README.md \
	tests/model/README.md tests/rdma/README.md tests/reference/README.md tests/unit/README.md

AM_TESTS_ENVIRONMENT = \
	CC='$(CC)'; NM='$(NM)'; \
	LINT_CPPFLAGS='-I$(top_srcdir) -I$(top_srcdir)/src -I$(top_builddir) -I$(top_builddir)/src -include config.h $(CPPFLAGS)'; \
	LINT_CFLAGS='$(AM_CFLAGS) $(CFLAGS)'; \
	LINT_LDFLAGS='$(AM_LDFLAGS) $(LDFLAGS)'; \
	LINT_KERNELS='$(kern_libs)'; \
	LINT_LIBS='$(SYSTEMD_LIBS) $(SSL_LIBS) $(GCRYPT_LIBS) $(JANSSON_LIBS) $(EVENT_LIBS) $(UTF8PROC_LIBS) $(XXHASH_LIBS) $(CARES_LIBS) \
	$(PROTOBUFC_LIBS) $(EDIT_LIBS) $(CURL_LIBS) $(ZLIB_LIBS) $(NGHTTP2_LIBS) $(VERBS_LIBS)'; \
	BATON_TUNE_FILE='$(abs_top_builddir)/tests/tune'; export BATON_TUNE_FILE; \
	export CC NM LINT_CPPFLAGS LINT_CFLAGS LINT_LDFLAGS LINT_KERNELS LINT_LIBS;
