# Devices of other ranks. The library that programs load knows nothing of MPI: it loads libberth-mpi where mpirun started the program.
# Its objects are always compiled, for the tests. BERTH_MPI: ON, OFF, or AUTO: where MPI is found.
set(BERTH_MPI AUTO CACHE STRING "Devices of other ranks over MPI: ON, OFF, AUTO")

file(GLOB mpi_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/base/shim/*.c ${CMAKE_CURRENT_SOURCE_DIR}/mpi/*.c)
list(FILTER mpi_sources EXCLUDE REGEX "/load\\.c$") # the library's alone
add_library(ggml-mpi-objects OBJECT ${mpi_sources})
target_include_directories(ggml-mpi-objects PUBLIC ${PROJECT_SOURCE_DIR}/include PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(ggml-mpi-objects PRIVATE berth-flags)
add_custom_target(berth-plugins) # what `make build` builds beside the libraries, where it can be built
if(BUILD_SHARED_LIBS)
    target_compile_definitions(ggml-mpi-objects PRIVATE GGML_SHARED GGML_BACKEND_SHARED GGML_BUILD GGML_BACKEND_BUILD)
endif()

if(NOT BERTH_MPI)
    return()
endif()
if(BUILD_SHARED_LIBS)
    find_package(MPI QUIET COMPONENTS C)
endif()
if(NOT MPI_C_FOUND)
    if(BERTH_MPI STREQUAL "AUTO")
        message(STATUS "MPI: left out: not found, or the libraries are static")
        return()
    endif()
    message(FATAL_ERROR "BERTH_MPI=${BERTH_MPI}, and MPI was not found, or the libraries are static")
endif()

add_library(ggml-mpi SHARED $<TARGET_OBJECTS:ggml-mpi-objects> ${CMAKE_CURRENT_SOURCE_DIR}/mpi/load.c)
target_include_directories(ggml-mpi PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(ggml-mpi PUBLIC ggml-base PRIVATE $<BUILD_INTERFACE:berth-flags> Threads::Threads ${CMAKE_DL_LIBS} m)
target_compile_definitions(ggml-mpi PRIVATE GGML_SHARED GGML_BACKEND_SHARED GGML_BUILD GGML_BACKEND_BUILD)
# It has threads and is called at the end of the process, so it is never unloaded.
target_link_options(ggml-mpi PRIVATE LINKER:-Bsymbolic-functions LINKER:-z,nodelete)

add_library(berth-mpi SHARED ${CMAKE_CURRENT_SOURCE_DIR}/mpi/link/link.c)
target_include_directories(berth-mpi PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(berth-mpi PRIVATE $<BUILD_INTERFACE:berth-flags> MPI::MPI_C)
foreach(name ggml-mpi berth-mpi)
    set_target_properties(${name} PROPERTIES LINKER_LANGUAGE C INSTALL_RPATH "$ORIGIN" BUILD_RPATH_USE_ORIGIN ON)
    if(NOT BERTH_SANITIZE)
        target_link_options(${name} PRIVATE LINKER:--no-undefined)
    endif()
endforeach()
add_dependencies(berth-plugins ggml-mpi berth-mpi)
message(STATUS "MPI: ${MPI_C_LIBRARIES}")
