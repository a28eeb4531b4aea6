// Quantities as people write and read them: 90s, 1h30m, 100GB, 8MiB.
#ifndef GPUCTL_CLIENT_BASE_QUANTITY_H_
#define GPUCTL_CLIENT_BASE_QUANTITY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace gpuctl {

// "6h", "10m", "90s", "250ms", "2d", "1h30m". A bare number is refused: its unit would be a guess.
// INVALID_ARGUMENT; negative and infinite durations are too. At most ten years.
absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text);

// "100GB", "1.5GiB", "512M", "4096" or "4096B" (bytes). KB, MB, GB, TB are powers of 1000 (so are
// K, M, G, T); KiB … TiB are powers of 1024. INVALID_ARGUMENT.
absl::StatusOr<int64_t> ParseSize(absl::string_view text);

// "20", "3.50", "$20": US dollars, above zero and below a million. INVALID_ARGUMENT.
absl::StatusOr<double> ParsePrice(absl::string_view text);

// Three significant digits: "53.2 MB", "812 B".
std::string FormatBytes(int64_t bytes);
// The two largest units: "1h 05m", "3m 20s", "12s", "2d 4h".
std::string HumanDuration(absl::Duration duration);
// "$3.50", "$0.0041", "$123": as many digits as tell the amount apart from nothing.
std::string FormatUsd(double usd);
// UTC with milliseconds: "2025-01-02T03:04:05.678Z"; "" for a time of 0.
std::string FormatRfc3339(int64_t time_ms);
// Four significant digits, without an exponent where that is readable: "2.345", "0.0003",
// "1.2e-07".
std::string FormatNumber(double value);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_QUANTITY_H_
