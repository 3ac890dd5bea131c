# SPDX-License-Identifier: Apache-2.0
# The Debian package: cmake --build build/release --target package
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME kvseal)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "The kvseal developers <kvseal@localhost>" CACHE STRING
    "Who answers for the package: NAME <ADDRESS>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_DESCRIPTION
    "kvsealfs shows a directory of KV-cache blocks at a mount point. It keeps the
CRC32C of each block in an extended attribute as the block is stored, verifies
it when the block is loaded, and refuses and removes a corrupt one, so that the
cache misses instead of serving wrong bytes.
.
kvseal verifies, seals and examines such directories without a mount.")
# Libraries are found by dpkg-shlibdeps; fuse3 has fusermount3 and the helper of mount(8).
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS fuse3)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_LIST_DIR}/postinst
    ${CMAKE_CURRENT_LIST_DIR}/prerm ${CMAKE_CURRENT_LIST_DIR}/postrm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/stage.cmake)
include(CPack)
