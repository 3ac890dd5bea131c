# SPDX-License-Identifier: Apache-2.0
# What Debian wants besides `cmake --install`: compressed manuals, a changelog, a copyright file.
cmake_minimum_required(VERSION 3.25)
set(share ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share)
file(COPY ${CMAKE_CURRENT_LIST_DIR}/copyright DESTINATION ${share}/doc/kvseal
     FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
file(REMOVE ${share}/doc/kvseal/LICENSE) # named in `copyright`, and in every Debian
file(COPY ${CMAKE_CURRENT_LIST_DIR}/changelog DESTINATION ${share}/doc/kvseal
     FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
file(GLOB manuals ${share}/man/man*/*.[0-9])
execute_process(COMMAND gzip --best --no-name ${manuals} ${share}/doc/kvseal/changelog
                COMMAND_ERROR_IS_FATAL ANY)
