#!/bin/sh
# Writes the man pages and shell completions of packages. gpuctl makes them itself; every build of a
# version makes the same ones, so that one that runs here also makes those of another system.
#
#   pages.sh GPUCTL OUT
#
# OUT gets man1/gpuctl.1, man1/gpuctl-VERB.1, bash/gpuctl, zsh/_gpuctl, fish/gpuctl.fish.
set -eu
if [ $# -ne 2 ]; then
  echo "usage: pages.sh GPUCTL OUT" >&2
  exit 2
fi
gpuctl=$1
out=$2
mkdir -p "$out/bash" "$out/zsh" "$out/fish"
said=$("$gpuctl" debug man-pages "$out/man1" 2>&1) || {
  echo "$said" >&2
  exit 1
}
"$gpuctl" completion bash > "$out/bash/gpuctl"
"$gpuctl" completion zsh > "$out/zsh/_gpuctl"
"$gpuctl" completion fish > "$out/fish/gpuctl.fish"
