// SPDX-License-Identifier: MIT
// test_http.c: tests the HTTP server on a fake engine: statuses, keys, origins, streams, clients that vanish, stall or send garbage,
// limits, the end of the server, failing allocations.

#include "serve/sample.h"
#include "support/libc_fail.h"

#include "base/base.h"
#include "serve/http.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHAT "{\"messages\": [{\"role\": \"user\", \"content\": \"ship\"}]"
#define N_PER_ADDRESS 40

static struct server {
    struct sample_service sample;
    struct access_keys keys;
    struct http *http;
    pthread_t thread;
    int n_logged, last_status;
} server;

static void count_log(void *user, const struct http_log *entry) {
    struct server *s = user;
    s->n_logged++;
    s->last_status = entry->status;
}

static void *thread_run(void *arg) {
    struct model_error error = {""};
    (void) arg;
    assert_true(http_run(server.http, &error));
    return NULL;
}

static void server_open_with(struct http_params p) {
    struct model_error error = {""};
    sample_service_open(&server.sample, 1000, 32);
    p.service = &server.sample.service;
    p.host = "127.0.0.1";
    p.n_connections = 64;
    p.n_per_address = N_PER_ADDRESS;
    p.max_body = 4096;
    p.bodies_size = 65536;
    p.log = count_log;
    p.log_user = &server;
    if (p.timeout_s == 0) {
        p.timeout_s = 20;
    }
    server.http = http_new(&p, &error);
    assert_string_equal(error.text, "");
    assert_non_null(server.http);
    assert_int_equal(pthread_create(&server.thread, NULL, thread_run, NULL), 0);
}

static void server_open(void) {
    server_open_with((struct http_params){.drain_us = 1000000});
}

static void server_close(void) {
    http_stop(server.http);
    pthread_join(server.thread, NULL);
    engine_close(server.sample.engine, 0);
    http_free(server.http);
    sample_service_close(&server.sample);
    access_keys_fini(&server.keys);
}

// ---- a client ----

// last: the last number of the client's own address, 127.0.0.LAST.
static int dial_from(uint32_t last) {
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t) http_port(server.http)), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr = {htonl(0x7f000000 + last)}};
    const struct timeval limit = {.tv_sec = 20};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    assert_int_equal(bind(fd, (const struct sockaddr *) &from, sizeof from), 0);
    assert_int_equal(connect(fd, (const struct sockaddr *) &to, sizeof to), 0);
    return fd;
}

static int dial(void) {
    return dial_from(1);
}

static void send_text(int fd, const char *text) {
    (void) !send(fd, text, strlen(text), MSG_NOSIGNAL);
}

static int send_request(const char *line, const char *headers, const char *body) {
    char text[16384];
    const int fd = dial();
    snprintf(text, sizeof text, "%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s", line, headers);
    send_text(fd, text);
    if (body != NULL) {
        snprintf(text, sizeof text, "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
        send_text(fd, text);
    } else {
        send_text(fd, "\r\n");
    }
    return fd;
}

// Reads until the server closes the connection.
static char *receive(int fd) {
    static char text[1 << 20];
    size_t n = 0;
    for (ssize_t got; n < sizeof text - 1 && (got = recv(fd, text + n, sizeof text - 1 - n, 0)) > 0;) {
        n += (size_t) got;
    }
    text[n] = '\0';
    close(fd);
    return text;
}

static void expect(int status, const char *part, const char *line, const char *headers, const char *body) {
    char wanted[32];
    char *text = receive(send_request(line, headers, body));
    snprintf(wanted, sizeof wanted, "HTTP/1.1 %d ", status);
    if (strncmp(text, wanted, strlen(wanted)) != 0 || strstr(text, part) == NULL) {
        fail_msg("%s: no status %d with '%s': %s", line, status, part, text);
    }
}

#define POST_CHAT "POST /v1/chat/completions"

// Waits until the engine has no sequence left.
static void wait_idle(void) {
    for (int i = 0; i < 5000; i++) {
        struct engine_stats stats;
        engine_stats(server.sample.engine, &stats);
        if (stats.n_running == 0) {
            return;
        }
        usleep(1000);
    }
    fail_msg("sequences still run");
}

// ---- tests ----

static void test_routes(void **state) {
    (void) state;
    server_open();
    expect(200, "\"status\": \"ok\", \"model\": \"sample\"", "GET /health", "", NULL);
    expect(200, "berth_pool_tokens 1024", "GET /metrics", "", NULL);
    expect(200, "<title>Berth chat</title>", "GET /", "", NULL);
    expect(200, "Content-Security-Policy", "GET /", "", NULL);
    expect(200, "\"id\": \"sample\"", "GET /v1/models", "", NULL);
    expect(200, "\"id\": \"sample\"", "GET /v1/models/sample", "", NULL);
    expect(200, "Content-Length", "HEAD /v1/models", "", NULL);
    expect(404, "model_not_found", "GET /v1/models/other", "", NULL);
    expect(404, "not_found", "GET /v2", "", NULL);
    expect(405, "Allow: POST", "GET /v1/chat/completions", "", NULL);
    expect(405, "Allow: GET", "DELETE /v1/models", "", NULL);
    expect(405, "Allow: GET", "OPTIONS /", "", NULL);
    expect(200, "\"content\": \" w0 w1\"", POST_CHAT, "", CHAT ", \"max_tokens\": 2}");
    expect(200, "\"text\": \" w0\"", "POST /v1/completions", "", "{\"prompt\": \"a\", \"max_tokens\": 1}");
    expect(200, "\"object\": \"embedding\"", "POST /v1/embeddings", "", "{\"input\": \"a\"}");
    expect(400, "invalid_json", POST_CHAT, "", "{");
    expect(400, "\"param\": \"n\"", POST_CHAT, "", CHAT ", \"n\": 0}");
    expect(404, "model_not_found", POST_CHAT, "", CHAT ", \"model\": \"gpt\"}");
    expect(415, "application/json", POST_CHAT, "Content-Type: text/plain\r\nContent-Length: 0\r\n", NULL);
    expect(403, "origin_not_allowed", "GET /health", "Origin: http://evil.example\r\n", NULL);
    expect(200, "", "GET /health", "Origin: http://localhost\r\n", NULL);
    static const char rebound[] = "GET /health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    const int fd = dial();
    send_text(fd, rebound);
    assert_non_null(strstr(receive(fd), "403 Forbidden"));
    fake.submit_status = ENGINE_FULL;
    expect(429, "Retry-After: 7", POST_CHAT, "", CHAT "}");
    fake.submit_status = ENGINE_OK;
    fake.forced_end = ENGINE_TIMEOUT;
    expect(429, "Retry-After", POST_CHAT, "", CHAT ", \"stream\": true}"); // a stream that never began
    fake.forced_end = ENGINE_RUNNING;
    server_close();
    assert_true(server.n_logged > 20);
}

static void test_keys_and_cors(void **state) {
    (void) state;
    struct model_error error = {""};
    assert_true(access_keys_read(&server.keys, "secret\n", 7, "keys", &error));
    server_open_with((struct http_params){.keys = &server.keys, .cors = "https://chat.example"});
    expect(401, "WWW-Authenticate: Bearer", "GET /v1/models", "", NULL);
    expect(401, "invalid_api_key", "GET /v1/models", "Authorization: Bearer wrong\r\n", NULL);
    expect(401, "invalid_api_key", "GET /metrics", "", NULL);
    expect(401, "invalid_api_key", "GET /unknown", "", NULL);
    expect(401, "invalid_api_key", POST_CHAT, "", CHAT "}");
    expect(200, "sample", "GET /v1/models", "Authorization: Bearer secret\r\n", NULL);
    expect(200, "{\"status\": \"ok\"}", "GET /health", "", NULL); // without details
    expect(200, "\"queue\"", "GET /health", "Authorization: Bearer secret\r\n", NULL);
    expect(204, "Access-Control-Allow-Origin: https://chat.example", "OPTIONS /v1/chat/completions",
        "Origin: https://chat.example\r\n", NULL);
    expect(204, "Access-Control-Allow-Headers: Authorization, Content-Type, *", "OPTIONS /v1/chat/completions",
        "Origin: https://chat.example\r\n", NULL);
    expect(403, "origin_not_allowed", "OPTIONS /v1/chat/completions", "Origin: https://other.example\r\n", NULL);
    expect(200, "Access-Control-Allow-Origin: https://chat.example", "GET /health", "Origin: https://chat.example\r\n", NULL);
    expect(401, "Access-Control-Expose-Headers: Retry-After", "GET /metrics", "Origin: https://chat.example\r\n", NULL);
    server_close();
}

static void test_stream(void **state) {
    (void) state;
    server_open();
    char *text = receive(send_request(POST_CHAT, "", CHAT ", \"max_tokens\": 20, \"stream\": true}"));
    assert_non_null(strstr(text, "Content-Type: text/event-stream"));
    assert_non_null(strstr(text, "{\"role\": \"assistant\", \"content\": \" w0"));
    assert_non_null(strstr(text, "\"finish_reason\": \"length\""));
    assert_non_null(strstr(text, "data: [DONE]"));
    // Two requests on one connection.
    static const char twice[] =
        "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    const int fd = dial();
    send_text(fd, twice);
    text = receive(fd);
    assert_non_null(strstr(text, "\"status\": \"ok\""));
    assert_non_null(strstr(text, "\"object\": \"list\""));
    server_close();
}

// Clients that leave free their sequences: before admission, without a stream, and in a stream.
static void test_vanish(void **state) {
    (void) state;
    server_open();
    fake.n_wait_steps = 1 << 20;
    int fd = send_request(POST_CHAT, "", CHAT "}");
    usleep(20000);
    assert_int_equal(fake.n_active, 1);
    close(fd);
    wait_idle();
    fake.n_wait_steps = 0;
    fake.step_us = 20000;
    fd = send_request(POST_CHAT, "", CHAT ", \"n\": 3}");
    usleep(50000);
    close(fd);
    wait_idle();
    fd = send_request(POST_CHAT, "", CHAT ", \"stream\": true}");
    char bytes[64];
    assert_true(recv(fd, bytes, sizeof bytes, 0) > 0);
    close(fd);
    wait_idle();
    assert_true(fake.n_cancelled >= 5);
    fake.step_us = 1000;
    expect(200, "berth_http_clients_gone_total 3", "GET /metrics", "", NULL);
    server_close();
}

// A client that does not read its stream does not delay others.
static void test_stall(void **state) {
    (void) state;
    server_open();
    const int slow = send_request(POST_CHAT, "", CHAT ", \"stream\": true, \"logprobs\": true, \"top_logprobs\": 20}");
    for (int i = 0; i < 5; i++) {
        expect(200, " w4\"", POST_CHAT, "", CHAT ", \"max_tokens\": 5}");
    }
    wait_idle();
    char *text = receive(slow);
    assert_non_null(strstr(text, "data: [DONE]"));
    server_close();
}

// An answer may take longer than the timeout of connections.
static void test_slow_engine(void **state) {
    (void) state;
    server_open_with((struct http_params){.timeout_s = 1});
    fake.step_us = 800000;
    const int stream = send_request(POST_CHAT, "", CHAT ", \"max_tokens\": 3, \"stream\": true}");
    expect(200, " w0 w1 w2\"", POST_CHAT, "", CHAT ", \"max_tokens\": 3}");
    assert_non_null(strstr(receive(stream), "data: [DONE]"));
    fake.step_us = 1000;
    server_close();
}

static void test_garbage(void **state) {
    (void) state;
    server_open_with((struct http_params){.timeout_s = 1});
    static const char *const texts[] = {"\r\n\r\n\r\n", "GET\r\n\r\n", "\x16\x03\x01\x02\x00\x01", "GET / HTTP/9.9\r\n\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"};
    int fds[sizeof texts / sizeof *texts];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        fds[i] = dial();
        send_text(fds[i], texts[i]);
    }
    expect(200, "\"status\": \"ok\"", "GET /health", "", NULL);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) { // all are closed in the end
        (void) receive(fds[i]);
    }
    // A byte now and then does not keep a connection open.
    const int fd = dial();
    send_text(fd, "GET / HTTP/1.1\r\nHost: localhost\r\nX: ");
    bool is_closed = false;
    for (int i = 0; i < 50 && !is_closed; i++) {
        usleep(100000);
        is_closed = send(fd, "y", 1, MSG_NOSIGNAL) != 1;
    }
    assert_true(is_closed);
    close(fd);
    server_close();
}

static void test_limits(void **state) {
    (void) state;
    server_open();
    char body[8192];
    memset(body, ' ', sizeof body);
    body[sizeof body - 1] = '\0';
    expect(413, "8191 bytes, at most 4096", POST_CHAT, "", body);
    int fd = dial(); // a body without a length in the header
    send_text(fd, POST_CHAT " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                            "Transfer-Encoding: chunked\r\n\r\n1FFF\r\n");
    send_text(fd, body);
    send_text(fd, "\r\n0\r\n\r\n");
    assert_non_null(strstr(receive(fd), "more than 4096 bytes"));
    char header[40000] = "X: ";
    memset(header + 3, 'y', sizeof header - 6);
    memcpy(header + sizeof header - 3, "\r\n", 3);
    fd = dial();
    send_text(fd, "GET / HTTP/1.1\r\nHost: localhost\r\n");
    send_text(fd, header);
    assert_null(strstr(receive(fd), "200 OK"));
    // Idle connections of one address: those above the limit are closed at once, and others are served after some close.
    int idle[N_PER_ADDRESS + 10];
    for (int i = 0; i < N_PER_ADDRESS + 10; i++) {
        idle[i] = dial();
    }
    char byte;
    for (int i = N_PER_ADDRESS; i < N_PER_ADDRESS + 10; i++) {
        assert_true(recv(idle[i], &byte, 1, 0) <= 0);
    }
    for (int i = 0; i < N_PER_ADDRESS + 10; i++) {
        close(idle[i]);
    }
    usleep(100000);
    expect(200, "\"status\": \"ok\"", "GET /health", "", NULL);
    // Idle connections of other addresses use all 64 connections. They are closed after a short time.
    for (int i = 0; i < N_PER_ADDRESS; i++) {
        idle[i] = dial_from(i % 2 == 0 ? 2 : 3);
    }
    int more[64 - N_PER_ADDRESS];
    for (int i = 0; i < 64 - N_PER_ADDRESS; i++) {
        more[i] = dial_from(4);
    }
    expect(200, "\"status\": \"ok\"", "GET /health", "", NULL);
    for (int i = 0; i < N_PER_ADDRESS; i++) {
        close(idle[i]);
    }
    for (int i = 0; i < 64 - N_PER_ADDRESS; i++) {
        close(more[i]);
    }
    // Requests above n_requests.
    fake.n_wait_steps = 1 << 20;
    for (int i = 0; i < 32; i++) {
        idle[i] = send_request(POST_CHAT, "", CHAT "}");
    }
    usleep(100000);
    expect(429, "32 requests are active", POST_CHAT, "", CHAT "}");
    for (int i = 0; i < 32; i++) {
        close(idle[i]);
    }
    wait_idle();
    fake.n_wait_steps = 0;
    server_close();
}

// A running request finishes, a new one gets 503; after the time limit, requests are cancelled.
static void test_stop(void **state) {
    (void) state;
    server_open();
    fake.step_us = 10000;
    const int running = send_request(POST_CHAT, "", CHAT ", \"max_tokens\": 20}");
    usleep(50000);
    http_stop(server.http);
    usleep(20000);
    expect(503, "Retry-After", POST_CHAT, "", CHAT "}");
    expect(503, "closing", "GET /health", "", NULL);
    assert_non_null(strstr(receive(running), " w19\""));
    server_close();
    server_open();
    fake.step_us = 10000;
    fake.n_wait_steps = 1 << 20;
    const int waiting = send_request(POST_CHAT, "", CHAT "}");
    usleep(50000);
    http_stop(server.http);
    http_stop(server.http);
    assert_non_null(strstr(receive(waiting), "503 Service Unavailable"));
    server_close();
}

static void test_start(void **state) {
    (void) state;
    struct model_error error = {""};
    server_open();
    struct http_params p = {.service = &server.sample.service, .host = "127.0.0.1", .port = http_port(server.http)};
    assert_null(http_new(&p, &error));
    assert_non_null(strstr(error.text, "Address already in use"));
    error.text[0] = '\0';
    p.host = "not a host";
    assert_null(http_new(&p, &error));
    assert_non_null(strstr(error.text, "not a host"));
    server_close();
}

// A request that fails gets a status with an error, or its connection is closed. A stream that has begun may end early.
static void outcome_check(const char *text, int64_t n, bool is_stream) {
    const bool is_closed = text[0] == '\0', is_error = strstr(text, "{\"error\": {\"message\": ") != NULL;
    const char *end = strstr(text, "Content-Length: "), *body = strstr(text, "\r\n\r\n");
    const bool is_whole = end != NULL && body != NULL && strtoul(end + 16, NULL, 10) == strlen(body + 4);
    const bool is_answer = strstr(text, "HTTP/1.1 200 ") == text && (is_stream || is_whole);
    if (!is_closed && !is_error && !is_answer) {
        fail_msg("allocation %d failed: %s", (int) n, text);
    }
}

// The allocation 1, 2, ... of a request fails, libmicrohttpd's included, until the request has no more. After each failure the next
// request is served, and nothing is reserved. At the end, nothing is leaked.
static void allocations_fail(const char *line, const char *body) {
    const bool is_stream = body != NULL && strstr(body, "\"stream\": true") != NULL;
    int64_t n = 0;
    is_excepted = true;
    server_open();
    for (bool is_reached = true; is_reached; wait_idle()) {
        n += check_step();
        libc_fail_at(n);
        const char *text = receive(send_request(line, "", body));
        is_reached = !libc_fail_at(0);
        outcome_check(text, n, is_stream);
        if (n % 16 == 0) {
            expect(200, " w0 w1\"", POST_CHAT, "", CHAT ", \"max_tokens\": 2}");
        }
        assert_true(n < 5000);
    }
    assert_true(n > 3);
    expect(200, " w0 w1\"", POST_CHAT, "", CHAT ", \"max_tokens\": 2}");
    server_close();
    is_excepted = false;
}

static void test_memory(void **state) {
    (void) state;
    static const struct {
        const char *line, *body;
    } cases[] = {{POST_CHAT, CHAT ", \"max_tokens\": 3}"}, {POST_CHAT, CHAT ", \"max_tokens\": 3, \"stream\": true}"},
        {POST_CHAT, CHAT ", \"max_tokens\": 3, \"logprobs\": true, \"response_format\": {\"type\": \"json_object\"}}"},
        {POST_CHAT, CHAT ", \"max_tokens\": 3, \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": "
                         "{\"type\": \"object\", \"properties\": {\"a\": {\"enum\": [1, \"b\"]}}}}}}"},
        {"POST /v1/embeddings", "{\"input\": [\"ship\", [1, 2]]}"}, {POST_CHAT, "{\"messages\": 1}"}, {"GET /metrics", NULL},
        {"GET /v1/models", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        allocations_fail(cases[i].line, cases[i].body); // libc allocates memory that it keeps
        const int64_t n_before = libc_alive();
        allocations_fail(cases[i].line, cases[i].body);
        assert_int_equal(libc_alive(), n_before);
    }
}

int main(void) {
    check_quiet();
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_keys_and_cors),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_vanish),
        cmocka_unit_test(test_stall),
        cmocka_unit_test(test_slow_engine),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
