# The CUDA backend. Its host side is plain C and always compiled, for the tests; the library needs kernels, and those need nvcc.
# BERTH_CUDA: ON, OFF, or AUTO: where nvcc is found. BERTH_CUDA_ARCHS: which GPUs the kernels are compiled for, "90a" for the H100 and
# H200 alone; a number with + after it becomes PTX, which the driver compiles for GPUs to come. One fat binary a .cu file, so that a
# changed kernel is compiled alone and all of them side by side.
set(BERTH_CUDA AUTO CACHE STRING "The CUDA backend's library: ON, OFF, AUTO")
set(BERTH_CUDA_ARCHS "80;86;89;90a;90+" CACHE STRING "GPUs to compile kernels for")
option(BERTH_CUDA_LINEINFO "Let kernels name their source lines, for profilers; the library then has the paths of the sources" OFF)

file(GLOB cuda_sources CONFIGURE_DEPENDS
    ${CMAKE_CURRENT_SOURCE_DIR}/base/shim/*.c ${CMAKE_CURRENT_SOURCE_DIR}/cuda/*.c ${CMAKE_CURRENT_SOURCE_DIR}/cuda/op/*.c)
list(FILTER cuda_sources EXCLUDE REGEX "/load\\.c$") # the library's alone
add_library(ggml-cuda-objects OBJECT ${cuda_sources})
target_include_directories(ggml-cuda-objects PUBLIC ${PROJECT_SOURCE_DIR}/include PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(ggml-cuda-objects PRIVATE berth-flags)
if(BUILD_SHARED_LIBS)
    target_compile_definitions(ggml-cuda-objects PRIVATE GGML_SHARED GGML_BACKEND_SHARED GGML_BUILD GGML_BACKEND_BUILD)
endif()

if(NOT BERTH_CUDA)
    return()
endif()
find_program(NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda/bin PATH_SUFFIXES bin)
mark_as_advanced(NVCC)
if(NOT NVCC OR NOT BUILD_SHARED_LIBS)
    set(why "no nvcc was found")
    if(NVCC)
        set(why "it is loaded at run time, and the libraries are static")
    endif()
    if(BERTH_CUDA STREQUAL "AUTO")
        message(STATUS "CUDA: the library is left out: ${why}")
        return()
    endif()
    message(FATAL_ERROR "BERTH_CUDA=${BERTH_CUDA}, and ${why}")
endif()

set(cuda_codes)
set(cuda_numbers)
foreach(arch ${BERTH_CUDA_ARCHS})
    if(arch MATCHES "^([0-9]+)[+]$")
        list(APPEND cuda_codes -gencode arch=compute_${CMAKE_MATCH_1},code=compute_${CMAKE_MATCH_1})
    elseif(arch MATCHES "^([0-9]+)[a-f]?$")
        list(APPEND cuda_codes -gencode arch=compute_${arch},code=sm_${arch})
        list(APPEND cuda_numbers ${CMAKE_MATCH_1}0)
    else()
        message(FATAL_ERROR "BERTH_CUDA_ARCHS: '${arch}' is no GPU's number")
    endif()
endforeach()
string(REPLACE ";" "," cuda_numbers "${cuda_numbers}")

# Multiply-adds may be fused: kernels are not held to the CPU's bits. The warnings off are about constants that a
# template leaves unused.
set(cuda_flags -std=c++17 -O3 --expt-relaxed-constexpr -Xcompiler -Wall -diag-suppress 177
    -I ${CMAKE_CURRENT_SOURCE_DIR} -I ${PROJECT_SOURCE_DIR}/include)
if(BERTH_CUDA_LINEINFO)
    list(APPEND cuda_flags -lineinfo)
endif()
file(GLOB kernel_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernel/*.cu)
set(kernel_dir ${CMAKE_CURRENT_BINARY_DIR}/cuda-kernels)
file(MAKE_DIRECTORY ${kernel_dir})
set(image_names)
set(kernel_images)
foreach(source ${kernel_sources})
    get_filename_component(name ${source} NAME_WE)
    set(image ${kernel_dir}/${name}.fatbin)
    add_custom_command(OUTPUT ${image}
        COMMAND ${NVCC} ${cuda_flags} ${cuda_codes} -fatbin -MD -MF ${image}.d -MT ${image} -o ${image} ${source}
        DEPENDS ${source} DEPFILE ${image}.d COMMENT "nvcc ${name}.cu" VERBATIM)
    list(APPEND image_names ${name})
    list(APPEND kernel_images ${image})
endforeach()

# Their bytes in one C file, by the assembler's .incbin.
set(image_text "// Made by cmake/cuda.cmake.\n#include \"cuda/backend.h\"\n\nconst char cuda_archs[] = \"${cuda_numbers}\";\n")
set(image_rows "")
foreach(name ${image_names})
    string(APPEND image_text "__asm__(\".pushsection .rodata\\n.balign 64\\ncuda_image_${name}:\\n.incbin \\\"${kernel_dir}/${name}.fatbin\\\"\\n\"\n"
        "    \"cuda_image_${name}_end:\\n.popsection\\n\");\n"
        "extern const char cuda_image_${name}[], cuda_image_${name}_end[];\n")
    string(APPEND image_rows "    {\"${name}\", cuda_image_${name}},\n")
endforeach()
file(GENERATE OUTPUT ${kernel_dir}/image.c CONTENT
    "${image_text}\nconst struct cuda_image cuda_images[] = {\n${image_rows}    {NULL, NULL},\n};\n")
set_source_files_properties(${kernel_dir}/image.c PROPERTIES GENERATED ON OBJECT_DEPENDS "${kernel_images}")

# Not part of `all`: compiling kernels takes minutes, and whoever works on something else need not wait. `make cuda` asks for it.
add_library(ggml-cuda SHARED EXCLUDE_FROM_ALL $<TARGET_OBJECTS:ggml-cuda-objects>
    ${CMAKE_CURRENT_SOURCE_DIR}/cuda/load.c ${kernel_dir}/image.c)
add_library(ggml::ggml-cuda ALIAS ggml-cuda)
target_include_directories(ggml-cuda
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(ggml-cuda PUBLIC ggml-base PRIVATE $<BUILD_INTERFACE:berth-flags> Threads::Threads ${CMAKE_DL_LIBS} m)
target_compile_definitions(ggml-cuda PRIVATE GGML_SHARED GGML_BACKEND_SHARED GGML_BUILD GGML_BACKEND_BUILD)
set_target_properties(ggml-cuda PROPERTIES LINKER_LANGUAGE C INSTALL_RPATH "$ORIGIN" BUILD_RPATH_USE_ORIGIN ON)
target_link_options(ggml-cuda PRIVATE LINKER:-Bsymbolic-functions)
if(NOT BERTH_SANITIZE)
    target_link_options(ggml-cuda PRIVATE LINKER:--no-undefined)
endif()
message(STATUS "CUDA: kernels for ${BERTH_CUDA_ARCHS} by ${NVCC}")
