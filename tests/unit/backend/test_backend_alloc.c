// SPDX-License-Identifier: MIT
// test_backend_alloc.c: places tensors one after the other in a buffer, and all tensors of a context in one or several buffers.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/device_full.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

static void no_log(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level;
    (void) text;
    (void) user_data;
}

static int setup(void **state) {
    (void) state;
    full_init();
    ggml_log_set(no_log, NULL);
    berth_clear_error();
    return 0;
}

static struct ggml_context *new_context(void) {
    return ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
}

static struct ggml_tensor *floats(struct ggml_context *ctx, int64_t n, const char *name) {
    return ggml_set_name(ggml_new_tensor_1d(ctx, GGML_TYPE_F32, n), name);
}

static void assert_error(const char *part) {
    if (strstr(berth_last_error(), part) == NULL) {
        fail_msg("the last error is \"%s\", without \"%s\"", berth_last_error(), part);
    }
    berth_clear_error();
}

static void one_after_another(void **state) {
    (void) state;
    struct ggml_context *ctx = new_context();
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), 100);
    struct ggml_tallocr talloc = ggml_tallocr_new(buffer);
    struct ggml_tensor *a = floats(ctx, 3, "a"), *b = floats(ctx, 17, "b"), *c = floats(ctx, 1, "c"),
                       *big = floats(ctx, 18, "big");
    assert_int_equal(ggml_tallocr_alloc(&talloc, a), GGML_STATUS_SUCCESS);
    assert_int_equal(talloc.offset, 32);
    assert_int_equal(ggml_tallocr_alloc(&talloc, big), GGML_STATUS_ALLOC_FAILED);
    assert_error("tensor big needs 72 bytes, 68 of 100 are left");
    assert_null(big->data);
    assert_null(big->buffer);
    assert_int_equal(talloc.offset, 32);
    assert_int_equal(ggml_tallocr_alloc(&talloc, b), GGML_STATUS_SUCCESS); // the last byte of the buffer is usable
    assert_ptr_equal(b->data, (char *) a->data + 32);
    assert_int_equal(ggml_tallocr_alloc(&talloc, c), GGML_STATUS_ALLOC_FAILED);
    assert_error("tensor c needs 4 bytes, 0 of 100 are left");
    assert_int_equal(ggml_tallocr_alloc(&talloc, a), GGML_STATUS_ALLOC_FAILED);
    assert_int_equal(ggml_tallocr_alloc(NULL, c), GGML_STATUS_FAILED);
    assert_int_equal(ggml_tallocr_alloc(&talloc, NULL), GGML_STATUS_FAILED);
    talloc = ggml_tallocr_new(NULL);
    assert_int_equal(ggml_tallocr_alloc(&talloc, c), GGML_STATUS_FAILED);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

static void whole_context(void **state) {
    (void) state;
    ggml_backend_buffer_type_t type = ggml_backend_cpu_buffer_type();
    struct ggml_context *ctx = new_context();
    assert_null(ggml_backend_alloc_ctx_tensors_from_buft(ctx, type));
    assert_int_equal(ggml_backend_alloc_ctx_tensors_from_buft_size(ctx, type), 0);
    struct ggml_tensor *empty = floats(ctx, 0, "empty");
    assert_null(ggml_backend_alloc_ctx_tensors_from_buft(ctx, type));
    assert_string_equal(berth_last_error(), "");

    struct ggml_tensor *a = floats(ctx, 3, "a"), *b = floats(ctx, 9, "b"), *view = ggml_view_1d(ctx, b, 2, 4);
    assert_int_equal(ggml_backend_alloc_ctx_tensors_from_buft_size(ctx, type), 32 + 64);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, type);
    assert_int_equal(ggml_backend_buffer_get_size(buffer), 96);
    assert_ptr_equal(empty->buffer, buffer);
    assert_ptr_equal(b->data, (char *) a->data + 32);
    assert_ptr_equal(view->data, (char *) b->data + 4);
    assert_ptr_equal(view->buffer, buffer);
    assert_int_equal(ggml_backend_alloc_ctx_tensors_from_buft_size(ctx, type), 0);
    assert_null(ggml_backend_alloc_ctx_tensors_from_buft(ctx, type)); // nothing left to do

    // ctx2 has a view of b, which is in another context and already has memory. The view gets an address in the buffer of b.
    struct ggml_context *ctx2 = new_context();
    struct ggml_tensor *far = ggml_view_1d(ctx2, b, 2, 8), *own = floats(ctx2, 1, "own");
    assert_null(far->buffer);
    ggml_backend_buffer_t buffer2 = ggml_backend_alloc_ctx_tensors_from_buft(ctx2, type);
    assert_ptr_equal(far->buffer, buffer);
    assert_ptr_equal(far->data, (char *) b->data + 8);
    assert_ptr_equal(own->buffer, buffer2);
    ggml_backend_buffer_free(buffer);
    ggml_backend_buffer_free(buffer2);
    ggml_free(ctx);
    ggml_free(ctx2);
}

static void several_buffers(void **state) {
    (void) state;
    enum { n = 100 };
    struct ggml_tensor *t[n];
    struct ggml_context *ctx = new_context();
    for (int i = 0; i < n; i++) {
        t[i] = floats(ctx, 16, "t"); // 64 bytes
    }
    struct ggml_tensor *view = ggml_view_1d(ctx, t[n - 1], 4, 0);
    fake.max_size = 200; // 3 tensors per buffer
    assert_int_equal(ggml_backend_alloc_ctx_tensors_from_buft_size(ctx, &fake.buft), n * 64);
    ggml_backend_buffer_t all = ggml_backend_alloc_ctx_tensors_from_buft(ctx, &fake.buft);
    assert_true(ggml_backend_buffer_is_multi_buffer(all));
    assert_int_equal(ggml_backend_buffer_get_size(all), n * 64);
    assert_ptr_equal(t[0]->buffer, t[2]->buffer);
    assert_ptr_not_equal(t[2]->buffer, t[3]->buffer);
    assert_ptr_equal(view->buffer, t[n - 1]->buffer);
    assert_int_equal(full.n_init, n + 1); // the fake device has initialised each tensor and the view
    ggml_backend_buffer_free(all);
    ggml_free(ctx);
}

// Allocates a buffer of 8192 bytes while files may have 4096. Returns whether the buffer was refused and its file closed.
static bool file_is_refused(ggml_backend_buffer_type_t files) {
    struct rlimit before, little;
    const int next = dup(STDOUT_FILENO);
    close(next);
    if (getrlimit(RLIMIT_FSIZE, &before) != 0) {
        return false;
    }
    little = before;
    little.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &little) != 0) {
        return false;
    }
    const ggml_backend_buffer_t large = ggml_backend_buft_alloc_buffer(files, 8192);
    const bool is_reset = setrlimit(RLIMIT_FSIZE, &before) == 0;
    const int again = dup(STDOUT_FILENO);
    close(again);
    return is_reset && large == NULL && again == next;
}

// The disk has less space than the buffer needs. A limit on the size of files has the same effect.
static void files_need_space(void **state) {
    (void) state;
    ggml_backend_buffer_type_t files = berth_file_buffer_type_new("/tmp");
    assert_true(file_is_refused(files));
    assert_error(strerror(EFBIG));
    const int kept = dup(STDIN_FILENO); // the file gets the descriptor 0, which is valid
    close(STDIN_FILENO);
    const bool is_refused = file_is_refused(files);
    if (kept >= 0) {
        dup2(kept, STDIN_FILENO);
        close(kept);
    }
    assert_true(is_refused);
    assert_error(strerror(EFBIG));
    berth_file_buffer_type_free(files);
}

// If the allocation of a context fails at any point, no tensor gets an address and no memory stays allocated.
static void failures_leave_no_trace(void **state) {
    (void) state;
    struct ggml_context *ctx = new_context();
    struct ggml_tensor *a = floats(ctx, 16, "a"), *b = floats(ctx, 16, "b"), *view = ggml_view_1d(ctx, b, 4, 0);
    fake.max_size = 64;
    for (int i = 1; i <= 3; i++) {
        full.fail_init = i;
        berth_alloc_watch(true);
        assert_null(ggml_backend_alloc_ctx_tensors_from_buft(ctx, &fake.buft));
        assert_int_equal(berth_alloc_alive(), 0);
        berth_alloc_watch(false);
        assert_null(a->data);
        assert_null(a->buffer);
        assert_null(b->data);
        assert_null(view->data);
        assert_null(view->buffer);
    }
    floats(ctx, 17, "large");
    assert_null(ggml_backend_alloc_ctx_tensors_from_buft(ctx, &fake.buft));
    assert_error("cannot allocate a buffer of type Fake of 128 bytes (buffer 3 of the context)");
    assert_null(a->data);
    ggml_backend_buffer_type_t nowhere = berth_file_buffer_type_new("/nonexistent/folder");
    assert_null(ggml_backend_alloc_ctx_tensors_from_buft(ctx, nowhere)); // the last error includes the error of the buffer type
    assert_error("(buffer 1 of the context): cannot create a file of");
    berth_file_buffer_type_free(nowhere);

    struct ggml_context *ctx2 = new_context();
    struct ggml_tensor *lost = ggml_view_1d(ctx2, a, 4, 0);
    floats(ctx2, 1, "own");
    assert_null(ggml_backend_alloc_ctx_tensors_from_buft(ctx2, &fake.buft));
    assert_error("which has no memory");
    assert_null(lost->buffer);

    ggml_add(ctx, a, NULL);
    assert_null(ggml_backend_alloc_ctx_tensors_from_buft(ctx, ggml_backend_cpu_buffer_type()));
    assert_error("ggml_add");
    assert_null(ggml_backend_alloc_ctx_tensors_from_buft(NULL, NULL));
    assert_null(ggml_backend_alloc_ctx_tensors(ctx, NULL));
    assert_int_equal(ggml_backend_alloc_ctx_tensors_from_buft_size(NULL, NULL), 0);
    ggml_free(ctx);
    ggml_free(ctx2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(one_after_another, setup),
        cmocka_unit_test_setup(whole_context, setup),
        cmocka_unit_test_setup(several_buffers, setup),
        cmocka_unit_test_setup(files_need_space, setup),
        cmocka_unit_test_setup(failures_leave_no_trace, setup),
    };
    return cmocka_run_group_tests_name("backend_alloc", tests, NULL, NULL);
}
