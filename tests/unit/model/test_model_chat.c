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
            const char *name = t->tools != NULL ? "chatml" : t->name; // the reference has no tools
            const int32_t size = reference_apply(name, theirs, n, ask, expected, sizeof expected);
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

static char *tools_format(const struct chat_conversation *c) {
    return chat_format_tools(chat_template_find("chatml-tools"), c);
}

#define LIST \
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n" \
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n{\"a\": 1}\n{\"b\": 2}\n</tools>\n\n" \
    "For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n" \
    "<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n"

// The texts are those of the Jinja templates of Qwen 2.5 and 3.
static void test_tools(void **state) {
    (void) state;
    const char *functions[] = {"{\"a\": 1}", "{\"b\": 2}"}, *calls[] = {"{\"c\": 3}", "{\"d\": 4}"};
    const struct chat_turn turns[] = {{.role = CHAT_SYSTEM, .text = "Be brief."}, {.role = CHAT_USER, .text = "hi"},
        {.role = CHAT_ASSISTANT, .text = "", .calls = calls, .n_calls = 2}, {.role = CHAT_USER, .text = "r1", .is_result = true},
        {.role = CHAT_USER, .text = "r2", .is_result = true},
        {.role = CHAT_ASSISTANT, .text = "well", .calls = calls, .n_calls = 1},
        {.role = CHAT_USER, .text = "r3", .is_result = true}};
    struct chat_conversation c = {.turns = turns, .n_turns = 7, .functions = functions, .n_functions = 2};
    char *text = tools_format(&c);
    assert_string_equal(text,
        "<|im_start|>system\nBe brief.\n\n" LIST "<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\n<tool_call>\n{\"c\": 3}\n</tool_call>\n<tool_call>\n{\"d\": 4}\n</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nr1\n</tool_response>\n<tool_response>\nr2\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\nwell\n<tool_call>\n{\"c\": 3}\n</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nr3\n</tool_response><|im_end|>\n<|im_start|>assistant\n");
    berth_free(text);
    c = (struct chat_conversation){.turns = turns + 1, .n_turns = 1, .functions = functions, .n_functions = 2};
    text = tools_format(&c);
    assert_string_equal(text, "<|im_start|>system\n" LIST "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    berth_free(text);
    // Without tools, the text is that of chatml.
    c = (struct chat_conversation){.turns = turns, .n_turns = 2};
    const struct chat_message messages[] = {{CHAT_SYSTEM, "Be brief."}, {CHAT_USER, "hi"}};
    text = chat_format_tools(chat_template_find("chatml"), &c);
    char *plain = chat_format(chat_template_find("chatml"), messages, 2, true);
    assert_string_equal(text, plain);
    berth_free(text);
    berth_free(plain);
    c = (struct chat_conversation){.turns = turns, .n_turns = 7, .functions = functions, .n_functions = 2};
    text = NULL;
    berth_alloc_watch(true);
    for (int64_t n = 1; text == NULL; n++) {
        berth_alloc_fail_at(n);
        text = tools_format(&c);
        berth_alloc_fail_at(0);
        assert_int_equal(berth_alloc_alive(), text != NULL);
    }
    berth_free(text);
    berth_alloc_watch(false);
}

static void test_recognised(void **state) {
    (void) state;
    static const char *const programs[][2] = {
        {"{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}",
            "chatml"},
        {"{{ '<|im_start|>' }}{%- if tools %}<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}",
            "chatml-tools"},
        {"{{ '<|im_start|>' }}{%- if tools %}<tool_call>\n<function=example_function_name>", "chatml"}, // another format
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
        cmocka_unit_test(test_tools), cmocka_unit_test(test_recognised), cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
