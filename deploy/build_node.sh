#!/usr/bin/env bash
# Builds the programs of a node on this Linux machine and packs them. deploy/node-programs calls it
# where it builds: in a root directory, in a container, on another machine.
#
#   deploy/build_node.sh --out DIR [--build DIR] [--jobs N] PLATFORM…
#
#   PLATFORM   linux-x86_64 or linux-aarch64; the one that is not this machine's is cross built
#   --out      gets gpuctl-node-VERSION-PLATFORM.tar.zst
#   --build    the build trees (default: a temporary folder)
#
# The packages: deploy/packages.sh node [node-cross]. The same sources, packages and commit give the
# same archives, byte for byte: nothing in them depends on paths, users or the time of the build.
# SOURCE_DATE_EPOCH is the time of the files in them (default: the commit's).
set -euo pipefail
source_dir=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=deploy/version.sh
source "$source_dir/deploy/version.sh"

out=
build=
jobs=$(nproc)
platforms=()
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=${2:?--out needs a directory}; shift 2 ;;
    --build) build=${2:?--build needs a directory}; shift 2 ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift 2 ;;
    linux-x86_64 | linux-aarch64) platforms+=("$1"); shift ;;
    *) echo "build_node: unknown argument $1; see the file's beginning" >&2; exit 2 ;;
  esac
done
[ -n "$out" ] && [ ${#platforms[@]} -gt 0 ] || { sed -n '2,14s/^# \{0,1\}//p' "$0" >&2; exit 2; }
version=$(gpuctl_version "$source_dir")
SOURCE_DATE_EPOCH=$(gpuctl_commit_time "$source_dir")
export SOURCE_DATE_EPOCH
if [ -z "$build" ]; then
  build=$(mktemp -d)
  trap 'rm -rf "$build"' EXIT
fi
mkdir -p "$out" "$build"
out=$(cd "$out" && pwd)
build=$(cd "$build" && pwd)

for platform in "${platforms[@]}"; do
  tree=$build/$platform
  toolchain=()
  [ "$platform" = "linux-$(uname -m)" ] ||
    toolchain=(--toolchain "$source_dir/cmake/$platform.cmake")
  # The paths of this build, which are no part of what it makes.
  map="-ffile-prefix-map=$tree=build -ffile-prefix-map=$source_dir=."
  cmake -G Ninja -S "$source_dir" -B "$tree" ${toolchain[@]+"${toolchain[@]}"} \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" \
    -DCMAKE_C_FLAGS="$map" -DCMAKE_CXX_FLAGS="$map" \
    -DGPUCTL_BUILD_CLIENT=OFF -DGPUCTL_BUILD_TRAINER=OFF -DGPUCTL_BUILD_BENCH=OFF
  cmake --build "$tree" -j "$jobs" --target gpuctl-agent gpuctl-shim gpuctl-cuda-check

  # What a client has below libexec/gpuctl/node.
  packed=$tree/packed
  rm -rf "$packed"
  mkdir -p "$packed/$platform"
  cp "$tree"/bin/gpuctl-{agent,shim,cuda-check} "$packed/$platform/"
  cp "$tree/bin/roots.pem" "$packed/"
  gpuctl_pack "$packed" "$out/gpuctl-node-$version-$platform.tar.zst"
done
