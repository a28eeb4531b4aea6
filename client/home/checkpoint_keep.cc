#include "client/home/checkpoint_keep.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files/files.h"

namespace gpuctl {

using gpuctl::v1::CheckpointInfo;

const CheckpointInfo* NextToBring(const std::vector<CheckpointInfo>& listed, int keep,
                                  const std::function<bool(const CheckpointInfo&)>& wanted) {
  int looked_at = 0;
  for (auto checkpoint = listed.rbegin(); checkpoint != listed.rend(); ++checkpoint) {
    if (keep > 0 && looked_at++ >= keep) break;
    if (wanted(*checkpoint)) return &*checkpoint;
  }
  return nullptr;
}

bool IsHome(const std::vector<PulledItem>& items, const CheckpointInfo& checkpoint,
            const std::string& path) {
  return std::any_of(items.begin(), items.end(), [&](const PulledItem& item) {
    return item.path == path && item.from == checkpoint.path() &&
           item.node_modified_ms == checkpoint.modified_ms() && PathExists(path);
  });
}

std::vector<PulledItem> NewestFirst(const std::vector<PulledItem>& items) {
  std::vector<PulledItem> trainers, foreign;
  for (const PulledItem& item : items) {
    if (item.kind == PulledItem::Kind::kTrainer) trainers.push_back(item);
    if (item.kind == PulledItem::Kind::kForeign) foreign.push_back(item);
  }
  std::stable_sort(trainers.begin(), trainers.end(), [](const PulledItem& a, const PulledItem& b) {
    return std::make_tuple(a.step, a.node_modified_ms) >
           std::make_tuple(b.step, b.node_modified_ms);
  });
  std::stable_sort(foreign.begin(), foreign.end(), [](const PulledItem& a, const PulledItem& b) {
    return std::make_tuple(a.node_modified_ms, a.step) >
           std::make_tuple(b.node_modified_ms, b.step);
  });
  std::vector<PulledItem> all;
  std::merge(foreign.begin(), foreign.end(), trainers.begin(), trainers.end(),
             std::back_inserter(all), [](const PulledItem& a, const PulledItem& b) {
               return a.node_modified_ms > b.node_modified_ms;
             });
  return all;
}

std::vector<PulledItem> ToRemove(const std::vector<PulledItem>& items, const std::string& to,
                                 int keep) {
  if (keep <= 0) return {};
  std::vector<PulledItem> here;
  for (PulledItem& item : NewestFirst(items)) {
    if (absl::StartsWith(item.path, absl::StrCat(to, "/")) && PathExists(item.path)) {
      here.push_back(std::move(item));
    }
  }
  std::vector<PulledItem> removable;
  for (size_t i = static_cast<size_t>(keep); i < here.size(); ++i) {
    if (here[i].ours && IsUntouchedAndAlone(here[i])) removable.push_back(here[i]);
  }
  return removable;
}

}  // namespace gpuctl
