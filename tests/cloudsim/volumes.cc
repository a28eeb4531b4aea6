// Storage that outlives instances: its directories and its cost.
#include <cmath>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "tests/cloudsim/service.h"

namespace gpuctl::cloudsim {
int64_t BytesBelow(const std::string& dir) {
  std::error_code error;
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           dir, std::filesystem::directory_options::skip_permission_denied, error)) {
    std::error_code gone;
    if (!entry.is_regular_file(gone)) continue;
    const auto size = entry.file_size(gone);
    if (!gone) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

StoredVolume* World::AddVolume(const StoredVolume& volume) {
  auto made = std::make_unique<StoredVolume>(volume);
  made->dir = JoinPath(options.dir, absl::StrCat("volumes/", volume.service, "-", volume.id));
  (void)MakeDirectories(made->dir);
  volumes.push_back(std::move(made));
  return volumes.back().get();
}

StoredVolume* World::FindVolume(const std::string& service, const std::string& id) {
  for (const auto& volume : volumes) {
    if (!volume->gone && volume->service == service && volume->id == id) return volume.get();
  }
  return nullptr;
}

void World::SetVolumeRate(StoredVolume* volume, double usd_per_hour, int64_t quantum_ms) {
  const int64_t now = Now();
  if (!volume->charges.empty()) {
    Charge& last = volume->charges.back();
    if (last.to_ms == 0 && std::abs(last.usd_per_hour - usd_per_hour) < 1e-12) return;
    if (last.to_ms == 0) last.to_ms = now;
  }
  Charge charge;
  charge.kind = "storage";
  charge.usd_per_hour = usd_per_hour;
  charge.quantum_ms = quantum_ms;
  charge.from_ms = now;
  volume->charges.push_back(charge);
}

void World::EndVolume(const std::string& service, const std::string& id) {
  StoredVolume* volume = FindVolume(service, id);
  if (volume == nullptr) return;
  volume->gone = true;
  if (!volume->charges.empty()) volume->charges.back().to_ms = Now();
  std::error_code error;
  std::filesystem::remove_all(volume->dir, error);
}

Json World::VolumeBooks() {
  for (const auto& service : services) service->MeasureVolumes(*this);
  Json books = Json::array();
  for (const auto& volume : volumes) {
    double billed = 0;
    for (const Charge& charge : volume->charges) billed += Cost(charge, Now());
    const bool running = !volume->gone && !volume->charges.empty();
    books.push_back({{"service", volume->service},
                     {"id", volume->id},
                     {"account", volume->account},
                     {"name", volume->name},
                     {"place", volume->place},
                     {"alive", !volume->gone},
                     {"dir", volume->dir},
                     {"usd_per_hour", running ? volume->charges.back().usd_per_hour : 0.0},
                     {"billed_usd", billed}});
  }
  return books;
}

}  // namespace gpuctl::cloudsim
