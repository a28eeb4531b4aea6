// What the simulator is told to do wrong, requests it holds back, and the log of all requests.
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
  int after = 0;  // matching requests that go well first
  int hits = 0;
  Json arguments;
};

// The kinds that are made of the answer, whatever the request was about.
struct WireFault {
  bool executed = false;  // the request takes effect all the same
  std::string name;       // without the "_after"
};
std::optional<WireFault> AsWireFault(const Fault& fault);

// Under the world's lock.
class Faults {
 public:
  // Empty, or why not. `id` becomes the fault's.
  std::string Add(const Json& request, int* id);
  void Clear() { faults_.clear(); }
  Json ToJson() const;

  // The first fault about the wire that is due for this request; counts it.
  std::optional<Fault> TakeWire(const std::string& service, const std::string& route);
  // The arguments of the first fault of that name that is due; counts it.
  std::optional<Json> Take(const std::string& service, const std::string& route,
                           const std::string& name);
  // What shall go wrong with an instance made now.
  Trouble TakeTrouble(const std::string& service);

 private:
  bool Due(Fault* fault, const std::string& service, const std::string& route);
  std::vector<Fault> faults_;
  int last_id_ = 0;
};

// Holds back the n-th request from now on that matches.
struct Hold {
  int id = 0;
  std::string service;  // or *
  std::string route;    // or *
  std::string phase;    // before, after
  int nth = 1;
  int seen = 0;
  bool reached = false;
  bool released = false;
  bool drop = false;  // the connection is reset instead of answered
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

// `json` with every value of another type than it should have.
Json WrongTypes(const Json& json);

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_FAULTS_H_
