// Types for requests to rental markets and their answers, common to all markets.
#ifndef GPUCTL_PROVISIONING_MARKET_TYPES_H_
#define GPUCTL_PROVISIONING_MARKET_TYPES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace gpuctl {

// Storage that outlives the machines it is mounted on and bills by itself: a network volume, a file
// system, a machine's own volume.
struct Volume {
  std::string provider;
  std::string id;
  std::string name;        // need not be unique
  int64_t size_bytes = 0;  // what is paid for; 0: it grows with what is in it
  std::optional<int64_t> used_bytes;
  std::string region;  // of the machines that can have it, as in Offer; empty: not said
  std::string place;   // the one machine that can have it, as in Offer; empty: all of the region
  std::string mount_path;                // where it is mounted when nobody asks for another path
  std::vector<std::string> mount_below;  // the directories it can be mounted below; empty: any
  std::optional<double> usd_per_month;   // at its present size; absent: not known
  std::optional<bool> in_use;            // mounted on a machine now
};

// Constraints on hardware, price and place. Empty or zero: no constraint.
// What a run asks of a cluster's scheduler, beyond the user's settings. Empty: what these say.
struct SchedulerWishes {
  std::string partition;
  std::string account;
  std::string qos;
  std::string constraint;
  absl::Duration time;             // of the allocation, where that is longer than the run needs
  std::vector<std::string> flags;  // after those of the settings

  bool empty() const {
    return partition.empty() && account.empty() && qos.empty() && constraint.empty() &&
           time == absl::ZeroDuration() && flags.empty();
  }
};

struct Requirements {
  struct Gpu {
    std::string name;  // canonical; empty: any with enough memory
    int count = 1;
    int64_t min_memory_bytes = 0;
    int64_t max_memory_bytes = 0;
  };
  std::vector<Gpu> gpus;  // alternatives, first choice first
  int64_t disk_bytes = 0;
  std::optional<double> max_price_usd_per_hour;
  std::vector<std::string>
      regions;                   // country or region as users write them: "US", "EU", "us-west-1"
  absl::Duration needed_for;     // machines whose host takes them back before that do not fit
  bool spot = false;             // only interruptible ones
  std::optional<Volume> volume;  // only machines that can have it
  // A processor whose machines do not fit: why, and the command that changes that. An empty reason:
  // they fit. Markets do not look at it; who chooses among their offers does.
  struct Unserved {
    std::string reason;
    std::string hint;
  };
  Unserved x86_64;
  Unserved arm64;
  SchedulerWishes scheduler;  // only a cluster looks at them
  // How many machines at once, alike and in reach of each other. Only a cluster has more than one,
  // and looks at it.
  int nodes = 1;
};

// The address of a machine for ssh.
struct SshAddress {
  std::string host;
  int port = 22;
  std::string user;
  std::vector<std::string> identity_files = {};
  std::string proxy_command = {};
};

// Something a provider says can be rented now.
struct Offer {
  std::string provider;
  std::string ref;  // the provider's own, opaque
  std::string description;
  double price_usd_per_hour = 0;  // of the whole instance, with the disk asked for
  // The known hardware; empty or zero where the provider does not say.
  std::string gpu_name;  // canonical
  int gpu_count = 0;
  int64_t gpu_memory_bytes = 0;  // of one GPU
  std::string region;
  std::string cuda_version;           // highest the driver takes, "12.8"
  std::optional<double> reliability;  // 0 to 1
  int64_t disk_bytes = 0;             // most that can be had
  // Costs on top of the price. Disk that the price counts is not here.
  std::optional<double> disk_usd_per_gb_month;
  std::optional<double> upload_usd_per_gb;
  std::optional<double> download_usd_per_gb;
  bool spot = false;
  bool arm64 = false;        // else x86-64
  bool takes_volume = true;  // a volume of its region can be mounted
  // The place to leave out after a bad machine of this offer: a machine, a GPU model in a data
  // centre, or a kind of machine in a region. Unique among all providers.
  std::string place;
};

using InstanceId = std::string;

// A host key of ssh, for a machine that we rent.
struct HostKeyPair {
  std::string private_key;  // lines in OpenSSH's format; a secret, only for the request that rents
  std::string public_key;   // "ssh-ed25519 <base64>"
};

// The login with which a market pulls a private image.
struct RegistryLogin {
  std::string server;  // the registry's, as CheckedRegistry returns it
  std::string username;
  std::string password;  // a secret, only for the request that rents
};

struct RentOptions {
  std::string ssh_public_key;  // one line of authorized_keys; empty where the user's keys are there
  std::string start_script;    // bash, run as root at boot beside whatever starts sshd
  HostKeyPair host_key;        // for its sshd; empty: it makes its own
  std::string image;           // container image; empty: the provider's default of ours
  std::optional<RegistryLogin> registry_login;  // for `image`; absent: anybody may pull it
  int64_t disk_bytes = 0;                       // 0: the provider's default of ours
  std::map<std::string, std::string> env;  // no secrets: providers show it to their account's users
  std::string volume_id;                   // of the same place as the offer; empty: none
  std::string volume_path;                 // absolute; where it is mounted
  // The highest bid for an interruptible machine, in USD per hour; absent: the offer's price.
  std::optional<double> bid_usd_per_hour;
  // When the market ends it, where Expiry::at_create; infinite: never.
  absl::Time expires_at = absl::InfiniteFuture();
  SchedulerWishes scheduler;  // only a cluster looks at them
};

// A rented machine.
struct Instance {
  // The states of an instance. kFailed: it bills, or may, and runs nothing (exited, outbid).
  // kSilent: the market has lost sight of it (offline, unhealthy); it bills, its job may go on, and
  // it may come back.
  enum class State { kStarting, kRunning, kStopping, kFailed, kSilent };
  InstanceId id;
  std::string label;  // empty: none
  State state = State::kStarting;
  std::string status;  // the provider's own word, with its message
  // True when it runs, and nothing on it does until its market lets it go on.
  bool suspended = false;
  // True when it does not start until a person lets it go.
  bool held = false;
  // True when it waits for an image that cannot be had, which is no fault of the machine; `status`
  // has the market's words.
  bool image_fails = false;
  std::optional<SshAddress> address;  // absent until known
  // True when `address` is a relay of the market's, which is slower than an open port of the
  // machine. A port may still open.
  bool relayed = false;
  // Now, also where it is stopped and only its disk bills; 0: the provider does not say, or
  // `bills_nothing`.
  double price_usd_per_hour = 0;
  // True when it is stopped and keeps nothing that bills.
  bool bills_nothing = false;
  std::optional<double> upload_usd_per_gb;  // absent: the provider does not say
  std::optional<double> download_usd_per_gb;
  std::string gpu_name;  // canonical
  int gpu_count = 0;
  std::string region;
  std::string place;  // as in Offer; empty where the provider does not say
  bool spot = false;
  int64_t created_ms = 0;  // by the provider's clock; 0: it does not say
  // When its host takes it back or its market ends it, by the provider's clock. From then on it
  // does not run, and at most its disk bills. 0: never, or the provider does not say.
  int64_t ends_ms = 0;
  // False when this answer cannot say that: what another one said of `ends_ms` is still true.
  bool tells_end = true;

  // Returns the price that the provider tells; absent: none.
  std::optional<double> told_price() const {
    if (bills_nothing) return 0;
    return price_usd_per_hour > 0 ? std::optional<double>(price_usd_per_hour) : std::nullopt;
  }
};

// A higher price that the owner of a rented machine has announced and that waits for an answer. The
// old price is valid until `from_ms`, whatever the answer.
struct PriceRise {
  std::string id;  // the provider's
  InstanceId instance_id;
  double before_usd_per_hour = 0;  // of the whole instance, now; 0: not told
  double after_usd_per_hour = 0;   // the most that it will be; 0: it cannot be told
  int64_t from_ms = 0;             // when the current contract ends; 0: not told
  std::string also;                // other prices that rise, for people; empty: none
};

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_MARKET_TYPES_H_
