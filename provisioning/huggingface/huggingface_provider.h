// Hugging Face Jobs: a container of any image on a flavor of hardware, which is reached by ssh
// through one gateway for all jobs. There are no regions, no spot machines, and no volumes of
// gpuctl's.
//
// A job's bill ends when its command ends, so the start script is the whole command (kByExit in
// common/release/release_route.h). The market also ends a job when its time is over: a job gets
// that time with its create, always, and it cannot be moved.
//
// The gateway takes the ssh keys of the user's own page of keys (MarketFacts::ssh_keys_page): no
// request registers one.
//
// Jobs belong to the namespace of the key's user, whom whoami-v2 names; it is asked once. The
// market's list has every job that ever was, so it is always asked by stage. The label stands in
// two labels of the job, and the time that was asked for in a third one, for answers without a
// time.
#ifndef GPUCTL_PROVISIONING_HUGGINGFACE_HUGGINGFACE_PROVIDER_H_
#define GPUCTL_PROVISIONING_HUGGINGFACE_HUGGINGFACE_PROVIDER_H_

#include <memory>

#include "common/base/clock.h"
#include "provisioning/http/http.h"
#include "provisioning/market/provider.h"
#include "provisioning/market/provider_access.h"

namespace gpuctl {

// Returns the provider "huggingface". `clock` outlives it.
std::unique_ptr<Provider> MakeHuggingfaceProvider(std::shared_ptr<Http> http, ProviderAccess access,
                                                  Clock& clock = Clock::Real());

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_HUGGINGFACE_HUGGINGFACE_PROVIDER_H_
