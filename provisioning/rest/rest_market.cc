#include "provisioning/rest/rest_market.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "provisioning/market/label.h"
#include "provisioning/market/rent_options.h"

namespace gpuctl {
namespace {

constexpr size_t kMostStatusBytes = 60;
constexpr size_t kMostMoreBytes = 160;
constexpr absl::string_view kAccount = "{account}";

// Returns the value of the tag `key`, among tags {"key", "value"} or "key:value", or in an object
// of tags; "" for none.
std::string TagOf(JsonReader& row, absl::string_view path, absl::string_view key) {
  const nlohmann::json* tags = row.Find(path);
  if (tags == nullptr) return "";
  if (tags->is_object()) {
    std::string value;
    JsonReader reader(*tags, "tags");
    reader.Read(key, value);
    row.Check(reader.status());
    return value;
  }
  if (!tags->is_array()) {
    row.Fail(path, "is no list");
    return "";
  }
  std::string found;
  for (const nlohmann::json& tag : *tags) {
    if (tag.is_string()) {
      absl::string_view text = tag.get_ref<const std::string&>();
      if (absl::ConsumePrefix(&text, key) && absl::ConsumePrefix(&text, ":")) {
        found = std::string(text);
      }
      continue;
    }
    JsonReader pair(tag, "tag");
    std::string name, value;
    pair.Read("key", name);
    pair.Read("value", value);
    row.Check(pair.status());
    if (name == key) found = value;
  }
  return found;
}

void ReadAddress(JsonReader& row, const InstanceShape& shape, Instance& instance) {
  SshAddress address;
  if (shape.host.empty()) return;
  row.Read(shape.host, address.host);
  if (address.host.empty()) return;
  address.user = std::string(shape.user);
  if (!shape.user_at.empty()) row.Read(shape.user_at, address.user);
  int64_t port = address.port;
  if (!shape.port.empty()) row.Require(shape.port, port);
  if (!IsSafeHost(address.host)) row.Fail(shape.host, "is no address");
  if (!IsSafeUser(address.user)) row.Fail(shape.user_at, "is no user name");
  if (port < 1 || port > 65535) row.Fail(shape.port, "is no port");
  address.port = static_cast<int>(std::clamp<int64_t>(port, 1, 65535));
  instance.address = std::move(address);
}

}  // namespace

std::string PathOf(const InstancePath& path, absl::string_view id) {
  return absl::StrReplaceAll(path.path, {{"{id}", UrlEncode(id)}});
}

int GpuCount(int64_t count) { return static_cast<int>(std::clamp<int64_t>(count, 0, 1024)); }

RestMarket::RestMarket(const MarketShape& shape, std::shared_ptr<Http> http, ProviderAccess access,
                       RestApi::Explain explain)
    : shape_(shape),
      api_(std::move(http), std::move(access), shape.base_url, explain, shape.key_header,
           shape.exchange) {}

std::string RestMarket::Doing(absl::string_view verb, absl::string_view id) const {
  return absl::StrCat(verb, " ", shape_.title, " ", shape_.machine, id.empty() ? "" : " ", id);
}

absl::StatusOr<std::string> RestMarket::WithAccount(absl::string_view path,
                                                    absl::string_view doing) {
  if (!absl::StrContains(path, kAccount)) return std::string(path);
  const absl::StatusOr<std::string> account = AccountInPath();
  // Only an answer about the instance itself may say that it is gone.
  if (absl::IsNotFound(account.status())) {
    return absl::UnknownError(absl::StrCat(doing, ": ", account.status().message()));
  }
  if (!account.ok()) return Annotate(account.status(), doing);
  if (account->empty()) return absl::UnknownError(absl::StrCat(doing, ": no account"));
  return absl::StrReplaceAll(path, {{kAccount, UrlEncode(*account)}});
}

absl::Status RestMarket::CheckId(absl::string_view id, absl::string_view doing) const {
  int64_t number = 0;
  if (id.empty()) return absl::InvalidArgumentError(absl::StrCat(doing, ": no id"));
  if (!shape_.numeric_ids || (absl::SimpleAtoi(id, &number) && number > 0)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(doing, ": ids are numbers"));
}

absl::StatusOr<RestMarket::MarketRow> RestMarket::RowOf(const nlohmann::json& json) const {
  const InstanceShape& at = shape_.instance;
  JsonReader row(json, shape_.machine);
  MarketRow read;
  Instance& instance = read.instance;
  if (shape_.numeric_ids) {
    int64_t number = 0;
    row.Require(at.id, number);
    instance.id = absl::StrCat(number);
  } else {
    row.RequireId(at.id, instance.id);
  }
  row.Read(at.label, instance.label);
  if (!at.lease_tag.empty()) {
    // The name can be changed in the console.
    std::string tag = TagOf(row, at.tags, at.lease_tag);
    if (!ParseLabel(instance.label) && ParseLabel(tag)) instance.label = std::move(tag);
  }
  std::string status;
  if (!at.status.empty()) row.Require(at.status, status);
  instance.status = PrintableText(status, kMostStatusBytes);
  for (const StateWord& word : at.states) {
    if (word.word != status) continue;
    instance.state = word.state;
    read.gone = word.gone;
  }
  std::string more;
  for (const absl::string_view path : at.more) {
    std::string text;
    row.Read(path, text);
    if (!text.empty()) absl::StrAppend(&more, more.empty() ? "" : ", ", text);
  }
  if (!more.empty()) {
    absl::StrAppend(&instance.status, " (", PrintableText(more, kMostMoreBytes), ")");
  }
  if (read.gone) {
    RETURN_IF_ERROR(row.status());
    return read;
  }
  ReadAddress(row, at, instance);
  std::string created;
  if (!at.created.empty()) row.Read(at.created, created);
  absl::Time time;
  std::string problem;
  if (absl::ParseTime(absl::RFC3339_full, created, &time, &problem)) {
    instance.created_ms = absl::ToUnixMillis(time);
  }
  Complete(row, instance);
  RETURN_IF_ERROR(row.status());
  // A market may show an old address after a stop, and "running" before anything runs.
  if (instance.state != Instance::State::kRunning) instance.address.reset();
  if (!instance.address.has_value() && instance.state == Instance::State::kRunning) {
    instance.state = Instance::State::kStarting;
  }
  return read;
}

absl::StatusOr<Instance> RestMarket::Describe(const InstanceId& id) {
  const std::string doing = Doing("describe", id);
  if (const absl::Status good = CheckId(id, doing); !good.ok()) {
    // There can be no instance of such an id.
    return id.empty() ? good : absl::NotFoundError(good.message());
  }
  ASSIGN_OR_RETURN(const std::string path, WithAccount(PathOf(shape_.describe, id), doing));
  ASSIGN_OR_RETURN(const HttpResponse response,
                   api_.Ask({.doing = doing,
                             .kind = CallKind::kRead,
                             .method = "GET",
                             .path = path,
                             .rate_class = shape_.describe.rate_class}));
  const absl::StatusOr<nlohmann::json> json = ParseJson(response.body);
  if (!json.ok()) return Annotate(json.status(), doing);
  const nlohmann::json* row = &*json;
  if (!shape_.describe.row.empty()) {
    JsonReader answer(*json, "the answer");
    if (shape_.list.check != nullptr) shape_.list.check(answer);
    const bool gone =
        shape_.null_is_gone && answer.IsNull(std::string(shape_.describe.row).c_str());
    if (gone && answer.status().ok()) {
      return absl::NotFoundError(absl::StrCat(doing, ": it is gone"));
    }
    row = answer.Find(shape_.describe.row);
    if (row == nullptr) answer.Fail(shape_.describe.row, "is missing");
    if (!answer.status().ok()) return Annotate(answer.status(), doing);
  }
  absl::StatusOr<MarketRow> read = RowOf(*row);
  if (!read.ok()) return Annotate(read.status(), doing);
  if (read->instance.id != id) {
    return absl::UnknownError(
        absl::StrCat(doing, ": the answer is about ", shape_.machine, " ", read->instance.id));
  }
  if (read->gone) {
    return GoneError(doing, absl::StrCat("it is ", read->instance.status));
  }
  LookFurther(*row, read->instance);
  return std::move(read->instance);
}

absl::StatusOr<std::vector<nlohmann::json>> RestMarket::ListRowsOfInstances() const {
  return ListRows(api_, absl::StrCat(Doing("list", ""), "s"), shape_.list_path, shape_.list);
}

absl::StatusOr<std::vector<Instance>> RestMarket::ListInstances() {
  ASSIGN_OR_RETURN(const std::string path,
                   WithAccount(shape_.list_path, absl::StrCat(Doing("list", ""), "s")));
  return InstancesAt(path);
}

absl::StatusOr<std::vector<Instance>> RestMarket::InstancesAt(absl::string_view path) const {
  const std::string doing = absl::StrCat(Doing("list", ""), "s");
  ASSIGN_OR_RETURN(const std::vector<nlohmann::json> rows,
                   ListRows(api_, doing, path, shape_.list));
  std::vector<Instance> instances;
  for (const nlohmann::json& row : rows) {
    absl::StatusOr<MarketRow> read = RowOf(row);
    if (!read.ok()) return Annotate(read.status(), doing);
    if (!read->gone) instances.push_back(std::move(read->instance));
  }
  return instances;
}

absl::Status RestMarket::Terminate(const InstanceId& id) {
  const std::string doing = Doing("terminate", id);
  RETURN_IF_ERROR(CheckId(id, doing));
  ASSIGN_OR_RETURN(const std::string path, WithAccount(PathOf(shape_.end, id), doing));
  ASSIGN_OR_RETURN(const HttpResponse response, api_.Ask({.doing = doing,
                                                          .kind = CallKind::kRepeat,
                                                          .method = shape_.end.method,
                                                          .path = path,
                                                          .rate_class = shape_.end.rate_class}));
  return Annotate(CheckEnd(response), doing);
}

}  // namespace gpuctl
