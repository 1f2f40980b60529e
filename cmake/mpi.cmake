# The backend for devices of other ranks. libggml-mpi, which programs load, does not link MPI: it loads libberth-mpi if mpirun
# started the program. Its objects are always compiled, for the tests. BERTH_MPI is ON, OFF, or AUTO, which builds the libraries if
# MPI is found.
set(BERTH_MPI AUTO CACHE STRING "Build the backend for devices of other ranks: ON, OFF, or AUTO: if MPI is found")

file(GLOB mpi_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/base/shim/*.c ${CMAKE_CURRENT_SOURCE_DIR}/mpi/*.c)
list(FILTER mpi_sources EXCLUDE REGEX "/load\\.c$") # only the library contains it
add_library(ggml-mpi-objects OBJECT ${mpi_sources})
target_include_directories(ggml-mpi-objects PUBLIC ${PROJECT_SOURCE_DIR}/include PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(ggml-mpi-objects PRIVATE berth-flags)
add_custom_target(berth-plugins) # the loadable libraries that `make build` builds if their requirements are installed
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
        message(STATUS "MPI: the libraries for ranks are not built: MPI was not found, or the libraries are static")
        return()
    endif()
    message(FATAL_ERROR "BERTH_MPI=${BERTH_MPI}, but MPI was not found, or the libraries are static")
endif()

add_library(ggml-mpi SHARED $<TARGET_OBJECTS:ggml-mpi-objects> ${CMAKE_CURRENT_SOURCE_DIR}/mpi/load.c)
target_include_directories(ggml-mpi PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(ggml-mpi PUBLIC ggml-base PRIVATE $<BUILD_INTERFACE:berth-flags> Threads::Threads ${CMAKE_DL_LIBS} m)
target_compile_definitions(ggml-mpi PRIVATE GGML_SHARED GGML_BACKEND_SHARED GGML_BUILD GGML_BACKEND_BUILD)
# The library must not be unloaded, because it has threads and is called at the end of the process.
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
