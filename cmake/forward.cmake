# cmake -D IN=FILE -D OUT=FILE -P forward.cmake: reads the linker's list of the exports of ggml.dll, and writes the exports of a DLL
# without code that passes each of them on to ggml.dll.
file(STRINGS ${IN} lines REGEX "@[0-9]+")
set(text "EXPORTS\n")
foreach(line ${lines})
    string(REGEX MATCH "[A-Za-z_][A-Za-z0-9_]*" name "${line}")
    string(APPEND text "    ${name} = ggml.${name}\n")
endforeach()
file(WRITE ${OUT} "${text}")
