// gpuctl-cloudsim for GoogleTests: a separate process that ends with this object.
#ifndef GPUCTL_TESTS_SUPPORT_CLOUD_SIMULATOR_H_
#define GPUCTL_TESTS_SUPPORT_CLOUD_SIMULATOR_H_

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/unique_fd.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {

// A running gpuctl-cloudsim. Needs $GPUCTL_BIN_DIR. Fails the test when the program does not start,
// or ends with an error.
class CloudSimulator {
 public:
  // `options` as on its command line: {"--no-rate-limits", "--boot-s", "0"}.
  explicit CloudSimulator(const std::vector<std::string>& options = {});
  ~CloudSimulator();

  // Returns "http://127.0.0.1:PORT". A service's base address is url() + "/runpod", "/lambda" or
  // "/vast".
  const std::string& url() const { return url_; }
  pid_t pid() const { return pid_; }
  static std::string Key(const std::string& service) { return "sim-" + service + "-key"; }

  struct Answer {
    int status = 0;  // 0: no answer came
    nlohmann::json json;
  };
  // Sends any request. `key` is sent as a bearer token unless it is empty.
  Answer Request(const std::string& method, const std::string& path,
                 const nlohmann::json& body = nullptr, const std::string& key = "") const;
  // Sends a request to a control route such as "books". Fails the test when it is refused.
  nlohmann::json Control(const std::string& method, const std::string& route,
                         const nlohmann::json& body = nullptr) const;

  void Advance(double seconds) const { Control("POST", "clock", {{"advance_s", seconds}}); }
  void Freeze() const { Control("POST", "clock", {{"speed", 0}}); }
  // Sets a fault: {"service", "route", "fault", …}.
  void Fault(const nlohmann::json& fault) const { Control("POST", "faults", fault); }
  nlohmann::json Books() const { return Control("GET", "books"); }
  // Returns the number of instances of all services that bill now.
  int Alive() const;
  // Holds a request: {"service", "route", "nth_request", "phase"}. The next two calls wait until a
  // request is held, and release it.
  int Hold(const nlohmann::json& about) const;
  void WaitHold(int hold) const;
  void Release(int hold, bool drop = false) const;

 private:
  TempDir dir_;
  std::string url_;
  int port_ = 0;
  pid_t pid_ = -1;
  UniqueFd parent_;
};

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_CLOUD_SIMULATOR_H_
