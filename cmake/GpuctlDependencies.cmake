# Third-party libraries, each in two forms. Our own libraries are archives that link nothing; an
# executable chooses:
#   gpuctl_third_party: shared libraries, for tests and tools
#   gpuctl_static_third_party: archives, for delivered programs (agent, shim, and the client on Linux)
# On a Mac both are Homebrew's shared libraries. What is compiled for a Mac elsewhere
# (deploy/mac-client) has archives only.
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(nlohmann_json QUIET)
find_package(ZLIB REQUIRED)
find_program(PROTOC protoc REQUIRED)
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
pkg_check_modules(CARES REQUIRED IMPORTED_TARGET libcares)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(PROTOBUF REQUIRED IMPORTED_TARGET protobuf)
if(GPUCTL_BUILD_CLIENT)
  find_package(SQLite3 REQUIRED)
  pkg_check_modules(LIBSSH REQUIRED IMPORTED_TARGET libssh)
  if(GPUCTL_STATIC_CLIENT AND LIBSSH_VERSION VERSION_GREATER_EQUAL 0.12)
    # Its archive wants libfido2, which its module does not name.
    message(STATUS "libssh ${LIBSSH_VERSION}: gpuctl takes shared libraries")
    set(GPUCTL_STATIC_CLIENT OFF)
  endif()
  pkg_check_modules(YAML_CPP REQUIRED IMPORTED_TARGET yaml-cpp)
  # Only the headers: provisioning loads the library at the first request.
  pkg_check_modules(CURL REQUIRED IMPORTED_TARGET libcurl)
  # toml++ has only headers that matter.
  find_path(GPUCTL_TOMLPLUSPLUS_DIR toml++/toml.h REQUIRED)
  mark_as_advanced(GPUCTL_TOMLPLUSPLUS_DIR)
endif()
if(BUILD_TESTING)
  find_package(GTest REQUIRED)
  pkg_check_modules(CPP_HTTPLIB REQUIRED IMPORTED_TARGET cpp-httplib)
endif()

# gpuctl_pkg_config(NAME module…): does as pkg_check_modules(NAME REQUIRED IMPORTED_TARGET module…),
# which runs pkg-config sixteen times. For gRPC and Abseil, whose modules name two hundred others,
# each time takes seconds.
function(gpuctl_pkg_config name)
  message(STATUS "Checking for ${ARGN}")
  execute_process(COMMAND ${PKG_CONFIG_EXECUTABLE} --cflags --libs ${ARGN}
    OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  add_library(PkgConfig::${name} INTERFACE IMPORTED GLOBAL)
  set(includes)
  set(framework OFF)
  foreach(flag ${flags})
    if(framework)
      target_link_libraries(PkgConfig::${name} INTERFACE "-framework ${flag}")
      set(framework OFF)
    elseif(flag STREQUAL "-framework")
      set(framework ON)
    elseif(flag MATCHES "^-I(.+)")
      list(APPEND includes ${CMAKE_MATCH_1})
    elseif(flag MATCHES "^-L(.+)")
      target_link_directories(PkgConfig::${name} INTERFACE ${CMAKE_MATCH_1})
    elseif(flag MATCHES "^-D(.+)")
      target_compile_definitions(PkgConfig::${name} INTERFACE ${CMAKE_MATCH_1})
    elseif(flag MATCHES "^-l")
      target_link_libraries(PkgConfig::${name} INTERFACE ${flag})
    else()
      target_link_options(PkgConfig::${name} INTERFACE ${flag})
    endif()
  endforeach()
  target_include_directories(PkgConfig::${name} INTERFACE ${includes})
  set(${name}_INCLUDE_DIRS ${includes} PARENT_SCOPE)
endfunction()
gpuctl_pkg_config(GRPCPP grpc++_unsecure)
gpuctl_pkg_config(GPUCTL_ABSL absl_status absl_statusor absl_strings absl_str_format absl_time
  absl_flat_hash_map absl_flat_hash_set absl_span absl_cleanup)


# The header paths of all libraries, for our own ones (nothing on Linux, Homebrew's prefix on
# macOS).
add_library(gpuctl_headers INTERFACE)
foreach(dependency PROTOBUF GRPCPP GPUCTL_ABSL CARES ZSTD LIBSSH YAML_CPP UTF8PROC CURL)
  target_include_directories(gpuctl_headers SYSTEM INTERFACE ${${dependency}_INCLUDE_DIRS})
endforeach()
target_include_directories(gpuctl_headers SYSTEM INTERFACE ${OPENSSL_INCLUDE_DIR})
target_compile_definitions(gpuctl_headers INTERFACE SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY)
# Newer Protobuf declares other things with its definitions than without.
target_compile_options(gpuctl_headers INTERFACE ${PROTOBUF_CFLAGS_OTHER})

add_library(gpuctl_third_party INTERFACE)
target_link_libraries(gpuctl_third_party INTERFACE
  PkgConfig::GRPCPP PkgConfig::PROTOBUF PkgConfig::GPUCTL_ABSL PkgConfig::ZSTD PkgConfig::CARES
  PkgConfig::UTF8PROC OpenSSL::SSL OpenSSL::Crypto ZLIB::ZLIB Threads::Threads)
if(GPUCTL_SANITIZE)
  set(reports ${CMAKE_BINARY_DIR}/sanitizer-reports)
  file(MAKE_DIRECTORY ${reports})
  target_sources(gpuctl_third_party INTERFACE ${PROJECT_SOURCE_DIR}/tests/support/sanitizers.cc)
  target_compile_definitions(gpuctl_third_party INTERFACE GPUCTL_SANITIZER_REPORTS="${reports}")
endif()

# Libraries for the client only.
add_library(gpuctl_client_third_party INTERFACE)
if(GPUCTL_BUILD_CLIENT)
  target_link_libraries(gpuctl_client_third_party INTERFACE
    PkgConfig::LIBSSH SQLite::SQLite3 PkgConfig::YAML_CPP)
endif()

# gpuctl_archives(VARIABLE module…): sets VARIABLE to what a static link of these pkg-config modules
# takes: the archives that `pkg-config --static` names, and -lx where x has no archive (libc's own
# libraries).
function(gpuctl_archives variable)
  execute_process(COMMAND ${PKG_CONFIG_EXECUTABLE} --static --libs ${ARGN}
    OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  set(folders ${GPUCTL_ARCHIVE_DIR})
  set(names)
  foreach(flag ${flags})
    if(flag MATCHES "^-L(.+)")
      list(APPEND folders ${CMAKE_MATCH_1})
    elseif(flag MATCHES "^-l(.+)")
      list(APPEND names ${CMAKE_MATCH_1})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES folders)
  list(REMOVE_DUPLICATES names)
  list(REMOVE_ITEM names c m dl rt pthread atomic stdc++ gcc_s)  # the compiler's and libc's
  set(found)
  foreach(name ${names})
    set(archive)
    foreach(folder ${folders})
      if(NOT archive AND EXISTS ${folder}/lib${name}.a)
        set(archive ${folder}/lib${name}.a)
      endif()
    endforeach()
    if(NOT archive)
      set(archive -l${name})
    endif()
    list(APPEND found ${archive})
  endforeach()
  set(${variable} ${found} PARENT_SCOPE)
endfunction()

# The archives, in one group because they refer to each other in circles. The linker takes only the
# needed members. Under sanitizers the libraries are shared: a sanitized program is not static, and
# ThreadSanitizer recognises uninstrumented code by its library.
add_library(gpuctl_static_third_party INTERFACE)
add_library(gpuctl_static_client_third_party INTERFACE)
set(for_a_mac OFF)
if(CMAKE_SYSTEM_NAME STREQUAL "Darwin" AND CMAKE_CROSSCOMPILING)
  set(for_a_mac ON)
endif()
if(for_a_mac OR (CMAKE_SYSTEM_NAME STREQUAL "Linux" AND NOT GPUCTL_SANITIZE))
  pkg_get_variable(GPUCTL_ARCHIVE_DIR protobuf libdir)
  gpuctl_archives(GPUCTL_ARCHIVES grpc++_unsecure protobuf libcares libzstd libutf8proc openssl zlib
    absl_status absl_statusor absl_strings absl_str_format absl_time absl_flat_hash_map
    absl_flat_hash_set absl_span absl_cleanup)
  # gRPC's archive wants these, and its module does not name them in every version.
  file(GLOB unnamed ${GPUCTL_ARCHIVE_DIR}/libaddress_sorting.a ${GPUCTL_ARCHIVE_DIR}/libupb*.a
    ${GPUCTL_ARCHIVE_DIR}/libutf8_*.a ${GPUCTL_ARCHIVE_DIR}/libre2.a)
  list(APPEND GPUCTL_ARCHIVES ${unnamed})
  list(REMOVE_DUPLICATES GPUCTL_ARCHIVES)
  if(GPUCTL_BUILD_CLIENT)
    gpuctl_archives(GPUCTL_CLIENT_ARCHIVES sqlite3 yaml-cpp libssh libpcre2-8)
    target_link_libraries(gpuctl_static_client_third_party INTERFACE ${GPUCTL_CLIENT_ARCHIVES})
  endif()
  if(for_a_mac)
    # A Mac's linker searches all archives until nothing is missing. Abseil asks the framework for
    # the time zone.
    target_link_libraries(gpuctl_static_third_party INTERFACE
      ${GPUCTL_ARCHIVES} "-framework CoreFoundation")
    target_link_libraries(gpuctl_third_party INTERFACE gpuctl_static_third_party)
    target_link_libraries(gpuctl_client_third_party INTERFACE gpuctl_static_client_third_party)
  else()
    target_link_libraries(gpuctl_static_third_party INTERFACE
      -Wl,--start-group ${GPUCTL_ARCHIVES} -Wl,--end-group Threads::Threads dl)
    target_link_libraries(gpuctl_static_client_third_party INTERFACE -static-libstdc++ -static-libgcc)
    if(GPUCTL_CLIENT_ARCHIVES MATCHES "/libssh\\.a")
      # GSSAPI has no archives on Debian.
      target_sources(gpuctl_static_client_third_party INTERFACE
        ${PROJECT_SOURCE_DIR}/client/no_gssapi_linux.cc)
    endif()
  endif()
  # For the list of what a release has in it.
  string(REPLACE ";" "\n" archives "${GPUCTL_ARCHIVES};${GPUCTL_CLIENT_ARCHIVES}")
  file(WRITE ${CMAKE_BINARY_DIR}/archives.txt "${archives}\n")
else()
  target_link_libraries(gpuctl_static_third_party INTERFACE gpuctl_third_party)
  target_link_libraries(gpuctl_static_client_third_party INTERFACE gpuctl_client_third_party)
endif()
