// A simulated market, a request to it, and its answer.
#ifndef GPUCTL_TESTS_CLOUDSIM_SERVICE_H_
#define GPUCTL_TESTS_CLOUDSIM_SERVICE_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/cloudsim/json_check.h"
#include "tests/cloudsim/world.h"

namespace gpuctl::cloudsim {

struct Call {
  std::string service;  // the first part of the path
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

// One market: its routes, its stock, and what differs in its bills. All other files know a market
// only by this class, so a new one needs its own files and a line in services.cc. Everything is
// called with the world's lock held.
class Service {
 public:
  virtual ~Service() = default;
  // The name in accounts, books and faults, and the first part of its paths.
  virtual const char* name() const = 0;

  // Returns the route of a request, by which faults and holds find it: create, list, describe, …
  virtual std::string Route(const Call& call) const = 0;
  virtual Reply Handle(World& world, const Call& call) = 0;
  // Returns an error as this service words it.
  virtual Reply Error(int status, const std::string& message) const = 0;
  // Returns the body of an error that comes with the status of a success.
  virtual std::string ErrorInSuccess(const std::string& message) const {
    return Error(500, message).body;
  }
  // Returns a new key of an account or instance.
  virtual std::string NewKey() const;

  // Sets the available number: {"service", "item", "region"?, "count"}; an absent region means all.
  // Returns "", or the error; AddStock and SetPrice, too.
  virtual std::string SetStock(const Json& change) = 0;
  // Adds an item that is like another one: {"service", "like", "item"[, "gpu"][, "driver_gpu"]
  // [, "memory_mib"][, "usd_per_hour"]}. `gpu` is the market's name of the model and `driver_gpu`
  // that of its driver.
  virtual std::string AddStock(const Json& item) = 0;
  // Sets a price: {"service", "item", "usd_per_hour"}.
  virtual std::string SetPrice(const Json& change) = 0;
  virtual Json StockJson() const = 0;
  // Puts back what `instance` held.
  virtual void ReturnStock(const Instance& instance) = 0;

  // True when a machine that is taken away keeps its disk, and bills for it.
  virtual bool keeps_preempted() const { return false; }
  // True when instances stop at the end of the account's money.
  virtual bool prepaid() const { return true; }
  // The charges of `instance` ended because it was stopped; a service may begin others.
  virtual void Stopped(Instance* /*instance*/, int64_t /*now_ms*/) {}
  // Does what is due for a live instance by now.
  virtual void Due(World& /*world*/, Instance* /*instance*/, int64_t /*now_ms*/) {}
  // Sets the rates of stored volumes that are billed by their content.
  virtual void MeasureVolumes(World& /*world*/) {}
  // Does the change `what` that only this service has. False when it has none of that name.
  virtual bool Change(World& /*world*/, Instance* /*instance*/, const std::string& /*what*/,
                      const Json& /*request*/) {
    return false;
  }
  // Adds entries to the books that only this service has.
  virtual void AddToBooks(Json& /*books*/) const {}
};

// Returns all services, each with its initial stock.
std::vector<std::unique_ptr<Service>> MakeServices();

// Handles /_sim/…, except the requests that wait.
Reply HandleControl(World& world, const Call& call);

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_SERVICE_H_
