# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libhttp.a
libhttp_a_SOURCES = src/http/parse.h src/http/parse_priv.h src/http/parse.c src/http/parse_response.c \
	src/http/chunked.h src/http/chunked.c src/http/response.h src/http/response.c src/http/sse.h src/http/sse.c \
	src/http/sse_parse.h src/http/sse_parse.c src/http/congestion.h src/http/congestion.c src/http/server.h src/http/server.c src/http/conn_priv.h \
	src/http/conn.c src/http/body.c src/http/exchange.c src/http/direct.c src/http/conn_open.c src/http/cors.c \
	src/http/tls.h src/http/tls.c src/http/https.h src/http/https.c src/http/h2_budget.h src/http/h2_budget.c \
	src/http/h2_priv.h src/http/h2.c src/http/h2_stream.c src/http/h2_answer.c \
	src/http/client.h src/http/client.c src/http/client_priv.h src/http/client_conn.c

# Of libnet these need what counts evicted strangers, and nothing that wants libproto.
link_http_tests = libhttp.a libnet.a libev.a libmetrics.a libbase.a $(EVENT_LIBS) $(SSL_LIBS) $(NGHTTP2_LIBS) -lpthread -lm
if HAVE_CMOCKA
check_PROGRAMS += tests/unit/http/test_parse tests/unit/http/test_chunked tests/unit/http/test_response \
	tests/unit/http/test_sse tests/unit/http/test_server tests/unit/http/test_congestion tests/unit/http/test_attack tests/unit/http/test_tls tests/unit/http/test_h2 tests/unit/http/test_h2_attack tests/unit/http/test_neighbours tests/unit/http/test_lame_duck \
	tests/unit/http/test_client
TESTS += tests/unit/http/test_parse tests/unit/http/test_chunked tests/unit/http/test_response \
	tests/unit/http/test_sse tests/unit/http/test_server tests/unit/http/test_congestion tests/unit/http/test_attack tests/unit/http/test_tls tests/unit/http/test_h2 tests/unit/http/test_h2_attack tests/unit/http/test_neighbours tests/unit/http/test_lame_duck \
	tests/unit/http/test_client
tests_unit_http_test_parse_SOURCES = tests/unit/http/test_parse.c
tests_unit_http_test_parse_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
tests_unit_http_test_chunked_SOURCES = tests/unit/http/test_chunked.c
tests_unit_http_test_chunked_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
tests_unit_http_test_response_SOURCES = tests/unit/http/test_response.c
tests_unit_http_test_response_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
tests_unit_http_test_sse_SOURCES = tests/unit/http/test_sse.c
tests_unit_http_test_sse_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
tests_unit_http_test_congestion_SOURCES = tests/unit/http/test_congestion.c \
	tests/unit/http/echo.c tests/unit/http/echo.h tests/unit/http/raw.c tests/unit/http/raw.h
tests_unit_http_test_congestion_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
tests_unit_http_test_server_SOURCES = tests/unit/http/test_server.c \
	tests/unit/http/echo.c tests/unit/http/echo.h tests/unit/http/raw.c tests/unit/http/raw.h
tests_unit_http_test_server_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
tests_unit_http_test_attack_SOURCES = tests/unit/http/test_attack.c tests/unit/http/raw.c tests/unit/http/raw.h
tests_unit_http_test_attack_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
http_rig = tests/unit/http/echo.c tests/unit/http/echo.h tests/unit/http/raw.c tests/unit/http/raw.h
tests_unit_http_test_tls_SOURCES = tests/unit/http/test_tls.c tests/unit/http/pki.c tests/unit/http/pki.h $(http_rig)
tests_unit_http_test_tls_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
http_h2peer = tests/unit/http/h2peer.c tests/unit/http/h2peer.h
tests_unit_http_test_h2_SOURCES = tests/unit/http/test_h2.c $(http_h2peer) $(http_rig)
tests_unit_http_test_h2_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
tests_unit_http_test_h2_attack_SOURCES = tests/unit/http/test_h2_attack.c $(http_h2peer) $(http_rig)
tests_unit_http_test_h2_attack_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
tests_unit_http_test_neighbours_SOURCES = tests/unit/http/test_neighbours.c $(http_rig)
tests_unit_http_test_neighbours_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
tests_unit_http_test_lame_duck_SOURCES = tests/unit/http/test_lame_duck.c $(http_h2peer) $(http_rig)
tests_unit_http_test_lame_duck_LDADD = $(link_http_tests) $(CMOCKA_LIBS)
tests_unit_http_test_client_SOURCES = tests/unit/http/test_client.c \
	tests/unit/http/script.c tests/unit/http/script.h
tests_unit_http_test_client_LDADD = $(link_http) $(CMOCKA_LIBS)
endif
