#!/usr/bin/env bash
# Installs what gpuctl needs from the system's package manager: Debian and Ubuntu, or Homebrew.
#
#   deploy/packages.sh build [trainer] [test]     or: source it and call install_packages
#
#   build    compilers and libraries
#   page     what makes the page of gpuctl dashboard; without it gpuctl is built without that page
#   trainer  LibTorch
#   test     other programs that the tests run
#   node, node-cross   on Debian: what deploy/build_node.sh needs for this machine's processor, and
#            for the other one, whose architecture dpkg must know
#   client   on Debian, with node: what deploy/build_client.sh needs
#   package  on Debian: what checks packages
#   mac      on Debian, with build: what deploy/mac-client needs, besides npm
#   slurm    on Debian: the Slurm cluster of tests/slurm; call tests/slurm/install, so that no service
#            starts
# Installed packages stay as they are. When none is missing, nothing runs and no rights are needed.

# The libraries of the node's programs, each with :ARCHITECTURE behind it, or nothing.
node_libraries() {
  local name
  for name in libprotobuf libgrpc++ libgrpc libabsl libre2 libc-ares libssl libzstd libutf8proc \
    zlib1g; do
    echo "$name-dev$1"
  done
}

debian_packages() {
  case $1 in
    build)
      echo build-essential cmake ninja-build pkg-config ccache lld git ca-certificates python3 \
        protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libgrpc++-dev libgrpc-dev \
        libabsl-dev libre2-dev libc-ares-dev zlib1g-dev libssl-dev libssh-dev libspdlog-dev \
        libfmt-dev nlohmann-json3-dev libyaml-cpp-dev libtomlplusplus-dev libcli11-dev libsqlite3-dev libzstd-dev \
        libcurl4-openssl-dev libcpp-httplib-dev libutf8proc-dev libpcre2-dev libgtest-dev libgmock-dev \
        openssh-client openssh-server
      ;;
    page) echo nodejs npm ;;
    trainer) echo libtorch-dev ;;
    node)
      echo g++ cmake ninja-build pkg-config ccache lld ca-certificates zstd protobuf-compiler \
        protobuf-compiler-grpc nlohmann-json3-dev libspdlog-dev libfmt-dev
      node_libraries ""
      ;;
    node-cross)
      if [ "$(dpkg --print-architecture)" = amd64 ]; then
        echo g++-aarch64-linux-gnu
        node_libraries :arm64
      else
        echo g++-x86-64-linux-gnu
        node_libraries :amd64
      fi
      ;;
    # For gpuctl itself, without its tests.
    client)
      echo libssh-dev libyaml-cpp-dev libtomlplusplus-dev libcli11-dev libsqlite3-dev libcurl4-openssl-dev libpcre2-dev git \
        python3 dpkg-dev file
      ;;
    mac) echo dpkg-dev make perl tcl lld-16 llvm ;;
    slurm)
      echo python3 slurmctld slurmd slurm-client slurmdbd munge mariadb-server openssh-client openssh-server \
        iproute2 util-linux
      ;;
    package)
      echo debootstrap lintian mandoc ruby zsh fish zstd openssh-client openssh-server qemu-user
      ;;
    test)
      echo python3 python3-torch python3-numpy python3-jsonschema jq python3-yaml python3-jinja2 zsh fish \
        openssh-client openssh-server tmux librsvg2-bin libnss-wrapper strace rsync git curl zstd debootstrap clang-format-14 clang \
        libclang-rt-dev llvm cron chromium nodejs npm mesa-vulkan-drivers jupyter-server python3-ipykernel
      ;;
    *) return 1 ;;
  esac
}

# The OpenSSL that Homebrew's libssh is linked with. gpuctl takes the same, because one process must
# not have two.
homebrew_openssl() {
  local name
  name=$(brew deps libssh 2>/dev/null | grep -m 1 -E '^openssl(@[0-9.]+)?$') || name=openssl@4
  echo "$name"
}

homebrew_packages() {
  case $1 in
    build)
      echo cmake ninja pkgconf ccache protobuf grpc abseil re2 c-ares "$(homebrew_openssl)" libssh \
        spdlog fmt nlohmann-json yaml-cpp tomlplusplus cli11 sqlite zstd curl cpp-httplib utf8proc pcre2 \
        googletest
      ;;
    page) echo node ;;
    trainer) echo pytorch ;;
    test) echo python3 rsync jq ;;
    *) return 1 ;;
  esac
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "packages: not root and no sudo; as root, run: $*" >&2
    return 1
  fi
}

is_installed_debian() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

install_debian() {
  local missing=() package
  for package in "$@"; do
    # Node's own packages have npm in them, and Debian's cannot be beside them.
    case $package in nodejs | npm) command -v node >/dev/null && command -v npm >/dev/null && continue ;; esac
    is_installed_debian "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  echo "packages: installing ${missing[*]}"
  as_root apt-get update -q || return 1
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
    "${missing[@]}"
}

# unpack_debian DIR PACKAGE…: puts what is in the packages into DIR. Nothing is installed.
unpack_debian() {
  local dir=$1 package
  shift
  rm -rf "$dir" "$dir.new"
  mkdir -p "$dir.new"
  (
    cd "$dir.new" &&
      # The lists may be old, or missing as in most containers.
      { apt-get -q download "$@" || { as_root apt-get update -q && apt-get -q download "$@"; }; } &&
      for package in *.deb; do dpkg-deb -x "$package" . || exit; done && rm ./*.deb
  ) > "$dir.log" 2>&1 || { tail -n 20 "$dir.log" >&2; return 1; }
  mv "$dir.new" "$dir"
}

install_homebrew() {
  local missing=() package have
  have=$(brew list --formula -1) || return 1
  for package in "$@"; do
    # python3 is an alias; its formula has a version in its name.
    [ "$package" = python3 ] && command -v python3 >/dev/null && continue
    grep -qx -- "$package" <<<"$have" || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  echo "packages: installing ${missing[*]}"
  HOMEBREW_NO_AUTO_UPDATE=1 HOMEBREW_NO_INSTALL_UPGRADE=1 brew install "${missing[@]}"
}

# Sets and exports the paths of keg-only libraries on a Mac, for the following build.
export_homebrew_paths() {
  local prefix openssl
  prefix=$(brew --prefix)
  openssl=$prefix/opt/$(homebrew_openssl)
  OPENSSL_ROOT_DIR=$openssl
  export OPENSSL_ROOT_DIR
  export PKG_CONFIG_PATH=$openssl/lib/pkgconfig:$prefix/opt/sqlite/lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
  export CMAKE_PREFIX_PATH=$prefix:$prefix/opt/sqlite${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}
}

# install_packages SET…
install_packages() {
  local list=() set names package
  for set in "$@"; do
    if command -v apt-get >/dev/null; then
      names=$(debian_packages "$set")
    elif command -v brew >/dev/null; then
      names=$(homebrew_packages "$set")
    else
      echo "packages: neither apt-get nor brew is here; see deploy/packages.sh for what to install" >&2
      return 1
    fi || { echo "packages: unknown set $set" >&2; return 2; }
    for package in $names; do list+=("$package"); done
  done
  if command -v apt-get >/dev/null; then
    install_debian "${list[@]}"
  else
    install_homebrew "${list[@]}" && export_homebrew_paths
  fi
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  set -euo pipefail
  if [ $# -eq 0 ]; then
    echo "usage: deploy/packages.sh build|page|trainer|test|node|node-cross|client|package|mac|slurm …" >&2
    exit 2
  fi
  install_packages "$@"
fi
