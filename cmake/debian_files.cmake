# cpack runs this before it makes the .deb: it adds what Debian wants in a package, and presses man
# pages as Debian does.
set(share ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share)
set(doc ${share}/doc/gpuctl)
file(REMOVE ${doc}/LICENSE)  # it is in copyright
file(COPY ${CPACK_GPUCTL_DEBIAN}/copyright DESTINATION ${doc})
file(COPY ${CPACK_GPUCTL_DEBIAN}/changelog DESTINATION ${doc})
file(MAKE_DIRECTORY ${share}/lintian/overrides)
file(COPY_FILE ${CPACK_GPUCTL_DEBIAN}/overrides ${share}/lintian/overrides/gpuctl)
file(RENAME ${share}/zsh/site-functions ${share}/zsh/vendor-completions)
file(GLOB pages ${share}/man/man1/*.1)
execute_process(COMMAND gzip -n -9 ${pages} ${doc}/changelog ${doc}/CHANGELOG.md
  COMMAND_ERROR_IS_FATAL ANY)
# Modes and times that do not depend on who builds, and when.
execute_process(COMMAND bash -c "
    find . -type d -exec chmod 755 {} + &&
    find . -type f -perm -u+x -exec chmod 755 {} + &&
    find . -type f ! -perm -u+x -exec chmod 644 {} + &&
    find . -exec touch -h -d @\${SOURCE_DATE_EPOCH:?cpack needs it} {} +"
  WORKING_DIRECTORY ${CPACK_TEMPORARY_INSTALL_DIRECTORY} COMMAND_ERROR_IS_FATAL ANY)
