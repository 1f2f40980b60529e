# The page of `make web`: the planner as WebAssembly, in one HTML file (docs/user/browser.md). Only emscripten builds it. Run as a
# script, this file puts the parts into the page: cmake -D OUT=FILE -D PAGE=DIR -D MODULE=FILE -D EXAMPLE=FILE -P web.cmake
if(CMAKE_SCRIPT_MODE_FILE)
    file(READ ${PAGE}/index.html html)
    foreach(part "MODULE;${MODULE}" "WORKER;${PAGE}/worker.js" "SCRIPT;${PAGE}/main.js" "EXAMPLE;${EXAMPLE}")
        list(GET part 0 mark)
        list(GET part 1 path)
        file(READ ${path} text)
        if(text MATCHES "</script|<!--")
            message(FATAL_ERROR "${path} cannot be part of a script element")
        endif()
        string(REPLACE "@${mark}@" "${text}" html "${html}")
    endforeach()
    file(WRITE ${OUT} "${html}")
    return()
endif()

add_executable(berth-web EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/src/web/web.c)
target_include_directories(berth-web PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
berth_use_modules(berth-web view)
target_link_libraries(berth-web PRIVATE berth-internal berth-flags)
target_link_options(berth-web PRIVATE --js-library ${PROJECT_SOURCE_DIR}/src/web/library.js -sMODULARIZE=1 -sEXPORT_NAME=berth -sSINGLE_FILE=1 -sENVIRONMENT=worker,node
    -sALLOW_MEMORY_GROWTH=1 -sFORCE_FILESYSTEM=1 -sEXPORTED_RUNTIME_METHODS=FS,UTF8ToString
    -sEXPORTED_FUNCTIONS=_malloc,_free,_web_page,_web_error,_web_plan_us
    LINKER:--wrap=mmap LINKER:--wrap=munmap)
set_target_properties(berth-web PROPERTIES LINK_DEPENDS ${PROJECT_SOURCE_DIR}/src/web/library.js)
set(web_page ${PROJECT_SOURCE_DIR}/src/web/page)
set(web_example ${PROJECT_SOURCE_DIR}/tests/data/plan/transformer.csv)
add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/index.html
    COMMAND ${CMAKE_COMMAND} -D OUT=${PROJECT_BINARY_DIR}/index.html -D PAGE=${web_page} -D MODULE=$<TARGET_FILE:berth-web>
        -D EXAMPLE=${web_example} -P ${CMAKE_CURRENT_LIST_FILE}
    DEPENDS berth-web ${web_page}/index.html ${web_page}/main.js ${web_page}/worker.js ${web_example} ${CMAKE_CURRENT_LIST_FILE} VERBATIM)
add_custom_target(web DEPENDS ${PROJECT_BINARY_DIR}/index.html)
