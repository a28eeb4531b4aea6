// A function of sh that tells network file systems, for scripts on machines without an agent.
#ifndef GPUCTL_COMMON_RELEASE_NEAR_FUNCTION_H_
#define GPUCTL_COMMON_RELEASE_NEAR_FUNCTION_H_

#include "absl/strings/string_view.h"

namespace gpuctl {

// Defines `near DIRECTORY`, which fails where that lies on a network file system.
inline constexpr absl::string_view kNearFunction = R"sh(near() {
case $(df -PT "$1" 2>/dev/null | sed -n "2s/^[^ ]*  *\([^ ]*\).*/\1/p") in
nfs* | cifs | smb* | ceph | lustre | gpfs | mmfs | beegfs | fhgfs | panfs | afs | 9p | wekafs | pvfs2 | orangefs | glusterfs | gfs2 | ocfs2 | fuse.[!f]*) return 1 ;;
esac
}
)sh";

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_RELEASE_NEAR_FUNCTION_H_
