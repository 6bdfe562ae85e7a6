# SPDX-License-Identifier: Apache-2.0
# The mechanical rules of the project, as tests: tests/lint/check-X says at its top what it wants.  They read the
# source tree (also an unpacked tarball) and look at what was built.
source_checks = \
	tests/lint/check-format \
	tests/lint/check-headers \
	tests/lint/check-layers \
	tests/lint/check-lint \
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
EXTRA_DIST += tests/lint/layers tests/lint/exceptions tests/lint/words

AM_TESTS_ENVIRONMENT = \
	CC='$(CC)'; NM='$(NM)'; \
	LINT_CPPFLAGS='-I$(top_srcdir) -I$(top_srcdir)/src -I$(top_builddir) -I$(top_builddir)/src -include config.h $(CPPFLAGS)'; \
	LINT_CFLAGS='$(AM_CFLAGS) $(CFLAGS)'; \
	LINT_LDFLAGS='$(AM_LDFLAGS) $(LDFLAGS)'; \
	LINT_KERNELS='$(kern_libs)'; \
	LINT_LIBS='$(SYSTEMD_LIBS) $(SSL_LIBS) $(JANSSON_LIBS) $(EVENT_LIBS) $(UTF8PROC_LIBS) $(XXHASH_LIBS) \
	$(PROTOBUFC_LIBS) $(EDIT_LIBS) $(ZLIB_LIBS) $(NGHTTP2_LIBS) $(VERBS_LIBS)'; \
	BATON_TUNE_FILE='$(abs_top_builddir)/tests/tune'; export BATON_TUNE_FILE; \
	export CC NM LINT_CPPFLAGS LINT_CFLAGS LINT_LDFLAGS LINT_KERNELS LINT_LIBS;
