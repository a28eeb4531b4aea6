// An environment for tests of the client: a context with the test's clock, temporary directories,
// and nodes in memory by name.
#ifndef GPUCTL_TESTS_SUPPORT_CLIENT_WORLD_H_
#define GPUCTL_TESTS_SUPPORT_CLIENT_WORLD_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "client/runs/context.h"
#include "common/base/clock.h"
#include "tests/support/fake_node.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {

// Temporary directories for gpuctl's files for as long as it lives, and a context that reaches no
// real node.
class ClientWorld {
 public:
  explicit ClientWorld(Clock& clock) : context(clock) {
    Use("GPUCTL_STATE_DIR", "state");
    Use("GPUCTL_CONFIG_DIR", "config");
    Use("GPUCTL_CACHE_DIR", "cache");
    context.make_links = [this](const NodeTarget& target) { return node(target.name).Links(); };
  }
  ~ClientWorld() {
    for (const auto& [name, value] : before_) {
      value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ClientWorld(const ClientWorld&) = delete;
  ClientWorld& operator=(const ClientWorld&) = delete;

  std::string state_dir() const { return dir.Sub("state"); }
  // Returns the node of that name; makes it at the first call.
  FakeNode& node(const std::string& name) {
    std::unique_ptr<FakeNode>& found = nodes_[name];
    if (found == nullptr) found = std::make_unique<FakeNode>();
    return *found;
  }
  NodeScript& script(const std::string& name) { return node(name).script(); }
  // True when somebody asked for the node of that name.
  bool known(const std::string& name) const { return nodes_.count(name) > 0; }

  TempDir dir;
  CommandContext context;

 private:
  void Use(const std::string& variable, const std::string& below) {
    const char* const value = std::getenv(variable.c_str());
    before_[variable] = value == nullptr ? "" : value;
    setenv(variable.c_str(), dir.Sub(below).c_str(), 1);
  }
  std::map<std::string, std::string> before_;
  std::map<std::string, std::unique_ptr<FakeNode>> nodes_;
};

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_CLIENT_WORLD_H_
