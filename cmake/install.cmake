# What `make install` puts where: libraries, headers, the program with man page and completion, a CMake package and a pkg-config
# file.
include(CMakePackageConfigHelpers)

install(TARGETS ggml-base ggml-cpu ggml EXPORT ggml-targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS berth RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES models/tales-q8_0.gguf DESTINATION ${CMAKE_INSTALL_DATADIR}/berth/models)
install(FILES docs/man/berth.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES tools/completion/berth.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME berth)
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ggml)
install(EXPORT ggml-targets NAMESPACE ggml:: DESTINATION ${package_dir})
configure_package_config_file(cmake/ggml-config.cmake.in ${PROJECT_BINARY_DIR}/ggml-config.cmake INSTALL_DESTINATION ${package_dir})
# The version of ggml's API that is served, since that is what find_package(ggml 0.x) asks for.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ggml-config-version.cmake VERSION 0.19.0 COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ggml-config.cmake ${PROJECT_BINARY_DIR}/ggml-config-version.cmake DESTINATION ${package_dir})

# The prefix is only known when installing, so the file finds it from its own place.
file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
if(BUILD_SHARED_LIBS)
    set(pc_defines "-DGGML_SHARED -DGGML_BACKEND_SHARED")
else()
    set(pc_defines "")
endif()
configure_file(cmake/ggml.pc.in ${PROJECT_BINARY_DIR}/ggml.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ggml.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The libraries again, under the names that llama.cpp's prebuilt binaries ask for: docs/llama.cpp.md.
if(BUILD_SHARED_LIBS)
    set(link_dir ${CMAKE_INSTALL_LIBDIR}/berth)
    foreach(link libggml-base.so:libggml-base.so libggml.so:libggml.b10361.so libggml-cpu.so:libggml-cpu.so)
        string(REPLACE ":" ";" names ${link})
        list(GET names 0 file)
        list(GET names 1 name)
        file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/links)
        file(CREATE_LINK ../${file} ${PROJECT_BINARY_DIR}/links/${name} SYMBOLIC)
        install(FILES ${PROJECT_BINARY_DIR}/links/${name} DESTINATION ${link_dir})
    endforeach()
endif()
