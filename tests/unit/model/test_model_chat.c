// SPDX-License-Identifier: MIT
// test_model_chat.c: tests chat formats: 200 random conversations equal those of llama.cpp for every family; Jinja templates are
// recognised; and failing allocations are handled.

#include "support/oracle.h"

#include "support/check.h"

#include "model/chat.h"

struct reference_message {
    const char *role, *content;
};

static const char *const roles[] = {"system", "user", "assistant"};

static int32_t (*reference_apply)(
    const char *name, const struct reference_message *messages, size_t n, bool ask, char *out, int32_t size);

static bool reference_load(void) {
    void *llama = oracle_load("libllama." ORACLE_BUILD ".so");
    if (llama != NULL) {
        *(void **) &reference_apply = dlsym(llama, "llama_chat_apply_template");
    }
    return reference_apply != NULL;
}

// Makes a text of words with blanks around them, line ends, or nothing.
static void text_make(struct check_rng *rng, char text[80]) {
    static const char *const words[] = {
        "", " ", "Tell me", "a tale\n", "\n of 3 ships", "\t", "?", "<b>", "\xc3\xa4", "It was.", "  "};
    text[0] = '\0';
    for (uint64_t n = check_rng_below(rng, 5); n > 0; n--) {
        strcat(text, words[check_rng_below(rng, sizeof words / sizeof *words)]);
    }
}

static void test_as_the_reference(void **state) {
    (void) state;
    if (!reference_load()) {
        print_message("skipped: %s\n", oracle_why());
        skip();
    }
    struct check_rng rng = check_rng_new(check_seed(1));
    for (int i = 0; i < 200; i++) {
        char texts[12][80], expected[8192];
        struct chat_message messages[12];
        struct reference_message theirs[12];
        const bool has_system = check_rng_below(&rng, 2) == 0, ask = check_rng_below(&rng, 4) != 0;
        const size_t n = has_system + 1 + check_rng_below(&rng, 10);
        for (size_t k = 0; k < n; k++) {
            const enum chat_role role = has_system && k == 0        ? CHAT_SYSTEM
                                        : (k - has_system) % 2 == 0 ? CHAT_USER
                                                                    : CHAT_ASSISTANT;
            text_make(&rng, texts[k]);
            if (role == CHAT_SYSTEM) { // some families drop empty system messages, others keep them
                strcat(texts[k], " Be brief. ");
            }
            messages[k] = (struct chat_message){role, texts[k]};
            theirs[k] = (struct reference_message){roles[role], texts[k]};
        }
        for (const struct chat_template *t = chat_templates; t->name != NULL; t++) {
            const int32_t size = reference_apply(t->name, theirs, n, ask, expected, sizeof expected);
            char *ours = chat_format(t, messages, n, ask);
            assert_non_null(ours);
            assert_true(size >= 0 && size < (int32_t) sizeof expected);
            expected[size] = '\0';
            if (strcmp(ours, expected) != 0) {
                fail_msg("%s, %zu messages, ask %d:\n[%s]\nnot\n[%s]", t->name, n, ask, ours, expected);
            }
            berth_free(ours);
        }
    }
}

// Families that write system messages into user messages write every one of them.
static void test_several_system_messages(void **state) {
    (void) state;
    const struct chat_message messages[] = {
        {CHAT_SYSTEM, "A"}, {CHAT_SYSTEM, "B"}, {CHAT_USER, "c"}, {CHAT_ASSISTANT, "d"}, {CHAT_SYSTEM, "E"}};
    char *text = chat_format(chat_template_find("gemma"), messages, 5, true);
    assert_string_equal(text, "<start_of_turn>user\nA\n\nB\n\nc<end_of_turn>\n<start_of_turn>model\nd<end_of_turn>\n"
                              "<start_of_turn>user\nE\n\n<end_of_turn>\n<start_of_turn>model\n");
    berth_free(text);
}

static void test_recognised(void **state) {
    (void) state;
    static const char *const programs[][2] = {
        {"{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}",
            "chatml"},
        {"{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}", "llama3"},
        {"{{ '<start_of_turn>' + role + '\n' + m['content'] | trim + '<end_of_turn>\n' }}", "gemma"},
        {"{{ bos_token + '[INST] ' + content + ' [/INST]' }}{% set content = '<<SYS>>\n' + system_message %}", "llama2-sys-bos"},
        {"{{ '<|user|>\n' + m['content'] + '<|end|>\n<|assistant|>\n' }}", "phi3"},
        {"[gMASK]<sop>{% for item in messages %}<|{{ item['role'] }}|>\n{{ item['content'] }}{% endfor %}", "chatglm4"},
        {"{{ '<|start|>' + role + '<|channel|>final<|message|>' }}", "gpt-oss"},
        {"{{ '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' + content.strip() }}", "command-r"},
        {"{{ '[AVAILABLE_TOOLS]' }}{{ '[INST] ' + m['content'] + '[/INST]' }}", "mistral-v3"},
    };
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        const struct chat_template *t = chat_template_recognise(programs[i][0]);
        assert_non_null(t);
        assert_string_equal(t->name, programs[i][1]);
        assert_ptr_equal(chat_template_find(programs[i][1]), t);
    }
    assert_null(chat_template_recognise("{{ messages }}"));
    assert_null(chat_template_find("nobody"));
}

static void test_no_memory(void **state) {
    (void) state;
    const struct chat_message messages[] = {
        {CHAT_USER, "A longer text, so that there is more than one allocation of the small first room"}};
    berth_alloc_watch(true);
    for (int64_t n = 1;; n++) {
        berth_alloc_fail_at(n);
        char *text = chat_format(chat_template_find("llama3"), messages, 1, true);
        berth_alloc_fail_at(0);
        if (text != NULL) {
            assert_true(n > 1);
            berth_free(text);
            break;
        }
    }
    assert_int_equal(berth_alloc_alive(), 0);
    berth_alloc_watch(false);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_the_reference), cmocka_unit_test(test_several_system_messages),
        cmocka_unit_test(test_recognised), cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
