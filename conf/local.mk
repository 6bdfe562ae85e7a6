# SPDX-License-Identifier: Apache-2.0
# Annotated samples, one a daemon; written by the daemons themselves (conf/check-conf --write) and held equal in make check.
exampledir = $(docdir)/examples
dist_example_DATA = conf/router.conf conf/prefill.conf conf/decode.conf
dist_example_DATA += systemd/rdma.conf
dist_check_SCRIPTS += conf/check-conf
TESTS += conf/check-conf
