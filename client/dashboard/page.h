// The dashboard's page, as it was built with this gpuctl.
#ifndef GPUCTL_CLIENT_DASHBOARD_PAGE_H_
#define GPUCTL_CLIENT_DASHBOARD_PAGE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// One HTML file with all that it needs, compressed by gzip; empty when this gpuctl was built
// without it.
absl::string_view CompressedPage();
// The hashes of the scripts and styles in it, as a Content-Security-Policy writes them.
absl::string_view PageScriptHashes();
absl::string_view PageStyleHashes();

// Unpacks what gzip packed, at most 16 MiB.
absl::StatusOr<std::string> Unzip(absl::string_view compressed);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_DASHBOARD_PAGE_H_
