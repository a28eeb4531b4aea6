#!/usr/bin/env bash
# Builds gpuctl for this Linux machine's processor, with the programs for nodes that were made before,
# and packs it as .deb and as a tarball. deploy/release calls it in its root directory.
#
#   deploy/build_client.sh --node DIR --out DIR --build DIR [--jobs N] [--maintainer TEXT]
#                           [--url URL]
#
#   --node       what deploy/node-programs left in DIR/node
#   --out        gets gpuctl_VERSION_ARCH.deb, gpuctl-VERSION-linux-PROCESSOR.tar.gz and
#                gpuctl-VERSION.spdx.json
#   --url        where the archives of those programs will lie, for gpuctl node fetch
# The packages: deploy/packages.sh node client. The page of gpuctl dashboard must be in
# client/dashboard/page/dist (deploy/dashboard-page), else it is built: deploy/packages.sh page. SOURCE_DATE_EPOCH as in build_node.sh.
set -euo pipefail
source_dir=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=deploy/version.sh
source "$source_dir/deploy/version.sh"

out=
build=
node=
jobs=$(nproc)
maintainer=()
url=
while [ $# -gt 0 ]; do
  case $1 in
    --node) node=$(cd "${2:?--node needs a directory}" && pwd); shift 2 ;;
    --out) out=${2:?--out needs a directory}; shift 2 ;;
    --build) build=${2:?--build needs a directory}; shift 2 ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift 2 ;;
    --url) url=${2:?--url needs a URL}; shift 2 ;;
    --maintainer) maintainer=("-DGPUCTL_PACKAGE_MAINTAINER=${2:?--maintainer needs a text}"); shift 2 ;;
    *) echo "build_client: unknown argument $1; see the file's beginning" >&2; exit 2 ;;
  esac
done
[ -n "$out" ] && [ -n "$build" ] && [ -n "$node" ] || { sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2; }
version=$(gpuctl_version "$source_dir")
SOURCE_DATE_EPOCH=$(gpuctl_commit_time "$source_dir")
export SOURCE_DATE_EPOCH
umask 022
mkdir -p "$out" "$build"
out=$(cd "$out" && pwd)
build=$(cd "$build" && pwd)

# The agent and the shim of this machine are those for nodes.
map="-ffile-prefix-map=$build=build -ffile-prefix-map=$source_dir=."
cmake -G Ninja -S "$source_dir" -B "$build" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" -DCMAKE_C_FLAGS="$map" -DCMAKE_CXX_FLAGS="$map" \
  -DCMAKE_INSTALL_PREFIX=/usr -DBUILD_TESTING=OFF -DGPUCTL_BUILD_NODE=OFF \
  -DGPUCTL_BUILD_TRAINER=OFF -DGPUCTL_BUILD_BENCH=OFF \
  -DGPUCTL_NODE_PROGRAMS="$node" -DGPUCTL_NODE_MANIFEST="$node/manifest.json" \
  -DGPUCTL_NODE_URL="$url" -DGPUCTL_PAGE=ON \
  ${maintainer[@]+"${maintainer[@]}"}
cmake --build "$build" -j "$jobs"

(cd "$build" && rm -f ./*.deb && cpack -G DEB)
mv "$build"/*.deb "$out/"

# The tarball works from wherever it is unpacked.
name=gpuctl-$version-linux-$(uname -m)
staging=$build/staging
rm -rf "$staging"
cmake --install "$build" --prefix "$staging/$name" --strip
mv "$staging/$name/share/doc/gpuctl/LICENSE" "$staging/$name/share/doc/gpuctl/README.md" \
  "$staging/$name/"
gpuctl_pack "$staging" "$out/$name.tar.gz"

python3 "$source_dir/deploy/sbom.py" "$build/archives.txt" "$version" "$SOURCE_DATE_EPOCH" \
  > "$out/gpuctl-$version.spdx.json"
