// The state of the three services: accounts, stock, instances with their nodes and bills.
#ifndef GPUCTL_TESTS_CLOUDSIM_WORLD_H_
#define GPUCTL_TESTS_CLOUDSIM_WORLD_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "tests/cloudsim/books.h"
#include "tests/cloudsim/faults.h"
#include "tests/cloudsim/json_check.h"
#include "tests/cloudsim/sim_clock.h"
#include "tests/cloudsim/stock.h"

namespace gpuctl::cloudsim {

struct WorldOptions {
  std::string dir;
  double speed = 1;
  double boot_s = 1;  // from creation to running, simulated
  bool rate_limits = true;
  bool real_rate_clock = false;  // limits count real time
  bool nodes = true;             // false: instances are entries in the books and nothing more
};

// Who asks: an account, or an instance of it with the key it was given, or a key with permissions.
struct Caller {
  Account* account = nullptr;
  Instance* instance = nullptr;
  Json permissions;  // null: all
  std::string name;  // for the books
};

// Everything is used with `mutex` held.
class World {
 public:
  explicit World(const WorldOptions& options);

  Mutex mutex;
  CondVar changed;  // holds, faults, the end of the program
  WorldOptions options;
  SimClock clock;
  Stock stock;
  Faults faults;
  std::vector<Hold> holds;
  std::vector<LoggedRequest> requests;
  std::vector<std::unique_ptr<Account>> accounts;
  std::vector<std::unique_ptr<Instance>> instances;
  std::vector<std::unique_ptr<StoredVolume>> volumes;
  Json runpod = Json::object();  // volumes, templates
  Json lambda = Json::object();  // file systems, firewall
  Json vast = Json::object();    // API keys, volumes, price increases, commands
  std::string url;               // of this simulator
  bool ending = false;

  int64_t Now() const { return clock.NowMs(); }
  // "rp_" and the like with random hex digits behind it.
  std::string NewKey(const std::string& service);
  int64_t NextNumber() { return ++last_number_; }

  Account* AddAccount(const std::string& service, const std::string& key, double balance_usd);
  Account* FindAccount(const std::string& service, const std::string& key);
  Account* AccountNamed(const std::string& service, const std::string& name);
  Instance* Find(const std::string& service, const std::string& id);
  Instance* ByOwnKey(const std::string& service, const std::string& key);
  // Alive or lately ended, of that account, in the order of their creation, as a list shows them
  // now: those that lag are missing, or still there.
  std::vector<Instance*> Listed(const std::string& service, const std::string& account);

  double Balance(const Account& account) const;
  // What its instances cost an hour now.
  double SpendRate(const Account& account) const;

  // Takes what a fault has in store for it; books it as created now. Its boot is due after the
  // boot delay, and its node is made then.
  Instance* Add(std::unique_ptr<Instance> instance);
  // The rented thing is given back: stock, node, charges but those of `kept_charge`.
  void Stop(Instance* instance, const std::string& by, const std::string& message,
            const std::string& kept_charge);
  // From stopped to booting.
  void Start(Instance* instance, const std::string& by);
  // Ends it: at once, or after `delay_s`.
  void End(Instance* instance, const std::string& by, double delay_s = 0);
  // Taken away by the service, with no notice.
  void Preempt(Instance* instance, int64_t now_ms);
  void ReleaseStock(Instance* instance);

  // Its directory is made; nothing is charged yet.
  StoredVolume* AddVolume(const StoredVolume& volume);
  // One that is not gone; nullptr: there is none.
  StoredVolume* FindVolume(const std::string& service, const std::string& id);
  // From now on.
  void SetVolumeRate(StoredVolume* volume, double usd_per_hour, int64_t quantum_ms = 1000);
  // Its files go with it.
  void EndVolume(const std::string& service, const std::string& id);
  // Lambda bills what is in them.
  void MeasureFileSystems();

  // What is due by now happens.
  void Tick();
  // Ends every node.
  void EndNodes();

  // True and counted, or false with the seconds to wait. `capacity` tokens, refilled at
  // `per_second`.
  bool Allow(const std::string& bucket, double capacity, double per_second, double* wait_s,
             double* left);

  Json Books();
  Json State();

 private:
  void BootDue(Instance* instance, int64_t now_ms);
  void PriceDue(Instance* instance, int64_t now_ms);
  void FundsDue(int64_t now_ms);
  Json VolumeBooks();

  struct Bucket {
    double tokens = 0;
    int64_t at_ms = 0;
  };
  std::map<std::string, Bucket> buckets_;
  int64_t last_number_ = 0;
};

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_WORLD_H_
