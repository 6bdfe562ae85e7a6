# SPDX-License-Identifier: Apache-2.0
dist_pkgdata_DATA = share/baton-demo.gguf share/perplexity.txt
EXTRA_DIST += share/MODEL.md share/demo-golden.json share/eval/dialogues.jsonl
plandir = $(pkgdatadir)/plan
dist_plan_DATA = share/plan/devices.tsv share/plan/links.tsv share/plan/models.tsv share/plan/constants

# Shells look for completions by the command's name. tools/completions makes the files from the programs' help.
completion_commands = batonctl baton-chat baton-bench baton-model baton-plan baton-sim baton-setup baton-router baton-prefill baton-decode
bashcompletiondir = $(datadir)/bash-completion/completions
fishcompletiondir = $(datadir)/fish/vendor_completions.d
zshcompletiondir = $(datadir)/zsh/vendor-completions
dist_fishcompletion_DATA = share/completion/baton.fish
dist_zshcompletion_DATA = share/completion/_baton
EXTRA_DIST += share/completion/baton.bash tools/completions
install-data-hook:
	$(MKDIR_P) "$(DESTDIR)$(bashcompletiondir)"
	$(INSTALL_DATA) $(srcdir)/share/completion/baton.bash "$(DESTDIR)$(bashcompletiondir)/baton"
	for name in $(completion_commands); do \
		ln -sf baton "$(DESTDIR)$(bashcompletiondir)/$$name" && \
		ln -sf baton.fish "$(DESTDIR)$(fishcompletiondir)/$$name.fish" || exit 1; done
uninstall-hook:
	for name in baton $(completion_commands); do \
		rm -f "$(DESTDIR)$(bashcompletiondir)/$$name" "$(DESTDIR)$(fishcompletiondir)/$$name.fish"; done

monitoringdir = $(pkgdatadir)/monitoring
dist_monitoring_DATA = share/monitoring/prometheus.yml share/monitoring/rules.yml share/monitoring/dashboard-cache.json \
	share/monitoring/dashboard-endpoint.json share/monitoring/dashboard-fleet.json share/monitoring/dashboard-handoff.json
EXTRA_DIST += share/monitoring/make-dashboards share/monitoring/rules_test.yml

containerdir = $(pkgdatadir)/container
dist_container_DATA = share/container/Containerfile share/container/compose.yaml
dist_container_SCRIPTS = share/container/ready
kubernetesdir = $(pkgdatadir)/kubernetes
dist_kubernetes_DATA = share/kubernetes/baton.yaml
