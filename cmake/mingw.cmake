# A toolchain file that builds for Windows (x86-64) with Debian's mingw-w64. Programs run under wine.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc-posix)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
set(CMAKE_FIND_ROOT_PATH /usr/x86_64-w64-mingw32)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR wine)

# llama.cpp's libraries use the C library ucrtbase.dll, and a FILE can only be used by the C library that opened it. Debian's gcc links
# the older msvcrt.dll unless its specs name the other one.
set(ucrt_specs ${CMAKE_BINARY_DIR}/ucrt.specs)
if(NOT EXISTS ${ucrt_specs})
    execute_process(COMMAND ${CMAKE_C_COMPILER} -dumpspecs OUTPUT_VARIABLE specs RESULT_VARIABLE code)
    if(NOT code EQUAL 0)
        message(FATAL_ERROR "${CMAKE_C_COMPILER} was not found: install gcc-mingw-w64-x86-64-posix")
    endif()
    string(REPLACE "-lmsvcrt" "-lucrt" specs "${specs}")
    file(WRITE ${ucrt_specs} "${specs}")
endif()
# AVX values on the stack are aligned to 16 bytes only (gcc's bug 54412), so the assembler makes aligned moves of vectors unaligned.
set(CMAKE_C_FLAGS_INIT "-specs=${ucrt_specs} -D_UCRT -Wa,-muse-unaligned-vector-move")
set(CMAKE_CXX_FLAGS_INIT "${CMAKE_C_FLAGS_INIT}")
# libgcc and winpthread are linked statically. winpthread was compiled for msvcrt.dll, where setjmp has another name.
set(link_flags "-static -Wl,--defsym,_setjmp=__intrinsic_setjmp")
set(CMAKE_EXE_LINKER_FLAGS_INIT "${link_flags}")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "${link_flags}")
set(CMAKE_MODULE_LINKER_FLAGS_INIT "${link_flags}")
