#!/bin/sh
# Builds gpuctl-trainer on the machine where it trains, against the torch that is there: LibTorch's
# C++ interface changes with each version, so no program fits all. Needs g++; no CMake, no nvcc and
# no network.
#
#   build.sh ARGUMENT...   builds the trainer, unless it was built before, and runs it with these
#   build.sh --build       builds the same, and prints the program's path
#   build.sh --compiler    builds nothing; prints the compiler with its flags, and a line of libraries:
#                          for tests, which compile more sources in the same way
#   build.sh --check       builds nothing; prints one line, fields with tabs between them:
#                          gpuctl-trainer-check yes cuda|cpu WHAT
#                          gpuctl-trainer-check no torch|compiler WHY WAY-OUT
#                          This also works as "sh -s -- --check" without the sources.
#
# Exit code 69: the trainer cannot be built here, and stderr says why and what to do.
#
#   GPUCTL_TORCH              a Python with torch, or a LibTorch folder; else the first torch with
#                             CUDA of those that are found, else the first one
#   CXX                       the compiler; else g++, else the newest g++-N
#   GPUCTL_TRAINER_CXXFLAGS   more flags for it
#   GPUCTL_TRAINER_CACHE      where the program is kept; else .gpuctl/trainer on $GPUCTL_VOLUME, else
#                             trainer/ in the root of the node
#   GPUCTL_TRAINER_OBJECTS    a folder for the compiled files of a build, ROOM-FILE.o: for tests
set -eu
LC_ALL=C
export LC_ALL

say() { echo "gpuctl-trainer: $*" >&2; }
no() { # KIND WHY WAY-OUT
  if [ "$mode" = --check ]; then
    printf 'gpuctl-trainer-check\tno\t%s\t%s\t%s\n' "$1" "$2" "$3"
  else
    say "cannot be built here: $2"
    say "HINT: $3; or use the trainer that gpuctl brings: trainer.build: kit (--trainer build=kit)"
  fi
  exit 69
}

# The loops that profit from vectors: full optimisation in every build. A comparison, or a square root,
# that may raise an exception or set errno is not made in vectors (without AVX-512). CMakeLists.txt
# reads both lines: other flags are other roundings.
vector_sources="cpu/kernels.cc cpu/sgemm.cc optimizer/adamw.cc optimizer/block_code.cc"
vector_flags="-O3 -fopenmp-simd -ffp-contract=fast -fno-trapping-math -fno-math-errno"

# One source of the list that xargs passes on.
if [ "${1:-}" = --compile ]; then
  number=$2
  source=$3
  say "building the trainer for $TRAINER_TORCH, $number of $TRAINER_COUNT: $source"
  more=
  case " $vector_sources " in *" $source "*) more=$vector_flags ;; esac
  case $source in
    ranks/gloo.cc | ranks/store.cc) more=$TRAINER_GLOO ;;
  esac
  # shellcheck disable=SC2086  # flags are words
  $TRAINER_COMPILE $more $TRAINER_MORE -c "trainer/$source" \
    -o "$TRAINER_OBJECTS/$(echo "${source%.cc}" | tr / -).o" ||
    exit 255 # xargs starts no more
  exit 0
fi

mode=run
case ${1:-} in --check | --build | --compiler) mode=$1 ;; esac
[ $# -gt 0 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 64; }

# A job has the PATH of the image. An ssh session often has another.
image_path=$(tr '\0' '\n' 2>/dev/null < "${GPUCTL_PID1_ENVIRON:-/proc/1/environ}" |
  sed -n 's/^PATH=//p') || true
[ "$mode" != --check ] || [ -z "$image_path" ] || PATH=$PATH:$image_path

# --- torch

# Prints the folder of a Python's torch, without the seconds that an import takes.
torch_of_python() {
  "$1" -c 'import importlib.util as u, os
s = u.find_spec("torch")
print(os.path.dirname(s.origin) if s and s.origin else "")' 2>/dev/null
}

without_headers=
chosen=
# Takes the LibTorch folder $1, which has include/ and lib/. A torch with CUDA wins.
consider() {
  [ -n "$1" ] || return 0
  if [ ! -f "$1/include/torch/csrc/api/include/torch/version.h" ]; then
    [ ! -f "$1/version.py" ] || without_headers=$1
    return 0
  fi
  for libraries in "$1/lib" "$1/lib/$(uname -m)-linux-gnu"; do
    [ -f "$libraries/libtorch_cpu.so" ] || continue
    cuda=
    [ ! -f "$libraries/libtorch_cuda.so" ] || cuda=cuda
    [ ! -f "$libraries/libtorch_hip.so" ] || cuda=hip
    [ -z "$chosen" ] || { [ -z "$chosen_cuda" ] && [ -n "$cuda" ]; } || return 0
    chosen=$1
    chosen_libraries=$libraries
    chosen_cuda=$cuda
    return 0
  done
}

find_torch() {
  if [ -n "${GPUCTL_TORCH:-}" ]; then
    if [ -d "$GPUCTL_TORCH" ]; then
      consider "$GPUCTL_TORCH"
    else
      consider "$(torch_of_python "$GPUCTL_TORCH")"
    fi
    return 0
  fi
  for python in python3 python "${VIRTUAL_ENV:-/none}/bin/python" \
    "${CONDA_PREFIX:-/none}/bin/python" /venv/bin/python /venv/*/bin/python \
    /workspace/venv/bin/python /opt/conda/bin/python /opt/venv/bin/python \
    "${HOME:-/root}/miniconda3/bin/python" "${HOME:-/root}/venv/bin/python" \
    "${HOME:-/root}/.venv/bin/python" /usr/bin/python3 /usr/local/bin/python3; do
    command -v "$python" > /dev/null 2>&1 || continue
    consider "$(torch_of_python "$python")"
  done
  for folder in /opt/libtorch /usr/local/libtorch "${HOME:-/root}/libtorch" /usr/local /usr; do
    consider "$folder"
  done
}

number_of() { # NAME: of version.h, which only includes another one where torch is newer
  cat "$chosen/include/torch/csrc/api/include/torch/version.h" \
    "$chosen/include/torch/headeronly/version.h" 2>/dev/null |
    sed -n "s/^#define TORCH_VERSION_$1 *\\([0-9]*\\).*/\\1/p" | head -n 1
}

describe_torch() {
  major=$(number_of MAJOR)
  minor=$(number_of MINOR)
  version=$major.$minor.$(number_of PATCH)
  # It says more: 2.9.1+cu128.
  exact=$(sed -n "s/^__version__ *= *['\"]\\(.*\\)['\"].*/\\1/p" "$chosen/version.py" 2>/dev/null ||
    head -n 1 "$chosen/build-version" 2>/dev/null || true)
  [ -z "$exact" ] || version=$exact
  # Wheels before 2.7 were made with the old strings; all have this note.
  abi=$(sed -n 's/.*_GLIBCXX_USE_CXX11_ABI=\([01]\).*/\1/p' \
    "$chosen/share/cmake/Torch/TorchConfig.cmake" 2>/dev/null | head -n 1 || true)
  [ -n "$abi" ] || abi=1
}

# --- compiler

find_compiler() {
  compiler=${CXX:-}
  if [ -z "$compiler" ]; then
    for name in g++ g++-16 g++-15 g++-14 g++-13 g++-12 g++-11 g++-10 g++-9; do
      command -v "$name" > /dev/null 2>&1 || continue
      compiler=$name
      break
    done
  fi
  # shellcheck disable=SC2086  # "ccache g++" is two words
  [ -n "$compiler" ] && compiler_line=$($compiler --version 2>/dev/null | head -n 1) &&
    [ -n "$compiler_line" ]
}

find_torch
if [ -z "$chosen" ]; then
  if [ -n "${GPUCTL_TORCH:-}" ]; then
    no torch "GPUCTL_TORCH=$GPUCTL_TORCH is no Python with torch, and no LibTorch folder" \
      "correct GPUCTL_TORCH"
  fi
  if [ -n "$without_headers" ]; then
    no torch "the torch in $without_headers has no C++ headers" \
      "install torch by pip, or libtorch-dev"
  fi
  no torch "there is no torch: no Python with it in PATH, /venv or conda, and no LibTorch" \
    "choose an image with PyTorch, or install torch on the machine"
fi
describe_torch
case $major.$minor in
  .* | *.) no torch "the version of the torch in $chosen cannot be read from its headers" \
    "name another one with GPUCTL_TORCH" ;;
esac
torch="torch $version"
if ! find_compiler; then
  no compiler "$torch is in $chosen, but there is no ${CXX:-g++}" \
    "choose an image with a compiler (PyTorch's -devel), or apt-get install g++"
fi
newer() { [ "$major" -gt "$1" ] || { [ "$major" -eq "$1" ] && [ "$minor" -ge "$2" ]; }; }
standard=c++17
least=9
if newer 2 12; then
  standard=c++20
  least=11
fi
# shellcheck disable=SC2086
compiler_version=$($compiler -dumpversion 2>/dev/null | sed 's/[^0-9].*//')
if [ "${compiler_version:-0}" -lt "$least" ] && ! $compiler --version | grep -q clang; then
  no compiler "$torch needs g++ $least or later; $compiler is ${compiler_version:-unknown}" \
    "install a newer g++ and name it with CXX"
fi

if [ "$mode" = --check ]; then
  accelerator=cpu
  [ -z "$chosen_cuda" ] || accelerator=cuda
  printf 'gpuctl-trainer-check\tyes\t%s\t%s in %s, %s\n' "$accelerator" "$torch" "$chosen" \
    "$compiler_line"
  exit 0
fi

# --- the program's place

sources=$(cd "$(dirname "$0")" && pwd)
job_dir=$PWD
flags="-O2 -DNDEBUG -w -std=$standard -D_GLIBCXX_USE_CXX11_ABI=$abi -pthread -fstack-protector-strong"
more=${GPUCTL_TRAINER_CXXFLAGS:-}
# -isystem /usr/include would take the compiler's own headers out of their order.
include="-isystem $chosen/include"
[ "$chosen" != /usr ] || include=
TRAINER_COMPILE="$compiler $flags -I. -isystem include $include"
TRAINER_COMPILE="$TRAINER_COMPILE -isystem $chosen/include/torch/csrc/api/include"
# The C++ library first: torch's wheels export parts of an older one (std::filesystem), with which a
# program crashes that finds them before.
libraries="-lstdc++ -ltorch -ltorch_cpu"
[ -z "$chosen_cuda" ] || libraries="$libraries -ltorch_$chosen_cuda"
libraries="$libraries -lc10"
[ -z "$chosen_cuda" ] || libraries="$libraries -lc10_$chosen_cuda"
# With its symbols exported, the program and torch have one of each template and inline variable. Where
# they had two, steps on CUDA crashed with torch 2.11.
libraries="-rdynamic -L$chosen_libraries -Wl,--no-as-needed $libraries -ldl"
libraries="$libraries -Wl,-rpath,$chosen_libraries"
libraries="$libraries -Wl,--unresolved-symbols=ignore-in-shared-libs -Wl,-z,relro -Wl,-z,now"
if [ "$mode" = --compiler ]; then
  printf '%s\n%s\n' "$TRAINER_COMPILE" "$libraries"
  exit 0
fi

key=$({
  cd "$sources"
  find . -type f | sort | xargs sha256sum
  echo "$(uname -m) $version $chosen_cuda $chosen_libraries"
  ls -Lln --time-style=+%s "$chosen_libraries/libtorch_cpu.so" 2>/dev/null || true
  echo "$compiler_line $flags $more"
} | sha256sum | cut -c 1-32)

# Sets `place` to the folder of the program in the cache $1, and makes it.
use_cache() {
  place=$1/$key
  mkdir -p "$place" 2>/dev/null && [ -w "$place" ]
}
root=${HOME:-/root}/.gpuctl
case $job_dir in */jobs/*/work) root=${job_dir%/jobs/*} ;; esac
if [ -n "${GPUCTL_TRAINER_CACHE:-}" ]; then
  use_cache "$GPUCTL_TRAINER_CACHE" ||
    no place "GPUCTL_TRAINER_CACHE=$GPUCTL_TRAINER_CACHE cannot be written to" "name another folder"
elif [ -z "${GPUCTL_VOLUME:-}" ] || ! use_cache "$GPUCTL_VOLUME/.gpuctl/trainer"; then
  use_cache "$root/trainer" || no place "$root/trainer cannot be written to" \
    "name another folder with GPUCTL_TRAINER_CACHE"
fi
program=$place/gpuctl-trainer

# --- the build

building=
forget() {
  [ -z "$building" ] || rm -rf "$building"
  building=
}

memory_mib() {
  least=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo 2>/dev/null || true)
  least=$((${least:-4194304} / 1024))
  limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || true)
  case $limit in '' | *[!0-9]*) ;; *)
    [ $((limit / 1048576)) -ge "$least" ] || least=$((limit / 1048576))
    ;;
  esac
  echo "$least"
}

# Compiles everything in a folder of its own, and moves the program to its place when it starts.
build() {
  began=$(date +%s)
  building=$(mktemp -d "$place/building.XXXXXX")
  trap forget EXIT
  trap 'exit 143' TERM
  trap 'exit 130' INT
  trap 'exit 129' HUP
  cd "$sources"
  TRAINER_MORE=$more
  TRAINER_OBJECTS=$building
  TRAINER_TORCH=$torch
  # The slowest first, so that none is left alone at the end.
  list=$(cd trainer && ls -S -- */*.cc)
  TRAINER_COUNT=$(echo "$list" | wc -l | tr -d ' ')
  # Processes of a run need c10d. Its header includes Gloo's, which few packages bring; names are
  # enough then.
  TRAINER_GLOO=
  if grep -q ProcessGroupGloo "$chosen_libraries/libtorch_cpu.so"; then
    for header in algorithm context common/error rendezvous/store transport/device; do
      mkdir -p "$(dirname "$building/names/gloo/$header")"
      echo '#include "trainer/ranks/gloo_names.h"' > "$building/names/gloo/$header.h"
    done
    TRAINER_GLOO="-DTRAINER_HAS_GLOO -idirafter $building/names"
  fi
  export TRAINER_GLOO TRAINER_COMPILE TRAINER_MORE TRAINER_OBJECTS TRAINER_TORCH TRAINER_COUNT
  # A compiler needs up to 1 GiB.
  jobs=$(nproc 2>/dev/null || echo 2)
  most=$(($(memory_mib) / 1200))
  [ "$jobs" -le "$most" ] || jobs=$most
  [ "$jobs" -ge 1 ] || jobs=1
  say "building the trainer for $torch${chosen_cuda:+ with CUDA} in $chosen," \
    "$TRAINER_COUNT files, $jobs at once, with $compiler_line"
  if ! echo "$list" | awk '{ print NR, $0 }' | xargs -n 2 -P "$jobs" sh "$sources/build.sh" --compile
  then
    no compiler "the trainer does not compile for $torch with $compiler_line; the lines above say why" \
      "name another torch with GPUCTL_TORCH or another compiler with CXX"
  fi
  # shellcheck disable=SC2086  # flags are words
  if ! $compiler -o "$building/gpuctl-trainer" "$building"/*.o $more -pthread \
    $libraries >&2; then
    no compiler "the trainer cannot be linked to $torch in $chosen; the lines above say why" \
      "name another torch with GPUCTL_TORCH"
  fi
  if ! "$building/gpuctl-trainer" --help > "$building/said" 2>&1; then
    cat "$building/said" >&2
    no torch "the trainer that was built for $torch in $chosen does not start; the lines above say why" \
      "name another torch with GPUCTL_TORCH"
  fi
  [ -z "${GPUCTL_TRAINER_OBJECTS:-}" ] || cp "$building"/*.o "$GPUCTL_TRAINER_OBJECTS"
  # What is in its place is whole, also after a power failure.
  sync "$building/gpuctl-trainer" 2>/dev/null || sync
  mv -f "$building/gpuctl-trainer" "$program"
  forget
  trap - EXIT TERM INT HUP
  cd "$job_dir"
  say "built the trainer for $torch in $(($(date +%s) - began)) s: $program"
}

if [ -x "$program" ]; then
  say "using the trainer that was built here for $torch before"
else
  # One builds and the others wait, where the file system can do that. Else each builds its own.
  if command -v flock > /dev/null 2>&1; then
    exec 9> "$place/lock"
    locked=
    if flock -n 9 2>/dev/null; then
      locked=yes
    else
      say "another run builds the trainer for $torch; waiting for it"
      ! flock 9 2>/dev/null || locked=yes
    fi
    # Then nobody builds now; what lies here is of builds that were killed.
    [ -z "$locked" ] || [ -x "$program" ] || rm -rf "$place"/building.*
  fi
  [ -x "$program" ] || build
  exec 9>&-
fi
if [ "$mode" = --build ]; then
  echo "$program"
  exit 0
fi
exec "$program" "$@"
