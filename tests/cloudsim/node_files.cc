#include "tests/cloudsim/node_files.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "tests/cloudsim/children.h"

namespace gpuctl::cloudsim {
namespace {

// Runs a script ($2) with only the environment of the machine's first process, and without the
// simulator's descriptors above 2. In mode "loop" ($1), starts a container's command again when it
// ends.
constexpr char kBoot[] = R"sh(for path in /proc/self/fd/*; do
  fd=${path##*/}
  [ "$fd" -gt 2 ] && [ "$fd" -ne 255 ] && eval "exec $fd>&-" 2>/dev/null
done
tag=$GPUCTL_SIM_NODE
for name in $(compgen -e); do unset "$name"; done
while IFS= read -r -d '' entry; do
  case ${entry%%=*} in
    ''|[0-9]*|*[!A-Za-z0-9_]*) ;;
    *) export "$entry" ;;
  esac
done < @DIR@/pid1_environ
export GPUCTL_SIM_NODE=$tag GPUCTL_NODE_ROOT=@ROOT@ GPUCTL_PID1_ENVIRON=@ENVIRON@ GPUCTL_MOUNT_ROOT=@MOUNTS@ GPUCTL_NET_DEV=@NET_DEV@
cd "$HOME" || exit 1
mode=$1 script=$2
if read -r first < "$script" && [ "${first#'#!'}" != "$first" ]; then
  run() { "$script"; }
else
  run() { bash "$script"; }
fi
run < /dev/null
code=$?
[ "$mode" = loop ] || [ "$script" != @DIR@/script ] || echo $code > @DIR@/script_ended
while [ "$mode" = loop ]; do
  sleep 1
  run < /dev/null
done
)sh";

// The image's start.sh: installs PUBLIC_KEY and starts sshd when there is one.
constexpr char kStartSh[] = R"sh(#!/bin/bash
if [ -n "$PUBLIC_KEY" ]; then
  grep -qxF "$PUBLIC_KEY" "$HOME/.ssh/authorized_keys" 2>/dev/null ||
    echo "$PUBLIC_KEY" >> "$HOME/.ssh/authorized_keys"
  : > @DIR@/sshd_wanted
fi
env | grep '^RUNPOD_' | sed 's/^/export /' > @ROOT@/rp_environment
exec sleep infinity
)sh";

constexpr char kSshdStandIn[] = "#!/bin/sh\n: > @DIR@/sshd_wanted\n";
constexpr char kService[] = "#!/bin/sh\ncase \"$1\" in ssh|sshd) : > @DIR@/sshd_wanted ;; esac\n";
constexpr char kSudo[] = R"sh(#!/bin/bash
while [ "${1#-}" != "$1" ]; do
  case $1 in -u|-g) shift ;; --) shift; break ;; esac
  shift
done
exec "$@"
)sh";

constexpr char kNvidiaSmi[] = R"sh(#!/bin/bash
name='@NAME@' count=@COUNT@ memory=@MEMORY@ driver='@DRIVER@'
query= header=1 units=1 loop= only=
while [ $# -gt 0 ]; do
  case $1 in
    --query-gpu=*) query=${1#*=} ;;
    --query-gpu) query=$2; shift ;;
    --format=*) format=${1#*=} ;;
    --format) format=$2; shift ;;
    -lms|--loop-ms) loop=$2; shift ;;
    --loop-ms=*|-lms=*) loop=${1#*=} ;;
    -l|--loop) loop=${2}000; shift ;;
    -i|--id) only=$2; shift ;;
    --id=*) only=${1#*=} ;;
    -L|--list-gpus) list=1 ;;
  esac
  shift
done
case ,$format, in *,noheader,*) header= ;; esac
case ,$format, in *,nounits,*) units= ;; esac
uuid() { printf 'GPU-%08x-0000-4000-8000-000000000000' "$1"; }
if [ "$count" -eq 0 ]; then
  echo 'No devices were found'
  exit 6
fi
if [ -n "$list" ]; then
  for ((i = 0; i < count; ++i)); do echo "GPU $i: $name (UUID: $(uuid $i))"; done
  exit 0
fi
if [ -z "$query" ]; then
  echo "NVIDIA-SMI $driver   Driver Version: $driver   CUDA Version: 12.8"
  for ((i = 0; i < count; ++i)); do echo "| $i  $name | 0MiB / ${memory}MiB |"; done
  exit 0
fi
unit_of() {
  case $1 in
    utilization.*) echo %;; memory.*) echo MiB;; power.*) echo W;; clocks.sm|clocks.mem) echo MHz;;
  esac
}
value_of() {
  case $1 in
    index) echo "$2" ;;
    name|gpu_name) echo "$name" ;;
    uuid|gpu_uuid) uuid "$2" ;;
    count) echo "$count" ;;
    driver_version) echo "$driver" ;;
    memory.total) echo "$memory" ;;
    memory.used) echo 1 ;;
    memory.free) echo $((memory - 1)) ;;
    utilization.gpu|utilization.memory) echo 0 ;;
    temperature.gpu) echo 35 ;;
    power.draw) echo 60.00 ;;
    power.limit) echo 350.00 ;;
    clocks.sm) echo 210 ;;
    clocks.mem) echo 405 ;;
    clocks_throttle_reasons.active|clocks_event_reasons.active) echo 0x0000000000000001 ;;
    compute_cap) echo 8.9 ;;
    pci.bus_id) printf '00000000:%02X:00.0\n' "$(($2 + 1))" ;;
    persistence_mode) echo Enabled ;;
    *) echo '[N/A]' ;;
  esac
}
IFS=, read -r -a columns <<< "$query"
if [ -n "$header" ]; then
  line=
  for column in "${columns[@]}"; do
    column=${column// /} unit=$(unit_of "$column")
    line="$line, $column${units:+${unit:+ [$unit]}}"
  done
  echo "${line#, }"
fi
rows=()
for ((i = 0; i < count; ++i)); do
  [ -n "$only" ] && [ "$only" != "$i" ] && continue
  line=
  for column in "${columns[@]}"; do
    column=${column// /} unit=$(unit_of "$column")
    line="$line, $(value_of "$column" $i)${units:+${unit:+ $unit}}"
  done
  rows+=("${line#, }")
done
while :; do
  printf '%s\n' "${rows[@]}"
  [ -z "$loop" ] && exit 0
  sleep "$(printf '%d.%03d' $((loop / 1000)) $((loop % 1000)))"
done
)sh";

std::string Fill(const char* text, const std::string& dir, const SessionNames& names) {
  return absl::StrReplaceAll(text, {{"@DIR@", dir},
                                    {"@ROOT@", names.root},
                                    {"@ENVIRON@", names.environ_file},
                                    {"@NET_DEV@", names.net_dev},
                                    {"@MOUNTS@", names.mount_root}});
}

std::string SshdConfig(const std::string& dir, const std::string& home, const std::string& user,
                       const SessionNames& names) {
  return absl::StrCat(
      "HostKey ", dir, "/host_key\nAuthorizedKeysFile ", home, "/.ssh/authorized_keys\nAllowUsers ",
      user,
      "\nStrictModes no\nUsePAM no\nPubkeyAuthentication yes\nPasswordAuthentication no\n"
      "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nPidFile none\n"
      "LogLevel ERROR\nPrintMotd no\nPrintLastLog no\nUseDNS no\nX11Forwarding no\n"
      "MaxStartups 200\nMaxSessions 100\nSubsystem sftp internal-sftp\n"
      "SetEnv PATH=",
      names.path, " GPUCTL_NODE_ROOT=", names.root, " GPUCTL_PID1_ENVIRON=", names.environ_file,
      " GPUCTL_MOUNT_ROOT=", names.mount_root, " GPUCTL_NET_DEV=", names.net_dev,
      " GPUCTL_SIM_NODE=", names.tag, " LD_LIBRARY_PATH=", names.libraries,
      " GPUCTL_SIM_CUDA_DEVICES=", names.cuda_devices, " GPUCTL_SIM_CUDA_ERROR=", names.cuda_error,
      " SHLVL=1\n");
}

}  // namespace

absl::Status WriteNodeFiles(const std::string& dir, const std::string& home,
                            const std::string& user, const SessionNames& names) {
  auto write = [&](const std::string& name, const char* text) {
    return WriteFileAtomic(JoinPath(dir, name), Fill(text, dir, names), 0700);
  };
  RETURN_IF_ERROR(write("boot", kBoot));
  RETURN_IF_ERROR(write("bin/start.sh", kStartSh));
  RETURN_IF_ERROR(write("bin/sshd", kSshdStandIn));
  RETURN_IF_ERROR(write("bin/service", kService));
  RETURN_IF_ERROR(write("bin/sudo", kSudo));
  const std::string profile = absl::StrCat("export PATH=", names.path, "\n");
  RETURN_IF_ERROR(WriteFileAtomic(JoinPath(home, ".profile"), profile));
  RETURN_IF_ERROR(WriteFileAtomic(JoinPath(home, ".bash_profile"), profile));
  // All user names have our own user id; as root, sshd also needs a user of its own.
  const std::string ids = absl::StrCat(geteuid(), ":", getegid());
  std::string passwd;
  std::set<std::string> names_of_users = {"root", "ubuntu", user};
  for (const std::string& name : names_of_users) {
    absl::StrAppend(&passwd, name, ":x:", ids, "::", home, ":/bin/bash\n");
  }
  absl::StrAppend(&passwd, "sshd:x:", geteuid() == 0 ? "100:65534" : ids,
                  "::/run/sshd:/usr/sbin/nologin\n");
  RETURN_IF_ERROR(WriteFileAtomic(JoinPath(dir, "passwd"), passwd, 0644));
  RETURN_IF_ERROR(
      WriteFileAtomic(JoinPath(dir, "group"), absl::StrCat("root:x:", getegid(), ":\n"), 0644));
  return WriteFileAtomic(JoinPath(dir, "sshd_config"), SshdConfig(dir, home, user, names));
}

std::string ScriptEndFile(const std::string& dir) { return JoinPath(dir, "script_ended"); }

std::string MakeHostKeyFile(const std::string& dir) {
  const std::string path = JoinPath(dir, absl::StrCat("gateway_key_", RandomHex(8)));
  const auto made = RunProgram(
      {"/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gateway", "-f", path});
  return made.ok() ? ReadFileToString(path).value_or("") : "";
}

std::vector<std::string> NameServiceEnvironment(const std::string& dir) {
  return {"LD_PRELOAD=libnss_wrapper.so", absl::StrCat("NSS_WRAPPER_PASSWD=", dir, "/passwd"),
          absl::StrCat("NSS_WRAPPER_GROUP=", dir, "/group")};
}

std::string NvidiaSmiScript(const std::string& gpu_name, int gpu_count, int64_t memory_mib,
                            const std::string& driver) {
  return absl::StrReplaceAll(kNvidiaSmi, {{"@NAME@", absl::StrReplaceAll(gpu_name, {{"'", ""}})},
                                          {"@COUNT@", absl::StrCat(gpu_count)},
                                          {"@MEMORY@", absl::StrCat(memory_mib)},
                                          {"@DRIVER@", driver}});
}

uint32_t Ipv4(const std::string& host) {
  in_addr address{};
  if (inet_pton(AF_INET, host.c_str(), &address) == 1) return address.s_addr;
  return htonl(INADDR_LOOPBACK);
}

}  // namespace gpuctl::cloudsim
