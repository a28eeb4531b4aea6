// Tells whether an adapter belongs to a model: the digest of a model folder.

#ifndef TRAINER_LORA_BASE_DIGEST_H_
#define TRAINER_LORA_BASE_DIGEST_H_

#include <string>

namespace gpuctl::trainer {

// Returns the SHA-256 of "digest name\n" for config.json and each file of weights, sorted by name.
// Reads all of them. Throws Error(kBadData) or Error(kIo).
std::string BaseDigest(const std::string& folder);

// Returns sizes and times of the same files, in some form, to tell later whether they changed.
// Throws as BaseDigest does.
std::string BaseStamp(const std::string& folder);

// Throws Error(kBadData) when the files changed since `stamp` was taken of them.
void CheckUnchanged(const std::string& folder, const std::string& stamp);

// Throws Error(kBadConfig) unless the checkpoint's adapters are for the model of that digest, which
// is in `folder`. Reads state.json of the checkpoint; throws Error(kBadData) or Error(kIo) for it.
void CheckBase(const std::string& checkpoint, const std::string& folder, const std::string& digest);

}  // namespace gpuctl::trainer

#endif  // TRAINER_LORA_BASE_DIGEST_H_
