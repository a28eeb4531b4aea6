// Vast's offers.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "provisioning/market/gpu_models.h"
#include "provisioning/market/offers.h"
#include "provisioning/market/regions.h"
#include "provisioning/market/rent_options.h"
#include "provisioning/rest/rest_api.h"
#include "provisioning/vast/vast_api.h"
#include "provisioning/vast/vast_market.h"

namespace gpuctl {
namespace {

// Vast's names of models that differ from ours by more than spaces.
constexpr struct {
  const char* canonical;
  const char* names;
} kNames[] = {
    {"H100", "H100 SXM,H100 PCIE,H100 NVL"},
    {"H100-SXM", "H100 SXM"},
    {"H100-PCIe", "H100 PCIE"},
    {"H200", "H200,H200 NVL"},
    {"A100-40GB", "A100 SXM4,A100 PCIE"},
    {"A100-80GB", "A100 SXM4,A100 PCIE,A100X"},
    {"V100-16GB", "Tesla V100"},
    {"V100-32GB", "Tesla V100"},
    {"T4", "Tesla T4"},
    {"RTX-6000-Ada", "RTX 6000Ada"},
    {"RTX-5000-Ada", "RTX 5000Ada"},
    {"RTX-4000-Ada", "RTX 4000Ada"},
    {"RTX-PRO-6000", "RTX PRO 6000 S,RTX PRO 6000 WS"},
    {"RTX-4090-D", "RTX 4090D"},
    {"RTX-4080-Super", "RTX 4080S"},
    {"RTX-4070-Ti-Super", "RTX 4070S Ti"},
    {"RTX-4070-Super", "RTX 4070S"},
    {"RTX-2080-Super", "RTX 2080S"},
    {"RTX-2070-Super", "RTX 2070S"},
    {"RTX-2060-Super", "RTX 2060S"},
    {"GTX-1660-Super", "GTX 1660 S,GTX 1660S"},
    {"P100", "Tesla P100"},
    {"P40", "Tesla P40"},
    {"P4", "Tesla P4"},
    {"RTX-8000", "Q RTX 8000"},
    {"RTX-6000", "Q RTX 6000"},
};

std::vector<std::string> VastNames(absl::string_view canonical) {
  if (canonical.empty()) return {};
  for (const auto& row : kNames) {
    if (canonical == row.canonical) return absl::StrSplit(row.names, ',');
  }
  return {absl::StrReplaceAll(canonical, {{"-", " "}})};
}

// The oldest architecture that the trainer and PyTorch's programs run on: 7.0, Volta.
constexpr int64_t kMinComputeCap = 700;

// Returns the machine's number in `place`; absent for any other place.
std::optional<int64_t> MachineOf(absl::string_view place) {
  int64_t machine = 0;
  if (!absl::ConsumePrefix(&place, absl::StrCat(kVastName, "/")) ||
      !absl::SimpleAtoi(place, &machine)) {
    return std::nullopt;
  }
  return machine;
}

// Who names a model gets it, whatever its age.
int64_t MinComputeCap(const Requirements::Gpu& gpu) {
  return gpu.name.empty() ? kMinComputeCap : 0;
}

std::string VersionText(double number) {
  return number <= 0 || number > 1000 ? "" : absl::StrFormat("%.1f", number);
}

void AddOffer(const Requirements& requirements, const Requirements::Gpu& gpu, int64_t disk_gb,
              const VastOffer& row, std::vector<Offer>& offers) {
  const int64_t memory_bytes = VastMemoryBytes(row.gpu_ram_mib);
  const std::string gpu_name = CanonicalGpuName(row.gpu_name, memory_bytes);
  // Check the request again, because Vast ignores a filter that it does not know.
  if (row.id <= 0 || row.dph_total <= 0 || row.gpu_name.empty() || row.num_gpus != gpu.count ||
      !GpuSatisfies(gpu, gpu_name, memory_bytes) || !row.rentable ||
      row.direct_port_count < kVastMinDirectPorts ||
      (!row.verification.empty() && row.verification != "verified") ||
      (!row.gpu_arch.empty() && row.gpu_arch != "nvidia") ||
      (!row.cpu_arch.empty() && row.cpu_arch != "amd64" && row.cpu_arch != "arm64") ||
      (row.compute_cap > 0 && row.compute_cap < MinComputeCap(gpu)) ||
      (row.duration_s.has_value() &&
       *row.duration_s < absl::ToDoubleSeconds(requirements.needed_for)) ||
      (row.disk_space_gb > 0 && row.disk_space_gb < static_cast<double>(disk_gb)) ||
      (requirements.volume.has_value() &&
       requirements.volume->place != VastPlace(row.machine_id)) ||
      !IsInRegions(requirements.regions, row.geolocation, CountryCode(row.geolocation))) {
    return;
  }
  Offer offer;
  offer.provider = kVastName;
  const bool split = row.dph_base > 0 && row.dph_base <= row.dph_total;
  offer.ref = requirements.spot ? absl::StrFormat("%d/bid/%.6f/%.6f", row.id, row.min_bid,
                                                  split ? row.dph_total - row.dph_base : 0.0)
                                : absl::StrCat(row.id);
  offer.arm64 = row.cpu_arch == "arm64";
  offer.description = absl::StrCat(
      row.num_gpus, " x ", PrintableText(row.gpu_name, 60), offer.arm64 ? ", arm64" : "",
      requirements.spot ? ", spot" : "",
      row.geolocation.empty() ? "" : absl::StrCat(" in ", PrintableText(row.geolocation, 60)));
  offer.price_usd_per_hour = row.dph_total;
  offer.gpu_name = gpu_name;
  offer.gpu_count = static_cast<int>(row.num_gpus);
  offer.gpu_memory_bytes = memory_bytes;
  offer.region = row.geolocation;
  offer.cuda_version = VersionText(row.cuda_max_good);
  offer.reliability = row.reliability;
  offer.disk_bytes = static_cast<int64_t>(std::clamp(row.disk_space_gb, 0.0, 1e6)) * kDiskGb;
  offer.upload_usd_per_gb = row.inet_up_usd_per_gb;
  offer.download_usd_per_gb = row.inet_down_usd_per_gb;
  offer.spot = requirements.spot;
  offer.place =
      row.machine_id != 0 ? VastPlace(row.machine_id) : absl::StrCat(kVastName, "/offer-", row.id);
  offers.push_back(std::move(offer));
}

absl::StatusOr<std::vector<VastOffer>> SearchVast(const RestApi& api, const VastSearch& search) {
  return api.Ask({.doing = "search Vast's offers",
                  .kind = CallKind::kRead,
                  .method = "POST",
                  .path = "/api/v0/bundles/",
                  .rate_class = "search",
                  .body = VastSearchBody(search)},
                 ParseVastOffers);
}

}  // namespace

absl::StatusOr<VastRef> ParseVastRef(const Offer& offer) {
  const std::vector<std::string> parts = absl::StrSplit(offer.ref, '/');
  VastRef ref;
  const bool number = absl::SimpleAtoi(parts[0], &ref.ask) && ref.ask > 0;
  ref.spot = parts.size() == 4 && parts[1] == "bid" && absl::SimpleAtod(parts[2], &ref.min_bid) &&
             absl::SimpleAtod(parts[3], &ref.disk_usd_per_hour) && ref.disk_usd_per_hour >= 0;
  if (offer.provider != kVastName || !number || (parts.size() != 1 && !ref.spot)) {
    return ForeignOffer(offer, "Vast");
  }
  return ref;
}

absl::StatusOr<std::vector<Offer>> VastProvider::ListOffers(const Requirements& requirements) {
  const int64_t disk_gb =
      std::max(DiskGb(requirements.disk_bytes, kVastDefaultDiskGb), kVastMinDiskGb);
  std::vector<Offer> offers;
  if (IsElsewhere(requirements, kVastName)) return offers;
  for (const Requirements::Gpu& gpu : AskedGpus(requirements)) {
    VastSearch search;
    search.gpu_names = VastNames(gpu.name);
    search.gpu_count = gpu.count;
    constexpr double kMib = 1 << 20;
    // This leaves room for the firmware's part; the answer is checked again.
    search.min_gpu_ram_mib = std::floor(0.93 * static_cast<double>(gpu.min_memory_bytes) / kMib);
    search.max_gpu_ram_mib = std::ceil(1.08 * static_cast<double>(gpu.max_memory_bytes) / kMib);
    search.disk_gb = disk_gb;
    search.max_usd_per_hour = requirements.max_price_usd_per_hour;
    search.countries = CountriesAsked(requirements.regions).value_or(std::vector<std::string>());
    search.spot = requirements.spot;
    search.min_compute_cap = MinComputeCap(gpu);
    search.min_duration_s = std::ceil(absl::ToDoubleSeconds(requirements.needed_for));
    // The answer lists only the cheapest, so ask for the volume's machine.
    if (requirements.volume.has_value()) {
      search.machine_id = MachineOf(requirements.volume->place);
    }
    ASSIGN_OR_RETURN(std::vector<VastOffer> rows, SearchVast(api(), search));
    // The offers name places like "Texas, US". Where the filter compares whole texts, no code of a
    // country matches one; the answer without it is checked here.
    if (rows.empty() && !search.countries.empty()) {
      search.countries.clear();
      ASSIGN_OR_RETURN(rows, SearchVast(api(), search));
    }
    for (const VastOffer& row : rows) AddOffer(requirements, gpu, disk_gb, row, offers);
  }
  KeepAffordable(requirements, offers);
  return offers;
}

}  // namespace gpuctl
