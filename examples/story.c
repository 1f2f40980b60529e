// story.c: continues a text with the model that comes with Berth, or with another GGUF file. docs/user/library.md explains it.
//
//     cc story.c -lberth -lggml-base -o story && ./story

#include <berth-model.h>
#include <berth.h>

#include <string.h>

static bool text_print(const char *text, size_t size, void *file) {
    return fwrite(text, 1, size, file) == size && fflush(file) == 0;
}

int main(int argc, char **argv) {
    const char *prompt = "Once upon a time";
    struct berth_model *model = berth_model_open(argc > 1 ? argv[1] : NULL, NULL);
    struct berth_session *session = berth_session_new(model, NULL);
    struct berth_generate_params params;
    struct berth_generate_result result = {0};
    berth_generate_params_init(&params);
    params.max_tokens = 30;
    params.temperature = 0;
    params.on_text = text_print;
    params.user_data = stdout;
    const bool ok =
        session != NULL && berth_session_generate(session, prompt, strlen(prompt), &params, &result) == GGML_STATUS_SUCCESS;
    if (ok) {
        printf("\n%lld tokens\n", (long long) result.n_generated);
    } else {
        fprintf(stderr, "story: %s\n", berth_last_error());
    }
    berth_session_free(session);
    berth_model_free(model);
    return ok ? 0 : 1;
}
