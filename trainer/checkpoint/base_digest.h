// Tells whether an adapter belongs to a model: the digest of a model folder.

#ifndef TRAINER_CHECKPOINT_BASE_DIGEST_H_
#define TRAINER_CHECKPOINT_BASE_DIGEST_H_

#include <functional>
#include <map>
#include <string>

namespace gpuctl::trainer {

// Returns the SHA-256 of "digest name\n" for config.json and each file of weights, sorted by name.
// Reads all of them. Calls `check` often; it may throw to give up. Throws Error(kBadData) or
// Error(kIo).
std::string BaseDigest(const std::string& folder, const std::function<void()>& check = nullptr);

// Returns the same where the digests of the files of weights are known already, by their paths.
std::string BaseDigest(const std::string& folder,
                       const std::map<std::string, std::string>& weights);

// Returns sizes and times of the same files, in some form, to tell later whether they changed.
// Throws as BaseDigest does.
std::string BaseStamp(const std::string& folder);

// Throws Error(kBadData) when the files changed since `stamp` was taken of them.
void CheckUnchanged(const std::string& folder, const std::string& stamp);

// Throws Error(kBadConfig) unless the checkpoint's adapters are for the model of that digest, which
// is in `folder`. Reads state.json of the checkpoint; throws Error(kBadData) or Error(kIo) for it.
void CheckBase(const std::string& checkpoint, const std::string& folder, const std::string& digest);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CHECKPOINT_BASE_DIGEST_H_
