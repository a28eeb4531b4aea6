# One interface target carries every flag of our own code.
add_library(gpuctl_flags INTERFACE)
target_include_directories(gpuctl_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(gpuctl_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(gpuctl_flags INTERFACE -Wthread-safety)
endif()
# Compilers differ in how they tell a source that it is sanitized.
if(GPUCTL_SANITIZE MATCHES "address")
  add_compile_definitions(GPUCTL_ASAN)
elseif(GPUCTL_SANITIZE MATCHES "thread")
  add_compile_definitions(GPUCTL_TSAN)
endif()
if(GPUCTL_SANITIZE)
  target_compile_options(gpuctl_flags INTERFACE
    -fsanitize=${GPUCTL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(gpuctl_flags INTERFACE -fsanitize=${GPUCTL_SANITIZE})
endif()
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  target_link_options(gpuctl_flags INTERFACE -fuse-ld=lld)
  if(CMAKE_CROSSCOMPILING)
    # A cross gcc looks for ld.lld only among programs of its own.
    find_program(GPUCTL_LLD ld.lld REQUIRED)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/linker)
    file(CREATE_LINK ${GPUCTL_LLD} ${CMAKE_BINARY_DIR}/linker/ld.lld SYMBOLIC)
    target_link_options(gpuctl_flags INTERFACE -B${CMAKE_BINARY_DIR}/linker)
  endif()
endif()
# These leave unused code out of the static binaries.
target_compile_options(gpuctl_flags INTERFACE -ffunction-sections -fdata-sections)
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  target_link_options(gpuctl_flags INTERFACE -Wl,--gc-sections)
elseif(CMAKE_SYSTEM_NAME STREQUAL "Darwin")
  target_link_options(gpuctl_flags INTERFACE -Wl,-dead_strip)
endif()

include(Hardening)
gpuctl_harden(gpuctl_flags INTERFACE)

# ccache takes what was compiled with a precompiled header only with this sloppiness. Paths below the
# checkout are relative for it, so that another checkout finds the same objects.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
    ${CCACHE_PROGRAM})
endif()

# The startup code of a static program applies packed relative relocations (RELR) since glibc 2.36.
# They make the programs for nodes smaller by 5 %. Seen to start on x86-64 only; arm64's are small
# enough without.
include(CheckCXXSourceCompiles)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)  # a look at the headers; nothing is linked
check_cxx_source_compiles("#include <features.h>
#if __GLIBC__ * 100 + __GLIBC_MINOR__ < 236
#error
#endif
" GPUCTL_GLIBC_APPLIES_RELR)
unset(CMAKE_TRY_COMPILE_TARGET_TYPE)

# gpuctl_link_static(target): links a program for nodes, which needs no library there, at any
# address.
function(gpuctl_link_static target)
  if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux" OR GPUCTL_SANITIZE)
    return()
  endif()
  target_link_options(${target} PRIVATE -static-pie)
  if(GPUCTL_GLIBC_APPLIES_RELR AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64)$")
    target_link_options(${target} PRIVATE -Wl,--pack-dyn-relocs=relr)
  endif()
endfunction()

# gpuctl_deliver(target): strips a program that is sent to nodes; its symbols stay in
# bin/<name>.debug.
function(gpuctl_deliver target)
  if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux" OR GPUCTL_SANITIZE)
    return()
  endif()
  add_custom_command(TARGET ${target} POST_BUILD
    COMMAND ${CMAKE_OBJCOPY} --only-keep-debug $<TARGET_FILE:${target}> $<TARGET_FILE:${target}>.debug
    COMMAND ${CMAKE_STRIP} --strip-all $<TARGET_FILE:${target}>)
endfunction()

# gpuctl_compile_fast(target): leaves out the optimizer for sources that only tests run. What they
# test is optimized as ever. ThreadSanitizer's code stays optimized, because it is slow enough.
function(gpuctl_compile_fast target)
  if(NOT GPUCTL_SANITIZE MATCHES "thread")
    target_compile_options(${target} PRIVATE -O0)
    set_target_properties(${target} PROPERTIES GPUCTL_FAST ON)
  endif()
endfunction()

# ON compiles one translation unit per room, and parses the headers that most rooms read once.
# Headers cost more than our own code, so a clean build takes less than half the time. OFF compiles
# each file by itself, which finds missing includes and is better while one file changes.
option(GPUCTL_UNITY "Compile the files of a room together" ON)

set(GPUCTL_COMMON_HEADERS
  <algorithm> <filesystem> <functional> <map> <memory> <optional> <string> <thread> <vector>
  <nlohmann/json.hpp> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_format.h>
  <absl/strings/str_join.h> <absl/strings/str_split.h> <absl/time/time.h> <gpuctl/v1/agent.pb.h>
  <gpuctl/v1/run.pb.h> <gpuctl/v1/transfer.pb.h>)

# gpuctl_add_precompiled(name [header…]): adds an object library that parses the common headers and
# these. A target shares it through gpuctl_use_precompiled; the flags of both must be the same, else
# the compiler parses the headers again.
function(gpuctl_add_precompiled name)
  if(NOT EXISTS ${CMAKE_BINARY_DIR}/precompiled/${name}.cc)
    file(WRITE ${CMAKE_BINARY_DIR}/precompiled/${name}.cc "")
  endif()
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/precompiled/${name}.cc)
  target_link_libraries(${name} PRIVATE gpuctl_flags gpuctl_proto)
  target_precompile_headers(${name} PRIVATE ${GPUCTL_COMMON_HEADERS} ${ARGN})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # ccache wants the header to have no time in it.
    target_compile_options(${name} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endfunction()

# gpuctl_use_precompiled(target name)
function(gpuctl_use_precompiled target name)
  if(GPUCTL_UNITY)
    target_precompile_headers(${target} REUSE_FROM ${name})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE -fpch-preprocess)  # for ccache
    endif()
  endif()
endfunction()

# gpuctl_by_room(target): compiles the target's files room by room, at most 12 at a time.
function(gpuctl_by_room target)
  if(NOT GPUCTL_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  set(rooms)
  foreach(source ${sources})
    get_filename_component(room ${source} DIRECTORY)
    string(MAKE_C_IDENTIFIER "room_${room}" room)
    if(NOT room IN_LIST rooms)
      list(APPEND rooms ${room})
      set(count 0)
    endif()
    math(EXPR part "${count} / 12")
    math(EXPR count "${count} + 1")
    set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${room}_${part})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
