# SPDX-License-Identifier: Apache-2.0
# Units are templates: directories and the common hardening block are filled in when they are made.
EXTRA_DIST += systemd/hardening.in systemd/baton.target systemd/baton-router.service.in \
	systemd/baton-prefill@.service.in systemd/baton-decode@.service.in
units = systemd/baton-router.service systemd/baton-prefill@.service systemd/baton-decode@.service
CLEANFILES += $(units)
if HAVE_SYSTEMD_UNITS
systemdsystemunit_DATA = systemd/baton.target $(units)
endif

$(units): %.service: systemd/hardening.in
	$(AM_V_GEN)$(MKDIR_P) systemd && sed -e '/^@hardening@$$/{' -e 'r $(top_srcdir)/systemd/hardening.in' -e 'd' -e '}' \
		-e 's|[@]sbindir[@]|$(sbindir)|g; s|[@]sysconfdir[@]|$(sysconfdir)|g' $(top_srcdir)/$@.in > $@.tmp && mv $@.tmp $@
systemd/baton-router.service: systemd/baton-router.service.in
systemd/baton-prefill@.service: systemd/baton-prefill@.service.in
systemd/baton-decode@.service: systemd/baton-decode@.service.in

TESTS += systemd/check-units
dist_check_SCRIPTS += systemd/check-units
