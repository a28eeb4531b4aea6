// Formats volumes for people and scripts. Pure.
#ifndef GPUCTL_CLIENT_MARKET_VOLUME_VIEW_H_
#define GPUCTL_CLIENT_MARKET_VOLUME_VIEW_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "client/terminal/table.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// Returns "runpod, EU-RO-1"; "vast, machine 4242".
std::string PlaceOf(const Volume& volume);
// Returns "data (vol-1 at runpod, EU-RO-1, 50.0 GB)".
std::string DescribeVolume(const Volume& volume);
// Returns "$3.50 a month"; "? a month" when the price is not known.
std::string DescribeVolumePrice(const Volume& volume);

// Return rows for people, with a header; and a JSON object (docs/json.md).
std::vector<TableRow> VolumeRows(const std::vector<Volume>& volumes);
nlohmann::ordered_json VolumeToJson(const Volume& volume);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_MARKET_VOLUME_VIEW_H_
