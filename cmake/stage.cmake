# SPDX-License-Identifier: Apache-2.0
# Run by CPack once everything is installed under CPACK_TEMPORARY_DIRECTORY, a folder a component.
execute_process(COMMAND ${CPACK_FERRY_SOURCE}/deploy/debian/stage ${CPACK_TEMPORARY_DIRECTORY} ${CPACK_PACKAGE_VERSION}
    ${CPACK_FERRY_BUILD}
  COMMAND_ERROR_IS_FATAL ANY)
