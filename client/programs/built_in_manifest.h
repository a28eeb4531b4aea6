// What CMake puts into a release of gpuctl about its programs for nodes; client/programs/
// built_in_manifest.cc.in makes the definitions.
#ifndef GPUCTL_CLIENT_PROGRAMS_BUILT_IN_MANIFEST_H_
#define GPUCTL_CLIENT_PROGRAMS_BUILT_IN_MANIFEST_H_

namespace gpuctl {

extern const char* const kBuiltInManifest;  // the text of manifest.json; "" for an own build
extern const char* const kBuiltInVersion;   // of this gpuctl
extern const char* const kBuiltInAddress;   // where the release's archives are; "" when not known

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_PROGRAMS_BUILT_IN_MANIFEST_H_
