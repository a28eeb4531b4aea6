// Higher prices that hosts announce. The published description has neither their routes nor their
// fields; both come from the service's own command line. The units of the parts are not published,
// so only their ratios are used.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "provisioning/rest/rest_api.h"
#include "provisioning/vast/vast_api.h"
#include "provisioning/vast/vast_market.h"

namespace gpuctl {
namespace {

constexpr double kMaxUnixSeconds = 1e12;

// Returns the factor by which a part of the price rises; absent when it is not known.
std::optional<double> FactorOf(const VastPriceChange& change) {
  if (!change.after.has_value()) return 1;
  if (!change.before.has_value() || *change.before <= 0) return std::nullopt;
  return std::max(1.0, *change.after / *change.before);
}

std::string PerGb(absl::string_view what, const VastPriceChange& change) {
  if (!change.after.has_value()) return "";
  return absl::StrCat(
      what, " ", change.before.has_value() ? absl::StrFormat("from $%.4f ", *change.before) : "",
      absl::StrFormat("to $%.4f a GB", *change.after));
}

// Returns the highest hourly price of `instance` when `row` is in force; 0 when it is not known.
double PriceAfter(const VastPriceRise& row, const VastInstance& instance) {
  const std::optional<double> gpu = FactorOf(row.gpu);
  const std::optional<double> storage = FactorOf(row.storage);
  const double now = instance.dph_total;
  if (!gpu.has_value() || !storage.has_value() || now <= 0) return 0;
  // When the parts of the price are not known, all of it rises by the larger ratio.
  if (instance.dph_base <= 0 || instance.dph_base > now) return now * std::max(*gpu, *storage);
  return instance.dph_base * *gpu + (now - instance.dph_base) * *storage;
}

}  // namespace

absl::StatusOr<std::vector<PriceRise>> VastProvider::ListPriceRises() {
  constexpr absl::string_view kDoing = "list Vast's price rises";
  ASSIGN_OR_RETURN(const std::vector<VastPriceRise> rows,
                   api().Get(kDoing, "/api/v0/instances/pending-price-increases/",
                             ParseVastPriceRises, "prices"));
  std::vector<PriceRise> rises;
  for (const VastPriceRise& row : rows) {
    PriceRise rise;
    rise.id = absl::StrCat(row.id);
    rise.instance_id = absl::StrCat(row.contract_id);
    ASSIGN_OR_RETURN(
        const std::optional<VastInstance> instance,
        api().Get(kDoing, VastInstancePath(row.contract_id), ParseVastInstance, "show"));
    if (!instance.has_value()) continue;  // it has ended meanwhile
    rise.before_usd_per_hour = instance->dph_total;
    rise.after_usd_per_hour = PriceAfter(row, *instance);
    if (row.contract_end_s > 0 && row.contract_end_s < kMaxUnixSeconds) {
      rise.from_ms = static_cast<int64_t>(row.contract_end_s * 1000);
    }
    std::vector<std::string> also;
    for (std::string part : {PerGb("upload", row.upload), PerGb("download", row.download)}) {
      if (!part.empty()) also.push_back(std::move(part));
    }
    rise.also = absl::StrJoin(also, ", ");
    rises.push_back(std::move(rise));
  }
  return rises;
}

absl::Status VastProvider::AnswerPriceRise(const PriceRise& rise, bool accept) {
  const std::string doing = absl::StrCat(accept ? "accept" : "refuse", " the price rise of Vast ",
                                         "instance ", rise.instance_id);
  const std::optional<int64_t> number = VastNumber(rise.id);
  if (!number.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(doing, ": ids are numbers"));
  }
  // It is sent once. After a lost answer the list shows whether the rise still waits.
  const absl::string_view path = accept ? "/api/v0/instances/accept-price-increase/"
                                        : "/api/v0/instances/reject-price-increase/";
  ASSIGN_OR_RETURN(const HttpResponse response,
                   api().Send({.doing = doing,
                               .kind = CallKind::kOnce,
                               .method = "PUT",
                               .path = path,
                               .rate_class = "prices",
                               .body = {{"pending_price_increase_id", *number}}}));
  const absl::Status status = StatusOfVastChange(response, /*silence_is_success=*/false);
  if (status.ok()) return status;
  // Older servers answer 409.
  if (response.status == 409 ||
      ParseVastReply(response.body).error == "no_pending_price_increase") {
    return absl::NotFoundError(absl::StrCat(doing, ": it does not wait any more"));
  }
  return Annotate(status, doing);
}

}  // namespace gpuctl
