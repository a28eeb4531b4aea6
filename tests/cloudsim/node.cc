#include "tests/cloudsim/node.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/process/pipe.h"
#include "tests/cloudsim/children.h"
#include "tests/cloudsim/node_files.h"

namespace gpuctl::cloudsim {
namespace {

constexpr char kSshd[] = "/usr/sbin/sshd";

absl::StatusOr<UniqueFd> BindTo(const std::string& host, int port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = Ipv4(host);
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("bind, to ", host, ":", port));
  }
  return fd;
}

// Returns the directory with the simulated libcuda.so.1, in a build directory or an installed tree;
// "" when there is none.
std::string DriverDirectory() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path prefix = self.parent_path().parent_path();
  for (const char* place : {"cloudsim", "libexec/gpuctl/cloudsim"}) {
    if (std::filesystem::exists(prefix / place / "libcuda.so.1", error)) return prefix / place;
  }
  return "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Node>> Node::Make(const NodeSpec& spec) {
  std::unique_ptr<Node> node(new Node(spec));
  RETURN_IF_ERROR(node->Write());
  RETURN_IF_ERROR(node->Bind());
  return node;
}

Node::~Node() { Stop(); }

std::string Node::root() const {
  return spec_.root_in_home ? JoinPath(Home(), ".gpuctl") : JoinPath(spec_.dir, "root");
}
std::string Node::Home() const { return JoinPath(spec_.dir, "home"); }
std::string Node::log_path() const { return JoinPath(spec_.dir, "boot.log"); }
std::string Node::tag() const { return absl::StrCat(spec_.id, "@", getpid()); }
int Node::processes() const { return static_cast<int>(Children::Get().Pids(tag()).size()); }

absl::Status Node::Bind() {
  ASSIGN_OR_RETURN(listener_, BindTo(spec_.host, 0));
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  if (spec_.port_22) {
    absl::StatusOr<UniqueFd> fd = BindTo(spec_.host, 22);
    if (fd.ok()) listener_22_ = *std::move(fd);
  }
  return absl::OkStatus();
}

absl::Status Node::Write() {
  const std::string& dir = spec_.dir;
  for (const std::string& sub : {root(), Home(), JoinPath(Home(), ".ssh"), JoinPath(dir, "bin")}) {
    RETURN_IF_ERROR(MakeDirectories(sub));
  }
  const std::string host_key = JoinPath(dir, "host_key");
  if (spec_.host_key.empty()) {
    RETURN_IF_ERROR(RunProgram({"/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C",
                                spec_.id, "-f", host_key})
                        .status());
  } else {
    RETURN_IF_ERROR(WriteFileAtomic(host_key, spec_.host_key, 0600));
  }
  const std::string path = absl::StrCat(JoinPath(dir, "bin"),
                                        ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:"
                                        "/sbin:/bin");
  std::string environ =
      absl::StrCat("HOME=", Home(), std::string(1, '\0'), "PATH=", path, std::string(1, '\0'));
  for (const auto& [name, value] : spec_.environment) {
    absl::StrAppend(&environ, name, "=", value, std::string(1, '\0'));
  }
  RETURN_IF_ERROR(WriteFileAtomic(JoinPath(dir, "pid1_environ"), environ));
  const SessionNames names{.path = path,
                           .root = root(),
                           .environ_file = JoinPath(dir, "pid1_environ"),
                           .tag = tag(),
                           .mount_root = JoinPath(spec_.dir, "mnt"),
                           .net_dev = JoinPath(spec_.dir, "net_dev"),
                           .libraries = DriverDirectory(),
                           .cuda_devices = spec_.gpu_count,
                           .cuda_error = spec_.cuda_error};
  RETURN_IF_ERROR(WriteNodeFiles(dir, Home(), spec_.user, names));
  RETURN_IF_ERROR(WriteMounts());
  RETURN_IF_ERROR(SetTraffic(0, 0));
  RETURN_IF_ERROR(SetAuthorized(spec_.authorized_keys));
  std::string script = spec_.script;
  if (spec_.container_command) {
    // Replace the absolute paths of the image's programs.
    script = absl::StrReplaceAll(script, {{"/start.sh", JoinPath(dir, "bin/start.sh")},
                                          {"/usr/sbin/sshd", JoinPath(dir, "bin/sshd")}});
  }
  RETURN_IF_ERROR(WriteFileAtomic(JoinPath(dir, "script"), script, 0700));
  return SetGpu(spec_.gpu_name, spec_.gpu_count, spec_.gpu_memory_mib);
}

// Makes a directory that replaces / for volumes: it has the kernel's list of mounts, and the
// volumes at their paths.
absl::Status Node::WriteMounts() {
  const std::string mnt = JoinPath(spec_.dir, "mnt");
  RETURN_IF_ERROR(MakeDirectories(JoinPath(mnt, "proc/self")));
  std::string list = "22 1 0:21 / / rw,relatime - overlay overlay rw\n";
  for (const auto& [path, volume] : spec_.mounts) {
    const std::string at = absl::StrCat(mnt, path);
    if (spec_.mounts_missing) {
      RETURN_IF_ERROR(MakeDirectories(at));
      continue;
    }
    RETURN_IF_ERROR(MakeDirectories(DirName(at)));
    std::error_code error;
    std::filesystem::create_symlink(volume, at, error);
    if (error) return absl::InternalError(absl::StrCat("link ", at, ": ", error.message()));
    absl::StrAppend(&list, "36 22 0:42 / ", path, " rw,relatime - nfs4 storage:/volume rw\n");
  }
  return WriteFileAtomic(JoinPath(mnt, "proc/self/mountinfo"), list);
}

absl::Status Node::SetTraffic(int64_t sent_bytes, int64_t received_bytes) {
  return WriteFileAtomic(
      JoinPath(spec_.dir, "net_dev"),
      absl::StrCat("Inter-|   Receive                                                |  Transmit\n"
                   " face |bytes    packets errs drop fifo frame compressed multicast|bytes    "
                   "packets errs drop fifo colls carrier compressed\n"
                   "    lo: 7777 9 0 0 0 0 0 0 7777 9 0 0 0 0 0 0\n"
                   "  eth0: ",
                   received_bytes, " 9 0 0 0 0 0 0 ", sent_bytes, " 9 0 0 0 0 0 0\n"));
}

absl::Status Node::SetGpu(const std::string& name, int count, int64_t memory_mib) {
  return WriteFileAtomic(JoinPath(spec_.dir, "bin/nvidia-smi"),
                         NvidiaSmiScript(name, count, memory_mib, spec_.driver), 0700);
}

absl::Status Node::SetAuthorized(const std::vector<std::string>& public_keys) {
  return WriteFileAtomic(JoinPath(Home(), ".ssh/authorized_keys"),
                         absl::StrCat(absl::StrJoin(public_keys, "\n"), "\n"));
}

absl::Status Node::Authorize(const std::string& public_key) {
  const std::string path = JoinPath(Home(), ".ssh/authorized_keys");
  return WriteFileAtomic(path, absl::StrCat(ReadFileToString(path).value_or(""), public_key, "\n"));
}

absl::Status Node::Boot() {
  if (!listener_.valid()) RETURN_IF_ERROR(Bind());
  if (spec_.script.empty()) return absl::OkStatus();
  UniqueFd log(open(log_path().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  SpawnOptions options;
  options.argv = {"/bin/bash", JoinPath(spec_.dir, "boot"),
                  spec_.container_command ? "loop" : "once", JoinPath(spec_.dir, "script")};
  options.stdout_fd = log.get();
  options.stderr_fd = log.get();
  return Children::Get().Spawn(options, tag()).status();
}

absl::Status Node::Run(const std::string& command, const std::string& output_path) {
  const std::string script = absl::StrCat(output_path, ".command");
  // The output has its name only when it is whole.
  const std::string part = absl::StrCat(output_path, ".part");
  RETURN_IF_ERROR(WriteFileAtomic(script, absl::StrCat("trap \"mv -f '", part, "' '", output_path,
                                                       "'\" EXIT\n", command, "\n")));
  UniqueFd output(open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  SpawnOptions options;
  options.argv = {"/bin/bash", JoinPath(spec_.dir, "boot"), "once", script};
  options.stdout_fd = output.get();
  options.stderr_fd = output.get();
  return Children::Get().Spawn(options, tag()).status();
}

bool Node::WantsSsh() const {
  return !spec_.container_command || PathExists(JoinPath(spec_.dir, "sshd_wanted"));
}

absl::Status Node::OpenSsh() {
  if (ssh_open()) return absl::OkStatus();
  if (!listener_.valid()) RETURN_IF_ERROR(Bind());
  ASSIGN_OR_RETURN(FdPair stop, MakePipe("open the node's ssh"));
  stop_read_ = std::move(stop.first);
  stop_write_ = std::move(stop.second);
  listen(listener_.get(), 64);
  if (listener_22_.valid() && listen(listener_22_.get(), 64) != 0) listener_22_.reset();
  acceptor_ = std::thread([this] { Accept(); });
  return absl::OkStatus();
}

void Node::Accept() {
  for (;;) {
    pollfd waited[3] = {{stop_read_.get(), POLLIN, 0},
                        {listener_.get(), POLLIN, 0},
                        {listener_22_.get(), POLLIN, 0}};
    poll(waited, listener_22_.valid() ? 3 : 2, -1);
    if (waited[0].revents != 0) return;
    for (const UniqueFd* listener : {&listener_, &listener_22_}) {
      if (!listener->valid()) continue;
      pollfd ready{listener->get(), POLLIN, 0};
      if (poll(&ready, 1, 0) != 1) continue;
      UniqueFd connection(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (connection.valid()) Serve(connection);
    }
  }
}

void Node::Serve(const UniqueFd& connection) {
  UniqueFd log(open(JoinPath(spec_.dir, "sshd.log").c_str(),
                    O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  SpawnOptions options;
  options.argv = {kSshd, "-i", "-e", "-f", JoinPath(spec_.dir, "sshd_config")};
  options.stdin_fd = connection.get();
  options.stdout_fd = connection.get();
  options.stderr_fd = log.get();
  options.env = NameServiceEnvironment(spec_.dir);
  (void)Children::Get().Spawn(options, tag());
}

void Node::Stop() {
  stop_write_.reset();
  if (acceptor_.joinable()) acceptor_.join();
  listener_.reset();
  listener_22_.reset();
  Children::Get().KillAll(tag());
  (void)file_ops::Unlink(JoinPath(spec_.dir, "sshd_wanted"));
  (void)file_ops::Unlink(ScriptEndFile(spec_.dir));
}

void Node::Mute() {
  (void)SetAuthorized({});
  for (const pid_t pid : Children::Get().Pids(tag())) {
    // Its sshd answers on, as a gateway does that is none of the machine's processes.
    std::error_code error;
    const std::filesystem::path program =
        std::filesystem::read_symlink(absl::StrCat("/proc/", pid, "/exe"), error);
    if (!error && program.filename() != "sshd") kill(pid, SIGSTOP);
  }
}

}  // namespace gpuctl::cloudsim
