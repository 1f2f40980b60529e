// SPDX-License-Identifier: MIT
// Keys of a model's file: every type that may hold a whole number gives it, lists of equal ones too, and what does not fit, is of
// another kind or differs from layer to layer is refused by name.

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
    expect(g, "none", -77); // stays as it was
    refuse(g, "large", INT64_MIN, INT64_MAX, "key 'large' is u64, a whole number is wanted");
    refuse(g, "yes", 0, 1, "key 'yes' is bool, a whole number is wanted");
    refuse(g, "i8", 0, 127, "key 'i8' is -128, from 0 to 127 is possible here");
    refuse(g, "u8", 0, 254, "key 'u8' is 255, from 0 to 254 is possible here");
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
    refuse(g, "heads", 1, 7, "key 'heads' is 8, from 1 to 7 is possible here");
    refuse(g, "below", 0, 9, "key 'below' is -3, from 0 to 9 is possible here");
    refuse(g, "others", 0, 9, "key 'others' is a list that is no list of equal whole numbers, a whole number is wanted");
    refuse(g, "wide", 0, 9, "key 'wide' is a list that is no list of equal whole numbers, a whole number is wanted");
    refuse(g, "none", 0, 9, "key 'none' is a list that is no list of equal whole numbers, a whole number is wanted");
    refuse(g, "words", 0, 9, "key 'words' is a list that is no list of equal whole numbers, a whole number is wanted");
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
    assert_false(keys_real(g, "large", &real, &error)); // no float
    assert_string_equal(error.text, "key 'large' is not finite");
    assert_false(keys_bool(g, "text", &yes, &error)); // the first error stays
    assert_string_equal(error.text, "key 'large' is not finite");
    error.text[0] = '\0';
    assert_false(keys_bool(g, "text", &yes, &error));
    assert_string_equal(error.text, "key 'text' is str, bool is wanted");
    error.text[0] = '\0';
    assert_false(keys_text(g, "yes", &text, &error));
    assert_string_equal(error.text, "key 'yes' is bool, a text is wanted");
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
