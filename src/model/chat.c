// SPDX-License-Identifier: MIT
// chat.c: the table of chat formats and the functions of chat.h.

#include "model/chat.h"

#include <string.h>

// chat_template_recognise takes the first matching row, so specific rows precede general ones.

#define ALL (1u << CHAT_SYSTEM | 1u << CHAT_USER | 1u << CHAT_ASSISTANT)
#define EOS_CN \
    "<\xef\xbd\x9c" \
    "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"

// The texts of the roles differ only in the name of the role.
#define ROLES(before_name, after_name, after) \
    .texts = {{before_name "system" after_name, after}, {before_name "user" after_name, after}, \
        {before_name "assistant" after_name, after}}, \
    .answer_begin = before_name "assistant" after_name

// The format of Qwen 2.5 and 3, and of models that were trained with the same words.
static const struct chat_tools qwen_tools = {
    .list_begin = "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
                  "You are provided with function signatures within <tools></tools> XML tags:\n<tools>",
    .list_end = "</tools>\n\nFor each function call, return a json object with function name and arguments within "
                "<tool_call></tool_call> XML tags:\n<tool_call>\n"
                "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>",
    .call_begin = "<tool_call>",
    .call_end = "</tool_call>",
    .result_begin = "<tool_response>",
    .result_end = "</tool_response>",
};

const struct chat_template chat_templates[] = {
    {.name = "phi4", .marks = {"<|im_start|>", "<|im_sep|>"}, ROLES("<|im_start|>", "<|im_sep|>", "<|im_end|>")},
    {.name = "smolvlm",
        .marks = {"<|im_start|>", "<end_of_utterance>"},
        .begin = "<|im_start|>",
        .texts = {{"", "\n\n"}, {"User: ", "<end_of_utterance>\n"}, {"Assistant: ", "<end_of_utterance>\n"}},
        .answer_begin = "Assistant:"},
    {.name = "chatml-tools",
        .marks = {"<|im_start|>", "<tool_call>", "<args-json-object>"},
        .tools = &qwen_tools,
        ROLES("<|im_start|>", "\n", "<|im_end|>\n")},
    {.name = "chatml", .marks = {"<|im_start|>"}, ROLES("<|im_start|>", "\n", "<|im_end|>\n")},
    {.name = "mistral-v7",
        .marks = {"[INST]", "[SYSTEM_PROMPT] "},
        .texts = {{"[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"}, {"[INST] ", "[/INST]"}, {" ", "</s>"}}},
    {.name = "mistral-v7-tekken",
        .marks = {"[INST]", "[SYSTEM_PROMPT]"},
        .texts = {{"[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"}, {"[INST]", "[/INST]"}, {"", "</s>"}}},
    {.name = "mistral-v1",
        .marks = {"' [INST] ' + system_message"},
        .is_system_in_user = true,
        .texts = {{"", "\n\n"}, {" [INST] ", " [/INST]"}, {" ", "</s>"}}},
    {.name = "mistral-v3-tekken",
        .marks = {"[AVAILABLE_TOOLS]", "\"[INST]\""},
        .is_system_in_user = true,
        .texts = {{"", "\n\n"}, {"[INST]", "[/INST]"}, {"", "</s>"}}},
    {.name = "mistral-v3",
        .marks = {"[INST]", "[AVAILABLE_TOOLS]"},
        .is_system_in_user = true,
        .trims = 1u << CHAT_ASSISTANT,
        .texts = {{"", "\n\n"}, {"[INST] ", "[/INST]"}, {" ", "</s>"}}},
    {.name = "llama2-sys-strip",
        .marks = {"[INST]", "<<SYS>>", "content.strip()"},
        .is_system_in_user = true,
        .trims = ALL,
        .texts = {{"<<SYS>>\n", "\n<</SYS>>\n\n"}, {"[INST] ", " [/INST]"}, {"", "</s>"}}},
    {.name = "llama2-sys-bos",
        .marks = {"[INST]", "<<SYS>>", "bos_token + '[INST]"},
        .is_system_in_user = true,
        .before_next_user = "<s>",
        .texts = {{"<<SYS>>\n", "\n<</SYS>>\n\n"}, {"[INST] ", " [/INST]"}, {"", "</s>"}}},
    {.name = "llama2-sys",
        .marks = {"[INST]", "<<SYS>>"},
        .is_system_in_user = true,
        .texts = {{"<<SYS>>\n", "\n<</SYS>>\n\n"}, {"[INST] ", " [/INST]"}, {"", "</s>"}}},
    {.name = "llama2",
        .marks = {"[INST]"},
        .is_system_in_user = true,
        .texts = {{"", "\n"}, {"[INST] ", " [/INST]"}, {"", "</s>"}}},
    {.name = "llama3",
        .marks = {"<|start_header_id|>", "<|end_header_id|>"},
        .trims = ALL,
        ROLES("<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>")},
    {.name = "llama4",
        .marks = {"<|header_start|>", "<|header_end|>"},
        .trims = ALL,
        ROLES("<|header_start|>", "<|header_end|>\n\n", "<|eot|>")},
    {.name = "gemma",
        .marks = {"<start_of_turn>"},
        .is_system_in_user = true,
        .trims = ALL,
        .texts = {{"", "\n\n"}, {"<start_of_turn>user\n", "<end_of_turn>\n"}, {"<start_of_turn>model\n", "<end_of_turn>\n"}},
        .answer_begin = "<start_of_turn>model\n"},
    {.name = "gpt-oss",
        .marks = {"<|start|>", "<|channel|>"},
        .texts = {{"<|start|>system<|message|>", "<|end|>"}, {"<|start|>user<|message|>", "<|end|>"},
            {"<|start|>assistant<|message|>", "<|return|>"}},
        .answer_begin = "<|start|>assistant"},
    {.name = "command-r",
        .marks = {"<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>"},
        .trims = ALL,
        .texts = {{"<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>", "<|END_OF_TURN_TOKEN|>"},
            {"<|START_OF_TURN_TOKEN|><|USER_TOKEN|>", "<|END_OF_TURN_TOKEN|>"},
            {"<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"}},
        .answer_begin = "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"},
    {.name = "chatglm4", .marks = {"[gMASK]<sop>"}, .begin = "[gMASK]<sop>", ROLES("<|", "|>\n", "")},
    {.name = "chatglm3",
        .marks = {"[gMASK]sop"},
        .begin = "[gMASK]sop",
        .texts = {{"<|system|>\n ", ""}, {"<|user|>\n ", ""}, {"<|assistant|>\n ", ""}},
        .answer_begin = "<|assistant|>"},
    {.name = "phi3", .marks = {"<|assistant|>", "<|end|>"}, ROLES("<|", "|>\n", "<|end|>\n")},
    {.name = "exaone-moe", .marks = {"<|assistant|>", "<|endofturn|>"}, .trims = ALL, ROLES("<|", "|>\n", "<|endofturn|>\n")},
    {.name = "zephyr", .marks = {"<|user|>", "<|endoftext|>"}, ROLES("<|", "|>\n", "<|endoftext|>\n")},
    {.name = "falcon3", .marks = {"<|assistant|>", "<|user|>"}, ROLES("<|", "|>\n", "\n")},
    {.name = "granite", .marks = {"<|start_of_role|>"}, ROLES("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>\n")},
    {.name = "deepseek3",
        .marks = {"<\xef\xbd\x9c"
                  "Assistant\xef\xbd\x9c>"},
        .texts = {{"", "\n\n"}, {"<\xef\xbd\x9cUser\xef\xbd\x9c>", ""},
            {"<\xef\xbd\x9c"
             "Assistant\xef\xbd\x9c>",
                EOS_CN}},
        .answer_begin = "<\xef\xbd\x9c"
                        "Assistant\xef\xbd\x9c>"},
    {.name = "deepseek2",
        .marks = {"'Assistant: ' + message['content'] + eos_token"},
        .texts = {{"", "\n\n"}, {"User: ", "\n\n"}, {"Assistant: ", EOS_CN}},
        .answer_begin = "Assistant:"},
    {.name = "deepseek",
        .marks = {"### Instruction:", "<|EOT|>"},
        .texts = {{"", ""}, {"### Instruction:\n", "\n"}, {"### Response:\n", "\n<|EOT|>\n"}},
        .answer_begin = "### Response:\n"},
    {.name = "openchat",
        .marks = {"GPT4 Correct "},
        .texts = {{"", "<|end_of_turn|>"}, {"GPT4 Correct User: ", "<|end_of_turn|>"},
            {"GPT4 Correct Assistant: ", "<|end_of_turn|>"}},
        .answer_begin = "GPT4 Correct Assistant:"},
    {.name = "vicuna-orca",
        .marks = {"USER: ", "ASSISTANT: ", "SYSTEM: "},
        .texts = {{"SYSTEM: ", "\n"}, {"USER: ", "\n"}, {"ASSISTANT: ", "</s>\n"}},
        .answer_begin = "ASSISTANT:"},
    {.name = "vicuna",
        .marks = {"USER: ", "ASSISTANT: "},
        .texts = {{"", "\n\n"}, {"USER: ", "\n"}, {"ASSISTANT: ", "</s>\n"}},
        .answer_begin = "ASSISTANT:"},
    {.name = "kimi-k2",
        .marks = {"<|im_middle|>"},
        .texts = {{"<|im_system|>system<|im_middle|>", "<|im_end|>"}, {"<|im_user|>user<|im_middle|>", "<|im_end|>"},
            {"<|im_assistant|>assistant<|im_middle|>", "<|im_end|>"}},
        .answer_begin = "<|im_assistant|>assistant<|im_middle|>"},
    {.name = "seed_oss", .marks = {"<seed:bos>"}, .trims = 1u << CHAT_ASSISTANT, ROLES("<seed:bos>", "\n", "<seed:eos>")},
    {.name = "megrez", .marks = {"<|role_start|>"}, ROLES("<|role_start|>", "<|role_end|>", "<|turn_end|>")},
    {.name = "exaone3",
        .marks = {"[|system|]", "[|endofturn|]"},
        .trims = ALL,
        .texts = {{"[|system|]", "[|endofturn|]\n"}, {"[|user|]", "\n"}, {"[|assistant|]", "[|endofturn|]\n"}},
        .answer_begin = "[|assistant|]"},
    {.name = "solar-open",
        .marks = {"<|begin|>", "<|content|>"},
        .texts = {{"<|begin|>system<|content|>", "<|end|>"}, {"<|begin|>user<|content|>", "<|end|>"},
            {"<|begin|>assistant<|content|>", "<|end|>"}},
        .answer_begin = "<|begin|>assistant"},
    {.name = "minicpm",
        .marks = {"<\xe7\x94\xa8\xe6\x88\xb7>"},
        .trims = ALL,
        .texts = {{"", ""}, {"<\xe7\x94\xa8\xe6\x88\xb7>", "<AI>"}, {"", ""}}},
    {.name = "hunyuan-moe",
        .marks = {"<|startoftext|>", "<|extra_4|>"},
        .texts = {{"<|startoftext|>", "<|extra_4|>"}, {"<|startoftext|>", "<|extra_0|>"}, {"", "<|eos|>"}}},
    {.name = "bailing",
        .marks = {"<role>HUMAN"},
        .texts = {{"<role>SYSTEM</role>", ""}, {"<role>HUMAN</role>", ""}, {"<role>ASSISTANT</role>", ""}},
        .answer_begin = "<role>ASSISTANT</role>"},
    {.name = "grok-2",
        .marks = {"<|separator|>"},
        .trims = 1u << CHAT_SYSTEM | 1u << CHAT_USER,
        .texts = {{"System: ", "<|separator|>\n\n"}, {"Human: ", "<|separator|>\n\n"}, {"Assistant: ", "<|separator|>\n\n"}},
        .answer_begin = "Assistant:"},
    {.name = "orion",
        .marks = {"'\\n\\nAssistant: ' + eos_token"},
        .is_system_in_user = true,
        .texts = {{"", "\n\n"}, {"Human: ", "\n\nAssistant: </s>"}, {"", "</s>"}}},
    {.name = NULL},
};

const struct chat_template *chat_template_find(const char *name) {
    for (const struct chat_template *t = chat_templates; t->name != NULL; t++) {
        if (strcmp(t->name, name) == 0) {
            return t;
        }
    }
    return NULL;
}

const struct chat_template *chat_template_recognise(const char *jinja) {
    for (const struct chat_template *t = chat_templates; t->name != NULL; t++) {
        bool is_match = t->marks[0] != NULL;
        for (int i = 0; is_match && i < 3 && t->marks[i] != NULL; i++) {
            is_match = strstr(jinja, t->marks[i]) != NULL;
        }
        if (is_match) {
            return t;
        }
    }
    return NULL;
}

const struct chat_template *chat_template_of(const struct gguf_context *meta, const char *name, struct model_error *error) {
    const char *jinja = NULL;
    if (name != NULL) {
        const struct chat_template *found = chat_template_find(name);
        if (found == NULL) {
            model_fail(error, "unknown chat template '%s'", name);
        }
        return found;
    }
    if (!keys_text(meta, "tokenizer.chat_template", &jinja, error)) {
        return NULL;
    }
    const struct chat_template *found = jinja != NULL ? chat_template_recognise(jinja) : NULL;
    if (found == NULL) {
        model_fail(error, "%s", jinja != NULL ? "its chat template is unknown" : "it has no chat template");
    }
    return found;
}

// ---- formatting ----

static void put_text(FILE *file, const char *text) {
    fputs(text != NULL ? text : "", file);
}

// Writes the content of a message, with the texts of its role around it if has_texts.
static void put_message(FILE *file, const struct chat_template *row, const struct chat_message *m, bool has_texts) {
    static const char blanks[] = " \t\n\v\f\r";
    const char *content = m->text;
    size_t n = strlen(content);
    if ((row->trims >> m->role & 1) != 0) {
        const size_t skip = strspn(content, blanks);
        content += skip;
        n -= skip;
        while (n > 0 && strchr(blanks, content[n - 1]) != NULL) {
            n--;
        }
    }
    put_text(file, has_texts ? row->texts[m->role].before : NULL);
    fwrite(content, 1, n, file);
    put_text(file, has_texts ? row->texts[m->role].after : NULL);
}

// Writes a user message that begins with the system messages among the n messages. user: NULL: no content of its own.
static void put_user(
    FILE *file, const struct chat_template *row, const struct chat_message *messages, size_t n, const struct chat_message *user) {
    put_text(file, row->texts[CHAT_USER].before);
    for (size_t i = 0; i < n; i++) {
        if (messages[i].role == CHAT_SYSTEM) {
            put_message(file, row, &messages[i], true);
        }
    }
    if (user != NULL) {
        put_message(file, row, user, false);
    }
    put_text(file, row->texts[CHAT_USER].after);
}

char *chat_format(const struct chat_template *row, const struct chat_message *messages, size_t n, bool is_answer_next) {
    struct berth_stream s;
    size_t first = 0; // the system messages from here on are written with the next user message
    bool has_user = false, has_system = false;
    if (!berth_stream_open(&s)) {
        return NULL;
    }
    put_text(s.file, row->begin);
    for (size_t i = 0; i < n; i++) {
        const struct chat_message *m = &messages[i];
        if (m->role == CHAT_SYSTEM && row->is_system_in_user) {
            has_system = true;
        } else if (m->role != CHAT_USER) {
            put_message(s.file, row, m, true);
        } else {
            put_text(s.file, has_user ? row->before_next_user : NULL);
            put_user(s.file, row, messages + first, has_system ? i - first : 0, m);
            first = i + 1;
            has_user = true;
            has_system = false;
        }
    }
    if (has_system) {
        put_text(s.file, has_user ? row->before_next_user : NULL);
        put_user(s.file, row, messages + first, n - first, NULL);
    }
    put_text(s.file, is_answer_next ? row->answer_begin : NULL);
    return berth_stream_close(&s) ? s.text : NULL;
}

// ---- tools ----

// The functions *_write write a new text to *out, which the caller frees. They return false if memory ran out.

static bool calls_write(const struct chat_tools *tools, const struct chat_turn *turn, char **out) {
    struct berth_stream s;
    if (!berth_stream_open(&s)) {
        return false;
    }
    const char *between = turn->text[0] != '\0' ? "\n" : "";
    put_text(s.file, turn->text);
    for (size_t i = 0; i < turn->n_calls; i++) {
        fprintf(s.file, "%s%s\n%s\n%s", between, tools->call_begin, turn->calls[i], tools->call_end);
        between = "\n";
    }
    const bool ok = berth_stream_close(&s);
    *out = s.text;
    return ok;
}

// Results that follow each other are one message. *n: their number.
static bool results_write(const struct chat_tools *tools, const struct chat_turn *turns, size_t n_turns, size_t *n, char **out) {
    struct berth_stream s;
    if (!berth_stream_open(&s)) {
        return false;
    }
    for (*n = 0; *n < n_turns && turns[*n].is_result; ++*n) {
        fprintf(s.file, "%s%s\n%s\n%s", *n > 0 ? "\n" : "", tools->result_begin, turns[*n].text, tools->result_end);
    }
    const bool ok = berth_stream_close(&s);
    *out = s.text;
    return ok;
}

static bool functions_write(const struct chat_tools *tools, const struct chat_conversation *c, const char *system, char **out) {
    struct berth_stream s;
    if (!berth_stream_open(&s)) {
        return false;
    }
    fprintf(s.file, "%s%s%s\n", system, system[0] != '\0' ? "\n\n" : "", tools->list_begin);
    for (size_t i = 0; i < c->n_functions; i++) {
        fprintf(s.file, "%s\n", c->functions[i]);
    }
    put_text(s.file, tools->list_end);
    const bool ok = berth_stream_close(&s);
    *out = s.text;
    return ok;
}

// Turns a conversation with tools into messages. texts: [n_turns + 1] new texts of messages, NULL for others. Returns false if memory ran
// out.
static bool messages_make(
    const struct chat_tools *tools, const struct chat_conversation *c, struct chat_message *messages, char **texts, size_t *n) {
    size_t at = 0;
    *n = 0;
    if (c->n_functions > 0) {
        const bool has_system = c->n_turns > 0 && c->turns[0].role == CHAT_SYSTEM;
        if (!functions_write(tools, c, has_system ? c->turns[0].text : "", &texts[0])) {
            return false;
        }
        messages[(*n)++] = (struct chat_message){CHAT_SYSTEM, texts[0]};
        at = has_system;
    }
    for (size_t n_used = 1; at < c->n_turns; at += n_used) {
        const struct chat_turn *turn = &c->turns[at];
        char **text = &texts[*n];
        n_used = 1;
        if (turn->is_result && !results_write(tools, turn, c->n_turns - at, &n_used, text)) {
            return false;
        }
        if (turn->n_calls > 0 && !calls_write(tools, turn, text)) {
            return false;
        }
        messages[(*n)++] = (struct chat_message){turn->role, *text != NULL ? *text : turn->text};
    }
    return true;
}

char *chat_format_tools(const struct chat_template *row, const struct chat_conversation *c) {
    const size_t most = c->n_turns + 1;
    struct chat_message *messages = berth_calloc(most, sizeof *messages);
    char **texts = berth_calloc(most, sizeof *texts), *text = NULL;
    size_t n = 0;
    if (messages != NULL && texts != NULL && messages_make(row->tools, c, messages, texts, &n)) {
        text = chat_format(row, messages, n, true);
    }
    for (size_t i = 0; texts != NULL && i < most; i++) {
        berth_free(texts[i]);
    }
    berth_free(texts);
    berth_free(messages);
    return text;
}
