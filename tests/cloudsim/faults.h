// The simulator's faults, its held requests, and the log of all requests.
#ifndef GPUCTL_TESTS_CLOUDSIM_FAULTS_H_
#define GPUCTL_TESTS_CLOUDSIM_FAULTS_H_

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/cloudsim/books.h"
#include "tests/cloudsim/json_check.h"

namespace gpuctl::cloudsim {

struct Fault {
  int id = 0;
  std::string service;  // or *
  std::string route;    // create, list, describe, terminate, offers, keys, …, or *
  std::string name;
  int times = 1;  // -1: for ever
  int after = 0;  // matching requests that succeed first
  int hits = 0;
  Json arguments;
};

// A fault of the answer, for any request.
struct WireFault {
  bool executed = false;  // the request takes effect anyway
  std::string name;       // without the "_after"
};
std::optional<WireFault> AsWireFault(const Fault& fault);

// The faults. Used under the world's lock.
class Faults {
 public:
  // Adds a fault and sets its `id`. Returns "", or the reason of a refusal.
  std::string Add(const Json& request, int* id);
  void Clear() { faults_.clear(); }
  Json ToJson() const;

  // Returns and counts the first wire fault that is due for this request.
  std::optional<Fault> TakeWire(const std::string& service, const std::string& route);
  // Returns the arguments of the first due fault of that name, and counts it.
  std::optional<Json> Take(const std::string& service, const std::string& route,
                           const std::string& name);
  // Returns the faults for an instance made now.
  Trouble TakeTrouble(const std::string& service);

 private:
  bool Due(Fault* fault, const std::string& service, const std::string& route);
  std::vector<Fault> faults_;
  int last_id_ = 0;
};

// A hold of the n-th matching request from now on.
struct Hold {
  int id = 0;
  std::string service;  // or *
  std::string route;    // or *
  std::string phase;    // before, after
  int nth = 1;
  int seen = 0;
  bool reached = false;
  bool released = false;
  bool drop = false;  // reset the connection instead of answering
};

struct LoggedRequest {
  int64_t number = 0;
  std::string service;
  std::string route;
  std::string method;
  std::string path;
  int status = 0;  // 0: not answered (yet)
  std::string at;
  std::string account;
  std::string instance;
  std::string fault;
};

Json RequestJson(const LoggedRequest& request);

// Returns `json` with a wrong type for every value.
Json WrongTypes(const Json& json);

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_FAULTS_H_
