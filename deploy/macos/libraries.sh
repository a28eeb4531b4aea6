# Sourced by deploy/mac-client: the libraries of a Mac's programs, built from Debian's source packages
# as archives. Their versions are those of Debian's own libraries, because protoc and the plugin of
# gRPC are this machine's.
#
# The caller sets: source_dir, cache, target (aarch64-macos or x86_64-macos), processor (arm64 or
# x86_64), zig, jobs, older, refresh. Set here: prefix, toolchain.

# --- Sources -------------------------------------------------------------------------------------

library_sources="abseil c-ares grpc libssh libzstd openssl pcre2 protobuf sqlite3 utf8proc yaml-cpp zlib"

# An apt of our own: it has this machine's archives and proxy, and lists of source packages.
mac_apt() {
  local program=$1
  shift
  "$program" -q -o Dir::Etc::SourceList="$cache/apt/sources.list" -o Dir::Etc::SourceParts=- \
    -o Dir::State::Lists="$cache/apt/lists" -o Dir::Cache="$cache/apt" \
    -o APT::Sandbox::User="$(id -un)" "$@"
}

# The security archive is last: of a version that two archives have, apt takes the first one's.
list_source_archives() {
  local keyring=/usr/share/keyrings/debian-archive-keyring.gpg all
  all=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk -v by="[signed-by=$keyring]" '$2 ~ /^bookworm/ && $3 == "main" { print "deb-src", by, $0 }' |
    sort -u)
  [ -n "$all" ] || { echo "mac-client: this machine has no archives of Debian 12" >&2; return 1; }
  mkdir -p "$cache/apt/lists/partial"
  { grep -v -e -security <<<"$all"; grep -e -security <<<"$all"; } > "$cache/apt/sources.list"
  mac_apt apt-get update > "$cache/apt/log" 2>&1 || { tail "$cache/apt/log" >&2; return 1; }
}

# fetch_source NAME: sets `dsc` to the newest version's file, which apt has checked against the
# archive's signature.
fetch_source() {
  local name=$1 version newest=
  for version in $(mac_apt apt-cache showsrc --only-source "$name" | sed -n 's/^Version: //p' |
    sort -rVu); do
    if (cd "$cache/sources" &&
      mac_apt apt-get --download-only source "$name=$version") >> "$cache/apt/log" 2>&1; then
      dsc=$cache/sources/${name}_${version#*:}.dsc
      [ -z "$newest" ] || echo "mac-client: $name $version instead of $newest, which is not there" >&2
      return 0
    fi
    newest=${newest:-$version}
    [ -n "$older" ] || break
  done
  tail "$cache/apt/log" >&2
  echo "mac-client: $name $newest cannot be fetched; --older takes an older one" >&2
  return 1
}

# Fetches the sources, once; again with --refresh, or for another list of libraries.
fetch_sources() {
  local name
  [ "$(cut -d ' ' -f 1 "$cache/sources/complete" 2>/dev/null | xargs)" = "$library_sources" ] &&
    [ -z "$refresh" ] && return
  mkdir -p "$cache/sources"
  list_source_archives
  for name in $library_sources; do
    fetch_source "$name"
    echo "$name $(basename "$dsc")"
  done > "$cache/sources/list"
  mv "$cache/sources/list" "$cache/sources/complete"
}

# source_of NAME: prints the path of its .dsc.
source_of() { echo "$cache/sources/$(sed -n "s/^$1 //p" "$cache/sources/complete")"; }

# --- Compiler ------------------------------------------------------------------------------------

write_toolchain() {
  local bin=$cache/$target/bin runtime=$cache/$target/runtime name
  prefix=$cache/$target/prefix
  toolchain=$cache/$target/toolchain.cmake
  mkdir -p "$bin" "$prefix"
  make_runtime "$runtime"
  for name in c c++; do
    printf '#!/bin/sh\nexec "%s" "%s" "%s" %s %s "$@"\n' "$source_dir/deploy/macos/compiler" \
      "$runtime" "$zig" "$processor" "$name" > "$bin/$name"
  done
  for name in ar ranlib; do
    printf '#!/bin/sh\nexec "%s/zig" %s "$@"\n' "$zig" "$name" > "$bin/$name"
  done
  chmod +x "$bin"/*
  cat > "$toolchain" <<END
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_VERSION 22)  # of macOS 13
set(CMAKE_SYSTEM_PROCESSOR $processor)
set(CMAKE_C_COMPILER $bin/c)
set(CMAKE_CXX_COMPILER $bin/c++)
set(CMAKE_ASM_COMPILER $bin/c)
set(CMAKE_AR $bin/ar CACHE FILEPATH "")
set(CMAKE_RANLIB $bin/ranlib CACHE FILEPATH "")
set(CMAKE_INSTALL_NAME_TOOL /bin/false CACHE FILEPATH "")  # no library is shared
set(CMAKE_OSX_SYSROOT "" CACHE STRING "")
set(CMAKE_OSX_DEPLOYMENT_TARGET "" CACHE STRING "")
set(CMAKE_FIND_ROOT_PATH $prefix)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_FIND_FRAMEWORK NEVER)
set(ENV{PKG_CONFIG_LIBDIR} $prefix/lib/pkgconfig)
set(ENV{PKG_CONFIG_PATH} "")
END
  # ccache knows the compiler by what it is made of, not by the time of these files.
  export CCACHE_COMPILERTYPE=clang
  CCACHE_COMPILERCHECK="string:$("$zig/zig" version) $(cat "$source_dir/deploy/macos/compiler" |
    sha256sum)"
  export CCACHE_COMPILERCHECK
}

# make_runtime FOLDER: has Zig build libc++ from the sources that it brings, which it does for the
# first C++ program that it links, and copies that and Apple's stub.
make_runtime() {
  local folder=$1 name path
  [ "$(cat "$folder/made" 2>/dev/null)" != "$("$zig/zig" version)" ] || return 0
  rm -rf "$folder"
  mkdir -p "$folder"
  echo 'int main() { return 0; }' > "$folder/empty.cc"
  ZIG_GLOBAL_CACHE_DIR=$cache/zig ZIG_LOCAL_CACHE_DIR=$cache/zig "$zig/zig" c++ -v \
    -target "${target%-macos}-macos.13.0" "$folder/empty.cc" -o "$folder/empty" > "$folder/log" 2>&1
  for name in libc++.a libc++abi.a; do
    path=$(grep -o "[^ ]*/$name" "$folder/log" | tail -n 1)
    cp "$path" "$folder/"
  done
  cp "$zig/lib/libc/darwin/libSystem.tbd" "$folder/"
  "$zig/zig" version > "$folder/made"
}

# --- Recipes -------------------------------------------------------------------------------------
# build_NAME runs in an empty folder; $src has the sources. It puts the library into $prefix.

optimize=-O2
map() { echo "-g0 -ffile-prefix-map=$src=${src##*/} -ffile-prefix-map=$PWD=build -ffile-prefix-map=$prefix=prefix"; }

# with_cmake SOURCE [ARGUMENT…] [-- TARGET…]: builds and installs what is installed by default.
with_cmake() {
  local from=$1 arguments=()
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do arguments+=("$1"); shift; done
  cmake -G Ninja -S "$from" -B . --toolchain "$toolchain" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED_LIBS=OFF \
    -DBUILD_TESTING=OFF -DCMAKE_C_FLAGS="$(map) ${defines:-}" -DCMAKE_CXX_FLAGS="$(map) ${defines:-}" \
    -DCMAKE_C_FLAGS_RELEASE="$optimize -DNDEBUG" -DCMAKE_CXX_FLAGS_RELEASE="$optimize -DNDEBUG" \
    "${launcher[@]}" "${arguments[@]}"
  if [ $# -gt 0 ]; then
    shift
    cmake --build . -j "$jobs" --target "$@"
  else
    cmake --build . -j "$jobs"
    cmake --install .
  fi
}

# Debian's sources lack a file that zlib's CMakeLists.txt wants. Its configure would take Apple's
# libtool.
build_zlib() {
  cp -R "$src/." .
  CC="${cached[*]} $cache/$target/bin/c" CHOST=$processor-apple-darwin \
    CFLAGS="$optimize $(map) -DHAVE_HIDDEN" ./configure --static --prefix="$prefix"
  make -s -j "$jobs" AR="$cache/$target/bin/ar" ARFLAGS=rcs RANLIB="$cache/$target/bin/ranlib" libz.a
  make -s RANLIB="$cache/$target/bin/ranlib" install
}

build_libzstd() {
  with_cmake "$src/build/cmake" -DZSTD_BUILD_PROGRAMS=OFF -DZSTD_BUILD_SHARED=OFF \
    -DZSTD_LEGACY_SUPPORT=OFF
}

build_utf8proc() { with_cmake "$src"; }

# Without its compiler of patterns, which makes memory executable, in a way that differs between
# versions of macOS.
build_pcre2() {
  with_cmake "$src" -DPCRE2_BUILD_PCRE2GREP=OFF -DPCRE2_BUILD_TESTS=OFF -DPCRE2_STATIC_PIC=ON \
    -DPCRE2_SUPPORT_UNICODE=ON -DPCRE2_SUPPORT_JIT=OFF -DPCRE2_SUPPORT_LIBZ=OFF \
    -DPCRE2_SUPPORT_LIBBZ2=OFF -DPCRE2_SUPPORT_LIBREADLINE=OFF
}

build_openssl() {
  "$src/Configure" "darwin64-$processor-cc" no-shared no-tests no-module no-ssl3 \
    --prefix=/usr --libdir=lib --openssldir=/etc/ssl \
    CC="${cached[*]} $cache/$target/bin/c" AR="$cache/$target/bin/ar" RANLIB="$cache/$target/bin/ranlib" \
    CFLAGS="$optimize $(map)"
  make -s -j "$jobs" build_generated
  # What `openssl version` says of its build, without the paths of this machine.
  perl "$src/util/mkbuildinf.pl" "clang $optimize" "darwin64-$processor-cc" > crypto/buildinf.h
  make -s -j "$jobs" libcrypto.a libssl.a
  make -s DESTDIR="$PWD/staged" install_dev
  sed -i "s|^prefix=.*|prefix=$prefix|" staged/usr/lib/pkgconfig/*.pc
  cp -R staged/usr/include staged/usr/lib "$prefix/"
}

# Its modules repeat the flags of its own compilation, over which pkg-config takes minutes, and name a
# library and flags of Linux.
build_abseil() {
  with_cmake "$src" -DCMAKE_CXX_STANDARD=17 -DABSL_PROPAGATE_CXX_STD=ON
  sed -i -e '/^Cflags:/s/ -[WX].*//' -e 's/ -Wl,--push-state,--as-needed//g' -e 's/ -latomic//g' \
    -e 's/ -Wl,--pop-state//g' "$prefix"/lib/pkgconfig/absl_*.pc
  sed -i -e 's/;\?-Wl,--push-state,--as-needed;[^;]*-latomic[^;]*;-Wl,--pop-state//g' \
    "$prefix"/lib/cmake/absl/abslTargets.cmake
}

build_protobuf() {
  with_cmake "$src" -Dprotobuf_BUILD_TESTS=OFF -Dprotobuf_BUILD_PROTOC_BINARIES=OFF \
    -Dprotobuf_WITH_ZLIB=ON -DCMAKE_CXX_STANDARD=17
}

# Without Apple's libresolv, whose headers are not here, it reads /etc/resolv.conf, which macOS keeps.
# One number of those headers it does not bring itself.
build_c_ares() {
  defines=-DINADDRSZ=4 with_cmake "$src" -DCARES_STATIC=ON -DCARES_SHARED=OFF -DCARES_BUILD_TOOLS=OFF -DCARES_INSTALL=ON
}

build_yaml_cpp() {
  with_cmake "$src" -DYAML_CPP_BUILD_TESTS=OFF -DYAML_CPP_BUILD_TOOLS=OFF -DYAML_CPP_BUILD_CONTRIB=OFF
}

build_libssh() {
  with_cmake "$src" -DWITH_EXAMPLES=OFF -DWITH_GSSAPI=OFF -DWITH_NACL=OFF \
    -DWITH_STACK_PROTECTOR=OFF -DUNIT_TESTING=OFF
}

# One file, made by this machine's Tcl; of the shell and of extensions nothing is used.
build_sqlite3() {
  "$src/configure" --disable-tcl --disable-readline > configure.log
  make -s sqlite3.c > make.log
  "${cached[@]}" "$cache/$target/bin/c" $optimize $(map) -DSQLITE_THREADSAFE=1 -DSQLITE_USE_URI=1 \
    -DSQLITE_SECURE_DELETE -DSQLITE_OMIT_LOAD_EXTENSION -c sqlite3.c -o sqlite3.o
  rm -f "$prefix/lib/libsqlite3.a"
  "$cache/$target/bin/ar" rcs "$prefix/lib/libsqlite3.a" sqlite3.o
  cp sqlite3.h "$prefix/include/"
  cat > "$prefix/lib/pkgconfig/sqlite3.pc" <<END
prefix=$prefix
Name: sqlite3
Description: SQL database
Version: $(cat "$src/VERSION")
Libs: -L\${prefix}/lib -lsqlite3
Cflags: -I\${prefix}/include
END
}

# Only what clients and servers without TLS need: half of gRPC. That half uses neither RE2 nor
# OpenSSL. Our channels are made of open connections, so it has no names to ask c-ares for.
build_grpc() {
  defines=-DGRPC_ARES=0 with_cmake "$src" -DgRPC_ABSL_PROVIDER=package -DgRPC_CARES_PROVIDER=none \
    -DgRPC_PROTOBUF_PROVIDER=package -DgRPC_RE2_PROVIDER=none -DgRPC_SSL_PROVIDER=none \
    -DgRPC_ZLIB_PROVIDER=package -DgRPC_BUILD_CODEGEN=OFF -DgRPC_BUILD_TESTS=OFF \
    -DgRPC_INSTALL=ON -DgRPC_BACKWARDS_COMPATIBILITY_MODE=OFF -DCMAKE_CXX_STANDARD=17 \
    -DgRPC_BUILD_CSHARP_EXT=OFF -DProtobuf_PROTOC_LIBRARY=not-used -- grpc++_unsecure
  local name
  for name in grpc++_unsecure grpc_unsecure gpr upb address_sorting; do
    cp "lib$name.a" "$prefix/lib/"
  done
  cp -R "$src/include/grpc" "$src/include/grpcpp" "$prefix/include/"
  for name in grpc++_unsecure grpc_unsecure gpr; do
    cp "libs/opt/pkgconfig/$name.pc" "$prefix/lib/pkgconfig/"
  done
}

# Libraries of which only headers are used, from this machine's packages.
build_headers() {
  local name
  for name in nlohmann CLI spdlog fmt toml++ httplib.h; do cp -RL "/usr/include/$name" "$prefix/include/"; done
  cp -RL /usr/include/*-linux-gnu/curl "$prefix/include/"
  mkdir -p "$prefix/share/cmake"
  cp -R /usr/share/cmake/nlohmann_json "$prefix/share/cmake/"
  for name in libcurl cpp-httplib; do
    printf 'Name: %s\nDescription: headers\nVersion: %s\nLibs:\nCflags:\n' "$name" \
      "$(env -u PKG_CONFIG_LIBDIR pkg-config --modversion "$name")" > "$prefix/lib/pkgconfig/$name.pc"
  done
}

build_googletest() {
  with_cmake /usr/src/googletest -DCMAKE_CXX_STANDARD=17 -DINSTALL_GTEST=ON
}

# build_library NAME [NEEDED…]: builds it, unless it was built so from the same source and libraries.
declare -A library_state
build_library() {
  local name=$1 function=build_${1//-/_} wanted started=$SECONDS needed
  shift
  wanted=$({
    declare -f "$function" with_cmake map
    echo "$optimize $CCACHE_COMPILERCHECK $prefix"
    case $name in
      headers | googletest) dpkg-query -W nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev libtomlplusplus-dev \
        libcpp-httplib-dev libcurl4-openssl-dev libgtest-dev googletest ;;
      *) source_of "$name" ;;
    esac
    for needed in "$@"; do echo "${library_state[$needed]}"; done
  } | sha256sum)
  library_state[$name]=$wanted
  [ "$(cat "$cache/$target/built/$name" 2>/dev/null)" = "$wanted" ] && return
  local work=$cache/$target/work/$name src=$cache/src/$name log=$cache/$target/log/$name
  mkdir -p "$cache/$target/built" "$cache/$target/log" "$cache/src" "$prefix/lib/pkgconfig" \
    "$prefix/include"
  rm -rf "$work" "$src"
  mkdir -p "$work"
  case $name in
    headers | googletest) ;;
    *)
      dpkg-source --no-check -q -x "$(source_of "$name")" "$src" > "$log" 2>&1 ||
        { cat "$log" >&2; return 1; }
      ;;
  esac
  # Not in a condition, in which the shell would go on after errors.
  (
    set -e
    if [ -d "$src" ]; then
      SOURCE_DATE_EPOCH=$(cd "$src" && dpkg-parsechangelog -S Timestamp)
      export SOURCE_DATE_EPOCH
    fi
    cd "$work"
    "$function"
  ) >> "$log" 2>&1 &
  if ! wait $!; then
    tail -n 40 "$log" >&2
    echo "mac-client: $name failed; $log" >&2
    return 1
  fi
  rm -rf "$work" "$src"
  echo "$wanted" > "$cache/$target/built/$name"
  echo "  $name: $((SECONDS - started)) s"
}

build_libraries() {
  local cached=() launcher=()
  if command -v ccache >/dev/null; then
    cached=(ccache)
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  build_library headers
  build_library zlib
  build_library libzstd
  build_library utf8proc
  build_library pcre2
  build_library abseil
  build_library c-ares
  build_library protobuf zlib
  build_library openssl
  build_library grpc abseil protobuf zlib
  build_library sqlite3
  build_library yaml-cpp
  build_library libssh openssl zlib
  build_library googletest
}
