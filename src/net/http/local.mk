# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libnet_http.a
libnet_http_a_SOURCES = src/net/http/parse.h src/net/http/parse_priv.h src/net/http/parse.c src/net/http/parse_response.c \
	src/net/http/chunked_priv.h src/net/http/chunked.c src/net/http/response.h src/net/http/response.c src/net/http/sse.h src/net/http/sse.c \
	src/net/http/sse_parse.h src/net/http/sse_parse.c src/net/http/congestion.h src/net/http/congestion.c src/net/http/server.h src/net/http/server.c src/net/http/conn_priv.h \
	src/net/http/conn.c src/net/http/body.c src/net/http/exchange.c src/net/http/direct.c src/net/http/conn_open.c src/net/http/conn_stall.c src/net/http/cors.c \
	src/net/http/tls.h src/net/http/tls.c src/net/http/https.h src/net/http/https.c src/net/http/h2_budget_priv.h src/net/http/h2_budget.c \
	src/net/http/h2_priv.h src/net/http/h2.c src/net/http/h2_stream.c src/net/http/h2_answer.c \
	src/net/http/client.h src/net/http/client.c src/net/http/client_priv.h src/net/http/client_conn.c

# From libnet_link these tests use only the counters of evicted strangers, so they need no libproto.
link_http_tests = libnet_http.a libnet_link.a libbase_event.a libbase_metrics.a libbase.a $(EVENT_LIBS) $(SSL_LIBS) $(NGHTTP2_LIBS) -lpthread -lm
if HAVE_CMOCKA
check_PROGRAMS += tests/unit/net/http/test_parse tests/unit/net/http/test_chunked tests/unit/net/http/test_response \
	tests/unit/net/http/test_sse tests/unit/net/http/test_server tests/unit/net/http/test_slow_readers tests/unit/net/http/test_congestion tests/unit/net/http/test_attack tests/unit/net/http/test_tls tests/unit/net/http/test_h2 tests/unit/net/http/test_h2_attack tests/unit/net/http/test_neighbours tests/unit/net/http/test_turns tests/unit/net/http/test_lame_duck \
	tests/unit/net/http/test_client
TESTS += tests/unit/net/http/test_parse tests/unit/net/http/test_chunked tests/unit/net/http/test_response \
	tests/unit/net/http/test_sse tests/unit/net/http/test_server tests/unit/net/http/test_slow_readers tests/unit/net/http/test_congestion tests/unit/net/http/test_attack tests/unit/net/http/test_tls tests/unit/net/http/test_h2 tests/unit/net/http/test_h2_attack tests/unit/net/http/test_neighbours tests/unit/net/http/test_turns tests/unit/net/http/test_lame_duck \
	tests/unit/net/http/test_client
tests_unit_net_http_test_parse_SOURCES = tests/unit/net/http/test_parse.c
tests_unit_net_http_test_parse_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
tests_unit_net_http_test_chunked_SOURCES = tests/unit/net/http/test_chunked.c
tests_unit_net_http_test_chunked_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
tests_unit_net_http_test_response_SOURCES = tests/unit/net/http/test_response.c
tests_unit_net_http_test_response_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
tests_unit_net_http_test_sse_SOURCES = tests/unit/net/http/test_sse.c
tests_unit_net_http_test_sse_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
tests_unit_net_http_test_congestion_SOURCES = tests/unit/net/http/test_congestion.c \
	tests/unit/net/http/echo.c tests/unit/net/http/echo.h tests/unit/net/http/raw.c tests/unit/net/http/raw.h
tests_unit_net_http_test_congestion_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
tests_unit_net_http_test_server_SOURCES = tests/unit/net/http/test_server.c \
	tests/unit/net/http/echo.c tests/unit/net/http/echo.h tests/unit/net/http/raw.c tests/unit/net/http/raw.h
tests_unit_net_http_test_server_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
tests_unit_net_http_test_slow_readers_SOURCES = tests/unit/net/http/test_slow_readers.c \
	tests/unit/net/http/echo.c tests/unit/net/http/echo.h tests/unit/net/http/raw.c tests/unit/net/http/raw.h
tests_unit_net_http_test_slow_readers_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
tests_unit_net_http_test_attack_SOURCES = tests/unit/net/http/test_attack.c tests/unit/net/http/raw.c tests/unit/net/http/raw.h
tests_unit_net_http_test_attack_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
http_rig = tests/unit/net/http/echo.c tests/unit/net/http/echo.h tests/unit/net/http/raw.c tests/unit/net/http/raw.h
tests_unit_net_http_test_tls_SOURCES = tests/unit/net/http/test_tls.c tests/unit/net/http/pki.c tests/unit/net/http/pki.h $(http_rig)
tests_unit_net_http_test_tls_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
http_h2peer = tests/unit/net/http/h2peer.c tests/unit/net/http/h2peer.h
tests_unit_net_http_test_h2_SOURCES = tests/unit/net/http/test_h2.c $(http_h2peer) $(http_rig)
tests_unit_net_http_test_h2_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
tests_unit_net_http_test_h2_attack_SOURCES = tests/unit/net/http/test_h2_attack.c $(http_h2peer) $(http_rig)
tests_unit_net_http_test_h2_attack_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
tests_unit_net_http_test_neighbours_SOURCES = tests/unit/net/http/test_neighbours.c $(http_rig)
tests_unit_net_http_test_neighbours_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
tests_unit_net_http_test_turns_SOURCES = tests/unit/net/http/test_turns.c $(http_h2peer) $(http_rig)
tests_unit_net_http_test_turns_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
tests_unit_net_http_test_turns_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=clock_now_ns
tests_unit_net_http_test_lame_duck_SOURCES = tests/unit/net/http/test_lame_duck.c $(http_h2peer) $(http_rig)
tests_unit_net_http_test_lame_duck_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
tests_unit_net_http_test_client_SOURCES = tests/unit/net/http/test_client.c \
	tests/unit/net/http/script.c tests/unit/net/http/script.h
tests_unit_net_http_test_client_LDADD = $(link_net_http) $(CMOCKA_LIBS)
endif
