// What the adapters of markets with a REST API have in common: an instance is looked up, listed and
// ended by a table of paths, fields and words. Offers, prices and creates are each market's own.
#ifndef GPUCTL_PROVISIONING_REST_REST_MARKET_H_
#define GPUCTL_PROVISIONING_REST_REST_MARKET_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "provisioning/http/http.h"
#include "provisioning/market/provider.h"
#include "provisioning/market/provider_access.h"
#include "provisioning/rest/json_reader.h"
#include "provisioning/rest/list_rows.h"
#include "provisioning/rest/rest_api.h"

namespace gpuctl {

// A market's word for a state of an instance.
struct StateWord {
  absl::string_view word;
  Instance::State state = Instance::State::kStarting;
  // True when an instance with that word is gone and bills nothing any more.
  bool gone = false;
};

// Where an instance's fields are in a row. Paths are those of JsonReader; an empty one is read by
// RestMarket::Complete or not at all.
struct InstanceShape {
  absl::string_view id = "id";  // text, or a whole number where MarketShape::numeric_ids
  absl::string_view label = "name";
  // An array of {"key", "value"} or of "key:value", or an object.
  absl::string_view tags{};
  absl::string_view lease_tag{};  // the key of the tag that has the label, too
  absl::string_view status = "status";
  absl::Span<const StateWord> states{};        // other words: kStarting
  absl::Span<const absl::string_view> more{};  // texts that say more about it, for people
  absl::string_view host{};                    // the address for ssh
  absl::string_view port{};
  absl::string_view user_at{};
  absl::string_view user = "root";  // where no row says it
  absl::string_view created{};      // RFC 3339
};

// One kind of request about an instance. "{id}" in the path stands for its id, and "{account}" for
// RestMarket::AccountInPath.
struct InstancePath {
  absl::string_view path;
  absl::string_view rate_class{};
  absl::string_view row{};  // where the answer has it; empty: the answer itself is the row
  absl::string_view method = "DELETE";  // of an end
};

struct MarketShape {
  absl::string_view name;      // "lambda"
  absl::string_view title;     // "Lambda"
  absl::string_view machine;   // in messages: "instance", "pod"
  absl::string_view base_url;  // scheme and host
  InstanceShape instance;
  absl::string_view list_path;  // with "{account}" as in InstancePath
  ListShape list;
  InstancePath describe;  // GET
  InstancePath end = {};  // empty where Terminate is the market's own
  bool numeric_ids = false;
  bool null_is_gone = false;  // a row that is null says that the instance is gone
  KeyHeader key_header = {};
  std::optional<TokenExchange> exchange = std::nullopt;
};

class RestMarket : public Provider {
 public:
  RestMarket(const MarketShape& shape, std::shared_ptr<Http> http, ProviderAccess access,
             RestApi::Explain explain);

  absl::string_view name() const override { return shape_.name; }
  absl::StatusOr<Instance> Describe(const InstanceId& id) override;
  absl::StatusOr<std::vector<Instance>> ListInstances() override;
  absl::Status Terminate(const InstanceId& id) override;

 protected:
  // Adds what the table does not say: price, GPUs, place, and states that need more than a word.
  // Afterwards only an instance in kRunning keeps its address, and one without an address is
  // kStarting.
  virtual void Complete(JsonReader& row, Instance& instance) const = 0;
  // Asks the market more about the one instance that Describe was asked for.
  virtual void LookFurther(const nlohmann::json& /*row*/, Instance& /*instance*/) const {}
  // Returns what "{account}" in the paths stands for. It may ask the market.
  virtual absl::StatusOr<std::string> AccountInPath() { return std::string(); }
  // Returns the refusal in an answer of 2xx to an end, or OK.
  virtual absl::Status CheckEnd(const HttpResponse& /*response*/) const { return absl::OkStatus(); }

  const RestApi& api() const { return api_; }
  const MarketShape& shape() const { return shape_; }

  struct MarketRow {
    Instance instance;  // of one that is gone, only what the table reads before its state
    bool gone = false;
  };
  // Reads a row. An error names the field.
  absl::StatusOr<MarketRow> RowOf(const nlohmann::json& json) const;
  // Returns `path` with the account in it. An error begins with `doing`.
  absl::StatusOr<std::string> WithAccount(absl::string_view path, absl::string_view doing);
  // Returns the instances of the list at `path`, read as that of ListInstances.
  absl::StatusOr<std::vector<Instance>> InstancesAt(absl::string_view path) const;
  // Returns all rows of the list, for a reader of more than instances.
  absl::StatusOr<std::vector<nlohmann::json>> ListRowsOfInstances() const;
  // Returns "describe Lambda instance i1".
  std::string Doing(absl::string_view verb, absl::string_view id) const;
  // Returns INVALID_ARGUMENT for what is no id: an empty one would ask for the list.
  absl::Status CheckId(absl::string_view id, absl::string_view doing) const;

 private:
  const MarketShape& shape_;
  RestApi api_;
};

// Returns the path of a request about `id`.
std::string PathOf(const InstancePath& path, absl::string_view id);

// Returns the number of GPUs that a row may say: 0 to 1024.
int GpuCount(int64_t count);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_REST_REST_MARKET_H_
