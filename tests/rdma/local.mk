# SPDX-License-Identifier: Apache-2.0
# RDMA for real, in a small emulated machine: `make check-rdma`, which ./check calls once, and which `make check` does not
# (a machine takes as long under the sanitizers, and says no more).  Its extension is why make knows how to run it although it
# is not among TESTS.
EXTRA_DIST += tests/rdma/init tests/rdma/conformance tests/rdma/relay.py tests/rdma/asked.py tests/rdma/matrix.py
dist_check_SCRIPTS += tests/rdma/stock-kernel tests/rdma/vm tests/rdma/check-rdma.vm tests/rdma/check-numa.vm
rdma_programs =
if HAVE_VERBS
if HAVE_CMOCKA
check_PROGRAMS += tests/rdma/test_provider
tests_rdma_test_provider_SOURCES = tests/rdma/test_provider.c tests/rdma/pair.c tests/rdma/pair.h
tests_rdma_test_provider_LDADD = $(VERBS_LIBS) -lpthread $(CMOCKA_LIBS)
check_PROGRAMS += tests/rdma/test_rails
tests_rdma_test_rails_SOURCES = tests/rdma/test_rails.c $(conformance_sources)
tests_rdma_test_rails_LDADD = libnet_link.a $(link_transfer_transport) $(CMOCKA_LIBS)
rdma_programs += tests/rdma/test_provider tests/rdma/test_rails tests/conformance/test_transport \
	tests/conformance/test_transport_peers baton-router baton-prefill baton-decode batonctl
endif
endif
AM_TESTS_ENVIRONMENT += RDMA_PROGRAMS='$(rdma_programs)'; export RDMA_PROGRAMS;

# Memory nodes for real, in the same machine with two of them: `make check-numa`.
numa_programs =
if HAVE_CMOCKA
numa_programs += tests/unit/base/test_numa tests/unit/compute/tensor/test_nodes baton-decode
endif
AM_TESTS_ENVIRONMENT += NUMA_PROGRAMS='$(numa_programs)'; export NUMA_PROGRAMS;

check-numa:
	$(MAKE) $(AM_MAKEFLAGS) check TESTS=tests/rdma/check-numa.vm
.PHONY: check-numa

check-rdma:
	$(MAKE) $(AM_MAKEFLAGS) check TESTS=tests/rdma/check-rdma.vm
.PHONY: check-rdma
