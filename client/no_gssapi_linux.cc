// The functions of GSSAPI that libssh's archive refers to, for a gpuctl that needs no Kerberos
// library. gpuctl logs in by key and never asks libssh for GSSAPI. Each function says that the
// mechanism is unavailable, should that ever change.
#include <cstdint>

extern "C" {

void* GSS_C_NT_HOSTBASED_SERVICE = nullptr;
void* GSS_C_NT_USER_NAME = nullptr;

#define GPUCTL_UNAVAILABLE(function) \
  uint32_t function(...) { return uint32_t{16} << 16; /* GSS_S_UNAVAILABLE */ }

GPUCTL_UNAVAILABLE(gss_accept_sec_context)
GPUCTL_UNAVAILABLE(gss_acquire_cred)
GPUCTL_UNAVAILABLE(gss_add_oid_set_member)
GPUCTL_UNAVAILABLE(gss_create_empty_oid_set)
GPUCTL_UNAVAILABLE(gss_display_name)
GPUCTL_UNAVAILABLE(gss_display_status)
GPUCTL_UNAVAILABLE(gss_get_mic)
GPUCTL_UNAVAILABLE(gss_import_name)
GPUCTL_UNAVAILABLE(gss_indicate_mechs)
GPUCTL_UNAVAILABLE(gss_init_sec_context)
GPUCTL_UNAVAILABLE(gss_inquire_cred)
GPUCTL_UNAVAILABLE(gss_inquire_cred_by_mech)
GPUCTL_UNAVAILABLE(gss_release_buffer)
GPUCTL_UNAVAILABLE(gss_release_cred)
GPUCTL_UNAVAILABLE(gss_release_name)
GPUCTL_UNAVAILABLE(gss_release_oid_set)
GPUCTL_UNAVAILABLE(gss_test_oid_set_member)
GPUCTL_UNAVAILABLE(gss_verify_mic)

#undef GPUCTL_UNAVAILABLE

}  // extern "C"
