# cpack: the .deb of gpuctl, of what GpuctlInstall.cmake installs. deploy/release calls it.
set(GPUCTL_PACKAGE_MAINTAINER "gpuctl contributors <gpuctl@gpuctl.invalid>" CACHE STRING
  "Name and address of whoever publishes the .deb; the default is nobody's address")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME gpuctl)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_VENDOR gpuctl)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${GPUCTL_PACKAGE_MAINTAINER}")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "run training jobs on GPU machines")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"gpuctl sends a directory to a GPU machine, starts a training job there,
shows its output, and brings checkpoints home, verified. The machine is
your own, one that ssh reaches, or rented from Runpod, Lambda or Vast.ai.
The job runs on when the laptop goes away, and a rented machine ends by
itself when nobody needs it.
.
The package has the programs that gpuctl sends to Linux machines with
x86-64 and arm64 processors.")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# ssh connects to machines, sshd serves this one as provider local; markets are asked with libcurl.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "ca-certificates, libcurl4 | libcurl4t64, openssh-client, openssh-server")

# What Debian wants below /usr/share in every package; debian_files.cmake puts it there.
set(debian ${CMAKE_BINARY_DIR}/debian)
configure_file(${PROJECT_SOURCE_DIR}/deploy/debian/copyright ${debian}/copyright COPYONLY)
configure_file(${PROJECT_SOURCE_DIR}/deploy/debian/overrides ${debian}/overrides COPYONLY)
configure_file(${PROJECT_SOURCE_DIR}/deploy/debian/changelog.in ${debian}/changelog @ONLY)
set(CPACK_GPUCTL_DEBIAN ${debian})
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/debian_files.cmake)
include(CPack)
