#include "client/market/volumes.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/base/suggest.h"
#include "client/keys/market_access.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

using Json = nlohmann::ordered_json;

absl::Status NoSuchVolume(const VolumeList& list, const VolumeRequest& request) {
  const std::string doing = absl::StrCat("find the volume ", request.name);
  if (!list.unknown.empty()) {
    // This market may have the volume.
    const auto& [market, cause] = list.unknown.front();
    return ExplainMarketError(Annotate(cause, absl::StrCat(doing, ": it is at no other provider")),
                              market);
  }
  std::vector<std::string> there, names;
  for (const Volume& volume : list.volumes) {
    there.push_back(DescribeVolume(volume));
    names.push_back(volume.name);
    names.push_back(volume.id);
  }
  const std::string what = there.empty() ? "there are no volumes"
                                         : absl::StrCat("there is none of that name or id",
                                                        DidYouMean(request.name, names),
                                                        "; there are ", absl::StrJoin(there, ", "));
  return WithExitCode(
      WithHint(absl::NotFoundError(absl::StrCat(doing, ": ", what)),
               "gpuctl volumes lists them; the provider's own pages and tools make new ones"),
      kExitUsage);
}

}  // namespace

VolumeList ListVolumes(const std::vector<Provider*>& markets) {
  VolumeList list;
  for (Provider* market : markets) {
    absl::StatusOr<std::vector<Volume>> volumes = market->ListVolumes();
    if (!volumes.ok()) {
      list.unknown.emplace_back(std::string(market->name()), volumes.status());
      continue;
    }
    list.volumes.insert(list.volumes.end(), volumes->begin(), volumes->end());
  }
  return list;
}

absl::StatusOr<Volume> FindVolume(const std::vector<Provider*>& markets,
                                  const VolumeRequest& request) {
  const VolumeList list = ListVolumes(markets);
  std::vector<Volume> found;
  for (const Volume& volume : list.volumes) {
    if (volume.id == request.name) found.push_back(volume);
  }
  if (found.empty()) {
    std::copy_if(list.volumes.begin(), list.volumes.end(), std::back_inserter(found),
                 [&request](const Volume& volume) { return volume.name == request.name; });
  }
  if (found.empty()) return NoSuchVolume(list, request);
  if (found.size() > 1) {
    std::vector<std::string> texts;
    for (const Volume& volume : found) texts.push_back(DescribeVolume(volume));
    return UsageError(
        absl::StrCat("volume ", request.name, " may be ", absl::StrJoin(texts, " or ")),
        "write its id, or name its --provider");
  }
  Volume volume = std::move(found.front());
  if (!request.path.empty()) volume.mount_path = request.path;
  const auto below = [&volume](const std::string& root) {
    return volume.mount_path == root ||
           absl::StartsWith(volume.mount_path, absl::StrCat(root, "/"));
  };
  if (!volume.mount_below.empty() &&
      std::none_of(volume.mount_below.begin(), volume.mount_below.end(), below)) {
    return UsageError(
        absl::StrCat("volume ", request.name, ": ", volume.provider, " mounts nothing at ",
                     volume.mount_path, ", only below ", absl::StrJoin(volume.mount_below, ", ")),
        absl::StrCat("without a path it is mounted where ", volume.provider, " does"));
  }
  return volume;
}

nlohmann::ordered_json UnknownVolumesToJson(const VolumeList& list) {
  Json unknown = Json::array();
  for (const auto& [market, cause] : list.unknown) {
    unknown.push_back({{"provider", market}, {"cause", std::string(cause.message())}});
  }
  return unknown;
}

}  // namespace gpuctl
