# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/fuzz/fuzz_peermap
tests_fuzz_fuzz_peermap_SOURCES = tests/fuzz/fuzz_peermap.c tests/unit/worker/runner/map_rig.c tests/unit/worker/runner/map_rig.h src/worker/runner/peer_map.c src/worker/loop/follow.c
tests_fuzz_fuzz_peermap_LDFLAGS = $(AM_LDFLAGS) $(fuzz_ldflags)
tests_fuzz_fuzz_peermap_LDADD = $(fuzz_main) $(link_worker_loop)
EXTRA_DIST += tests/fuzz/corpus/peermap
if !FUZZ
TESTS += tests/fuzz/fuzz_peermap
endif
