// SPDX-License-Identifier: MIT
// page.c: the table of page.h. CMake writes the texts from src/serve/page (cmake/embed.cmake).

#include "serve/page.h"

#include <stddef.h>
#include <string.h>

extern const char serve_page_index_html[], serve_page_chat_css[], serve_page_icon_svg[];
extern const char serve_page_main_js[], serve_page_view_js[], serve_page_model_js[], serve_page_api_js[];

static const char javascript[] = "text/javascript; charset=utf-8";

static const struct page_file files[] = {
    {"/", "text/html; charset=utf-8", serve_page_index_html},
    {"/page/chat.css", "text/css; charset=utf-8", serve_page_chat_css},
    {"/page/icon.svg", "image/svg+xml", serve_page_icon_svg},
    {"/page/main.js", javascript, serve_page_main_js},
    {"/page/view.js", javascript, serve_page_view_js},
    {"/page/model.js", javascript, serve_page_model_js},
    {"/page/api.js", javascript, serve_page_api_js},
};

const struct page_file *page_find(const char *path) {
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (strcmp(path, files[i].path) == 0) {
            return &files[i];
        }
    }
    return NULL;
}
