// A request to one of the services, and its answer.
#ifndef GPUCTL_TESTS_CLOUDSIM_SERVICE_H_
#define GPUCTL_TESTS_CLOUDSIM_SERVICE_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/cloudsim/json_check.h"
#include "tests/cloudsim/world.h"

namespace gpuctl::cloudsim {

struct Call {
  std::string service;  // runpod, lambda, vast
  std::string method;
  std::string path;                // without the service, with its slashes
  std::vector<std::string> parts;  // of the path
  std::multimap<std::string, std::string> query;
  std::map<std::string, std::string> headers;  // lower-case names
  std::string body;
  Json json;  // discarded when the body is not JSON
  std::string route;

  std::string Query(const std::string& name, const std::string& otherwise = "") const;
  std::string Header(const std::string& name) const;
  // Returns the key of "Authorization: Bearer", or "".
  std::string Key() const;
  // Returns the same, or the user of "Authorization: Basic", or the plain text after that.
  std::string KeyOrUser() const;
  // True when method and path match. Each {} of `pattern` stands for one part: "/v2/pods/{}".
  bool Is(const char* wanted_method, const char* pattern) const;
};

struct Reply {
  int status = 200;
  std::string body;
  std::string type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  std::string account;   // for the log
  std::string instance;  // for the log
  bool stream = false;   // stays open after the body until the client closes
};

Reply JsonReply(int status, const Json& json);

// The handlers are called with the world's lock held.
std::string RunpodRoute(const Call& call);
Reply HandleRunpod(World& world, const Call& call);
Reply RunpodError(int status, const std::string& detail, const Json& errors = nullptr);

std::string LambdaRoute(const Call& call);
Reply HandleLambda(World& world, const Call& call);
Reply LambdaError(int status, const std::string& code, const std::string& message);

std::string VastRoute(const Call& call);
Reply HandleVast(World& world, const Call& call);
Reply VastError(int status, const std::string& code, const std::string& message);

// Handles /_sim/…, except the requests that wait.
Reply HandleControl(World& world, const Call& call);

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_SERVICE_H_
