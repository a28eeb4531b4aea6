// How a gpuctl that runs another one learns how far a transfer is.
#ifndef GPUCTL_CLIENT_BASE_PROGRESS_LINES_H_
#define GPUCTL_CLIENT_BASE_PROGRESS_LINES_H_

namespace gpuctl {

// The environment variable that makes a verb in a JSON mode write the progress of its transfers to
// stderr, one line several times a second.
inline constexpr char kProgressVariable[] = "GPUCTL_PROGRESS_LINES";

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_PROGRESS_LINES_H_
