// gpuctl-cloudsim: rental markets on one loopback port. See README.md.
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files/files.h"
#include "tests/cloudsim/children.h"
#include "tests/cloudsim/server.h"
#include "tests/cloudsim/service.h"
#include "tests/cloudsim/world.h"

namespace gpuctl::cloudsim {
namespace {

constexpr char kUsage[] =
    "usage: gpuctl-cloudsim [--dir DIR] [--port N] [--speed X] [--boot-s S] [--no-rate-limits]\n"
    "                       [--rate-clock sim|real] [--no-nodes] [--account SERVICE:KEY:USD]…\n"
    "                       [--parent-fd N]\n";

struct Settings {
  WorldOptions world;
  int port = 0;
  int parent_fd = -1;
  bool own_dir = false;
  std::vector<std::string> accounts;
};

bool Parse(int argc, char** argv, Settings* settings) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--no-rate-limits") {
      settings->world.rate_limits = false;
      continue;
    }
    if (name == "--no-nodes") {
      settings->world.nodes = false;
      continue;
    }
    if (++i == argc) return false;
    const std::string value = argv[i];
    bool good = true;
    if (name == "--dir") {
      settings->world.dir = value;
    } else if (name == "--port") {
      good = absl::SimpleAtoi(value, &settings->port);
    } else if (name == "--speed") {
      good = absl::SimpleAtod(value, &settings->world.speed);
    } else if (name == "--boot-s") {
      good = absl::SimpleAtod(value, &settings->world.boot_s);
    } else if (name == "--rate-clock") {
      good = value == "sim" || value == "real";
      settings->world.real_rate_clock = value == "real";
    } else if (name == "--account") {
      settings->accounts.push_back(value);
    } else if (name == "--parent-fd") {
      good = absl::SimpleAtoi(value, &settings->parent_fd);
    } else {
      good = false;
    }
    if (!good) return false;
  }
  return true;
}

// Returns false, with a message, when there is no such service.
bool AddAccounts(World& world, const Settings& settings) {
  for (const auto& service : world.services) {
    world.AddAccount(service->name(), absl::StrCat("sim-", service->name(), "-key"), 100);
  }
  for (const std::string& text : settings.accounts) {
    const std::vector<std::string> parts = absl::StrSplit(text, ':');
    double balance = 100;
    if (parts.size() > 2) (void)absl::SimpleAtod(parts[2], &balance);
    if (parts.size() < 2) continue;
    if (world.FindService(parts[0]) == nullptr) {
      fprintf(stderr, "--account %s: no such service\n", text.c_str());
      return false;
    }
    world.AddAccount(parts[0], parts[1], balance);
  }
  return true;
}

// Advances the world also while no request comes. Returns when a signal comes or the parent is
// gone.
void RunUntilTheEnd(World& world, int signals, int parent_fd) {
  for (;;) {
    pollfd waited[2] = {{signals, POLLIN, 0}, {parent_fd, POLLIN, 0}};
    poll(waited, 2, 20);
    if (waited[0].revents != 0) return;
    if (waited[1].revents != 0) {
      char byte;
      if (read(parent_fd, &byte, 1) <= 0) return;
    }
    MutexLock lock(world.mutex);
    world.Tick();
  }
}

int Main(int argc, char** argv) {
  Settings settings;
  if (!Parse(argc, argv, &settings)) {
    fputs(kUsage, stderr);
    return 2;
  }
  if (settings.world.dir.empty()) {
    const auto dir = MakeTempDirectory("gpuctl-cloudsim-");
    if (!dir.ok()) return 1;
    settings.world.dir = *dir;
    settings.own_dir = true;
  }
  // Machines run in their own directories, so a relative path would be wrong there.
  std::error_code error;
  settings.world.dir = std::filesystem::absolute(settings.world.dir, error).string();
  if (error || !MakeDirectories(JoinPath(settings.world.dir, "files")).ok()) return 1;
  // Nodes get nothing of our own environment, except TMPDIR.
  const char* const temporary = getenv("TMPDIR");
  const std::string tmpdir = temporary != nullptr ? temporary : "";
  clearenv();
  setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
  if (!tmpdir.empty()) setenv("TMPDIR", tmpdir.c_str(), 1);
  if (geteuid() == 0) (void)MakeDirectories("/run/sshd", 0755);
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const int signals = signalfd(-1, &ends, SFD_CLOEXEC);
  Children::Get();
  World world(settings.world);
  if (!AddAccounts(world, settings)) return 2;
  auto server = Server::Start(world, settings.port);
  if (!server.ok()) {
    fprintf(stderr, "%s\n", std::string(server.status().message()).c_str());
    return 1;
  }
  {
    MutexLock lock(world.mutex);
    world.url = absl::StrCat("http://127.0.0.1:", (*server)->port());
    const Json ready = {{"url", world.url}, {"pid", getpid()}, {"dir", settings.world.dir}};
    printf("%s\n", ready.dump().c_str());
  }
  fflush(stdout);
  RunUntilTheEnd(world, signals, settings.parent_fd);
  server->reset();
  MutexLock lock(world.mutex);
  world.EndNodes();
  if (settings.own_dir) (void)RemoveTree(settings.world.dir);
  return 0;
}

}  // namespace
}  // namespace gpuctl::cloudsim

int main(int argc, char** argv) { return gpuctl::cloudsim::Main(argc, argv); }
