# The files that `make install` installs: libraries, headers, the program with man page, completion and documentation, a CMake
# package and a pkg-config file.
include(CMakePackageConfigHelpers)

install(TARGETS ggml-base ggml-cpu ggml EXPORT ggml-targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS berth RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES models/tales-q8_0.gguf DESTINATION ${CMAKE_INSTALL_DATADIR}/berth/models)
install(FILES ${PROJECT_BINARY_DIR}/berth.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL) # OPTIONAL: a cross build has no man page
install(FILES tools/completion/berth.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME berth)
# The documentation keeps the folders of the sources, so that the links of README.md work and messages can name docs/user/models.md.
install(FILES LICENSE README.md CHANGELOG.md SECURITY.md CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN "man" EXCLUDE)
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "ggml-cuda.h" EXCLUDE
    PATTERN "ggml-vulkan.h" EXCLUDE)
# The Vulkan backend, if `make vulkan` has built it.
if(TARGET ggml-vulkan)
    install(FILES $<TARGET_FILE:ggml-vulkan> DESTINATION ${CMAKE_INSTALL_LIBDIR} OPTIONAL)
    install(FILES include/ggml-vulkan.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
# The CUDA backend, if `make cuda` has built it. Programs load it at run time.
if(TARGET ggml-cuda)
    install(FILES $<TARGET_FILE:ggml-cuda> DESTINATION ${CMAKE_INSTALL_LIBDIR} OPTIONAL)
    install(FILES include/ggml-cuda.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()

# Language models for programs, and for the Python package.
if(TARGET libberth)
    install(TARGETS libberth EXPORT ggml-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

# The backend for devices of other ranks, if MPI was found. Programs load it at run time.
if(TARGET ggml-mpi)
    install(TARGETS ggml-mpi berth-mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ggml)
install(EXPORT ggml-targets NAMESPACE ggml:: DESTINATION ${package_dir})
# The package has the version of ggml's API that Berth implements, so that find_package(ggml 0.x) succeeds for this and older
# versions.
set(ggml_version 0.25.1)
if(BUILD_SHARED_LIBS)
    set(ggml_is_shared ON)
else()
    set(ggml_is_shared OFF)
endif()
configure_package_config_file(cmake/ggml-config.cmake.in ${PROJECT_BINARY_DIR}/ggml-config.cmake INSTALL_DESTINATION ${package_dir}
    PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_BINDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ggml-config-version.cmake
    VERSION ${ggml_version} COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ggml-config.cmake ${PROJECT_BINARY_DIR}/ggml-config-version.cmake DESTINATION ${package_dir})

# The pkg-config file has a prefix relative to its own folder, because an installation can be moved.
file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
if(BUILD_SHARED_LIBS)
    set(pc_defines "-DGGML_SHARED -DGGML_BACKEND_SHARED")
else()
    set(pc_defines "")
endif()
if(NOT GGML_MAX_NAME EQUAL 64)
    string(APPEND pc_defines " -DGGML_MAX_NAME=${GGML_MAX_NAME}")
endif()
configure_file(cmake/ggml.pc.in ${PROJECT_BINARY_DIR}/ggml.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ggml.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Links to the libraries under the names that llama.cpp's binaries ask for (docs/user/llama.cpp.md), also in the build folder. They
# are links because a process loads a file once, under any of its names. If the library folder is Berth's own, as in Debian's packages,
# the links are in it. Otherwise they are in its subfolder berth.
if(TARGET ggml-so0)
    install(TARGETS ggml-base-so0 ggml-cpu-so0 ggml-so0 LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_SKIP)
    set(link_dir ${PROJECT_BINARY_DIR}/lib/berth)
    file(MAKE_DIRECTORY ${link_dir} ${PROJECT_BINARY_DIR}/links)
    foreach(name libggml-base.so libggml-cpu.so libggml.so)
        file(CREATE_LINK ../${name} ${link_dir}/${name} SYMBOLIC)
        file(CREATE_LINK ../${name}.0 ${link_dir}/${name}.0 SYMBOLIC)
    endforeach()
    foreach(release b10361 v0.4.0 v0.5.0)
        file(CREATE_LINK ../libggml.so ${link_dir}/libggml.${release}.so SYMBOLIC)
        file(CREATE_LINK libggml.so ${PROJECT_BINARY_DIR}/links/libggml.${release}.so SYMBOLIC)
    endforeach()
    if(CMAKE_INSTALL_LIBDIR MATCHES "/berth$")
        install(DIRECTORY ${PROJECT_BINARY_DIR}/links/ DESTINATION ${CMAKE_INSTALL_LIBDIR})
    else()
        install(DIRECTORY ${link_dir} DESTINATION ${CMAKE_INSTALL_LIBDIR})
    endif()
endif()
