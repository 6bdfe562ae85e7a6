/* SPDX-License-Identifier: Apache-2.0 */
/* Asks one question in C with libcurl and jansson; prints the answer as it streams.
 *
 *     cc -o ask ask.c -lcurl -ljansson
 *     ./ask [QUESTION]         BATON_URL (http://127.0.0.1:8080) and BATON_API_KEY from the environment
 *
 * The answer is server-sent events: lines "data: JSON".  The program shows the text_delta pieces. */
#include <curl/curl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text { /* grows */
    char *data;
    size_t len;
};

static size_t examples_ask_keep(const char *data, size_t size, size_t n, void *arg)
{
    struct text *text = arg;
    char *grown = realloc(text->data, text->len + n * size + 1);

    if (grown == NULL)
        return 0; /* curl ends the transfer */
    text->data = grown;
    memcpy(text->data + text->len, data, n * size);
    text->len += n * size;
    text->data[text->len] = '\0';
    return n * size;
}

static void show_event(const char *line)
{
    json_t *event = json_loads(line + strlen("data: "), 0, NULL);
    json_t *delta = json_object_get(event, "delta");
    const char *piece = json_string_value(json_object_get(delta, "text"));

    if (piece != NULL)
        fputs(piece, stdout);
    fflush(stdout);
    json_decref(event);
}

/* Lines may be cut anywhere: whole ones are shown, the rest waits. */
static size_t examples_ask_show(const char *data, size_t size, size_t n, void *arg)
{
    struct text *rest = arg;
    char *from;
    char *end;

    if (examples_ask_keep(data, size, n, rest) == 0)
        return 0;
    for (from = rest->data; (end = strchr(from, '\n')) != NULL; from = end + 1) {
        *end = '\0';
        if (strncmp(from, "data: ", 6) == 0)
            show_event(from);
    }
    rest->len -= (size_t)(from - rest->data);
    memmove(rest->data, from, rest->len + 1);
    return n * size;
}

/* GET, or POST when there is a body.  Whether the server answered 200. */
static int examples_ask_request(const char *path, const char *body, curl_write_callback each, void *arg)
{
    const char *url = getenv("BATON_URL");
    const char *key = getenv("BATON_API_KEY");
    struct curl_slist *fields = curl_slist_append(NULL, "content-type: application/json");
    CURL *curl = curl_easy_init();
    char text[1024];
    CURLcode rc;

    snprintf(text, sizeof(text), "x-api-key: %s", key != NULL ? key : "none");
    fields = curl_slist_append(fields, text);
    snprintf(text, sizeof(text), "%s%s", url != NULL ? url : "http://127.0.0.1:8080", path);
    curl_easy_setopt(curl, CURLOPT_URL, text);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, fields);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, each);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, arg);
    if (body != NULL)
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    rc = curl_easy_perform(curl);
    if (rc != CURLE_OK)
        fprintf(stderr, "%s: %s\n", text, curl_easy_strerror(rc));
    curl_easy_cleanup(curl);
    curl_slist_free_all(fields);
    return rc == CURLE_OK;
}

int main(int argc, char **argv)
{
    struct text models = {0};
    struct text rest = {0};
    json_t *list = NULL;
    json_t *body = NULL;
    char *json = NULL;
    int is_good;

    is_good = examples_ask_request("/v1/models", NULL, (curl_write_callback)examples_ask_keep, &models);
    if (is_good)
        list = json_loads(models.data, 0, NULL);
    is_good = is_good && json_is_string(json_object_get(list, "first_id"));
    if (is_good)
        body = json_pack("{s:O, s:i, s:i, s:b, s:[{s:s, s:s}]}", "model", json_object_get(list, "first_id"),
                         "max_tokens", 256, "temperature", 0, "stream", 1, "messages", "role", "user",
                         "content", argc > 1 ? argv[1] : "What is a hand-off?");
    if (body != NULL)
        json = json_dumps(body, 0);
    is_good = json != NULL &&
              examples_ask_request("/v1/messages", json, (curl_write_callback)examples_ask_show, &rest);
    putchar('\n');
    free(json);
    json_decref(body);
    json_decref(list);
    free(models.data);
    free(rest.data);
    return is_good ? 0 : 1;
}
