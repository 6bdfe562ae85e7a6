# SPDX-License-Identifier: Apache-2.0
# RDMA for real, in a small emulated machine: `make check-rdma`, which ./check calls once, and which `make check` does not
# (a machine takes as long under the sanitizers, and says no more).
EXTRA_DIST += tests/rdma/init
dist_check_SCRIPTS += tests/rdma/stock-kernel tests/rdma/vm
