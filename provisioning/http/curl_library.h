// libcurl, loaded at the first request. Most commands make no request; they should not wait for the
// library or need it installed.
#ifndef GPUCTL_PROVISIONING_HTTP_CURL_LIBRARY_H_
#define GPUCTL_PROVISIONING_HTTP_CURL_LIBRARY_H_

#include <curl/curl.h>

#include "absl/status/statusor.h"

namespace gpuctl {

// The functions of libcurl in use.
struct CurlLibrary {
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_easy_init) easy_init = nullptr;
  decltype(&curl_easy_reset) easy_reset = nullptr;
  decltype(&curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&curl_easy_setopt) easy_setopt = nullptr;
  decltype(&curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&curl_easy_perform) easy_perform = nullptr;
  decltype(&curl_easy_strerror) easy_strerror = nullptr;
  decltype(&curl_slist_append) slist_append = nullptr;
  decltype(&curl_slist_free_all) slist_free_all = nullptr;
};

// Returns the machine's libcurl, loaded and initialized once and never unloaded. Safe from any
// thread. FAILED_PRECONDITION when there is none; the message says how to install it.
absl::StatusOr<const CurlLibrary*> LoadCurl();

// Loads the first of `names` that can be loaded; for tests.
absl::StatusOr<CurlLibrary> LoadCurlFrom(const char* const* names, size_t count);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_HTTP_CURL_LIBRARY_H_
