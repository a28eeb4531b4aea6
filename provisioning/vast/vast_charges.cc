// What Vast has charged for traffic, by instance. It counts what a host moved before anything of
// ours ran there, such as the image.
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "provisioning/market/rest_api.h"
#include "provisioning/vast/vast_api.h"
#include "provisioning/vast/vast_market.h"

namespace gpuctl {
namespace {

constexpr int kChargesPerPage = 500;
constexpr int kMaxChargePages = 20;

}  // namespace

absl::StatusOr<std::map<InstanceId, double>> VastProvider::ListTrafficCharges(int64_t from_ms,
                                                                              int64_t to_ms) {
  constexpr absl::string_view kDoing = "list Vast's charges";
  const nlohmann::json filters = {{"day", {{"gte", from_ms / 1000}, {"lte", to_ms / 1000 + 1}}},
                                  {"type", {{"in", {"instance"}}}}};
  const std::string path = absl::StrCat("/api/v0/charges/?limit=", kChargesPerPage,
                                        "&select_filters=", UrlEncode(filters.dump()));
  std::map<InstanceId, double> charges;
  std::set<std::string> tokens;
  std::string token;
  do {
    const std::string more = token.empty() ? "" : absl::StrCat("&after_token=", UrlEncode(token));
    ASSIGN_OR_RETURN(const VastChargePage page,
                     api_.Get(kDoing, absl::StrCat(path, more), ParseVastCharges, "charges"));
    for (const VastChargePage::Row& row : page.rows) {
      if (row.instance_id > 0) charges[absl::StrCat(row.instance_id)] += row.traffic_usd;
    }
    token = page.next_token;
    if (!token.empty() && (!tokens.insert(token).second || tokens.size() >= kMaxChargePages)) {
      return absl::UnknownError(absl::StrCat(kDoing, ": the pages do not end"));
    }
  } while (!token.empty());
  return charges;
}

}  // namespace gpuctl
