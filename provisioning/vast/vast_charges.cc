// What Vast has charged for traffic, by instance. It counts what a host moved before anything of
// ours ran there, such as the image.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "provisioning/rest/rest_api.h"
#include "provisioning/vast/vast_api.h"
#include "provisioning/vast/vast_market.h"

namespace gpuctl {
namespace {

constexpr int kChargesPerPage = 500;
constexpr absl::string_view kNextCharges[] = {"next_token"};
constexpr ListShape kCharges = {.what = "the charges",
                                .part = "contract",
                                .rows = "results",
                                .paging = {.by = Paging::By::kCursor,
                                           .parameter = "after_token",
                                           .next = kNextCharges,
                                           .max_pages = 20},
                                .rate_class = "charges",
                                .check = CheckVastSuccess};

}  // namespace

absl::StatusOr<std::map<InstanceId, double>> VastProvider::ListTrafficCharges(int64_t from_ms,
                                                                              int64_t to_ms) {
  const nlohmann::json filters = {{"day", {{"gte", from_ms / 1000}, {"lte", to_ms / 1000 + 1}}},
                                  {"type", {{"in", {"instance"}}}}};
  const std::string path = absl::StrCat("/api/v0/charges/?limit=", kChargesPerPage,
                                        "&select_filters=", UrlEncode(filters.dump()));
  ASSIGN_OR_RETURN(const std::vector<VastCharge> rows,
                   ListOf(api(), "list Vast's charges", path, kCharges, ReadVastCharge));
  std::map<InstanceId, double> charges;
  for (const VastCharge& row : rows) {
    if (row.instance_id > 0) charges[absl::StrCat(row.instance_id)] += row.traffic_usd;
  }
  return charges;
}

}  // namespace gpuctl
