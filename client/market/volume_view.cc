#include "client/market/volume_view.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/base/quantity.h"

namespace gpuctl {
namespace {

using Json = nlohmann::ordered_json;

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

}  // namespace

std::string PlaceOf(const Volume& volume) {
  if (volume.place.empty()) {
    return absl::StrCat(volume.provider, volume.region.empty() ? "" : ", ", volume.region);
  }
  absl::string_view machine = volume.place;
  absl::ConsumePrefix(&machine, absl::StrCat(volume.provider, "/"));
  return absl::StrCat(volume.provider, ", machine ", machine);
}

std::string DescribeVolume(const Volume& volume) {
  const bool named = !volume.name.empty() && volume.name != volume.id;
  const std::string size =
      volume.size_bytes > 0 ? absl::StrCat(", ", FormatBytes(volume.size_bytes)) : "";
  const std::string where = absl::StrCat("at ", PlaceOf(volume), size);
  if (!named) return absl::StrCat(volume.id, " (", where, ")");
  return absl::StrCat(volume.name, " (", volume.id, " ", where, ")");
}

std::string DescribeVolumePrice(const Volume& volume) {
  if (!volume.usd_per_month.has_value()) return "? a month";
  return absl::StrCat(FormatUsd(*volume.usd_per_month), " a month");
}

std::vector<TableRow> VolumeRows(const std::vector<Volume>& volumes) {
  std::vector<TableRow> rows = {
      {"PROVIDER", "VOLUME", "NAME", "SIZE", "USED", "PLACE", "$/MONTH", "MOUNTED AT", "IN USE"}};
  for (const Volume& volume : volumes) {
    const std::string place = PlaceOf(volume);
    rows.push_back({volume.provider, OrDash(volume.id), OrDash(volume.name),
                    volume.size_bytes > 0 ? FormatBytes(volume.size_bytes) : "-",
                    volume.used_bytes.has_value() ? FormatBytes(*volume.used_bytes) : "-",
                    place.substr(std::min(place.size(), volume.provider.size() + 2)),
                    volume.usd_per_month.has_value() ? FormatUsd(*volume.usd_per_month) : "?",
                    OrDash(volume.mount_path),
                    volume.in_use.has_value() ? (*volume.in_use ? "yes" : "no") : "-"});
  }
  return rows;
}

nlohmann::ordered_json VolumeToJson(const Volume& volume) {
  Json json = {{"provider", volume.provider}, {"volume", volume.id}, {"name", volume.name}};
  const auto set = [&json](const char* field, bool known, const Json& value) {
    json[field] = known ? value : Json();
  };
  set("size_bytes", volume.size_bytes > 0, volume.size_bytes);
  set("used_bytes", volume.used_bytes.has_value(), volume.used_bytes.value_or(0));
  set("region", !volume.region.empty(), volume.region);
  set("place", !volume.place.empty(), volume.place);
  set("usd_per_month", volume.usd_per_month.has_value(), volume.usd_per_month.value_or(0));
  json["mount_path"] = volume.mount_path;
  set("in_use", volume.in_use.has_value(), volume.in_use.value_or(false));
  return json;
}

}  // namespace gpuctl
