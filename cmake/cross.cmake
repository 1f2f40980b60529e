# A toolchain file for the other of the two architectures that Debian's cross compilers serve; programs run under qemu-user.
# BERTH_CROSS names it: x86_64 or aarch64.
if(NOT DEFINED BERTH_CROSS AND DEFINED ENV{BERTH_CROSS})
    set(BERTH_CROSS $ENV{BERTH_CROSS})
endif()
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES BERTH_CROSS)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${BERTH_CROSS})
set(CMAKE_C_COMPILER ${BERTH_CROSS}-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER ${BERTH_CROSS}-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE ${BERTH_CROSS}-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-${BERTH_CROSS};-cpu;max)
