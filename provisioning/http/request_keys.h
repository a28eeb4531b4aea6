// The keys in a request, whatever a market calls the header that carries them.
#ifndef GPUCTL_PROVISIONING_HTTP_REQUEST_KEYS_H_
#define GPUCTL_PROVISIONING_HTTP_REQUEST_KEYS_H_

#include <string>
#include <vector>

#include "provisioning/http/http.h"

namespace gpuctl {

// Returns the words of at least 7 bytes in all headers but those that never have a key: KEY of
// "Authorization: Bearer KEY" and of "X-API-KEY: KEY". Also the "client_secret" of a JSON body,
// with which a token is asked for.
std::vector<std::string> KeysOf(const HttpRequest& request);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_HTTP_REQUEST_KEYS_H_
