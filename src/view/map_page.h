// SPDX-License-Identifier: MIT
// map_page.h: the files of src/view/page as texts; cmake/embed.cmake makes them part of the program.
#pragma once

extern const char map_page_html[], map_page_css[], map_page_model_js[], map_page_draw_js[], map_page_main_js[];
