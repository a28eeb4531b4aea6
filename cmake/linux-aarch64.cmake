# Toolchain: compiles for arm64 Linux on Debian with g++-aarch64-linux-gnu and the libraries' :arm64
# packages (deploy/packages.sh node-cross). protoc and gRPC's plugin are this machine's own.
#
#   cmake -S . -B build/arm64 --toolchain cmake/linux-aarch64.cmake -DGPUCTL_BUILD_CLIENT=OFF …
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
