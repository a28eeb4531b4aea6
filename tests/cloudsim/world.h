// The state of all services: accounts, instances with their nodes and bills.
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

namespace gpuctl::cloudsim {

class Service;

struct WorldOptions {
  std::string dir;
  double speed = 1;
  double boot_s = 1;  // from creation to running, simulated
  bool rate_limits = true;
  bool real_rate_clock = false;  // limits count real time
  bool nodes = true;             // false: instances are only entries in the books
};

// Returns the sum of the sizes of all files below `dir`.
int64_t BytesBelow(const std::string& dir);

// The caller: an account, one of its instances with that instance's key, or a key with permissions.
struct Caller {
  Account* account = nullptr;
  Instance* instance = nullptr;
  Json permissions;  // null: all
  std::string name;  // for the books
};

// The whole state. Everything is used with `mutex` held.
class World {
 public:
  explicit World(const WorldOptions& options);
  ~World();

  Mutex mutex;
  CondVar changed;  // holds, faults, the end of the program
  WorldOptions options;
  SimClock clock;
  std::vector<std::unique_ptr<Service>> services;  // with their stock
  Faults faults;
  std::vector<Hold> holds;
  std::vector<LoggedRequest> requests;
  std::vector<std::unique_ptr<Account>> accounts;
  std::vector<std::unique_ptr<Instance>> instances;
  std::vector<std::unique_ptr<StoredVolume>> volumes;
  Json registries = Json::object();  // server -> user -> password, for private images
  std::string url;                   // of this simulator
  bool ending = false;

  int64_t Now() const { return clock.NowMs(); }
  // Returns the service of that name, or nullptr; the other function requires that there is one.
  Service* FindService(const std::string& name) const;
  Service& ServiceOf(const std::string& name) const;
  // Returns a loopback address that no machine of this or another simulator has.
  std::string NewAddress();
  int64_t NextNumber() { return ++last_number_; }

  Account* AddAccount(const std::string& service, const std::string& key, double balance_usd);
  Account* FindAccount(const std::string& service, const std::string& key);
  Account* AccountNamed(const std::string& service, const std::string& name);
  // Returns an instance as its service knows it; null for one that is hidden.
  Instance* Find(const std::string& service, const std::string& id);
  Instance* FindAny(const std::string& service, const std::string& id);
  Instance* ByOwnKey(const std::string& service, const std::string& key);
  // Returns the account's live and recently ended instances as a list shows them now, in the order
  // of creation. Instances with a lag are missing, or still shown.
  std::vector<Instance*> Listed(const std::string& service, const std::string& account);

  // Returns an instance that is the account's, as Find does.
  Instance* FindOf(const Account& account, const std::string& id);
  // Returns what Listed does, and everything that ended before, in the order of the ids.
  std::vector<Instance*> EverOf(const Account& account);

  int CountAlive(const std::string& service, const std::string& account) const;
  // True when a create is to be refused because the account has as many as it may, or because of a
  // fault of that kind.
  bool QuotaReached(const Account& account);
  // Takes a fault of a create that finds nothing left. True when there was one.
  bool TakeSoldOut(const std::string& service);
  double Balance(const Account& account) const;
  // Returns the present hourly cost of its instances, in USD.
  double SpendRate(const Account& account) const;

  // Adds an instance, created now, with its faults. It boots, and its node is made, after the boot
  // delay.
  Instance* Add(std::unique_ptr<Instance> instance);
  // Stops an instance and gives back its stock, node and charges, except the charges of
  // `kept_charge`.
  void Stop(Instance* instance, const std::string& by, const std::string& message,
            const std::string& kept_charge);
  // Boots a stopped instance.
  void Start(Instance* instance, const std::string& by);
  // Ends an instance at once, or after `delay_s`.
  void End(Instance* instance, const std::string& by, double delay_s = 0);
  // Takes an instance away without notice, as the service does.
  void Preempt(Instance* instance, int64_t now_ms);
  void ReleaseStock(Instance* instance);

  // Adds a volume and makes its directory. It has no charge yet.
  StoredVolume* AddVolume(const StoredVolume& volume);
  // Returns an existing volume, or nullptr.
  StoredVolume* FindVolume(const std::string& service, const std::string& id);
  // From now on.
  void SetVolumeRate(StoredVolume* volume, double usd_per_hour, int64_t quantum_ms = 1000);
  // Ends a volume and removes its files.
  void EndVolume(const std::string& service, const std::string& id);

  // Does everything that is due by now.
  void Tick();
  // Ends every node.
  void EndNodes();

  // Counts a request. False, with the seconds to wait, when the bucket is empty. A bucket has
  // `capacity` tokens, refilled at `per_second`.
  bool Allow(const std::string& bucket, double capacity, double per_second, double* wait_s,
             double* left);

  Json Books();
  Json Stock();
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
