/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures of requests to S3, against the examples that Amazon publishes, and addresses of stores. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "net/s3/s3_url.h"
#include "net/s3/sigv4.h"

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define BODY  "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"
#define TIME  "20130524T000000Z"
#define HOST  "examplebucket.s3.amazonaws.com"

/* The examples of "Authenticating Requests: Using the Authorization Header" in the S3 API reference. */
static void published_examples_agree(void **state)
{
    static const struct {
        const char *method, *path, *query, *payload_hash, *signature;
        unsigned n_headers;
        struct sigv4_header headers[5];
    } cases[] = {
        {"GET",
         "/test.txt",
         "",
         EMPTY,
         "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
         4,
         {{"host", HOST}, {"range", "bytes=0-9"}, {"x-amz-content-sha256", EMPTY}, {"x-amz-date", TIME}}},
        {"PUT",
         "/test%24file.text",
         "",
         BODY,
         "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
         5,
         {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
          {"host", HOST},
          {"x-amz-content-sha256", BODY},
          {"x-amz-date", TIME},
          {"x-amz-storage-class", "REDUCED_REDUNDANCY"}}},
        {"GET",
         "/",
         "lifecycle=",
         EMPTY,
         "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
         3,
         {{"host", HOST}, {"x-amz-content-sha256", EMPTY}, {"x-amz-date", TIME}}},
        {"GET",
         "/",
         "max-keys=2&prefix=J",
         EMPTY,
         "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
         3,
         {{"host", HOST}, {"x-amz-content-sha256", EMPTY}, {"x-amz-date", TIME}}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct sigv4_request request = {.access_key = "AKIAIOSFODNN7EXAMPLE",
                                              .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                                              .region = "us-east-1",
                                              .method = cases[i].method,
                                              .path = cases[i].path,
                                              .query = cases[i].query,
                                              .headers = cases[i].headers,
                                              .n_headers = cases[i].n_headers,
                                              .payload_hash = cases[i].payload_hash,
                                              .time = TIME};
        struct buf out = {0};

        assert_int_equal(sigv4_sign(&request, &out), 0);
        assert_true(bytes_starts_with(buf_view(&out),
                                      "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/"
                                      "us-east-1/s3/aws4_request,SignedHeaders="));
        assert_string_equal((const char *)out.data + out.len_bytes - 64, cases[i].signature);
        buf_fini(&out);
    }
}

static void times_and_paths_are_written(void **state)
{
    struct buf out = {0};
    char time[SIGV4_TIME_BYTES];

    (void)state;
    sigv4_time(1369353600, time);
    assert_string_equal(time, TIME);
    assert_int_equal(sigv4_encode_path(bytes_of("a/b-c._~ :\0\xc3", 12), &out), 0);
    assert_string_equal((const char *)out.data, "a/b-c._~%20%3A%00%C3");
    buf_fini(&out);
}

static void addresses_are_read(void **state)
{
    static const struct {
        const char *text, *base, *host, *prefix, *region;
    } cases[] = {
        {"s3://kv", "https://kv.s3.us-east-1.amazonaws.com", "kv.s3.us-east-1.amazonaws.com", "/",
         "us-east-1"},
        {"s3://kv/a b?region=eu-west-3", "https://kv.s3.eu-west-3.amazonaws.com",
         "kv.s3.eu-west-3.amazonaws.com", "/a%20b/", "eu-west-3"},
        {"s3://kv/a/?endpoint=http://127.0.0.1:9000", "http://127.0.0.1:9000", "127.0.0.1:9000", "/kv/a/",
         "us-east-1"},
        {"s3://kv?region=garage&endpoint=https://store/", "https://store", "store", "/kv/", "garage"},
    };
    static const char *const bad[] = {"s3://",
                                      "http://kv",
                                      "s3://k v",
                                      "s3:///prefix",
                                      "s3://kv?endpoint=store",
                                      "s3://kv?endpoint=http://",
                                      "s3://kv?endpoint=http://a/b",
                                      "s3://kv?endpoint=http://a@b",
                                      "s3://kv?region=",
                                      "s3://kv?region=a/b",
                                      "s3://kv?other=1",
                                      "s3://kv?region"};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct s3_url url;

        assert_int_equal(s3_url_parse(cases[i].text, NULL, &url), 0);
        assert_string_equal(url.base, cases[i].base);
        assert_string_equal(url.host, cases[i].host);
        assert_string_equal(url.prefix, cases[i].prefix);
        assert_string_equal(url.region, cases[i].region);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct fault fault = {0};
        struct s3_url url;

        assert_int_equal(s3_url_parse(bad[i], &fault, &url), E_FORMAT);
        assert_true(fault.text[0] != '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_examples_agree),
        cmocka_unit_test(times_and_paths_are_written),
        cmocka_unit_test(addresses_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
