// SPDX-License-Identifier: MIT
// test_model_keys.c: tests keys of a model file: every integer type is read, as are lists of equal integers. A value that is out of
// range, has another type or differs between layers is refused with its key.

#include "support/check.h"

#include "model/model.h"

static void refuse(const struct gguf_context *g, const char *key, int64_t min, int64_t max, const char *text) {
    struct model_error error = {0};
    int64_t value = -77;
    assert_false(keys_int(g, key, min, max, &value, &error));
    assert_string_equal(error.text, text);
    assert_int_equal(value, -77);
}

static void expect(const struct gguf_context *g, const char *key, int64_t wanted) {
    struct model_error error = {0};
    int64_t value = -77;
    assert_true(keys_int(g, key, INT64_MIN, INT64_MAX, &value, &error));
    assert_int_equal(value, wanted);
}

static void test_types(void **state) {
    (void) state;
    struct gguf_context *g = gguf_init_empty();
    gguf_set_val_u8(g, "u8", UINT8_MAX);
    gguf_set_val_i8(g, "i8", INT8_MIN);
    gguf_set_val_u16(g, "u16", UINT16_MAX);
    gguf_set_val_i16(g, "i16", INT16_MIN);
    gguf_set_val_u32(g, "u32", UINT32_MAX);
    gguf_set_val_i32(g, "i32", INT32_MIN);
    gguf_set_val_u64(g, "u64", INT64_MAX);
    gguf_set_val_i64(g, "i64", INT64_MIN);
    gguf_set_val_u64(g, "large", (uint64_t) INT64_MAX + 1);
    gguf_set_val_bool(g, "yes", true);
    expect(g, "u8", UINT8_MAX);
    expect(g, "i8", INT8_MIN);
    expect(g, "u16", UINT16_MAX);
    expect(g, "i16", INT16_MIN);
    expect(g, "u32", UINT32_MAX);
    expect(g, "i32", INT32_MIN);
    expect(g, "u64", INT64_MAX);
    expect(g, "i64", INT64_MIN);
    expect(g, "none", -77); // unchanged
    refuse(g, "large", INT64_MIN, INT64_MAX, "key 'large' has type u64, but must be an integer");
    refuse(g, "yes", 0, 1, "key 'yes' has type bool, but must be an integer");
    refuse(g, "i8", 0, 127, "key 'i8' is -128, but must be between 0 and 127");
    refuse(g, "u8", 0, 254, "key 'u8' is 255, but must be between 0 and 254");
    gguf_free(g);
}

static void test_lists(void **state) {
    (void) state;
    struct gguf_context *g = gguf_init_empty();
    const uint32_t heads[] = {8, 8, 8}, others[] = {8, 8, 4};
    const int32_t below[] = {-3, -3};
    const int64_t wide[] = {8, 8};
    const char *words[] = {"eight"};
    gguf_set_arr_data(g, "heads", GGUF_TYPE_UINT32, heads, 3);
    gguf_set_arr_data(g, "others", GGUF_TYPE_UINT32, others, 3);
    gguf_set_arr_data(g, "below", GGUF_TYPE_INT32, below, 2);
    gguf_set_arr_data(g, "wide", GGUF_TYPE_INT64, wide, 2);
    gguf_set_arr_data(g, "none", GGUF_TYPE_UINT32, heads, 0);
    gguf_set_arr_str(g, "words", words, 1);
    expect(g, "heads", 8);
    expect(g, "below", -3);
    refuse(g, "heads", 1, 7, "key 'heads' is 8, but must be between 1 and 7");
    refuse(g, "below", 0, 9, "key 'below' is -3, but must be between 0 and 9");
    refuse(g, "others", 0, 9, "key 'others' has type array (its values are not equal integers), but must be an integer");
    refuse(g, "wide", 0, 9, "key 'wide' has type array (its values are not equal integers), but must be an integer");
    refuse(g, "none", 0, 9, "key 'none' has type array (its values are not equal integers), but must be an integer");
    refuse(g, "words", 0, 9, "key 'words' has type array (its values are not equal integers), but must be an integer");
    gguf_free(g);
}

static void test_others(void **state) {
    (void) state;
    struct gguf_context *g = gguf_init_empty();
    struct model_error error = {0};
    float real = 1;
    bool yes = false;
    const char *text;
    gguf_set_val_f64(g, "f64", 0.5);
    gguf_set_val_f64(g, "large", 1e300);
    gguf_set_val_bool(g, "yes", true);
    gguf_set_val_str(g, "text", "llama");
    assert_true(keys_real(g, "f64", &real, &error) && real == 0.5f);
    assert_true(keys_bool(g, "yes", &yes, &error) && yes);
    assert_true(keys_bool(g, "none", &yes, &error) && yes);
    assert_true(keys_text(g, "text", &text, &error));
    assert_string_equal(text, "llama");
    assert_true(keys_text(g, "none", &text, &error) && text == NULL);
    assert_false(keys_real(g, "large", &real, &error)); // too large for a float
    assert_string_equal(error.text, "key 'large' is not finite");
    assert_false(keys_bool(g, "text", &yes, &error)); // the first error is kept
    assert_string_equal(error.text, "key 'large' is not finite");
    error.text[0] = '\0';
    assert_false(keys_bool(g, "text", &yes, &error));
    assert_string_equal(error.text, "key 'text' has type str, but must be a bool");
    error.text[0] = '\0';
    assert_false(keys_text(g, "yes", &text, &error));
    assert_string_equal(error.text, "key 'yes' has type bool, but must be a string");
    gguf_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
