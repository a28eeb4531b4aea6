#include "client/metrics/saved_numbers.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/metrics/plot.h"
#include "common/files/sha256.h"

namespace gpuctl {
namespace {

// Change the number when the fields or their meaning change: then everything is read again.
constexpr absl::string_view kMagic = "gpuctl numbers 2\n";
constexpr size_t kDigestBytes = 32;

// Stores fields in a JSON object, which becomes CBOR: that has numbers that are not finite.
class FieldWriter {
 public:
  explicit FieldWriter(nlohmann::json& json) : json_(json) {}
  template <typename T>
  void operator()(const std::string& name, const T& field) const {
    json_[name] = field;
  }
  void operator()(const std::string& name, const std::optional<double>& field) const {
    if (field.has_value()) json_[name] = *field;
  }
  void operator()(const std::string& name, const std::vector<PlotPoint>& points) const {
    nlohmann::json list = nlohmann::json::array();
    for (const PlotPoint& point : points) {
      list.push_back(point.x);
      list.push_back(point.y);
    }
    json_[name] = std::move(list);
  }

 private:
  nlohmann::json& json_;
};

// Loads fields. The digest has shown that the types are those that were stored.
class FieldReader {
 public:
  explicit FieldReader(const nlohmann::json& json) : json_(json) {}
  template <typename T>
  void operator()(const std::string& name, T& field) const {
    if (const auto found = json_.find(name); found != json_.end()) found->get_to(field);
  }
  void operator()(const std::string& name, std::optional<double>& field) const {
    field.reset();
    if (const auto found = json_.find(name); found != json_.end()) field = found->get<double>();
  }
  void operator()(const std::string& name, std::vector<PlotPoint>& points) const {
    points.clear();
    const auto found = json_.find(name);
    if (found == json_.end()) return;
    for (size_t i = 0; i + 1 < found->size(); i += 2) {
      points.push_back({(*found)[i].get<double>(), (*found)[i + 1].get<double>()});
    }
  }

 private:
  const nlohmann::json& json_;
};

}  // namespace

std::string FormatSavedNumbers(SavedNumbers saved) {
  nlohmann::json metrics, progress;
  saved.metrics.Visit(FieldWriter(metrics));
  saved.progress.Visit(FieldWriter(progress));
  const std::vector<uint8_t> before(saved.before.begin(), saved.before.end());
  const nlohmann::json json = {{"offset", saved.offset},
                               {"before", nlohmann::json::binary(before)},
                               {"metrics", std::move(metrics)},
                               {"progress", std::move(progress)}};
  std::string bytes;
  nlohmann::json::to_cbor(json, bytes);
  return absl::StrCat(kMagic, Sha256Of(bytes), bytes);
}

std::optional<SavedNumbers> ParseSavedNumbers(absl::string_view bytes) {
  if (!absl::ConsumePrefix(&bytes, kMagic) || bytes.size() < kDigestBytes) return std::nullopt;
  const absl::string_view digest = bytes.substr(0, kDigestBytes);
  bytes.remove_prefix(kDigestBytes);
  if (Sha256Of(bytes) != digest) return std::nullopt;
  const nlohmann::json json = nlohmann::json::from_cbor(bytes.begin(), bytes.end(), /*strict=*/true,
                                                        /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  SavedNumbers saved;
  saved.offset = json["offset"].get<int64_t>();
  const nlohmann::json::binary_t& before = json["before"].get_binary();
  saved.before.assign(before.begin(), before.end());
  saved.metrics.Visit(FieldReader(json["metrics"]));
  saved.progress.Visit(FieldReader(json["progress"]));
  return saved;
}

}  // namespace gpuctl
