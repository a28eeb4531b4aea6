// A run's numbers as an event file for TensorBoard. Pure.
//
// The file is a sequence of records: the length of the data (8 bytes, little-endian), the masked
// CRC-32C of these 8 bytes (4), the data, the masked CRC-32C of the data (4). The data is an Event
// of proto/gpuctl/v1/event_file.proto. The first one names the version of the format.
#ifndef GPUCTL_CLIENT_HISTORY_EVENT_FILE_H_
#define GPUCTL_CLIENT_HISTORY_EVENT_FILE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "client/history/gpu_history.h"
#include "client/history/metric_history.h"

namespace gpuctl {

// Returns the CRC-32C (Castagnoli) of `bytes`.
uint32_t Crc32c(absl::string_view bytes);
// Returns it as records have it: turned and moved, so that a sum over sums is no special case.
uint32_t MaskedCrc32c(absl::string_view bytes);

// Returns `data` as one record.
std::string FormatRecord(absl::string_view data);

// Returns the whole event file. The same numbers give the same bytes, and what a history has
// once its next step has begun stays the beginning of a longer one's. `begun_ms` is the time of the
// events that have no other.
std::string FormatEventFile(const MetricHistory& history, const GpuHistory& gpus, int64_t begun_ms);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_HISTORY_EVENT_FILE_H_
