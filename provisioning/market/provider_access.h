// The address of a rental market and the key to it.
#ifndef GPUCTL_PROVISIONING_MARKET_PROVIDER_ACCESS_H_
#define GPUCTL_PROVISIONING_MARKET_PROVIDER_ACCESS_H_

#include <string>

namespace gpuctl {

struct ProviderAccess {
  std::string base_url;  // scheme and host, "https://api.runpod.io"; empty: the provider's own
  std::string api_key;   // secret: sent in the header for it (KeyHeader) and nowhere else
};

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_MARKET_PROVIDER_ACCESS_H_
