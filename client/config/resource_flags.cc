#include "client/config/resource_flags.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"

namespace gpuctl {

void AddResourceFlags(FlagSet& set, const std::string& group, bool image, ResourceFlags& flags) {
  const auto list = [&](const char* name, std::vector<std::string>& values, const char* help) {
    set.Option(name, values, help).Commas().OneValueEach().Group(group);
  };
  list("--gpu", flags.gpu, "GPU wanted, best first: H100, A100-80GB:2, 24GB..80GB");
  if (image) {
    set.Option("--gpus", flags.gpus, "GPUs of the machine for this run alone; it waits for them")
        .Range(0, kMostGpus)
        .Group(group);
  }
  list("--provider", flags.providers,
       image ? "local, ssh or a rental provider (default: each one with a key)"
             : "Where to look (default: every provider with a key)");
  list("--region", flags.regions, "Country or region: US, EU, us-west-1");
  set.Option("--max-price", flags.max_price, "Most to pay an hour, in US dollars").Group(group);
  if (image) {
    set.Option("--on-price-rise", flags.on_price_rise,
               "What gpuctl keep answers: tell, accept (up to --max-price), refuse, stop")
        .Group(group);
  }
  set.Option("--disk", flags.disk, "Disk wanted, e.g. 100GB").Group(group);
  set.Switch("--spot", flags.spot, "Cheaper machines that can be taken away").Group(group);
  set.Option("--volume", flags.volume,
             image ? "NAME[:PATH]: mount this volume of yours (gpuctl volumes lists them)"
                   : "Only machines that can mount this volume of yours")
      .Group(group);
  if (image) {
    set.Option("--image", flags.image, "Container image, where the provider takes one")
        .Group(group);
    set.Option("--registry", flags.registry,
               "USER:SECRET[@SERVER]: login for a private image; SECRET names the password")
        .Group(group);
  }
}

void NoteResourceFlags(const ResourceFlags& flags, RunSpec& spec) {
  const std::pair<const char*, bool> fields[] = {
      {"resources.gpu", !flags.gpu.empty()},
      {"resources.provider", !flags.providers.empty()},
      {"resources.max_price", !flags.max_price.empty()},
      {"resources.on_price_rise", !flags.on_price_rise.empty()},
      {"resources.spot", flags.spot},
      {"resources.region", !flags.regions.empty()},
      {"resources.disk", !flags.disk.empty()},
      {"resources.image", !flags.image.empty()}};
  for (const auto& [field, given] : fields) {
    if (given) spec.flagged.insert(field);
  }
}

absl::Status ApplyResourceFlags(const ResourceFlags& flags, const std::string& verb,
                                RunSpec& spec) {
  const auto wrong = [&verb](const char* flag, const absl::Status& status) {
    return UsageError(absl::StrCat(flag, ": ", status.message()),
                      absl::StrCat("gpuctl ", verb, " --help"));
  };
  if (!flags.gpu.empty()) spec.gpu.clear();
  for (const std::string& text : flags.gpu) {
    absl::StatusOr<GpuRequirement> gpu = ParseGpuRequirement(text);
    if (!gpu.ok()) return wrong("--gpu", gpu.status());
    spec.gpu.push_back(*std::move(gpu));
  }
  if (flags.gpus >= 0) spec.gpus = flags.gpus;
  if (!flags.providers.empty()) {
    if (absl::Status status = CheckProviders(flags.providers); !status.ok()) {
      return wrong("--provider", status);
    }
    spec.providers = flags.providers;
  }
  if (!flags.regions.empty()) spec.regions = flags.regions;
  if (!flags.max_price.empty()) {
    const absl::StatusOr<double> price = ParsePrice(flags.max_price);
    if (!price.ok()) return wrong("--max-price", price.status());
    spec.max_price_usd_per_hour = *price;
  }
  if (!flags.on_price_rise.empty()) {
    if (absl::Status status = CheckPriceRule(flags.on_price_rise); !status.ok()) {
      return wrong("--on-price-rise", status);
    }
    spec.on_price_rise = flags.on_price_rise;
  }
  if (!flags.disk.empty()) {
    const absl::StatusOr<int64_t> disk = ParseSize(flags.disk);
    if (!disk.ok()) return wrong("--disk", disk.status());
    spec.disk_bytes = *disk;
  }
  if (!flags.volume.empty()) {
    absl::StatusOr<VolumeRequest> volume = ParseVolumeRequest(flags.volume);
    if (!volume.ok()) return wrong("--volume", volume.status());
    spec.volume = *std::move(volume);
  }
  if (!flags.image.empty()) spec.image = flags.image;
  if (!flags.registry.empty()) {
    absl::StatusOr<RegistryRequest> registry = ParseRegistryRequest(flags.registry);
    if (!registry.ok()) return wrong("--registry", registry.status());
    spec.registry = *std::move(registry);
  }
  spec.spot = spec.spot || flags.spot;
  return absl::OkStatus();
}

}  // namespace gpuctl
