// Quantities as people write and read them: 90s, 1h30m, 100GB, 8MiB.
#ifndef GPUCTL_CLIENT_BASE_QUANTITY_H_
#define GPUCTL_CLIENT_BASE_QUANTITY_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace gpuctl {

// Parses "6h", "10m", "90s", "250ms", "2d", "1h30m"; at most ten years. INVALID_ARGUMENT for
// anything else, for negative and infinite durations, and for a bare number: its unit would be a
// guess.
absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text);

// Parses "100GB", "1.5GiB", "512M", "4096" or "4096B" (bytes). KB, MB, GB, TB are powers of 1000
// (so are K, M, G, T); KiB … TiB are powers of 1024. INVALID_ARGUMENT for anything else.
absl::StatusOr<int64_t> ParseSize(absl::string_view text);

// Parses "20", "3.50", "$20": US dollars, above zero and below a million. INVALID_ARGUMENT for
// anything else.
absl::StatusOr<double> ParsePrice(absl::string_view text);

// Returns three significant digits: "53.2 MB", "812 B".
std::string FormatBytes(int64_t bytes);
// Returns the two largest units: "1h 05m", "3m 20s", "12s", "2d 4h".
std::string HumanDuration(absl::Duration duration);
// Returns "$3.50", "$0.0041", "$123": enough digits that a small amount does not read as zero.
std::string FormatUsd(double usd);
// Returns UTC with milliseconds: "2025-01-02T03:04:05.678Z"; "" for a time of 0.
std::string FormatRfc3339(int64_t time_ms);
// Returns four significant digits, without an exponent where that is readable: "2.345", "0.0003",
// "1.2e-07".
std::string FormatNumber(double value);

// Returns the number for JSON: null when absent; "NaN", "Infinity" and "-Infinity", which JSON does
// not have, as Protobuf's JSON writes them.
nlohmann::ordered_json NumberToJson(const std::optional<double>& value);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_QUANTITY_H_
